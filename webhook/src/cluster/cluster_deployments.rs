//! Finds the `ClusterDeployment`s that belong to a pool or use a customization.
//!
//! A selector cannot find them, because only their specs refer to the pool and the customization. The cache contains these
//! references, but lags slightly behind the API server. The pool and the customization of a `ClusterDeployment` never change, so
//! the cache can only lack new objects and contain deleted ones. The webhook therefore reads each object that it finds in the
//! cache again. It also asks the API server for the number of all objects. If this number differs from the number in the cache,
//! the webhook lists all objects.

use kcp_api::{ClusterDeployment, List, names::group::HIVE};
use kcp_rules::view;
use serde::de::IgnoredAny;

use super::{
    cache::Cache,
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
    subject::Subject,
};

/// The maximum number of `ClusterDeployment`s that the webhook reads again one by one. If the cache finds more, the webhook uses
/// the cached objects. At most one cluster uses a customization. A pool may have many clusters, but rules only warn about them,
/// and a warning may depend on the cache.
const MAX_READ_AGAIN: usize = 8;

impl LiveReads<'_> {
    /// Returns the `ClusterDeployment`s that refer to the same customization as the object under review. If that object refers to
    /// no customization, returns the `ClusterDeployment`s that refer to the object itself, which is a pool or a customization.
    pub(super) async fn read_cluster_deployments(
        &self,
        subject: &Subject,
        cache: &Cache<view::ClusterDeployment>,
    ) -> Result<Vec<view::ClusterDeployment>, ReadError> {
        let (namespace, name) = match &subject.customization {
            Some((namespace, name)) => (namespace, name),
            None => (&subject.namespace, &subject.name),
        };
        let version = self.discover_version(HIVE).await?;
        if !cache.state().0.is_known() {
            return self.list_matching(&version, namespace, name).await;
        }
        let count = self.count(&version).await?;
        let found = cache.matching(|deployment| deployment.refers_to(namespace, name));
        match found {
            Some((mut found, cached)) if count == Some(cached) => {
                // Sort in the order of the API server's lists.
                found.sort_unstable_by(|one, other| {
                    (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
                });
                if found.len() > MAX_READ_AGAIN {
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
        let first: List<IgnoredAny> = self.read_object(&path, Projection::Metadata).await?;
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
        match self
            .read_object::<ClusterDeployment>(&path, Projection::Whole)
            .await
        {
            Ok(current) => Ok(Some((&current).into())
                .filter(|current: &view::ClusterDeployment| current.refers_to(namespace, name))),
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
        let matching = |deployment: ClusterDeployment| {
            Some(view::ClusterDeployment::from(&deployment)).filter(|found| found.refers_to(namespace, name))
        };
        self.list(&path, "", matching).await
    }
}

#[cfg(test)]
mod tests;
