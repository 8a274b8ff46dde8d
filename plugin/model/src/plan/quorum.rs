//! What etcd can stand.
//!
//! As `targetEtcdClusterHealthy` of Cluster API counts: only voters make a quorum, a new member is taken for unhealthy
//! until it has proved itself, and nothing is safe while a member has yet to be promoted or to start.

use serde::Serialize;

/// A member, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name of its node; empty while it has not started.
    pub name: String,
    /// Whether it does not vote yet.
    pub is_learner: bool,
    /// Whether it does its work.
    pub is_healthy: bool,
    /// The Machine it runs on; none when there is no such.
    pub machine: Option<String>,
}

impl Member {
    /// Whether it has yet to start or to be promoted.
    pub const fn is_starting(&self) -> bool {
        self.name.is_empty() || self.is_learner
    }
}

/// Votes in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Votes {
    /// Members that vote.
    pub voters: usize,
    /// Those of them that count as unhealthy.
    pub unhealthy: usize,
    /// Members that have yet to start or to be promoted.
    pub starting: usize,
}

/// A change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'m> {
    /// None.
    Unchanged,
    /// One member more.
    Added,
    /// The member of this name is removed.
    Removed(&'m str),
}

impl Votes {
    /// Counts the votes after a change.
    pub fn after(members: &[Member], change: Change<'_>) -> Self {
        let mut votes = Self {
            voters: 0,
            unhealthy: 0,
            starting: 0,
        };
        if change == Change::Added {
            votes.voters = 1;
            // With no or one member no addition could ever be safe in the worst case.
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
            votes.unhealthy += usize::from(!member.is_healthy);
        }
        votes
    }

    /// Votes that a decision of etcd takes.
    pub const fn quorum(self) -> usize {
        self.voters / 2 + 1
    }

    /// Whether etcd can decide.
    pub const fn has_quorum(self) -> bool {
        self.voters.saturating_sub(self.unhealthy) >= self.quorum()
    }

    /// Whether the controller would go there.
    pub const fn is_safe(self) -> bool {
        self.has_quorum() && self.starting == 0
    }

    /// Members that may fail before etcd can no longer decide.
    pub const fn may_fail(self) -> usize {
        self.voters
            .saturating_sub(self.unhealthy)
            .saturating_sub(self.quorum())
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Member, Votes};

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
                machine: None,
            })
            .collect()
    }

    #[test]
    fn counts_as_cluster_api_does() {
        use Change::{Added, Removed, Unchanged};
        // Members, change, voters, unhealthy, quorum, may fail, safe.
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
            // A member without a name is no member to remove.
            ("hhh-", Removed(""), 3, 0, 2, 1, false),
        ];
        for (letters, change, voters, unhealthy, quorum, may_fail, safe) in cases {
            let votes = Votes::after(&members(letters), *change);
            assert_eq!(
                (
                    votes.voters,
                    votes.unhealthy,
                    votes.quorum(),
                    votes.may_fail(),
                    votes.is_safe()
                ),
                (*voters, *unhealthy, *quorum, *may_fail, *safe),
                "{letters} {change:?}"
            );
        }
    }
}
