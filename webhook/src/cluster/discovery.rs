//! Asks the API server for the versions of a group.

use std::collections::BTreeSet;

use serde::Deserialize;
use tokio::time;

use super::{
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
    versions::CONTROL_PLANES,
};

/// The versions that we can decode, newest first. The webhook configurations list the same versions of control planes.
const SUPPORTED: [&str; 2] = ["v1beta2", "v1beta1"];

impl LiveReads<'_> {
    /// The version in which to read a group: the newest that we support, else the API server's preferred one.
    pub(super) async fn version(&self, group: &'static str) -> Result<String, ReadError> {
        let Some(remembered) = self.server.versions.of(group) else {
            return self.discover(group).await;
        };
        let mut remembered = time::timeout_at(self.deadline, remembered.lock())
            .await
            .map_err(|_| ReadError::TooSlow)?;
        if let Some(version) = remembered.get() {
            return Ok(version.to_owned());
        }
        let version = self.discover(group).await?;
        remembered.set(&version);
        Ok(version)
    }

    async fn discover(&self, name: &str) -> Result<String, ReadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Group {
            versions: Vec<Version>,
            preferred_version: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let group: Group = self.object(&format!("/apis/{name}"), Projection::Whole).await?;
        let is_served = |version: &&str| group.versions.iter().any(|served| served.version == **version);
        if name == CONTROL_PLANES {
            let served = group.versions.iter().map(|served| served.version.as_str());
            self.note_unlisted(served.collect()).await;
        }
        Ok(SUPPORTED
            .into_iter()
            .find(is_served)
            .map_or(group.preferred_version.version, str::to_owned))
    }
}

impl LiveReads<'_> {
    /// Notes the versions in which control planes are served, but which the webhook configurations do not list. The API
    /// server converts a write in such a version to a listed one before the review, if it can.
    async fn note_unlisted(&self, served: Vec<&str>) {
        let mut unlisted = BTreeSet::new();
        for version in served {
            if !SUPPORTED.contains(&version) && self.serves_control_planes(version).await {
                unlisted.insert(version.to_owned());
            }
        }
        self.server.metrics.unlisted_versions(unlisted.len());
        if self.server.versions.note_unlisted(&unlisted) && !unlisted.is_empty() {
            tracing::warn!(
                versions = ?unlisted,
                "the API server serves KubeadmControlPlanes in versions that kcp-webhook's webhook configurations do not list; \
                 update kcp-webhook"
            );
        }
    }

    async fn serves_control_planes(&self, version: &str) -> bool {
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<Resource>,
        }
        #[derive(Deserialize)]
        struct Resource {
            name: String,
        }
        let path = format!("/apis/{CONTROL_PLANES}/{version}");
        let found: Result<Resources, _> = self.object(&path, Projection::Whole).await;
        // If it cannot be read, the next discovery asks again.
        found.is_ok_and(|found| {
            found
                .resources
                .iter()
                .any(|resource| resource.name == "kubeadmcontrolplanes")
        })
    }
}

#[cfg(test)]
mod tests;
