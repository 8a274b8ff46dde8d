//! Clusters that appear and disappear, and leases that expire.

use anyhow::{Context as _, Result};
use http::{Method, Request};
use serde_json::{Value, json};

use super::invariant::Saying;
use super::pool::{HIVE, POOL, Pool, create, customizations};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";

/// Longer ago than any lease lasts.
const LONG_AGO: &str = "2026-01-01T00:00:00.000000Z";

impl Pool<'_> {
    /// The cluster that was created for a lessee.
    pub async fn cluster(&self, lessee: &str) -> Result<Option<Value>> {
        let found = self.request(Method::GET, cluster(lessee), None).await;
        match found {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            found => Ok(Some(found.context("reading a cluster")?)),
        }
    }

    /// Creates a cluster in the pool's namespace, for a lessee that leases without `--create`.
    pub async fn create_cluster(&self, lessee: &str) -> Result<()> {
        let namespace = self.namespace();
        let deployment = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": {"name": lessee},
            "spec": {
                "baseDomain": "example.com", "clusterName": lessee, "platform": {},
                "clusterPoolRef": {"namespace": namespace, "poolName": POOL},
            },
        });
        let collection = format!("{HIVE}/namespaces/{namespace}/clusterdeployments");
        create(self.server().client(), collection, &deployment).await
    }

    /// Deletes the cluster. It remains until its finalizers are removed.
    pub async fn delete_cluster(&self, lessee: &str) -> Result<()> {
        let deleted = self.request(Method::DELETE, cluster(lessee), None).await;
        deleted.context("deleting a cluster").map(|_| ())
    }

    /// Removes the cluster and everything that was created for it except for its namespace, including the finalizer.
    /// Nothing releases its lease.
    pub async fn lose_cluster(&self, lessee: &str) -> Result<()> {
        let lost = self.cluster(lessee).await?.context("no cluster to lose")?;
        let customization = lost.pointer("/spec/clusterPoolRef/clusterDeploymentCustomization/name");
        let customization = customization.and_then(Value::as_str);
        let customization = customization.context("a cluster without a customization")?;
        let none = json!({"metadata": {"finalizers": []}});
        let unkept = self.request(Method::PATCH, cluster(lessee), Some(&none)).await;
        unkept.context("taking a cluster's finalizer away")?;
        for path in [
            cluster(lessee),
            format!("{}/{customization}", customizations(lessee)),
            format!("/api/v1/namespaces/{lessee}/secrets/{lessee}-install-config"),
        ] {
            let deleted = self.request(Method::DELETE, path.clone(), None).await;
            deleted.with_context(|| format!("deleting {path}"))?;
        }
        Ok(())
    }

    /// Ends a lessee: sets the renew times of its leases to a time long ago, because its leases would last ten minutes
    /// otherwise.
    pub async fn depart(&self, lessee: &str) -> Result<()> {
        self.say(lessee, Saying::Releases).await?;
        self.end_leases(lessee).await
    }

    /// Ends the leases only. A lessee still holds the entry of its living cluster.
    pub async fn end_leases(&self, lessee: &str) -> Result<()> {
        let _serving = self.server().serving().await;
        let leases = format!("{LEASES}/{}/leases", self.namespace());
        let list = self.request(Method::GET, leases.clone(), None).await;
        let list = list.context("listing Leases")?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        for lease in items {
            let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str);
            if holder != Some(lessee) {
                continue;
            }
            let name = lease.pointer("/metadata/name").and_then(Value::as_str);
            let lease = format!("{leases}/{}", name.context("a Lease without a name")?);
            let long_ago = json!({"spec": {"acquireTime": LONG_AGO, "renewTime": LONG_AGO}});
            let ended = self.request(Method::PATCH, lease, Some(&long_ago)).await;
            ended.context("ending a lease")?;
        }
        Ok(())
    }

    /// Patches an entry's status with a merge patch, without any of the plugin's checks.
    pub async fn write_status(&self, entry: &str, status: &Value) -> Result<()> {
        let path = format!("{}/{entry}/status", customizations(self.namespace()));
        let written = self
            .request(Method::PATCH, path, Some(&json!({ "status": status })))
            .await;
        written.context("writing a status").map(|_| ())
    }

    async fn request(&self, method: Method, uri: String, patch: Option<&Value>) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("content-type", "application/merge-patch+json");
        let body = patch.map(serde_json::to_vec).transpose();
        let body = body.map_err(kube::Error::SerdeError)?.unwrap_or_default();
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        self.server().client().request(request).await
    }
}

/// Each cluster is in a namespace of the same name.
fn cluster(lessee: &str) -> String {
    format!("{HIVE}/namespaces/{lessee}/clusterdeployments/{lessee}")
}
