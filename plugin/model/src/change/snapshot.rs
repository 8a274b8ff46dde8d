//! What a change of a control plane is checked against.

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _};
use kcp_rules::view::{self, View};

use crate::{
    plan::observed::Observed,
    snapshot::{Failure, Reading, Workload},
};

/// How much a verb has to read before it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// The control plane, its Cluster, Machines, workload cluster and etcd.
    All,
    /// The control plane and its Cluster: for a change that gives the controller nothing to do.
    ControlPlane,
    /// The control plane and its Cluster before the time of a planned rollout, everything after it.
    AllOnceRollingOut,
}

impl ReadScope {
    /// Whether the control plane and its Cluster are enough.
    pub fn suffices(self, control_plane: &KubeadmControlPlane, now: Timestamp) -> bool {
        match self {
            Self::All => false,
            Self::ControlPlane => true,
            Self::AllOnceRollingOut => control_plane.spec.rollout_after.is_none_or(|after| after > now),
        }
    }
}

/// A control plane and its surroundings, read at one time.
#[derive(Debug)]
pub struct ChangeSnapshot {
    /// The control plane's JSON.
    pub object: String,
    /// Its JSON when reading began. Reading everything takes seconds.
    pub object_at_first: String,
    pub observed: Observed,
    /// False if Machines, workload cluster and etcd were not asked for.
    pub machines_read: bool,
    /// Parts of `observed` that could not be read; never the control plane or Machines that were asked for.
    pub unread: Vec<Unread>,
    pub workload: Reading<Workload>,
    /// Why the conditions of Machines stand in for etcd's own answers; none if etcd answered, or is external.
    pub etcd_unread: Option<Failure>,
}

impl ChangeSnapshot {
    pub const fn control_plane(&self) -> &KubeadmControlPlane {
        &self.observed.control_plane
    }

    /// The other objects that the admission rules look at.
    pub fn view(&self) -> View {
        let mut view = View::default();
        match &self.observed.cluster {
            Some(cluster) => view.cluster = Some(view::Cluster::from(cluster)).into(),
            None if self.unread_cluster().is_none_or(Unread::is_gone) => view.cluster = None.into(),
            // The server can read it and decides.
            None => {}
        }
        if self.machines_read {
            view.machines = self.reviewed_machines().into();
        }
        view
    }

    /// The Machines as the admission rules look at them.
    pub fn reviewed_machines(&self) -> Vec<view::Machine> {
        let machines = self.observed.machines.iter();
        machines
            .map(|machine| view::Machine {
                name: machine.name().to_owned(),
                version: machine.spec.version.clone(),
                created: machine.creation_timestamp(),
                has_node: machine.has_node(),
                has_controller: machine.controller().is_some(),
                deleting: machine.deletion_timestamp().is_some(),
            })
            .collect()
    }

    /// What could not be read, and what is assumed instead; a line each.
    pub fn warnings(&self) -> Vec<String> {
        let etcd = self.etcd_unread.iter().map(|failure| {
            format!(
                "etcd's members were not read: {}: {}; using the conditions of Machines instead",
                failure.object, failure.message
            )
        });
        let unread = self.unread.iter().filter(|unread| !unread.is_gone());
        let unread = unread.map(|Unread { part, kind, why, .. }| {
            let instead = match part {
                Part::Cluster => "assumed ready and without failure domains",
                Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                    "assumed that Machines match the spec"
                }
            };
            format!("{kind} was not read: {why}; {instead}")
        });
        etcd.chain(unread).collect()
    }

    fn unread_cluster(&self) -> Option<&Unread> {
        self.unread.iter().find(|unread| unread.part == Part::Cluster)
    }
}

/// A part of a [`ChangeSnapshot`] that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub part: Part,
    pub kind: String,
    pub why: String,
    /// The server answered 404.
    pub is_absent: bool,
}

impl Unread {
    /// Whether the Cluster does not exist: nothing is unknown then.
    fn is_gone(&self) -> bool {
        self.part == Part::Cluster && self.is_absent
    }
}

/// A part of [`Observed`] that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Observed::cluster`]: assumed ready and without failure domains.
    Cluster,
    /// [`Observed::machines`]: empty.
    Machines,
    /// The bootstrap configurations: all are [`Bootstrap::Missing`].
    Bootstrap,
    /// Infrastructure Machines of one kind: they are [`Infrastructure::Missing`].
    Infrastructure,
}
