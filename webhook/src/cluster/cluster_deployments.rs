//! Finds the `ClusterDeployment`s that belong to a pool or use a customization.
//!
//! A selector cannot find them, because only their specs refer to the pool and the customization. The cache contains
//! this part of each, but lags slightly behind the API server. The pool and the customization of a `ClusterDeployment`
//! never change, so the cache can only lack new objects and contain deleted ones. So each object that is found in the
//! cache is read again, and one small request counts all objects. If the count differs from the cache, all objects are
//! listed.

use kcp_rules::view::{
    self,
    object::{DeploymentObject, Object},
};

use super::{
    cache::Cache,
    kinds::CachedClusterDeployment,
    list::List,
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
    subject::Subject,
    versions::HIVE,
};

/// The maximum number of `ClusterDeployment`s that are read again one by one. One cluster uses a customization, but a pool
/// may have many clusters; rules only warn about these, and a warning may depend on the cache.
const READ_AGAIN: usize = 8;

impl LiveReads<'_> {
    /// The `ClusterDeployment`s that use the same customization as the object under review. If that object refers to no
    /// customization, the `ClusterDeployment`s that belong to the pool or use the customization under review.
    pub(super) async fn cluster_deployments(
        &self,
        subject: &Subject,
        cache: &Cache<CachedClusterDeployment>,
    ) -> Result<Vec<view::ClusterDeployment>, ReadError> {
        let (namespace, name) = match &subject.customization {
            Some((namespace, name)) => (namespace, name),
            None => (&subject.namespace, &subject.name),
        };
        let version = self.version(HIVE).await?;
        if !cache.state().0.is_known() {
            return self.list_matching(&version, namespace, name).await;
        }
        let count = self.count(&version).await?;
        let found = cache.matching(|deployment| deployment.concerns(namespace, name));
        match found {
            Some((found, cached)) if count == Some(cached) => {
                let mut found: Vec<_> = found
                    .into_iter()
                    .map(CachedClusterDeployment::into_deployment)
                    .collect();
                // Sort in the order of the API server's lists.
                found.sort_unstable_by(|one, other| {
                    (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
                });
                if found.len() > READ_AGAIN {
                    return Ok(found);
                }
                let mut current = Vec::new();
                for deployment in found {
                    current.extend(self.read_again(&version, &deployment, namespace, name).await?);
                }
                Ok(current)
            }
            _ => self.list_matching(&version, namespace, name).await,
        }
    }

    /// The number of all `ClusterDeployment`s, if the API server reports it.
    async fn count(&self, version: &str) -> Result<Option<usize>, ReadError> {
        let path = format!("/apis/{HIVE}/{version}/clusterdeployments?limit=1");
        let first: List<Object> = self.object(&path, Projection::Metadata).await?;
        Ok(first.total())
    }

    /// The current state of a `ClusterDeployment`; `None` if it no longer exists.
    async fn read_again(
        &self,
        version: &str,
        cached: &view::ClusterDeployment,
        namespace: &str,
        name: &str,
    ) -> Result<Option<view::ClusterDeployment>, ReadError> {
        let path = format!(
            "/apis/{HIVE}/{version}/namespaces/{}/clusterdeployments/{}",
            cached.namespace, cached.name
        );
        match self.object::<DeploymentObject>(&path, Projection::Whole).await {
            Ok(current) => Ok(current.concerns(namespace, name).then(|| current.into())),
            Err(ReadError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list_matching(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<view::ClusterDeployment>, ReadError> {
        let path = format!("/apis/{HIVE}/{version}/clusterdeployments");
        let deployments: Vec<DeploymentObject> = self.list(&path, "").await?;
        let concerned = deployments
            .into_iter()
            .filter(|deployment| deployment.concerns(namespace, name));
        Ok(concerned.map(view::ClusterDeployment::from).collect())
    }
}

#[cfg(test)]
mod tests;
