//! Asks the API server for the versions of a group.

use serde::Deserialize;
use tokio::time;

use super::{
    live_reads::{LiveReads, Projection},
    read_error::ReadError,
};

/// The versions that we can decode, newest first.
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

    async fn discover(&self, group: &str) -> Result<String, ReadError> {
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
        let group: Group = self.object(&format!("/apis/{group}"), Projection::Whole).await?;
        let is_served = |version: &&str| group.versions.iter().any(|served| served.version == **version);
        Ok(SUPPORTED
            .into_iter()
            .find(is_served)
            .map_or(group.preferred_version.version, str::to_owned))
    }
}

#[cfg(test)]
mod tests;
