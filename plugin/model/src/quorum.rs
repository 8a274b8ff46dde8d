//! Counts etcd's votes, and decides whether etcd keeps its quorum after a change of its members.
//!
//! The count after a change follows `targetEtcdClusterHealthy` of Cluster API: only voting members count for the quorum, a new
//! member counts as unhealthy, and no change is safe while a member is a learner or has not started.

use std::fmt;

use semver::Version;
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct Member {
    /// The name of the member's node. Empty until the member starts.
    pub name: String,
    pub is_learner: bool,
    pub is_healthy: bool,
    /// Whether the controller reports the member's Machine as unhealthy. The controller then counts the member as unhealthy.
    pub is_reported_unhealthy: bool,
    /// Whether the member may belong to a Machine that is joining.
    pub is_joining: bool,
    /// Whether the member is a voter that has stopped, or is cut off, so that the other members are not connected to it.
    pub is_dead: bool,
    /// Whether the member admits a new member if it is connected to a quorum of the voters ([`admits_by_quorum`]). Other members must be
    /// connected to every voter.
    pub admits_by_quorum: bool,
    /// Whether the member's health is unknown: neither the member nor a condition of its Machine reports it.
    /// The controller then counts the member as unhealthy.
    pub is_unknown: bool,
    pub machine: Option<String>,
}

impl Member {
    /// Whether the member is a learner or has not started, and therefore does not vote. The controller waits for it.
    pub const fn is_starting(&self) -> bool {
        self.name.is_empty() || self.is_learner
    }
}

/// Whether a member of this version of etcd admits a new member if it is connected to a quorum, counted with the new member. Earlier
/// versions must be connected to every voter (etcd-io/etcd#21641).
pub fn admits_by_quorum(version: &Version) -> bool {
    match (version.major, version.minor) {
        (3, 5) => version.patch >= 31,
        (3, 6) => version.patch >= 11,
        (major, minor) => (major, minor) > (3, 6),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Votes {
    pub voters: usize,
    /// The number of voting members that count as unhealthy.
    pub unhealthy: usize,
    /// The number of learners. In the count of Cluster API's controller, also the number of members that have not started.
    pub starting: usize,
}

/// Why etcd refuses a change of its members. etcd refuses by default (`strict-reconfig-check`), whatever Cluster API decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtcdRefusal {
    pub change: RefusedChange,
    /// The voting members that do not respond.
    pub dead: Vec<DeadMember>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RefusedChange {
    Join,
    Removal,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadMember {
    pub member: String,
    /// The Machine on which the member runs. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

impl EtcdRefusal {
    /// Why no member can join. `None` if etcd admits one, or has lost its quorum.
    ///
    /// Source: `mayAddMember` of etcd. The member that receives the request decides, and the new member counts as a voter that is not
    /// connected, even if it is a learner.
    pub fn of_join(members: &[Member]) -> Option<Self> {
        let voters = members.iter().filter(|member| !member.is_learner);
        let mut connected = voters.clone().filter(|member| !member.is_dead);
        let with_new = Votes {
            voters: voters.clone().count() + 1,
            unhealthy: voters.filter(|member| member.is_dead).count() + 1,
            starting: 0,
        };
        if with_new.has_quorum() && connected.all(|member| member.admits_by_quorum) {
            return None;
        }
        Self::new(RefusedChange::Join, members)
    }

    /// Why the member with this name cannot be removed. `None` if etcd removes it, or has lost its quorum.
    ///
    /// Source: `mayRemoveMember` of etcd. etcd removes a learner or a dead member without counting connections. It removes any
    /// other member only if the connected voters that remain are a quorum.
    pub fn of_removal(members: &[Member], name: &str) -> Option<Self> {
        let removed = members.iter().find(|member| member.name == name)?;
        let others = members
            .iter()
            .filter(|member| member.name != name && !member.is_learner);
        let votes = Votes {
            voters: others.clone().count(),
            unhealthy: others.filter(|member| member.is_dead).count(),
            starting: 0,
        };
        if removed.is_learner || removed.is_dead || votes.has_quorum() {
            return None;
        }
        Self::new(RefusedChange::Removal, members)
    }

    fn new(change: RefusedChange, members: &[Member]) -> Option<Self> {
        let dead: Vec<DeadMember> = members
            .iter()
            .filter(|member| member.is_dead)
            .map(|member| DeadMember {
                member: member.name.clone(),
                machine: member.machine.clone(),
            })
            .collect();
        let is_lost = Votes::lost_quorum_votes(members).is_some();
        (!dead.is_empty() && !is_lost).then_some(Self { change, dead })
    }

    /// Says how to end the refusal. `waiting` is the Machine whose deletion has begun and waits for etcd. Cluster API then
    /// deletes no other Machine, so a replacement of the dead member's Machine would only wait, too.
    pub fn hint(&self, waiting: Option<&str>, namespace: &str, name: &str) -> String {
        let ways = self
            .dead
            .iter()
            .map(|DeadMember { member, machine }| match (machine, waiting) {
                (Some(machine), None) => {
                    format!("replace Machine {machine}: kubectl kcp machine replace {machine} -n {namespace}")
                }
                _ => format!(
                    "remove the dead member: kubectl kcp etcd remove-member {name} {member} -n {namespace}"
                ),
            });
        let start = if self.dead.len() == 1 {
            "start the member again"
        } else {
            "start these members again"
        };
        let then = waiting.map_or_else(String::new, |machine| {
            format!(
                "; the controller then tries again within ten minutes; to make it try again now: kubectl kcp reconcile \
                 machine/{machine} -n {namespace}"
            )
        });
        format!("{start}, or {}{then}", ways.collect::<Vec<_>>().join("; then "))
    }

    /// The id of the check in `status` that reports the refusal.
    pub const fn check_id(&self) -> &'static str {
        match self.change {
            RefusedChange::Join => "etcd-refuses-join",
            RefusedChange::Removal => "etcd-refuses-removal",
        }
    }
}

impl fmt::Display for EtcdRefusal {
    /// Writes the reason, such as `etcd admits no new member while member node-m1 of Machine m1 does not respond`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.change {
            RefusedChange::Join => "etcd admits no new member",
            RefusedChange::Removal => "etcd refuses to remove a running member",
        })?;
        for (number, DeadMember { member, machine }) in self.dead.iter().enumerate() {
            formatter.write_str(if number == 0 { " while " } else { " and " })?;
            write!(formatter, "member {member}")?;
            if let Some(machine) = machine {
                write!(formatter, " of Machine {machine}")?;
            }
        }
        formatter.write_str(if self.dead.len() == 1 {
            " does not respond"
        } else {
            " do not respond"
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'m> {
    Unchanged,
    Added,
    Removed(&'m str),
}

impl Votes {
    pub fn after(members: &[Member], change: Change<'_>) -> Self {
        let mut votes = Self {
            voters: 0,
            unhealthy: 0,
            starting: 0,
        };
        if change == Change::Added {
            votes.voters = 1;
            // If the new member counted as unhealthy in a cluster of one member, no second member could ever join.
            votes.unhealthy = usize::from(members.len() > 1);
        }
        for member in members {
            if !member.name.is_empty() && change == Change::Removed(&member.name) {
                continue;
            }
            if member.is_starting() {
                votes.starting += 1;
                continue;
            }
            votes.voters += 1;
            votes.unhealthy += usize::from(!member.is_healthy || member.is_reported_unhealthy);
        }
        votes
    }

    /// Counts the votes as etcd does, according to the members' own status, whatever the controller reports. etcd counts a
    /// member from the moment when it is added, unless it is added as a learner. The controller counts it once it has
    /// started ([`Self::after`]).
    ///
    /// Source: etcd, "Design of runtime reconfiguration".
    pub fn by_status(members: &[Member]) -> Self {
        let voters = members.iter().filter(|member| !member.is_learner);
        Self {
            voters: voters.clone().count(),
            unhealthy: voters.filter(|member| !member.is_healthy).count(),
            starting: members.iter().filter(|member| member.is_learner).count(),
        }
    }

    /// Returns the votes if etcd has lost quorum: too few voters are healthy, even if every joining and every unknown
    /// member turns out to be healthy. `None` if etcd has not lost quorum.
    pub fn lost_quorum_votes(members: &[Member]) -> Option<Self> {
        let best_case = members.iter().map(|member| Member {
            is_healthy: member.is_healthy || member.is_joining || member.is_unknown,
            ..member.clone()
        });
        let best_case: Vec<Member> = best_case.collect();
        // Until a joining member has started, etcd accepts writes only if the started members are a quorum.
        let started = best_case.iter().filter(|member| !member.name.is_empty());
        let started: Vec<Member> = started.cloned().collect();
        let is_lost = [&best_case, &started]
            .iter()
            .any(|members| !Self::by_status(members).has_quorum());
        (!members.is_empty() && is_lost).then(|| Self::by_status(members))
    }

    pub const fn quorum(self) -> usize {
        self.voters / 2 + 1
    }

    pub const fn has_quorum(self) -> bool {
        self.voters.saturating_sub(self.unhealthy) >= self.quorum()
    }

    /// Whether the controller proceeds with a change that leads to these votes.
    pub const fn is_safe(self) -> bool {
        self.has_quorum() && self.starting == 0
    }

    /// How many more members can fail before etcd loses quorum.
    pub const fn failure_tolerance(self) -> usize {
        self.voters
            .saturating_sub(self.unhealthy)
            .saturating_sub(self.quorum())
    }
}

impl fmt::Display for Votes {
    /// Writes the votes, such as `2 of 3 voting members healthy, 2 needed for quorum, 1 not voting yet`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let healthy = self.voters.saturating_sub(self.unhealthy);
        write!(
            formatter,
            "{healthy} of {} voting members healthy, {} needed for quorum",
            self.voters,
            self.quorum()
        )?;
        if self.starting > 0 {
            write!(formatter, ", {} not voting yet", self.starting)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use semver::Version;

    use super::{Change, EtcdRefusal, Member, Votes, admits_by_quorum};

    /// A member for each letter: `h`ealthy, `u`nhealthy, `l`earner, `L`earner that is unhealthy, `-` not started.
    fn members(letters: &str) -> Vec<Member> {
        letters
            .chars()
            .enumerate()
            .map(|(index, letter)| Member {
                name: if letter == '-' {
                    String::new()
                } else {
                    format!("n{index}")
                },
                is_learner: matches!(letter, 'l' | 'L'),
                is_healthy: matches!(letter, 'h' | 'l'),
                ..Member::default()
            })
            .collect()
    }

    #[test]
    fn counts_as_cluster_api_does() {
        use Change::{Added, Removed, Unchanged};
        // Members, change, voters, unhealthy, quorum, failure tolerance, whether it is safe.
        type Case = (&'static str, Change<'static>, usize, usize, usize, usize, bool);
        let cases: &[Case] = &[
            ("", Unchanged, 0, 0, 1, 0, false),
            ("", Added, 1, 0, 1, 0, true),
            ("h", Unchanged, 1, 0, 1, 0, true),
            ("h", Added, 2, 0, 2, 0, true),
            ("u", Added, 2, 1, 2, 0, false),
            ("hh", Unchanged, 2, 0, 2, 0, true),
            ("hh", Added, 3, 1, 2, 0, true),
            ("hu", Added, 3, 2, 2, 0, false),
            ("hh", Removed("n0"), 1, 0, 1, 0, true),
            ("hhh", Unchanged, 3, 0, 2, 1, true),
            ("hhh", Added, 4, 1, 3, 0, true),
            ("hhu", Unchanged, 3, 1, 2, 0, true),
            ("hhu", Added, 4, 2, 3, 0, false),
            ("hhu", Removed("n2"), 2, 0, 2, 0, true),
            ("hhu", Removed("n0"), 2, 1, 2, 0, false),
            ("huu", Unchanged, 3, 2, 2, 0, false),
            ("huu", Removed("n2"), 2, 1, 2, 0, false),
            ("hhhh", Removed("n0"), 3, 0, 2, 1, true),
            ("hhhhh", Unchanged, 5, 0, 3, 2, true),
            ("hhhhu", Added, 6, 2, 4, 0, true),
            ("hhhuu", Added, 6, 3, 4, 0, false),
            ("hhhuu", Removed("n4"), 4, 1, 3, 0, true),
            ("hhl", Unchanged, 2, 0, 2, 0, false),
            ("hhl", Removed("n2"), 2, 0, 2, 0, true),
            ("hhL", Unchanged, 2, 0, 2, 0, false),
            ("hh-", Unchanged, 2, 0, 2, 0, false),
            // A Machine without a member name has no member to remove.
            ("hhh-", Removed(""), 3, 0, 2, 1, false),
        ];
        for (letters, change, voters, unhealthy, quorum, may_fail, safe) in cases {
            let votes = Votes::after(&members(letters), *change);
            assert_eq!(
                (
                    votes.voters,
                    votes.unhealthy,
                    votes.quorum(),
                    votes.failure_tolerance(),
                    votes.is_safe()
                ),
                (*voters, *unhealthy, *quorum, *may_fail, *safe),
                "{letters} {change:?}"
            );
        }
    }

    #[test]
    fn a_dead_member_prevents_a_join() {
        // Members, whether etcd refuses a join if the others need every voter, and otherwise.
        for (letters, strict, by_quorum) in [
            ("hhh", false, false),
            ("hhu", true, true),
            ("hhhu", true, false),
            ("hhhhu", true, false),
            ("hhhuu", true, true),
            ("hhhul", true, false),
            // etcd has lost its quorum.
            ("huu", false, false),
        ] {
            for (admits_by_quorum, expected) in [(false, strict), (true, by_quorum)] {
                let mut members = members(letters);
                for (member, letter) in members.iter_mut().zip(letters.chars()) {
                    member.is_dead = letter == 'u';
                    // The version of a dead member does not matter.
                    member.admits_by_quorum = admits_by_quorum && !member.is_dead;
                }
                assert_eq!(EtcdRefusal::of_join(&members).is_some(), expected, "{letters}");
            }
        }
    }

    /// The function `mayAddMember` of each version was read.
    #[test]
    fn newer_versions_admit_a_member_by_quorum() {
        for (version, expected) in [
            ("3.4.37", false),
            ("3.5.27", false),
            ("3.5.31", true),
            ("3.6.10", false),
            ("3.6.11", true),
            ("3.7.0", true),
            ("4.0.0", true),
        ] {
            let parsed = Version::parse(version).expect("a version");
            assert_eq!(admits_by_quorum(&parsed), expected, "{version}");
        }
    }

    /// As `h`, `u` and `-` in the other tests; `j` has not started, and may belong to a Machine that is joining.
    #[test]
    fn quorum_is_lost_if_no_joining_member_can_restore_it() {
        for (letters, is_lost) in [
            ("hj", false),
            ("h-", true),
            ("hhj", false),
            ("huj", true),
            ("j", true),
            ("", false),
        ] {
            let mut members = members(&letters.replace('j', "-"));
            for (member, letter) in members.iter_mut().zip(letters.chars()) {
                member.is_joining = letter == 'j';
            }
            assert_eq!(Votes::lost_quorum_votes(&members).is_some(), is_lost, "{letters}");
        }
    }

    #[test]
    fn counts_as_etcd_does() {
        // Members, voters, unhealthy, members without a vote, failure tolerance, whether quorum is lost.
        let cases = [
            ("hhh", 3, 0, 0, 1, false),
            ("hhl", 2, 0, 1, 0, false),
            ("hhh-", 4, 1, 0, 0, false),
            ("hh-", 3, 1, 0, 0, false),
            ("h-", 2, 1, 0, 0, true),
        ];
        for (letters, voters, unhealthy, starting, may_fail, is_lost) in cases {
            let members = members(letters);
            let votes = Votes::by_status(&members);
            assert_eq!(
                (
                    votes.voters,
                    votes.unhealthy,
                    votes.starting,
                    votes.failure_tolerance(),
                    Votes::lost_quorum_votes(&members).is_some(),
                ),
                (voters, unhealthy, starting, may_fail, is_lost),
                "{letters}"
            );
        }
    }
}
