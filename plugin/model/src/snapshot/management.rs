//! What the management cluster says.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::plan::observed as plan;
use crate::snapshot::{Failure, Reading};

/// The management cluster, as far as it is about one control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Management {
    /// The control plane, its spec, its Machines with their configuration and infrastructure, and its Cluster. Etcd's
    /// members in it are those of the survey, if there is one.
    pub control_plane: plan::Observed,
    /// The Cluster's reference to its control plane.
    pub cluster: Reading<ClusterLink>,
    /// Machines of the Cluster's control plane that nothing owns: to be adopted, or left behind.
    pub unowned: Vec<String>,
    /// The Machines that wait for a deletion hook or a finalizer, and what for.
    pub deletions: Vec<Deletion>,
    /// `MachineHealthChecks` of the Cluster.
    pub health_checks: Reading<Vec<HealthCheck>>,
    /// Names of the Cluster's Secrets that are there, of those that are looked for. Where one could not be read and
    /// others could, it is in `unread`.
    pub secrets: Reading<BTreeSet<String>>,
    /// What else could not be read: Machines, infrastructure, bootstrap configurations, single Secrets, or, when it was
    /// listed before, the control plane itself.
    pub unread: Vec<Failure>,
}

/// What a Cluster says of its control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterLink {
    pub name: String,
    /// `Kind` of `spec.controlPlaneRef`.
    pub control_plane_kind: Option<String>,
    /// Name of `spec.controlPlaneRef`.
    pub control_plane_name: Option<String>,
    /// `host:port` of `spec.controlPlaneEndpoint`.
    pub endpoint: Option<String>,
}

/// A Machine that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub machine: String,
    pub since: Timestamp,
    /// Deletion hooks, finalizers and what the condition `Deleting` says, one line each.
    pub waits_for: Vec<String>,
}

/// A `MachineHealthCheck`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    pub name: String,
    pub paused: bool,
    /// The Machines of the control plane that its selector matches.
    pub targets: BTreeSet<String>,
    /// Whether it may start remediations now; none where it does not say.
    pub remediation_allowed: Option<bool>,
}
