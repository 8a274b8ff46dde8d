//! Whether Hive runs the pools of a cluster, and from what this is concluded. Pure, except for [`evidence`].
//!
//! A pool's finalizer is not enough: a pool that Hive refuses, such as one whose runningCount differs from its size,
//! has none yet, and Hive's finalizer stays on a pool after Hive was uninstalled.

use std::fmt;

use kcp_api::{
    ClusterPool, Kind,
    metadata::{Object as _, PartialObjectMetadata},
    names::finalizer,
};
use kcp_client::{Connection, Error};

/// Hive's own configuration: its operator needs one.
const HIVE_CONFIG: Kind = Kind {
    group: "hive.openshift.io",
    kind: "HiveConfig",
    plural: "hiveconfigs",
    versions: &["v1"],
    product: "Hive",
};

const DEPLOYMENT: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    versions: &["v1"],
    product: "Kubernetes",
};

/// The namespace and the name of the controllers' Deployment.
const CONTROLLERS: (&str, &str) = ("hive", "hive-controllers");

/// Conditions that Hive's controller writes on every pool, and nothing else does.
const CONDITIONS: [&str; 4] = [
    "MissingDependencies",
    "CapacityAvailable",
    "AllClustersCurrent",
    "DeletionPossible",
];

/// What the user says of Hive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiveMode {
    /// As found.
    #[default]
    Auto,
    Runs,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Found,
    Absent,
    /// The client may not read it.
    Unknown,
}

/// What was found of Hive itself, and what the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hive {
    pub mode: HiveMode,
    pub config: Presence,
    pub controllers: Presence,
}

/// Whether Hive runs a pool, and why this is concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conclusion {
    pub runs: bool,
    pub because: Because,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// `--hive`.
    Told,
    Config,
    Controllers,
    /// The pool has Hive's finalizer, and Hive itself cannot be looked for.
    Finalizer,
    /// The pool has Hive's conditions, and Hive itself cannot be looked for.
    Conditions,
    /// There is neither a `HiveConfig` nor the controllers' Deployment.
    NotInstalled,
    /// The pool has no mark of Hive, and Hive itself cannot be looked for.
    NoMark,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told => "as --hive says",
            Self::Config => "the cluster has a HiveConfig",
            Self::Controllers => "Deployment hive/hive-controllers exists",
            Self::Finalizer => "the pool has Hive's finalizer",
            Self::Conditions => "the pool has Hive's conditions",
            Self::NotInstalled => "the cluster has no HiveConfig and no Deployment hive/hive-controllers",
            Self::NoMark => "the pool has no finalizer and no conditions of Hive",
        })
    }
}

impl Hive {
    /// Nothing is known of Hive itself: a pool's own marks decide.
    pub const UNKNOWN: Self = Self {
        mode: HiveMode::Auto,
        config: Presence::Unknown,
        controllers: Presence::Unknown,
    };

    /// Whether Hive runs this pool.
    pub fn of(&self, pool: &ClusterPool) -> Conclusion {
        let concluded = |runs, because| Conclusion { runs, because };
        let is_absent = [self.config, self.controllers] == [Presence::Absent; 2];
        let has_condition = || {
            CONDITIONS
                .iter()
                .any(|condition| pool.status.conditions.has(condition))
        };
        match self.mode {
            HiveMode::Runs => concluded(true, Because::Told),
            HiveMode::Absent => concluded(false, Because::Told),
            HiveMode::Auto if self.config == Presence::Found => concluded(true, Because::Config),
            HiveMode::Auto if self.controllers == Presence::Found => concluded(true, Because::Controllers),
            HiveMode::Auto if is_absent => concluded(false, Because::NotInstalled),
            HiveMode::Auto if pool.has_finalizer(finalizer::HIVE_CLUSTERS) => {
                concluded(true, Because::Finalizer)
            }
            HiveMode::Auto if has_condition() => concluded(true, Because::Conditions),
            HiveMode::Auto => concluded(false, Because::NoMark),
        }
    }

    pub fn runs(&self, pool: &ClusterPool) -> bool {
        self.of(pool).runs
    }
}

/// Looks for Hive.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn evidence(connection: &Connection, mode: HiveMode) -> Result<Hive, Error> {
    if mode != HiveMode::Auto {
        return Ok(Hive {
            mode,
            ..Hive::UNKNOWN
        });
    }
    let (namespace, name) = CONTROLLERS;
    let (config, deployment) = (HIVE_CONFIG.at("v1"), DEPLOYMENT.at("v1"));
    let configs = connection.list_metadata::<PartialObjectMetadata>(&config, None, None);
    let controllers = connection.get_metadata::<PartialObjectMetadata>(&deployment, namespace, name);
    let (configs, controllers) = tokio::join!(configs, controllers);
    Ok(Hive {
        mode,
        config: presence(configs.map(|configs| !configs.is_empty()))?,
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

    use super::{Because, Hive, HiveMode, Presence};
    use crate::testing::objects::{pool_object, read};

    #[test]
    fn what_is_concluded_from_what() {
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
            (hive(Found, Unknown), &bare, true, Because::Config),
            (hive(Absent, Found), &bare, true, Because::Controllers),
            (hive(Absent, Absent), &bare, false, Because::NotInstalled),
            (hive(Absent, Absent), &marked, false, Because::NotInstalled),
            (hive(Unknown, Absent), &marked, true, Because::Finalizer),
            (Hive::UNKNOWN, &with_conditions, true, Because::Conditions),
            (Hive::UNKNOWN, &ours, false, Because::NoMark),
            (Hive::UNKNOWN, &bare, false, Because::NoMark),
            (
                Hive {
                    mode: HiveMode::Absent,
                    ..hive(Found, Found)
                },
                &marked,
                false,
                Because::Told,
            ),
            (
                Hive {
                    mode: HiveMode::Runs,
                    ..hive(Absent, Absent)
                },
                &bare,
                true,
                Because::Told,
            ),
        ] {
            let conclusion = hive.of(&read(object));
            assert_eq!((conclusion.runs, conclusion.because), (runs, because), "{hive:?}");
        }
    }
}
