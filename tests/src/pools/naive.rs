//! Leases of scripts without `kubectl kcp`: list, write to the first free entry, and retry after a conflict. Some
//! scripts omit the resourceVersion.

use anyhow::{Context as _, Result};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::pool::{POOL, customizations};

/// Whether a write can overwrite another lessee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The write fails if the entry has changed since.
    ResourceVersion,
    /// The write always succeeds.
    None,
}

#[derive(Clone, Debug)]
pub struct NaiveLessee {
    pub name: String,
    pub namespace: String,
    pub precondition: Precondition,
}

impl NaiveLessee {
    /// Leases an entry, and retries after each conflict. None if no entry is free.
    pub async fn lease(&self, client: &Client) -> Result<Option<String>> {
        while let Some(entry) = self.first_free(client).await? {
            if self.take(client, &entry).await? {
                return Ok(Some(name(&entry)?.to_owned()));
            }
        }
        Ok(None)
    }

    /// The first free entry of the list.
    pub async fn first_free(&self, client: &Client) -> Result<Option<Value>> {
        let request = Request::get(customizations(&self.namespace)).body(Vec::new())?;
        let list: Value = client.request(request).await.context("listing customizations")?;
        let entries = list.get("items").and_then(Value::as_array).into_iter().flatten();
        Ok(entries
            .into_iter()
            .find(|entry| entry.pointer("/status/clusterDeploymentRef").is_none())
            .cloned())
    }

    /// Writes to an entry as it was listed. False after a conflict.
    pub async fn take(&self, client: &Client, entry: &Value) -> Result<bool> {
        let mut patch = json!({"status": {
            "conditions": [{
                "type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                "lastTransitionTime": "2026-11-21T05:00:00Z",
            }],
            "clusterDeploymentRef": {"name": self.name}, "clusterPoolRef": {"name": POOL},
        }});
        if self.precondition == Precondition::ResourceVersion {
            let version = entry
                .pointer("/metadata/resourceVersion")
                .context("no resourceVersion")?;
            let metadata = json!({"resourceVersion": version});
            patch
                .as_object_mut()
                .context("not an object")?
                .insert("metadata".to_owned(), metadata);
        }
        let status = format!("{}/{}/status", customizations(&self.namespace), name(entry)?);
        let request = Request::patch(status).header("content-type", "application/merge-patch+json");
        let taken = client
            .request::<Value>(request.body(serde_json::to_vec(&patch)?)?)
            .await;
        match taken {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
            Err(error) => Err(error).context("writing a status"),
        }
    }
}

pub fn name(entry: &Value) -> Result<&str> {
    let name = entry.pointer("/metadata/name").and_then(Value::as_str);
    name.context("a customization without a name")
}
