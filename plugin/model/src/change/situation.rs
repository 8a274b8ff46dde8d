//! What a change of a control plane is judged on.

use jiff::Timestamp;
use kcp_rules::view::View;

use crate::{
    control_plane::{ControlPlane, cluster_of},
    plan::observed::Observed,
    snapshot::{Failure, Reading, Workload},
};

/// How much of a situation a change is judged on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    All,
    /// The control plane and its Cluster: for what asks the controller for nothing.
    ControlPlane,
    /// The same until the time comes that a rollout is planned for, and all of it from then on.
    AllOnceRollingOut,
}

impl Extent {
    /// Whether a control plane and its Cluster are enough.
    pub fn suffices(self, control_plane: &ControlPlane, now: Timestamp) -> bool {
        match self {
            Self::All => false,
            Self::ControlPlane => true,
            Self::AllOnceRollingOut => control_plane.rollout_after.is_none_or(|after| after > now),
        }
    }
}

/// A control plane and what surrounds it.
#[derive(Debug)]
pub struct Situation {
    /// The control plane as the server wrote it.
    pub object: String,
    /// The same as it was when the reading began.
    pub object_at_first: String,
    /// Its Cluster as the server wrote it; none where it has none, or that could not be read.
    pub cluster_object: Option<String>,
    /// The facts. Etcd's members are those that it told, where it did.
    pub observed: Observed,
    /// Whether Machines, the workload cluster and etcd were read, or left out.
    pub machines_read: bool,
    /// What of the facts could not be read. The control plane is always there, and so are Machines that were read.
    pub unread: Vec<Unread>,
    /// The workload cluster.
    pub workload: Reading<Workload>,
    /// Why etcd's members are judged by the conditions of Machines; none where they told, or there are none.
    pub etcd_unread: Option<Failure>,
}

impl Situation {
    /// The control plane.
    pub const fn control_plane(&self) -> &ControlPlane {
        &self.observed.control_plane
    }

    /// What the rules are told of other objects.
    ///
    /// # Errors
    /// When the Cluster does not have its kind's types.
    pub fn view(&self) -> serde_json::Result<View> {
        let mut view = View::default();
        match &self.cluster_object {
            Some(cluster) => view.cluster = Some(cluster_of(cluster)?).into(),
            None if self.unread_cluster().is_none_or(Unread::is_gone) => view.cluster = None.into(),
            // The server, which may read it, judges by it.
            None => {}
        }
        Ok(view)
    }

    /// What could not be read, and what is taken instead; a line each.
    pub fn warnings(&self) -> Vec<String> {
        let etcd = self.etcd_unread.iter().map(|failure| {
            format!(
                "etcd's members were not read: {}: {}; judged by the conditions of Machines",
                failure.object, failure.message
            )
        });
        let unread = self.unread.iter().filter(|unread| !unread.is_gone());
        let unread = unread.map(|Unread { part, kind, why, .. }| {
            let instead = match part {
                Part::Cluster => "taken for ready, without failure domains",
                Part::Machines | Part::Bootstrap | Part::Infrastructure => {
                    "Machines are taken for what is asked"
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

/// A part of a [`Situation`] that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Which.
    pub part: Part,
    /// `Kind` of what was asked for.
    pub kind: String,
    /// Why.
    pub why: String,
    /// Whether the server says that there is no such object.
    pub is_absent: bool,
}

impl Unread {
    /// Whether there is no such Cluster: nothing is left open.
    fn is_gone(&self) -> bool {
        self.part == Part::Cluster && self.is_absent
    }
}

/// A part of [`Observed`] that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Observed::cluster`]: it is taken for ready, without failure domains.
    Cluster,
    /// [`Observed::machines`]: there is none.
    Machines,
    /// The bootstrap configurations: all are [`Bootstrap::Missing`].
    Bootstrap,
    /// Infrastructure Machines of one kind: they are [`Infrastructure::Missing`].
    Infrastructure,
}
