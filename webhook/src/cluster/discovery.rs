//! Discovers the API version in which to read a group, and the versions that this program does not know.

use kcp_api::{kind::KUBEADM_CONTROL_PLANE, names::group};
use serde::Deserialize;
use tokio::time;

use super::{
    live_reads::{ApiServer, LiveReads, Projection},
    read_error::ReadError,
};
use crate::limits::LIVE_READ_TIMEOUT;

/// The API versions that this program can decode, newest first.
pub(crate) const SUPPORTED: [&str; 2] = ["v1beta2", "v1beta1"];

impl LiveReads<'_> {
    /// Returns the version in which to read a group: the newest served version that this program supports, or else the API
    /// server's preferred version. If the remembered version is old, returns it at once, and reads the version again in the
    /// background.
    pub(super) async fn discover_version(&self, group: &'static str) -> Result<String, ReadError> {
        self.version_of(group, true).await
    }

    /// Same as [`Self::discover_version`], but if the remembered version is old, waits until it is read again. For watches, which
    /// have more time than a review.
    pub(super) async fn discover_current_version(&self, group: &'static str) -> Result<String, ReadError> {
        self.version_of(group, false).await
    }

    async fn version_of(&self, group: &'static str, may_be_stale: bool) -> Result<String, ReadError> {
        let Some(remembered) = self.server.versions.remembered(group) else {
            return self.discover(group).await;
        };
        let mut remembered = time::timeout_at(self.deadline, remembered.lock())
            .await
            .map_err(|_| ReadError::TooSlow)?;
        match remembered.get() {
            Some((version, false)) => return Ok(version.to_owned()),
            Some((version, true)) if may_be_stale => {
                tokio::spawn(refresh(self.server.clone(), group));
                return Ok(version.to_owned());
            }
            Some(_) | None => {}
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
        let group: Group = self
            .read_object(&format!("/apis/{name}"), Projection::Whole)
            .await?;
        if name == group::CONTROL_PLANE {
            let versions = group.versions.iter().map(|served| served.version.as_str());
            self.note_unregistered(versions).await;
        }
        let is_served = |version: &&str| group.versions.iter().any(|served| served.version == **version);
        Ok(SUPPORTED
            .into_iter()
            .find(is_served)
            .map_or(group.preferred_version.version, str::to_owned))
    }

    /// Reports the API versions in which the API server serves control planes, but which this program does not know. No webhook
    /// configuration lists such a version. The API server converts a write in such a version for the webhook, so the field paths
    /// in the response differ from the fields that the user wrote.
    async fn note_unregistered(&self, served: impl Iterator<Item = &str>) {
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<Resource>,
        }
        #[derive(Deserialize)]
        struct Resource {
            name: String,
        }
        let mut unregistered = Vec::new();
        for version in served.filter(|version| !SUPPORTED.contains(version)) {
            let path = format!("/apis/{}/{version}", group::CONTROL_PLANE);
            let resources = self.read_object::<Resources>(&path, Projection::Whole).await;
            let is_kind = |resource: &Resource| resource.name == KUBEADM_CONTROL_PLANE.plural;
            // If the resources cannot be read, report the version, although it may not serve the kind.
            if resources.map_or(true, |found| found.resources.iter().any(is_kind)) {
                unregistered.push(version.to_owned());
            }
        }
        if self.server.versions.set_unregistered_versions(&unregistered) && !unregistered.is_empty() {
            tracing::warn!(
                versions = unregistered.join(", "),
                "the API server serves KubeadmControlPlanes in versions that kcp-webhook does not know; upgrade kcp-webhook"
            );
        }
        self.server.metrics.set_unregistered_versions(&unregistered);
    }
}

/// Reads the version of a group again. Until then, and if the read fails, reviews use the remembered version.
async fn refresh(server: ApiServer, group: &'static str) {
    let read = server.reads_within(LIVE_READ_TIMEOUT).discover(group).await;
    if let (Ok(version), Some(remembered)) = (read, server.versions.remembered(group)) {
        remembered.lock().await.set(&version);
    }
}

#[cfg(test)]
mod tests;
