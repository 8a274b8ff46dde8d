//! The catalogue of problems: what keeps the controller from its next step, or a command from a change. Checks, plans, waits and
//! refusals all take the message and the hint of a problem from here.
//!
//! - [`text`]: the messages and hints

mod text;

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Machine, Object as _, Reference, kind::KUBEADM_CONTROL_PLANE};
use serde::Serialize;

use crate::{
    quorum::{EtcdRefusal, Votes},
    snapshot::{Snapshot, change::MachineSnapshot, management::describe_owner},
};
pub use text::{
    CONTROLLER_HINT, SAFE_ETCD_HINT, alarm_hint, alarm_message, diagnose_command, leader_hint,
    resume_machine_hint,
};

/// How messages name the controller that reconciles control planes.
pub const CONTROL_PLANE_CONTROLLER: &str = "Cluster API's kubeadm control plane controller";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Problem {
    Paused,
    ClusterPaused {
        #[serde(skip)]
        cluster: String,
        /// The field manager that set `spec.paused`. `None` if it is not known.
        #[serde(rename = "pausedBy", skip_serializing_if = "Option::is_none")]
        paused_by: Option<String>,
    },
    /// An owner other than the control plane controls a control plane Machine of the Cluster.
    MixedOwnership {
        machine: String,
        /// The owner of the Machine, such as `KubeadmControlPlane c2-cp`.
        owner: String,
    },
    /// A Machine has no controlling owner, and the control plane controller cannot adopt the Machine.
    CannotAdopt {
        machine: String,
        why: String,
    },
    InfrastructureNotReady,
    NoEndpoint,
    /// The Secret with the workload cluster's kubeconfig does not exist, and the controller cannot create it without the CA.
    NoKubeconfig {
        /// The name of the Secret with the CA.
        ca: String,
    },
    /// The infrastructure template to which the desired spec refers does not exist.
    NoTemplate {
        kind: String,
        group: String,
        template: String,
    },
    /// The controller cannot read etcd or the workload cluster, because it uses a Secret whose content is unusable.
    UnusableSecret {
        secret: String,
        why: String,
        /// How to repair the Secret. `None` if it is not known.
        #[serde(skip)]
        remedy: Option<String>,
        /// The id of the check in `status` that reports the Secret.
        check: &'static str,
    },
    /// The controller reports that it cannot connect to the workload cluster's API server.
    WorkloadUnreachable {
        /// The message of the condition that reports the lost connection.
        message: String,
    },
    /// The controller cannot update the `ConfigMap` `kubeadm-config` of the workload cluster, and no Machine
    /// can join with the `ConfigMap` as it is.
    NoKubeadmConfig {
        why: &'static str,
    },
    TopologyVersion {
        /// The version of the Cluster's topology, or the version of the current step of the topology's
        /// upgrade.
        version: String,
    },
    /// The topology controller changes nothing because of an error.
    TopologyFailed {
        /// The text of the Cluster's condition `TopologyReconciled`.
        message: String,
        #[serde(skip)]
        cause: TopologyError,
    },
    /// A lifecycle hook keeps the topology controller from continuing.
    LifecycleHook {
        hook: String,
        /// What the hook's runtime extension says.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An annotation of the Cluster keeps the upgrade of its topology from beginning.
    UpgradeAnnotation {
        annotation: String,
        #[serde(skip)]
        cluster: String,
    },
    /// An annotation in the topology keeps workers at their version.
    WorkersHeld {
        /// The kind and the name in the topology, such as `MachineDeployment md-0`.
        workers: String,
        /// The version of the workers. `None` if it was not read.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        annotation: &'static str,
        /// The name in the topology of the workers that have the annotation.
        holder: String,
        #[serde(skip)]
        cluster: String,
    },
    /// The API server does not accept the creation or deletion of a Machine by the controller.
    WriteRefused {
        message: String,
        remedy: String,
    },
    CertificatesNotAvailable,
    /// A Secret with a CA or a key of the cluster does not exist.
    NoKey {
        secret: String,
    },

    BeingDeleted {
        machine: String,
        /// The deletion hooks and finalizers that still block the deletion, or the message of the condition `Deleting`.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The step deletes or waits for a Machine that Cluster API's Machine controller does not reconcile.
    MachinePaused {
        machine: String,
    },
    NoNode {
        machine: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    Condition {
        machine: String,
        condition: &'static str,
        /// The status of the condition: `False`, `Unknown` or `absent`.
        status: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    UpdatingInPlace {
        machine: String,
    },
    Learner {
        machine: String,
    },
    /// An etcd member does not respond or has no leader.
    Silent {
        member: String,
        machine: String,
        /// The end of a sentence about the member, such as `has no leader`.
        why: String,
    },
    /// The Machine is joining or being deleted, but etcd refuses to change its members accordingly.
    RefusedByEtcd {
        machine: String,
        refusal: EtcdRefusal,
    },
    Alarm {
        member: String,
        machine: String,
        alarm: String,
    },
    /// The list of etcd members contains no member for the Machine, although the Machine has a node.
    NoMember {
        machine: String,
    },
    /// Some members follow a leader that responds neither to Cluster API nor to kubectl-kcp.
    LeaderUnreachable {
        member: String,
        /// The Machine whose deletion the controller cannot finish. `None` if it can delete no Machine at all.
        #[serde(skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
    },
    MemberWithoutMachine {
        /// The name of the member. Empty until the member starts.
        member: String,
    },
    /// The etcd members report different members or belong to different etcd clusters.
    MembersDisputed,

    /// An earlier remediation has deleted a Machine, but has not created its replacement yet.
    AnotherInProgress,
    /// The annotation that records the last remediation is not valid JSON. It is on the Machine, or on the control
    /// plane if `machine` is none.
    MalformedRemediation {
        #[serde(skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
    },
    TriedRecently {
        until: Timestamp,
    },
    TriedTooOften {
        retries: i64,
        /// When `minHealthyPeriodSeconds` has passed. From then on, earlier remediations no longer count.
        until: Timestamp,
    },
    AnotherComingUp {
        machine: String,
    },
    AnotherBeingDeleted {
        machine: String,
    },

    LastMachine,
    NoOtherWorks,
    MembersUnknown,
    /// The controller remediates no Machine of a control plane with an external etcd.
    ExternalEtcd {
        machine: String,
    },
    /// The controller itself cannot read the etcd members, although they respond to kubectl-kcp.
    MembersUnreadByController {
        /// The message of condition `EtcdMemberHealthy`, which is Unknown on every Machine.
        message: String,
    },
    /// `machine replace` is replacing another Machine.
    ReplacementInProgress {
        machine: String,
        waits_for: String,
    },
    /// No sequence of steps completes the change.
    NoWay {
        why: String,
        /// The id of the check in `status` that reports the reason.
        check: &'static str,
    },
    Quorum {
        /// etcd's votes after the change.
        votes: Votes,
    },

    /// The change brings etcd 3.6, but not every member runs a version from which this upgrade is safe.
    UnsafeEtcdUpgrade {
        why: String,
    },

    /// The controller itself reports that it cannot continue.
    Blocked {
        condition: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    ControllerStopped {
        generation: i64,
        observed_generation: i64,
    },
    /// The controller neither creates nor deletes a Machine, and no other problem explains why.
    NoProgress {
        /// The condition of the control plane that reports a change in progress.
        condition: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

/// The pauses of the control plane and its Cluster, because of which no controller acts on a change.
pub fn pauses(observed: &Snapshot) -> Vec<Problem> {
    let (control_plane, paused_by) = (&observed.control_plane, observed.cluster_paused_by());
    let reported = reported_pause(control_plane, paused_by);
    let of_cluster = || Problem::cluster_paused(control_plane, paused_by);
    let other = observed.is_cluster_paused().then(of_cluster);
    let other = other.filter(|other| reported.as_ref() != Some(other));
    reported.into_iter().chain(other).collect()
}

/// The pause of the control plane or its Cluster, according to the control plane alone. `paused_by` is who paused the Cluster, if that
/// is known.
pub fn reported_pause(control_plane: &KubeadmControlPlane, paused_by: Option<&str>) -> Option<Problem> {
    if control_plane.is_paused() {
        return Some(Problem::Paused);
    }
    let condition = control_plane.condition("Paused")?;
    // Cluster API's `paused.EnsurePausedCondition` names the annotation. Without the annotation, such a condition is
    // outdated.
    let is_outdated = condition.message.contains("annotation") && !condition.message.contains("Cluster spec");
    (condition.is_true() && !is_outdated).then(|| Problem::cluster_paused(control_plane, paused_by))
}

/// The pauses that stop the controllers from replacing a Machine.
pub fn machine_pauses(machine: &MachineSnapshot) -> Vec<Problem> {
    let own = machine.object.is_paused().then(|| Problem::MachinePaused {
        machine: machine.object.name().to_owned(),
    });
    own.into_iter().chain(pauses(machine.observed())).collect()
}

/// Why the topology controller changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TopologyError {
    /// The runtime extension of this `ExtensionConfig` fails.
    Extension { name: String },
    /// The version of the Cluster is below this one, which the control plane has.
    LowerVersion { version: String, cluster: String },
    #[default]
    Other,
}

impl Problem {
    /// The text before and after the Machine's name in the message, if several Machines can have the same problem.
    pub(crate) fn cause_on_machine(&self) -> Option<(String, String)> {
        match self {
            Self::Condition {
                condition,
                status,
                message,
                ..
            } => {
                let message = message.as_deref().filter(|message| !message.is_empty());
                let message = message.map_or_else(String::new, |message| format!(": {message}"));
                Some(((*condition).to_owned(), format!("is {status}{message}")))
            }
            Self::Silent { why, .. } => Some(("the etcd member".to_owned(), why.clone())),
            Self::Alarm { alarm, .. } => Some((
                "the etcd member".to_owned(),
                format!("has raised the alarm {alarm}"),
            )),
            _ => None,
        }
    }

    /// The problem of a Machine's condition that is not True.
    pub fn from_condition(machine: &Machine, kind: &'static str, message: Option<String>) -> Self {
        Self::Condition {
            machine: machine.name().to_owned(),
            condition: kind,
            status: machine
                .condition(kind)
                .map_or("absent", |condition| condition.status.as_str()),
            message,
        }
    }

    pub fn cluster_paused(control_plane: &KubeadmControlPlane, paused_by: Option<&str>) -> Self {
        Self::ClusterPaused {
            cluster: control_plane.cluster().unwrap_or_default().to_owned(),
            paused_by: paused_by.map(str::to_owned),
        }
    }

    pub fn controller_stopped(control_plane: &KubeadmControlPlane) -> Self {
        Self::ControllerStopped {
            generation: control_plane.generation(),
            observed_generation: control_plane.status.observed_generation.unwrap_or_default(),
        }
    }

    pub fn mixed_ownership(machine: &Machine) -> Self {
        Self::MixedOwnership {
            machine: machine.name().to_owned(),
            owner: describe_owner(machine),
        }
    }

    pub fn no_template(reference: &Reference) -> Self {
        Self::NoTemplate {
            kind: reference.kind.clone(),
            group: reference.group.clone(),
            template: reference.name.clone(),
        }
    }

    /// Whether the controller does not reconcile the control plane at all, whatever change is desired.
    pub const fn stops_reconciliation(&self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::ClusterPaused { .. }
                | Self::MixedOwnership { .. }
                | Self::CannotAdopt { .. }
                | Self::InfrastructureNotReady
                | Self::NoEndpoint
                | Self::NoKubeconfig { .. }
        )
    }

    /// The id of the check in `status` that reports the same problem.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Paused | Self::ClusterPaused { .. } => "paused",
            Self::InfrastructureNotReady | Self::NoEndpoint => "cluster-not-ready",
            Self::MixedOwnership { .. } | Self::CannotAdopt { .. } => "machines-not-owned",
            Self::WorkloadUnreachable { .. } => "workload-disconnected",
            Self::NoKubeadmConfig { .. } => "kubeadm-config-unusable",
            Self::NoKubeconfig { .. } | Self::NoKey { .. } => "secrets-missing",
            Self::NoTemplate { .. } => "infrastructure-template-missing",
            Self::TopologyVersion { .. }
            | Self::LifecycleHook { .. }
            | Self::UpgradeAnnotation { .. }
            | Self::WorkersHeld { .. } => "topology-upgrade-pending",
            Self::TopologyFailed { .. } => "topology-not-reconciled",
            Self::WriteRefused { .. } => "write-refused",
            Self::CertificatesNotAvailable => "certificates-unavailable",
            Self::BeingDeleted { .. }
            | Self::AnotherBeingDeleted { .. }
            | Self::ReplacementInProgress { .. } => "machine-deletions-slow",
            Self::NoWay { check, .. } | Self::UnusableSecret { check, .. } => check,
            Self::MachinePaused { .. } => "machines-paused",
            Self::NoNode { .. } | Self::AnotherComingUp { .. } => "machines-without-node",
            Self::Condition { condition, .. } => match *condition {
                "APIServerPodHealthy" => "api-servers-not-ready",
                "ControllerManagerPodHealthy" => "controller-managers-not-ready",
                "SchedulerPodHealthy" => "schedulers-not-ready",
                "EtcdPodHealthy" => "etcd-pods-not-ready",
                _ => "etcd-members-unresponsive",
            },
            Self::UpdatingInPlace { .. } => "machines-outdated",
            Self::Learner { .. } => "etcd-learners-stuck",
            Self::Silent { .. } | Self::LeaderUnreachable { .. } => "etcd-members-unresponsive",
            Self::RefusedByEtcd { refusal, .. } => refusal.check_id(),
            Self::Alarm { .. } => "etcd-alarms",
            Self::MemberWithoutMachine { .. } | Self::NoMember { .. } => "etcd-members-mismatch",
            Self::MembersDisputed => "etcd-member-lists-differ",
            Self::UnsafeEtcdUpgrade { .. } => "etcd-upgrade-unsafe",
            Self::AnotherInProgress
            | Self::MalformedRemediation { .. }
            | Self::TriedRecently { .. }
            | Self::TriedTooOften { .. }
            | Self::ExternalEtcd { .. }
            | Self::MembersUnreadByController { .. } => "remediation-blocked",
            Self::NoOtherWorks => "components-unhealthy",
            Self::LastMachine | Self::MembersUnknown | Self::Quorum { .. } => "etcd-no-quorum",
            Self::Blocked { .. } | Self::NoProgress { .. } => "change-stuck",
            Self::ControllerStopped { .. } => "controller-stopped",
        }
    }

    /// The object that the problem is about, as `Kind/name`.
    pub fn object(&self, control_plane: &KubeadmControlPlane) -> String {
        let itself = || format!("{}/{}", KUBEADM_CONTROL_PLANE.kind, control_plane.name());
        match self {
            Self::ClusterPaused { .. }
            | Self::InfrastructureNotReady
            | Self::NoEndpoint
            | Self::NoKubeconfig { .. }
            | Self::TopologyVersion { .. }
            | Self::LifecycleHook { .. }
            | Self::UpgradeAnnotation { .. }
            | Self::WorkersHeld { .. }
            | Self::TopologyFailed { .. } => {
                let cluster = control_plane.cluster();
                cluster.map_or_else(itself, |name| format!("Cluster/{name}"))
            }
            Self::NoTemplate { kind, template, .. } => format!("{kind}/{template}"),
            Self::NoKey { secret } => format!("Secret/{secret}"),
            Self::UnusableSecret { secret, .. } => secret.clone(),
            Self::NoKubeadmConfig { .. } => "ConfigMap/kubeadm-config".to_owned(),
            Self::MemberWithoutMachine { member } if !member.is_empty() => format!("EtcdMember/{member}"),
            _ => self
                .machine()
                .map_or_else(itself, |name| format!("Machine/{name}")),
        }
    }

    /// The Machine that has the problem. `None` if the problem does not concern a single Machine.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::BeingDeleted { machine, .. }
            | Self::MixedOwnership { machine, .. }
            | Self::CannotAdopt { machine, .. }
            | Self::MachinePaused { machine }
            | Self::NoNode { machine, .. }
            | Self::Condition { machine, .. }
            | Self::UpdatingInPlace { machine }
            | Self::Learner { machine }
            | Self::Silent { machine, .. }
            | Self::RefusedByEtcd { machine, .. }
            | Self::Alarm { machine, .. }
            | Self::NoMember { machine }
            | Self::AnotherComingUp { machine }
            | Self::AnotherBeingDeleted { machine }
            | Self::ReplacementInProgress { machine, .. }
            | Self::MalformedRemediation {
                machine: Some(machine),
            }
            | Self::LeaderUnreachable {
                machine: Some(machine),
                ..
            }
            | Self::ExternalEtcd { machine } => Some(machine),
            _ => None,
        }
    }
}
