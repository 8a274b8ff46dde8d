//! The version in which a group of the API is read, remembered for a while.

use std::{collections::HashMap, time::Duration};

use kube::core::Status;
use serde::Deserialize;
use tokio::{
    sync::Mutex,
    time::{self, Instant},
};

use super::{LiveReads, Projection, ReadError};

/// Cluster API's own kinds.
pub(super) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// Cluster API's control planes.
pub(super) const CONTROL_PLANES: &str = "controlplane.cluster.x-k8s.io";

/// Hive's kinds.
pub(super) const HIVE: &str = "hive.openshift.io";

/// The versions that we know, the newest first.
const KNOWN: [&str; 2] = ["v1beta2", "v1beta1"];

/// How long a version is remembered: an upgrade of Cluster API is seen within this time.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What was found out, by group. Whoever finds nothing holds the lock while asking: the others wait for that answer
/// and do not ask as well.
pub(super) struct Versions(HashMap<&'static str, Mutex<Option<Found>>>);

struct Found {
    version: String,
    at: Instant,
}

impl Default for Versions {
    fn default() -> Self {
        Self(
            [CLUSTER_API, CONTROL_PLANES, HIVE]
                .map(|group| (group, Mutex::default()))
                .into(),
        )
    }
}

impl Versions {
    /// Forgets the version of the group that a path leads into, if the API server does not serve what is there.
    pub(super) fn learn(&self, path: &str, refusal: &Status) {
        // Of an object that is not there, unlike of a kind that is not served, the answer gives the name.
        let object = refusal
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty());
        if refusal.code != 404 || object {
            return;
        }
        let group = path
            .strip_prefix("/apis/")
            .and_then(|path| path.split('/').next());
        let remembered = group.and_then(|group| self.0.get(group));
        // Where the lock is held, it is being asked for anew already.
        if let Some(Ok(mut found)) = remembered.map(Mutex::try_lock) {
            *found = None;
        }
    }
}

impl LiveReads<'_> {
    /// The version of a group to read: the newest that we know, else the server's own choice.
    pub(super) async fn version(&self, group: &'static str) -> Result<String, ReadError> {
        let Some(remembered) = self.cluster.versions.0.get(group) else {
            return self.discover(group).await;
        };
        let mut found = time::timeout_at(self.deadline, remembered.lock())
            .await
            .map_err(|_| ReadError::TooSlow)?;
        if let Some(found) = &*found
            && found.at.elapsed() < REMEMBERED
        {
            return Ok(found.version.clone());
        }
        let version = self.discover(group).await?;
        *found = Some(Found {
            version: version.clone(),
            at: Instant::now(),
        });
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
        let found: Group = self.object(&format!("/apis/{group}"), Projection::Whole).await?;
        let serves = |wanted: &&str| found.versions.iter().any(|served| served.version == **wanted);
        Ok(KNOWN
            .into_iter()
            .find(|wanted| serves(wanted))
            .map_or(found.preferred_version.version, str::to_owned))
    }
}

#[cfg(test)]
mod tests;
