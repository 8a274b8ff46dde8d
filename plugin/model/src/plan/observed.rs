//! The facts that a plan is made from.

use jiff::Timestamp;

use crate::control_plane::{self, ControlPlane};
use crate::plan::spec::{ConfigSpec, Spec, TemplateRef};

/// A control plane and what surrounds it, at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The control plane, as `status` reads it.
    pub control_plane: ControlPlane,
    /// Its spec as it stands.
    pub spec: Spec,
    /// The remediation that the controller has begun and not yet replaced a Machine for.
    pub remediation_in_progress: Option<Remediation>,
    /// What its Cluster says.
    pub cluster: Cluster,
    /// Its Machines.
    pub machines: Vec<Machine>,
    /// What is known of etcd's members.
    pub etcd: Etcd,
}

/// A Machine with what decides about its future.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The Machine, as `status` reads it.
    pub machine: control_plane::Machine,
    /// Annotated with `cluster.x-k8s.io/delete-machine`: the first to go.
    pub to_be_deleted: bool,
    /// Annotated with `cluster.x-k8s.io/remediate-machine`.
    pub to_be_remediated: bool,
    /// An update in place has begun on it.
    pub updating_in_place: bool,
    /// Which remediation it replaced a Machine for.
    pub remediation_for: Option<Remediation>,
    /// When its certificates expire, as far as the controller knows.
    pub certificates_expire: Option<Timestamp>,
    /// Its infrastructure Machine.
    pub infrastructure: Infrastructure,
    /// Its bootstrap configuration.
    pub bootstrap: Bootstrap,
}

/// An infrastructure Machine, as far as it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Infrastructure {
    /// There is none, or it could not be read.
    #[default]
    Missing,
    /// It does not say which template it was cloned from.
    Unannotated,
    /// It was cloned from this template.
    ClonedFrom(TemplateRef),
}

/// A bootstrap configuration, as far as it decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Bootstrap {
    /// The Machine names none.
    #[default]
    Unreferenced,
    /// It is gone, or could not be read.
    Missing,
    /// The spec of a `KubeadmConfig`.
    Config(ConfigSpec),
}

/// One remediation, as the controller notes it in its annotations `remediation-in-progress` and `remediation-for`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remediation {
    /// The Machine that was deleted.
    pub machine: String,
    /// When; none where the note does not say.
    pub time: Option<Timestamp>,
    /// How often it was tried before.
    pub retries: i64,
}

/// What a Cluster says that the controller waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Whether `spec.paused` is set.
    pub paused: bool,
    /// Failure domains that take control plane Machines, by name.
    pub failure_domains: Vec<String>,
    /// Whether the infrastructure provider has done its part.
    pub infrastructure_ready: bool,
    /// Whether clients know where to reach the control plane.
    pub has_endpoint: bool,
    /// Whether the Secret with the workload cluster's kubeconfig is there; none where nobody has looked.
    pub has_kubeconfig: Option<bool>,
    /// The version that a managed topology is at or goes to; none without one.
    pub topology_version: Option<String>,
    /// The step of an upgrade across several minors that a managed topology is in.
    pub topology_upgrade_step: Option<String>,
}

impl Cluster {
    /// One that could not be read: it is taken for ready, without failure domains.
    pub fn unread() -> Self {
        Self {
            infrastructure_ready: true,
            has_endpoint: true,
            ..Self::default()
        }
    }
}

/// What is known of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Etcd {
    /// It runs elsewhere: no concern of the controller's.
    External,
    /// Its members were not read: every Machine that has a node is taken for a member.
    Unread,
    /// Its members.
    Members(Vec<EtcdMember>),
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdMember {
    /// The name of its node; empty while it has not started.
    pub name: String,
    /// Whether it does not vote yet.
    pub is_learner: bool,
    /// Whether it raises an alarm: no space, or corrupt.
    pub has_alarm: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Why it is not taken to take part: it does not answer, is cut off, or nobody could ask it and that counts; none where
    /// it is.
    pub silence: Option<String>,
}

impl Etcd {
    /// Why the member on a node is not taken to take part; none where it is.
    pub fn silence(&self, node: &str) -> Option<&str> {
        match self {
            Self::External | Self::Unread => None,
            Self::Members(members) => {
                let member = members.iter().find(|member| member.name == node)?;
                member.silence.as_deref()
            }
        }
    }

    /// Whether the member on a node raises an alarm.
    pub fn has_alarm(&self, node: &str) -> bool {
        match self {
            Self::External | Self::Unread => false,
            Self::Members(members) => {
                let mut members = members.iter();
                members.any(|member| member.name == node && member.has_alarm)
            }
        }
    }
}

impl Machine {
    /// Whether its node has joined.
    pub const fn has_node(&self) -> bool {
        self.machine.node.is_some()
    }

    /// Whether a condition of a type holds.
    pub fn is(&self, kind: &str) -> bool {
        self.machine
            .condition(kind)
            .is_some_and(control_plane::Condition::is_true)
    }

    /// Whether a condition of a type is there and does not hold.
    pub fn is_not(&self, kind: &str) -> bool {
        self.machine
            .condition(kind)
            .is_some_and(control_plane::Condition::is_false)
    }

    /// Whether a health check has found it unhealthy.
    pub fn failed_health_check(&self) -> bool {
        self.is_not("HealthCheckSucceeded")
    }

    /// Whether its control plane is asked to replace it.
    pub fn awaits_remediation(&self) -> bool {
        self.failed_health_check() && self.is_not("OwnerRemediated")
    }
}
