//! Remembers the API version in which to read a group.

use std::{collections::HashMap, sync::PoisonError, time::Duration};

use kcp_api::names::group;
use kube::core::Status;
use tokio::{sync::Mutex, time::Instant};

/// How often the webhook reads a version again.
const FRESH: Duration = Duration::from_secs(30);

/// How long the webhook uses a remembered version if it cannot read the version again. So this is also the longest time until the
/// webhook notices an upgrade of Cluster API.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The API version in which to read each group.
pub(super) struct Versions {
    by_group: HashMap<&'static str, Mutex<Remembered>>,
    /// Served versions of control planes that this program does not know.
    unregistered: std::sync::Mutex<Vec<String>>,
}

/// The API version in which to read one group. It is locked while it is discovered, so that concurrent reads share one
/// request to the API server.
#[derive(Default)]
pub(super) struct Remembered(Option<(String, ReadTimes)>);

#[derive(Clone, Copy)]
struct ReadTimes {
    ended: Instant,
    last_started: Instant,
}

impl Default for Versions {
    fn default() -> Self {
        Self {
            by_group: [
                group::CLUSTER,
                group::BOOTSTRAP,
                group::CONTROL_PLANE,
                group::HIVE,
            ]
            .map(|group| (group, Mutex::default()))
            .into(),
            unregistered: std::sync::Mutex::default(),
        }
    }
}

impl Versions {
    pub(super) fn remembered(&self, group: &str) -> Option<&Mutex<Remembered>> {
        self.by_group.get(group)
    }

    /// The served versions of control planes that this program does not know.
    pub(super) fn unregistered_versions(&self) -> Vec<String> {
        self.unregistered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the unregistered versions. Returns whether they differ from the previous ones.
    pub(super) fn set_unregistered_versions(&self, versions: &[String]) -> bool {
        let mut known = self.unregistered.lock().unwrap_or_else(PoisonError::into_inner);
        let differs = known.as_slice() != versions;
        known.clear();
        known.extend_from_slice(versions);
        differs
    }

    /// If the response `status` says that the API server does not serve the kind at `path`, forgets the version of its
    /// group.
    pub(super) fn forget_unserved(&self, path: &str, status: &Status) {
        // If the kind is served and the object does not exist, the response contains the object's name.
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
        let remembered = group.and_then(|group| self.remembered(group));
        // If the lock is taken, another task is already reading the version again.
        if let Some(Ok(mut remembered)) = remembered.map(Mutex::try_lock) {
            remembered.0 = None;
        }
    }
}

impl Remembered {
    /// Returns the version, and whether the caller must read it again. The second value is true at most once per [`FRESH`], so
    /// that only one caller reads the version. `None` if no version is remembered.
    pub(super) fn get(&mut self) -> Option<(&str, bool)> {
        let (version, times) = self.0.as_mut()?;
        let is_stale = times.last_started.elapsed() >= FRESH;
        if is_stale {
            times.last_started = Instant::now();
        }
        (times.ended.elapsed() < REMEMBERED).then_some((version, is_stale))
    }

    pub(super) fn set(&mut self, version: &str) {
        let now = Instant::now();
        let times = ReadTimes {
            ended: now,
            last_started: now,
        };
        self.0 = Some((version.to_owned(), times));
    }
}
