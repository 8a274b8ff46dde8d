//! What can go wrong with a machine. Each has a name for `fault`, which people run.

use std::fmt;
use std::str::FromStr;

use anyhow::{Error, Result};

use crate::named_fault;

/// Something that goes wrong with a machine's etcd member, or is mended again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its process is killed, and its kubelet says so.
    Kill,
    /// What was killed is started again.
    Restart,
    /// Its process stands still: it accepts connections and answers none.
    Freeze,
    /// What was frozen goes on.
    Thaw,
    /// It and its peers do not reach each other; clients reach it.
    CutOff,
    /// What was cut off is connected again.
    Reconnect,
    /// It loses what it stored, and is started again.
    Wipe,
    /// It loses what it stored, and founds an etcd cluster of its own. Stands for two clusters' members joined by mistake:
    /// behind one control plane there are members of two etcd clusters, with different ids, lists and leaders.
    Split,
    /// It has no space left.
    NoSpace,
    /// No member has an alarm any more.
    Disarm,
    /// The certificate that it shows to clients has expired.
    Expire,
    /// It has a new certificate.
    Renew,
    /// It is removed from etcd, and its Machine stays.
    Remove,
    /// A member that is no Machine's joins under this name.
    Stray,
    /// Machines that join from now on stay learners; the machine named does not matter.
    HoldPromotions,
    /// Learners are promoted again.
    Promote,
    /// Its static pod is not ready, while etcd runs.
    PodNotReady,
    /// Its static pod is ready again.
    PodReady,
}

impl Fault {
    /// All, with the name and what happens.
    pub const ALL: [(Self, &str, &str); 18] = [
        (
            Self::Kill,
            "kill",
            "the etcd member is killed, and its pod is not ready",
        ),
        (
            Self::Restart,
            "restart",
            "the member that was killed runs again, and its pod is ready",
        ),
        (
            Self::Freeze,
            "freeze",
            "the member accepts connections and answers none",
        ),
        (Self::Thaw, "thaw", "the member that was frozen goes on"),
        (
            Self::CutOff,
            "cut-off",
            "the member and its peers do not reach each other; clients reach it",
        ),
        (
            Self::Reconnect,
            "reconnect",
            "the member that was cut off is connected again",
        ),
        (
            Self::Wipe,
            "wipe",
            "the member loses its data and is started again",
        ),
        (
            Self::Split,
            "split",
            "the member loses its data and founds an etcd cluster of its own",
        ),
        (Self::NoSpace, "no-space", "the member raises the alarm NOSPACE"),
        (Self::Disarm, "disarm", "no member has an alarm any more"),
        (
            Self::Expire,
            "expire",
            "the certificate that the member shows to clients has expired",
        ),
        (Self::Renew, "renew", "the member has a new certificate"),
        (
            Self::Remove,
            "remove",
            "the member is removed from etcd, and the Machine stays",
        ),
        (
            Self::Stray,
            "stray",
            "a member of that name joins that belongs to no Machine",
        ),
        (
            Self::HoldPromotions,
            "hold-promotions",
            "members that join stay learners",
        ),
        (Self::Promote, "promote", "learners are promoted again"),
        (
            Self::PodNotReady,
            "pod-not-ready",
            "the member's static pod is not ready, and the member runs",
        ),
        (
            Self::PodReady,
            "pod-ready",
            "the member's static pod is ready again",
        ),
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(named_fault::name(&Self::ALL, *self))
    }
}

impl FromStr for Fault {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        named_fault::named(&Self::ALL, name)
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn every_fault_is_known_by_its_name() {
        for (fault, name, _) in Fault::ALL {
            assert_eq!(name.parse::<Fault>().unwrap(), fault);
            assert_eq!(fault.to_string(), name);
        }
    }
}
