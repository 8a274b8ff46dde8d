//! Describes the clusters of a pool, and finds those that failed. No I/O.

use jiff::{SignedDuration, Timestamp};
use kcp_api::{ClusterDeployment, ClusterPool, metadata::Object as _};
use kcp_rules::syntax::parse_go_duration;

use crate::{
    inventory::staleness::{PoolVersion, Staleness},
    snapshot::Snapshot,
    status::{PoolProblem, PoolState},
};

/// How long a cluster may resume in a pool without a `resumeTimeout` before it is a problem for claims that wait. Most clusters
/// resume within minutes.
const USUAL_RESUME: SignedDuration = SignedDuration::from_mins(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUse {
    pub namespace: String,
    pub name: String,
    pub customization: Option<String>,
    pub claim: Option<String>,
    pub state: ClusterUseState,
    /// The power state that Hive reports: `Running`, `Hibernating` or a state in between; `None` if Hive has not reported
    /// it. Hive assigns only running clusters to claims.
    pub power: Option<String>,
    /// The cluster's delay, if it has been resuming for too long.
    pub delay: Option<Delay>,
    pub created: Option<Timestamp>,
    pub staleness: Option<Staleness>,
    /// Whether it is unknown if the cluster was created from the pool's current version.
    pub has_unknown_version: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterUseState {
    Installing,
    /// Hive has stopped its attempts to install the cluster.
    Failed,
    Installed,
    Deleting,
}

/// A cluster that has been resuming for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    pub since: Timestamp,
    /// Whether the pool has a `resumeTimeout`, after which Hive replaces an unclaimed cluster.
    pub has_timeout: bool,
}

impl ClusterUseState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Failed => "failed",
            Self::Installed => "installed",
            Self::Deleting => "deleting",
        }
    }
}

pub(super) fn cluster_use(
    snapshot: &Snapshot,
    pool: &ClusterPool,
    cluster: &ClusterDeployment,
    freshness: &PoolVersion<'_>,
) -> ClusterUse {
    ClusterUse {
        namespace: cluster.namespace().to_owned(),
        name: cluster.name().to_owned(),
        customization: cluster.customization().map(str::to_owned),
        claim: cluster.claim().map(str::to_owned),
        state: match cluster.spec.installed {
            _ if cluster.is_deleting() => ClusterUseState::Deleting,
            true => ClusterUseState::Installed,
            false if cluster.status.conditions.status("ProvisionStopped") == Some("True") => {
                ClusterUseState::Failed
            }
            false => ClusterUseState::Installing,
        },
        power: cluster.status.power_state.clone(),
        delay: delay(snapshot, pool, cluster),
        created: cluster.creation_timestamp(),
        staleness: freshness.staleness(cluster),
        has_unknown_version: freshness.is_cluster_version_unknown(cluster),
    }
}

/// The delay of a cluster that has been resuming for longer than the pool's `resumeTimeout`, or for longer than usual if there is
/// none. `None` unless Hive manages the pool. Hive computes this in the same way (openshift/hive,
/// `pkg/controller/clusterpool/collections.go`, `isBroken`).
fn delay(snapshot: &Snapshot, pool: &ClusterPool, cluster: &ClusterDeployment) -> Option<Delay> {
    const HIBERNATING: &str = "Hibernating";
    let config = pool.spec.hibernation_config.as_ref();
    let timeout = config.and_then(|config| parse_go_duration(config.resume_timeout.as_deref()?));
    // Hive does not limit the time if the timeout is 0.
    let timeout = timeout.filter(|timeout| !timeout.is_zero());
    let limit = timeout.map_or(Ok(USUAL_RESUME), SignedDuration::try_from).ok()?;
    let conditions = &cluster.status.conditions;
    let since = conditions.last_transition_time(HIBERNATING)?;
    let power = cluster.status.power_state.as_deref();
    let is_resuming = cluster.spec.installed
        && !cluster.is_deleting()
        && cluster.spec.power_state.as_deref() == Some("Running")
        && !matches!(power, Some("Running" | "Hibernating"))
        && conditions.reason(HIBERNATING) == Some("ResumingOrRunning");
    let is_over = snapshot.now.earliest.duration_since(since) >= limit;
    (is_resuming && is_over && snapshot.hive.manages(pool)).then_some(Delay {
        since,
        has_timeout: timeout.is_some(),
    })
}

impl ClusterUse {
    fn problem(&self, message: String) -> PoolProblem {
        PoolProblem {
            kind: "failed",
            object: format!("cd/{}", self.name),
            message,
        }
    }

    /// The problem that the installation of the cluster has failed.
    pub(super) fn failure(&self) -> Option<PoolProblem> {
        let what =
            "Hive has stopped installing the cluster; see the ClusterDeployment's condition ProvisionStopped";
        (self.state == ClusterUseState::Failed).then(|| self.problem(what.to_owned()))
    }

    /// The problem that the cluster does not resume. Without a timeout, this is a problem only if claims wait for the cluster.
    pub(super) fn delay_problem(&self, pool: &PoolState) -> Option<PoolProblem> {
        let Delay { since, has_timeout } = self.delay?;
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
        let waiting = pool.waiting_claims().filter(|claim| !claim.is_deleting).count();
        let message = match (&self.claim, has_timeout) {
            (Some(claim), true) => format!(
                "the cluster has been resuming since {since}, and has exceeded the pool's resumeTimeout; Hive does not replace a claimed \
                 cluster; if it cannot resume, delete ClusterClaim {claim}"
            ),
            (None, true) => format!(
                "the cluster has been resuming since {since}, and has exceeded the pool's resumeTimeout; Hive deletes the cluster and \
                 creates another one"
            ),
            (None, false) if waiting > 0 => format!(
                "the cluster has been resuming since {since}, and {waiting} {}; without spec.hibernationConfig.resumeTimeout of the \
                 pool, Hive never replaces the cluster; set it, or delete the ClusterDeployment",
                if waiting == 1 {
                    "ClusterClaim waits"
                } else {
                    "ClusterClaims wait"
                }
            ),
            (_, false) => return None,
        };
        Some(self.problem(message))
    }
}
