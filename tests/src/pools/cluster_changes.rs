//! Clusters that appear and disappear, leases that expire, and entries that are restored without their status.

use anyhow::{Context as _, Result};
use http::{Method, Request};
use serde_json::{Value, json};

use super::claim::EventKind;
use super::pool::{HIVE, POOL, Pool, create, customization, customizations, while_initializing};

/// The type of the condition with the record of a lease.
const LEASE: &str = "kubectl-kcp.dev/Lease";

/// The same record of a lease that was found without a cluster and ended long ago.
fn ended(record: &str) -> String {
    let field = |field: &str| match field.split_once('=').map(|(name, _)| name) {
        Some("state") => "state=gone".to_owned(),
        Some("uid") => "uid=-".to_owned(),
        Some("deadline") => "deadline=2026-01-01T00:00:00Z".to_owned(),
        _ => field.to_owned(),
    };
    let fields: Vec<String> = record.split(' ').map(field).collect();
    fields.join(" ")
}

impl Pool<'_> {
    /// The cluster that was created for a lessee.
    pub async fn cluster(&self, lessee: &str) -> Result<Option<Value>> {
        let found = self.request(Method::GET, cluster(lessee), None).await;
        match found {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            found => Ok(Some(found.context("reading a cluster")?)),
        }
    }

    /// Creates a cluster in the pool's namespace, for a lessee that leases without `--create`. It uses this entry, or
    /// does not say which.
    pub async fn create_cluster(&self, lessee: &str, entry: Option<&str>) -> Result<()> {
        let namespace = self.namespace();
        let reference = json!({
            "namespace": namespace, "poolName": POOL,
            "clusterDeploymentCustomization": entry.map(|name| json!({"name": name})),
        });
        let deployment = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": {"name": lessee},
            "spec": {
                "baseDomain": "example.com", "clusterName": lessee, "platform": {},
                "clusterPoolRef": reference,
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

    /// Deletes what [`Self::create_cluster`] created, if it exists.
    pub async fn delete_created_cluster(&self, lessee: &str) -> Result<()> {
        let path = format!(
            "{HIVE}/namespaces/{}/clusterdeployments/{lessee}",
            self.namespace()
        );
        match self.request(Method::DELETE, path, None).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.context("deleting a cluster").map(|_| ()),
        }
    }

    /// Deletes an entry and creates it again without its status, as a restore from a backup does.
    pub async fn restore_without_status(&self, entry: &str) -> Result<()> {
        self.set_restored();
        let path = format!("{}/{entry}", customizations(self.namespace()));
        let deleted = self.request(Method::DELETE, path, None).await;
        deleted.context("deleting an entry")?;
        let collection = customizations(self.namespace());
        create(self.server().client(), collection, &customization(entry)).await
    }

    /// Removes the cluster and everything that was created for it except for its namespace, including the finalizer.
    /// Nothing releases its lease.
    pub async fn lose_cluster(&self, lessee: &str) -> Result<()> {
        let lost = self.cluster(lessee).await?.context("no cluster to lose")?;
        let customization = lost.pointer("/spec/clusterPoolRef/clusterDeploymentCustomization/name");
        let customization = customization.and_then(Value::as_str);
        let customization = customization.context("a cluster without a customization")?;
        let none = json!({"metadata": {"finalizers": []}});
        let finalizer_removed = self.request(Method::PATCH, cluster(lessee), Some(&none)).await;
        finalizer_removed.context("taking a cluster's finalizer away")?;
        for path in [
            cluster(lessee),
            format!("{}/{customization}", customizations(lessee)),
            format!("/api/v1/namespaces/{lessee}/secrets/{lessee}-{customization}-install-config"),
        ] {
            let deleted = self.request(Method::DELETE, path.clone(), None).await;
            deleted.with_context(|| format!("deleting {path}"))?;
        }
        Ok(())
    }

    /// Ends a lessee: its leases were found without a cluster and ended long ago, because they would last for a day
    /// otherwise.
    pub async fn remove_lessee(&self, lessee: &str) -> Result<()> {
        self.log_event(lessee, EventKind::Releases).await?;
        let serving = self.server().serving().await;
        self.delete_created_cluster(lessee).await?;
        drop(serving);
        self.end_leases(|holder| holder == lessee).await
    }

    /// Ends the leases of these lessees only. A lessee still holds the entry of its living cluster.
    pub async fn end_leases(&self, is_ended: impl Fn(&str) -> bool) -> Result<()> {
        let _serving = self.server().serving().await;
        let list = self
            .request(Method::GET, customizations(self.namespace()), None)
            .await;
        let list = list.context("listing the entries")?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        for entry in items {
            let holder = entry
                .pointer("/status/clusterDeploymentRef/name")
                .and_then(Value::as_str);
            let conditions = entry.pointer("/status/conditions").and_then(Value::as_array);
            let (true, Some(conditions)) = (holder.is_some_and(&is_ended), conditions) else {
                continue;
            };
            let mut conditions = conditions.clone();
            for condition in conditions
                .iter_mut()
                .filter(|condition| condition["type"] == LEASE)
            {
                let record = condition["message"].as_str().unwrap_or_default();
                condition["message"] = ended(record).into();
            }
            let name = entry.pointer("/metadata/name").and_then(Value::as_str);
            let status = json!({ "conditions": conditions });
            self.write_status(name.context("an entry without a name")?, &status)
                .await?;
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
        let body = patch.map(serde_json::to_vec).transpose();
        let body = body.map_err(kube::Error::SerdeError)?.unwrap_or_default();
        let client = self.server().client();
        while_initializing(async || {
            let request = Request::builder().method(method.clone()).uri(uri.as_str());
            let request = request.header("content-type", "application/merge-patch+json");
            let request = request.body(body.clone()).map_err(kube::Error::HttpError)?;
            client.request(request).await
        })
        .await
    }
}

/// Each cluster is in a namespace of the same name.
fn cluster(lessee: &str) -> String {
    format!("{HIVE}/namespaces/{lessee}/clusterdeployments/{lessee}")
}
