//! Faults of a machine. People select one by its name with `fault`.

use crate::named_fault;

/// A fault of a machine's etcd member, or the end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Kills the process. Its kubelet reports it.
    Kill,
    /// Starts a killed process again.
    Restart,
    /// Stops the process: it accepts connections and answers none.
    Freeze,
    /// Continues a frozen process.
    Thaw,
    /// Cuts the connections between the member and its peers, but not those to clients.
    CutOff,
    /// Ends [`Self::CutOff`].
    Reconnect,
    /// Deletes the member's data and starts it again.
    Wipe,
    /// Deletes the member's data and starts it as an etcd cluster of its own. The control plane then has members of two
    /// etcd clusters, with different ids, lists and leaders.
    Split,
    /// Raises the alarm NOSPACE.
    NoSpace,
    /// Disarms all alarms.
    Disarm,
    /// Replaces the member's serving certificate by an expired one.
    Expire,
    /// Issues a new serving certificate.
    Renew,
    /// Removes the member from etcd. Its Machine stays.
    Remove,
    /// Removes the member from etcd, and adds it again without its data: it stays a learner.
    Relearn,
    /// Adds a member with this name that belongs to no Machine.
    Stray,
    /// From now on new members stay learners. The machine is ignored.
    HoldPromotions,
    /// Promotes learners again.
    Promote,
    /// From now on new machines get no Node: kubeadm has promoted their members, and waits for the kubelet. The machine is
    /// ignored.
    HoldNodes,
    /// Lets new machines get their Nodes again.
    ReleaseNodes,
    /// Makes a member the only one of its etcd: starts it once with `--force-new-cluster`, and then without the flag.
    ForceNewCluster,
    /// Reports that the static pod is not ready, although etcd runs.
    PodNotReady,
    /// Reports that the static pod is ready.
    PodReady,
}

impl Fault {
    /// All faults with their names and effects.
    pub const ALL: [(Self, &str, &str); 22] = [
        (
            Self::Kill,
            "kill",
            "the etcd member is killed, and its pod is not ready",
        ),
        (
            Self::Restart,
            "restart",
            "the killed member runs again, and its pod is ready",
        ),
        (
            Self::Freeze,
            "freeze",
            "the member accepts connections but never answers",
        ),
        (Self::Thaw, "thaw", "the frozen member runs again"),
        (
            Self::CutOff,
            "cut-off",
            "the member and its peers cannot reach each other; clients still reach it",
        ),
        (
            Self::Reconnect,
            "reconnect",
            "the member and its peers reach each other again",
        ),
        (
            Self::Wipe,
            "wipe",
            "the member loses its data and is started again",
        ),
        (
            Self::Split,
            "split",
            "the member loses its data and starts an etcd cluster of its own",
        ),
        (Self::NoSpace, "no-space", "the member raises the alarm NOSPACE"),
        (Self::Disarm, "disarm", "all alarms are disarmed"),
        (
            Self::Expire,
            "expire",
            "the member's serving certificate has expired",
        ),
        (Self::Renew, "renew", "the member has a new serving certificate"),
        (
            Self::Remove,
            "remove",
            "the member is removed from etcd, and the Machine stays",
        ),
        (
            Self::Relearn,
            "relearn",
            "the member loses its data and joins again, and stays a learner",
        ),
        (
            Self::Stray,
            "stray",
            "a member with that name joins that belongs to no Machine",
        ),
        (
            Self::HoldPromotions,
            "hold-promotions",
            "new members stay learners",
        ),
        (Self::Promote, "promote", "learners are promoted again"),
        (
            Self::HoldNodes,
            "hold-nodes",
            "members of new machines become voters, but the machines get no Node",
        ),
        (
            Self::ReleaseNodes,
            "release-nodes",
            "new machines get their Nodes again",
        ),
        (
            Self::ForceNewCluster,
            "force-new-cluster",
            "the member keeps its data, and forgets all other members",
        ),
        (
            Self::PodNotReady,
            "pod-not-ready",
            "the member's static pod is not ready, but the member runs",
        ),
        (
            Self::PodReady,
            "pod-ready",
            "the member's static pod is ready again",
        ),
    ];

    /// Whether the fault needs a machine that exists.
    pub(crate) const fn needs_machine(self) -> bool {
        !matches!(
            self,
            Self::Disarm
                | Self::Stray
                | Self::HoldPromotions
                | Self::Promote
                | Self::HoldNodes
                | Self::ReleaseNodes
        )
    }
}

named_fault::named!(Fault);
