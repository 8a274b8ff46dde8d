//! The release of Cluster API whose kubeadm control plane controller runs, and where its decisions differ from those of other
//! releases.

use std::fmt;

/// A release of Cluster API 1: the minor and the patch version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    minor: u64,
    patch: u64,
}

/// A decision of the controller that not every release makes. The names of functions are those of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    UpdatesInPlace,
    /// `targetKubernetesControlPlaneComponentsHealthy`
    RequiresWorkingMachine,
    /// `targetEtcdClusterHealthy` without the guard `IsEtcdManaged` in `reconcileUnhealthyMachines`
    RequiresMemberList,
    /// `checkHealthinessWhileRemediationInProgress`
    ReplacesDespiteUnhealthy,
    /// `reconcilePreTerminateHook`
    HoldsUnsafeDeletions,
    /// `preflightChecks`
    RequiresCertificates,
    /// `reconcileEtcdMembers`
    RemovesUnnamedMembers,
    /// `forwardEtcdLeadership`. Earlier releases call `forLeader`.
    LearnsLeaderFromFollowers,
    /// `getCandidatesForEtcdLeadership`. Earlier releases may choose the leader itself.
    KeepsOnlyLeader,
    /// `etcdMemberStartupGracePeriod`
    SparesUnnamedMembers,
}

impl Behaviour {
    pub const ALL: [Self; 10] = [
        Self::UpdatesInPlace,
        Self::RequiresWorkingMachine,
        Self::RequiresMemberList,
        Self::ReplacesDespiteUnhealthy,
        Self::HoldsUnsafeDeletions,
        Self::RequiresCertificates,
        Self::RemovesUnnamedMembers,
        Self::LearnsLeaderFromFollowers,
        Self::KeepsOnlyLeader,
        Self::SparesUnnamedMembers,
    ];

    /// The first release that decides in this way. The source is the controller in the releases v1.11.5, v1.12.0, v1.12.10, v1.13.0
    /// to v1.13.6 and v1.14.0 to v1.14.2.
    const fn since(self) -> Release {
        match self {
            Self::UpdatesInPlace => Release::new(12, 0),
            Self::RequiresWorkingMachine
            | Self::RequiresMemberList
            | Self::ReplacesDespiteUnhealthy
            | Self::HoldsUnsafeDeletions
            | Self::RequiresCertificates => Release::new(13, 0),
            Self::RemovesUnnamedMembers => Release::new(13, 2),
            Self::LearnsLeaderFromFollowers | Self::KeepsOnlyLeader => Release::new(14, 0),
            Self::SparesUnnamedMembers => Release::new(14, 2),
        }
    }

    /// The difference as the book describes it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::UpdatesInPlace => "runtime extensions may update Machines in place",
            Self::RequiresWorkingMachine => {
                "a remediation requires another Machine with healthy control plane components"
            }
            Self::RequiresMemberList => "a remediation requires a list of etcd members",
            Self::ReplacesDespiteUnhealthy => {
                "after a remediation, the controller creates the replacement even if other Machines are unhealthy"
            }
            Self::HoldsUnsafeDeletions => {
                "the deletion of a Machine waits until etcd and the control plane work without it"
            }
            Self::RequiresCertificates => {
                "no Machine is created unless condition CertificatesAvailable is True"
            }
            Self::RemovesUnnamedMembers => "an etcd member that has never started is removed",
            Self::LearnsLeaderFromFollowers => {
                "an etcd leader that does not respond blocks only the deletion of its own Machine, not of every Machine"
            }
            Self::KeepsOnlyLeader => {
                "with stacked etcd, a rollout with `maxSurge` 0 does not delete the only Machine, and never ends"
            }
            Self::SparesUnnamedMembers => {
                "an etcd member that has never started is kept until the newest Node is 20 seconds old"
            }
        }
    }
}

impl Release {
    /// The oldest release whose decisions are known. Predictions for older releases follow this release.
    pub const OLDEST: Self = Self::new(11, 0);
    /// The latest release whose decisions are known. Predictions for later releases follow this release.
    pub const LATEST: Self = Self::new(14, 2);

    pub const fn new(minor: u64, patch: u64) -> Self {
        Self { minor, patch }
    }

    /// Returns the release of a version such as `v1.14.2`. Ignores what follows the patch version, such as a vendor's suffix. `None`
    /// if the text is not a version of Cluster API 1.
    pub fn parse(version: &str) -> Option<Self> {
        let mut parts = version.strip_prefix('v').unwrap_or(version).splitn(3, '.');
        let major = parts.next()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next()?;
        let end = patch.find(|letter: char| !letter.is_ascii_digit());
        let patch = patch.get(..end.unwrap_or(patch.len()))?.parse().ok()?;
        (major == "1").then_some(Self { minor, patch })
    }

    pub fn has(self, behaviour: Behaviour) -> bool {
        self >= behaviour.since()
    }

    /// Whether the decisions of this minor version are known.
    pub const fn is_known(self) -> bool {
        Self::OLDEST.minor <= self.minor && self.minor <= Self::LATEST.minor
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "v1.{}.{}", self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, Release};

    #[test]
    fn the_release_is_read_from_a_tag() {
        for (version, expected) in [
            ("v1.14.2", Some(Release::new(14, 2))),
            ("1.11.5", Some(Release::new(11, 5))),
            ("v1.14.0-rc.1", Some(Release::new(14, 0))),
            ("v1.13.4_vmware.1", Some(Release::new(13, 4))),
            ("v1.13.4+build", Some(Release::new(13, 4))),
            ("v2.0.0", None),
            ("v1.14", None),
            ("v1.14.x", None),
            ("latest", None),
            ("", None),
        ] {
            assert_eq!(Release::parse(version), expected, "{version}");
        }
    }

    #[test]
    fn a_release_decides_as_the_releases_before_it_or_has_the_difference() {
        let of_release = |minor, patch| {
            let release = Release::new(minor, patch);
            Behaviour::ALL.map(|behaviour| u8::from(release.has(behaviour)))
        };
        assert_eq!(of_release(11, 5), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of_release(12, 10), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of_release(13, 1), [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(of_release(13, 2), [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!(of_release(14, 1), [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(of_release(14, 2), [1; 10]);
        assert_eq!(of_release(15, 0), [1; 10]);
    }

    #[test]
    fn the_book_lists_every_difference() {
        const PAGE: &str = include_str!("../../../docs/src/reference/versions.md");
        for behaviour in Behaviour::ALL {
            let row = format!("| {} | {} |", behaviour.since(), behaviour.text());
            assert!(PAGE.contains(&row), "{row}");
        }
    }
}
