//! Decides whether Hive manages a pool, and names the evidence. Pure, except for [`evidence`].
//!
//! The finalizer of a pool is not enough. Hive does not set it on a pool that it rejects, such as one whose runningCount
//! differs from its size, and the finalizer stays on a pool after Hive has been uninstalled.

use std::fmt;

use kcp_api::{
    ClusterPool, Kind,
    kind::DEPLOYMENT,
    metadata::{Object as _, PartialObjectMetadata},
    names::finalizer,
};
use kcp_client::{Connection, Error};

/// The kind that configures Hive's operator. Hive does not start without an object of this kind.
const HIVE_CONFIG: Kind = Kind {
    group: "hive.openshift.io",
    kind: "HiveConfig",
    plural: "hiveconfigs",
    versions: &["v1"],
    product: "Hive",
};

/// The namespace and the name of the Deployment that runs Hive's controllers.
const CONTROLLERS: (&str, &str) = ("hive", "hive-controllers");

/// The types of the conditions that Hive, and nothing else, writes to every pool.
const CONDITIONS: [&str; 4] = [
    "MissingDependencies",
    "CapacityAvailable",
    "AllClustersCurrent",
    "DeletionPossible",
];

/// The value of `--hive`: whether to look for evidence that Hive manages a pool, or to assume the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiveMode {
    /// Conclude from the evidence whether Hive manages a pool.
    #[default]
    Auto,
    Manages,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Found,
    Absent,
    /// It is unknown whether the object exists, because the client is not allowed to read it.
    Unknown,
}

/// What this program knows about Hive in the cluster: the value of `--hive`, and which of Hive's own objects exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hive {
    pub mode: HiveMode,
    pub config: Presence,
    pub controllers: Presence,
}

/// Whether Hive manages a pool, and the evidence for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveConclusion {
    /// Also true if it is unknown whether Hive manages the pool, with the evidence [`HiveEvidence::Unreadable`].
    pub is_managed: bool,
    pub evidence: HiveEvidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiveEvidence {
    /// The user has set `--hive`.
    Flag,
    Config,
    Controllers,
    /// The pool has Hive's finalizer, and the client is not allowed to read Hive's own objects.
    Finalizer,
    /// The pool has Hive's conditions, and the client is not allowed to read Hive's own objects.
    Conditions,
    /// The cluster has neither a `HiveConfig` nor the Deployment of Hive's controllers.
    NotInstalled,
    /// The cluster has no `HiveConfig`. The client is not allowed to read the Deployment of Hive's controllers.
    NoConfig,
    /// The client is not allowed to list `HiveConfigs`, so Hive may manage the pool.
    Unreadable,
}

impl fmt::Display for HiveEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "because of --hive",
            Self::Config => "the cluster has a HiveConfig",
            Self::Controllers => "Deployment hive/hive-controllers exists",
            Self::Finalizer => "the pool has Hive's finalizer",
            Self::Conditions => "the pool has Hive's conditions",
            Self::NotInstalled => "the cluster has neither a HiveConfig nor Deployment hive/hive-controllers",
            Self::NoConfig => "the cluster has no HiveConfig",
            Self::Unreadable => {
                "you are not allowed to list hiveconfigs.hive.openshift.io, so it is unknown whether Hive runs"
            }
        })
    }
}

impl Hive {
    /// For a client that is not allowed to read Hive's own objects: only a pool's finalizer and conditions can prove
    /// that Hive manages the pool, and nothing can disprove it.
    pub const UNKNOWN: Self = Self {
        mode: HiveMode::Auto,
        config: Presence::Unknown,
        controllers: Presence::Unknown,
    };

    /// Concludes whether Hive manages this pool, and names the evidence.
    pub fn conclude(&self, pool: &ClusterPool) -> HiveConclusion {
        let concluded = |runs, because| HiveConclusion {
            is_managed: runs,
            evidence: because,
        };
        let is_absent = [self.config, self.controllers] == [Presence::Absent; 2];
        let has_condition = || {
            CONDITIONS
                .iter()
                .any(|condition| pool.status.conditions.has(condition))
        };
        match self.mode {
            HiveMode::Manages => concluded(true, HiveEvidence::Flag),
            HiveMode::Absent => concluded(false, HiveEvidence::Flag),
            HiveMode::Auto if self.config == Presence::Found => concluded(true, HiveEvidence::Config),
            HiveMode::Auto if self.controllers == Presence::Found => {
                concluded(true, HiveEvidence::Controllers)
            }
            HiveMode::Auto if is_absent => concluded(false, HiveEvidence::NotInstalled),
            HiveMode::Auto if pool.has_finalizer(finalizer::HIVE_CLUSTERS) => {
                concluded(true, HiveEvidence::Finalizer)
            }
            HiveMode::Auto if has_condition() => concluded(true, HiveEvidence::Conditions),
            HiveMode::Auto if self.config == Presence::Unknown => concluded(true, HiveEvidence::Unreadable),
            HiveMode::Auto => concluded(false, HiveEvidence::NoConfig),
        }
    }

    pub fn manages(&self, pool: &ClusterPool) -> bool {
        self.conclude(pool).is_managed
    }

    /// Whether Hive is known to run in the cluster, whatever its pools look like.
    pub fn is_found(&self) -> bool {
        match self.mode {
            HiveMode::Manages => true,
            HiveMode::Absent => false,
            HiveMode::Auto => [self.config, self.controllers].contains(&Presence::Found),
        }
    }
}

/// Reads which of Hive's own objects exist in the cluster.
pub async fn read_hive(connection: &Connection, mode: HiveMode) -> Result<Hive, Error> {
    if mode != HiveMode::Auto {
        return Ok(Hive {
            mode,
            ..Hive::UNKNOWN
        });
    }
    let (namespace, name) = CONTROLLERS;
    let (config, deployment) = (HIVE_CONFIG.api_resource("v1"), DEPLOYMENT.api_resource("v1"));
    let configs = connection.list_metadata::<PartialObjectMetadata>(&config, None, None);
    let controllers = connection.get_metadata::<PartialObjectMetadata>(&deployment, namespace, name);
    let (configs, controllers) = tokio::join!(configs, controllers);
    let configs = match configs {
        // Hive's controllers are installed with the kind HiveConfig. If the cluster does not serve this kind, the refusal hides
        // no object.
        Err(forbidden @ Error::Forbidden { .. }) => match connection.serves(&config).await {
            Ok(false) => Ok(false),
            Ok(true) | Err(Error::Forbidden { .. }) => Err(forbidden),
            Err(error) => Err(error),
        },
        configs => configs.map(|configs| !configs.is_empty()),
    };
    Ok(Hive {
        mode,
        config: presence(configs)?,
        controllers: presence(controllers.map(|_| true))?,
    })
}

fn presence(found: Result<bool, Error>) -> Result<Presence, Error> {
    match found {
        Ok(true) => Ok(Presence::Found),
        Ok(false) | Err(Error::NotServed { .. } | Error::NotFound { .. }) => Ok(Presence::Absent),
        Err(Error::Forbidden { .. }) => Ok(Presence::Unknown),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Hive, HiveEvidence, HiveMode, Presence};
    use crate::testing::objects::{pool_object, read};

    #[test]
    fn the_evidence_and_the_mode_tell_whether_hive_runs() {
        use Presence::{Absent, Found, Unknown};
        let hive = |config, controllers| Hive {
            mode: HiveMode::Auto,
            config,
            controllers,
        };
        // runningCount differs from size: Hive stops before it sets its finalizer.
        let bare = pool_object("pool", &json!({"runningCount": 1, "size": 2}));
        let mut marked = bare.clone();
        marked["metadata"]["finalizers"] = json!(["hive.openshift.io/clusters"]);
        let mut with_conditions = bare.clone();
        with_conditions["status"] =
            json!({"conditions": [{"type": "CapacityAvailable", "status": "Unknown"}]});
        // Ours: Hive writes it too.
        let mut ours = bare.clone();
        ours["status"] = json!({"conditions": [{"type": "InventoryValid", "status": "True"}]});
        for (hive, object, runs, because) in [
            (hive(Found, Unknown), &bare, true, HiveEvidence::Config),
            (hive(Absent, Found), &bare, true, HiveEvidence::Controllers),
            (hive(Absent, Absent), &bare, false, HiveEvidence::NotInstalled),
            (hive(Absent, Absent), &marked, false, HiveEvidence::NotInstalled),
            (hive(Unknown, Absent), &marked, true, HiveEvidence::Finalizer),
            (Hive::UNKNOWN, &with_conditions, true, HiveEvidence::Conditions),
            (Hive::UNKNOWN, &marked, true, HiveEvidence::Finalizer),
            (Hive::UNKNOWN, &ours, true, HiveEvidence::Unreadable),
            (Hive::UNKNOWN, &bare, true, HiveEvidence::Unreadable),
            (hive(Unknown, Absent), &bare, true, HiveEvidence::Unreadable),
            (hive(Absent, Unknown), &bare, false, HiveEvidence::NoConfig),
            (hive(Absent, Unknown), &marked, true, HiveEvidence::Finalizer),
            (
                Hive {
                    mode: HiveMode::Absent,
                    ..hive(Found, Found)
                },
                &marked,
                false,
                HiveEvidence::Flag,
            ),
            (
                Hive {
                    mode: HiveMode::Manages,
                    ..hive(Absent, Absent)
                },
                &bare,
                true,
                HiveEvidence::Flag,
            ),
        ] {
            let conclusion = hive.conclude(&read(object));
            assert_eq!(
                (conclusion.is_managed, conclusion.evidence),
                (runs, because),
                "{hive:?}"
            );
        }
    }
}
