//! Remembers the API version in which to read a group.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex as StdMutex, PoisonError},
    time::Duration,
};

use kube::core::Status;
use tokio::{sync::Mutex, time::Instant};

/// The group of Cluster API's core kinds.
pub(super) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// The group of Cluster API's control planes.
pub(super) const CONTROL_PLANES: &str = "controlplane.cluster.x-k8s.io";

pub(super) const HIVE: &str = "hive.openshift.io";

/// How long a version is remembered: an upgrade of Cluster API is noticed within this time.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The discovered versions.
pub(super) struct Versions {
    by_group: HashMap<&'static str, Mutex<Remembered>>,
    /// The versions of control planes that the webhook configurations do not list.
    unlisted: StdMutex<BTreeSet<String>>,
}

/// The version of one group. Locked while it is being discovered, so that concurrent reads wait for one answer instead of
/// each asking the API server.
#[derive(Default)]
pub(super) struct Remembered(Option<(String, Instant)>);

impl Default for Versions {
    fn default() -> Self {
        Self {
            by_group: [CLUSTER_API, CONTROL_PLANES, HIVE]
                .map(|group| (group, Mutex::default()))
                .into(),
            unlisted: StdMutex::default(),
        }
    }
}

impl Versions {
    pub(super) fn of(&self, group: &str) -> Option<&Mutex<Remembered>> {
        self.by_group.get(group)
    }

    pub(super) fn unlisted(&self) -> BTreeSet<String> {
        self.unlisted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether the versions have changed.
    pub(super) fn note_unlisted(&self, versions: &BTreeSet<String>) -> bool {
        let mut unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *unlisted != *versions;
        unlisted.clone_from(versions);
        changed
    }

    /// Forgets the version of the group in `path` if the API server does not serve the kind in that version.
    pub(super) fn forget_unserved(&self, path: &str, status: &Status) {
        // If the kind is served and the object does not exist, the answer contains the object's name.
        let object_missing = status
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty());
        if status.code != 404 || object_missing {
            return;
        }
        let group = path
            .strip_prefix("/apis/")
            .and_then(|path| path.split('/').next());
        let remembered = group.and_then(|group| self.of(group));
        // If the lock is taken, the version is being discovered again already.
        if let Some(Ok(mut remembered)) = remembered.map(Mutex::try_lock) {
            remembered.0 = None;
        }
    }
}

impl Remembered {
    pub(super) fn get(&self) -> Option<&str> {
        let (version, since) = self.0.as_ref()?;
        (since.elapsed() < REMEMBERED).then_some(version)
    }

    pub(super) fn set(&mut self, version: &str) {
        self.0 = Some((version.to_owned(), Instant::now()));
    }
}
