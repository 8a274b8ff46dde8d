//! Who acts next on a finding: who solves the problem, or who takes the next step of a change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{checks::finding::Finding, snapshot::Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Actor {
    ControlPlaneController,
    /// The controller of Machines in Cluster API's core manager. It drains nodes.
    MachineController,
    /// The controller that applies a `ClusterClass` to the objects of a Cluster.
    TopologyController,
    InfrastructureProvider,
    BootstrapProvider,
    /// kubeadm on a new Machine, which joins the node and promotes its etcd member.
    Kubeadm,
    Kubelet,
    MachineHealthCheck,
    /// An admission webhook, or another part of admission that denies a write of a controller.
    Admission,
    /// A program that delays the deletion of a Machine, or a step of the topology controller, with a hook.
    HookOwner,
    Person,
}

impl Actor {
    /// How messages name the actor at the start of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ControlPlaneController => "Cluster API's kubeadm control plane controller",
            Self::MachineController => "Cluster API's Machine controller",
            Self::TopologyController => "Cluster API's topology controller",
            Self::InfrastructureProvider => "The infrastructure provider",
            Self::BootstrapProvider => "The bootstrap provider",
            Self::Kubeadm => "kubeadm on the new Machine",
            Self::Kubelet => "kubelet",
            Self::MachineHealthCheck => "The MachineHealthCheck",
            Self::Admission => "Admission",
            Self::HookOwner => "The owner of the hook",
            Self::Person => "A person",
        }
    }
}

/// How a check finds out who acts next.
#[derive(Clone, Copy, Debug)]
pub enum Responsible {
    /// The check reports a fault, and this actor repairs it. A finding with the outcome `Info` is only a side
    /// effect of a change.
    Fault(Actor),
    /// A finding with the outcome `Info` describes a step of a change, and this actor takes the step.
    Step(Actor),
    /// Like [`Responsible::Step`], but the actor depends on the finding.
    StepBy(fn(&Snapshot, &Finding, Timestamp) -> Actor),
}

impl Responsible {
    pub fn actor(self, observed: &Snapshot, finding: &Finding, now: Timestamp) -> Actor {
        match self {
            Self::Fault(actor) | Self::Step(actor) => actor,
            Self::StepBy(actor) => actor(observed, finding, now),
        }
    }

    /// Whether a finding with the outcome `Info` describes a step of a change. Otherwise, the finding is only
    /// a side effect of a change.
    pub const fn is_step(self) -> bool {
        !matches!(self, Self::Fault(_))
    }
}
