//! The answer to a request for a lease.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use kcp_client::Error;

use crate::{
    creation::make::Obstacle,
    install_config::patches::{Unfit, shortened},
    inventory::choice::Standing,
    lease::{Leased, unfinished},
    objects::{cluster_pool::PoolName, entry::Holder},
};

/// A message names this many entries, and counts the others.
const NAMED: usize = 10;

/// A message says of this many entries why they are broken.
const EXPLAINED: usize = 3;

/// The length of such an explanation, in characters.
const EXPLANATION: usize = 400;

#[derive(Debug)]
pub struct LeaseAnswer {
    pub pool: PoolName,
    /// The holder; of a claim the ClusterDeployment that it got.
    pub cluster_deployment: String,
    pub outcome: LeaseOutcome,
    /// How long the wait was, if it ended without a lease.
    pub waited: Option<Duration>,
    /// Why it is unknown which customizations clusters use.
    pub clusters_unread: Option<Error>,
}

#[derive(Debug)]
pub enum LeaseOutcome {
    Leased(Lease),
    /// A cluster that Hive assigned to a claim.
    Claimed {
        name: String,
        /// None if the pool has no inventory.
        customization: Option<String>,
    },
    Refused(LeaseRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub leased: Leased,
    /// How long it lasts from each renewal; none if it has no end.
    pub duration: Option<Duration>,
    /// Whether its ClusterDeployment was created, or existed.
    pub has_cluster: bool,
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRefusal {
    /// No entry is free. The state of each.
    Exhausted {
        pool: PoolName,
        entries: Vec<(String, Standing)>,
    },
    NoInventory {
        pool: String,
    },
    PoolDeleting {
        pool: String,
    },
    /// The holder's ClusterDeployment is being deleted.
    ClusterDeleting {
        cluster_deployment: String,
        pool: String,
    },
    /// Hive frees an entry whose holder has no ClusterDeployment in the pool.
    RunByHive {
        cluster_deployment: String,
        pool: String,
    },
    /// Hive deletes a cluster that it did not create.
    CreationInHivePool {
        pool: String,
    },
    /// The holder is bound to an entry that it cannot have.
    Bound {
        cluster_deployment: String,
        pool: String,
        customization: String,
        standing: Standing,
    },
    /// The holder already has this entry, and the request is for a new lease.
    HeldBefore {
        cluster_deployment: String,
        customization: String,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldUnfit {
        cluster_deployment: String,
        customization: String,
        why: Unfit,
    },
    /// The lease's cluster cannot be created.
    Creation(Obstacle),
    /// The same after the entry was leased.
    Unfinished {
        customization: String,
        cluster_deployment: String,
        why: Obstacle,
    },
    LostWhileCreating {
        customization: String,
        cluster_deployment: String,
    },
    NotRunByHive {
        pool: String,
    },
    ClaimOfOtherPool {
        claim: String,
        pool: String,
    },
    /// The time to wait for Hive is over.
    ClaimPending {
        why: String,
        claim: ClaimAfterTimeout,
    },
    ClaimDeleting {
        claim: String,
    },
    ClaimDeleted {
        claim: String,
    },
    ClaimedClusterDeleting {
        claim: String,
        cluster_deployment: String,
    },
}

/// What happens to a claim that got no cluster in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAfterTimeout {
    Kept,
    Deleted,
    /// Another process created it, so it stays.
    Foreign,
}

impl LeaseAnswer {
    pub fn new(namespace: &str, holder: Holder<'_>, outcome: LeaseOutcome) -> Self {
        Self {
            pool: PoolName::new(namespace, holder.pool),
            cluster_deployment: holder.cluster_deployment.to_owned(),
            outcome,
            waited: None,
            clusters_unread: None,
        }
    }

    /// The same, after a wait.
    pub fn timed_out(self, waited: Duration) -> Self {
        Self {
            waited: Some(waited),
            ..self
        }
    }

    pub fn refusal(&self) -> Option<&LeaseRefusal> {
        match &self.outcome {
            LeaseOutcome::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    pub fn is_exhausted(&self) -> bool {
        matches!(
            self.outcome,
            LeaseOutcome::Refused(LeaseRefusal::Exhausted { .. })
        )
    }

    pub fn customization(&self) -> Option<&str> {
        match &self.outcome {
            LeaseOutcome::Leased(lease) => Some(&lease.leased.customization),
            LeaseOutcome::Claimed { customization, .. } => customization.as_deref(),
            LeaseOutcome::Refused(_) => None,
        }
    }
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { pool, entries } => f.write_str(&none_free(pool, entries)),
            Self::NoInventory { pool } => {
                write!(f, "pool {pool} has no inventory: there is nothing to lease")
            }
            Self::PoolDeleting { pool } => write!(f, "pool {pool} is being deleted"),
            Self::ClusterDeleting {
                cluster_deployment,
                pool,
            } => write!(
                f,
                "ClusterDeployment {cluster_deployment} of pool {pool} is being deleted; release it first, or choose \
                 another name"
            ),
            Self::RunByHive {
                cluster_deployment,
                pool,
            } => write!(
                f,
                "Hive runs pool {pool} and would revoke the lease at once: the pool has no ClusterDeployment \
                 {cluster_deployment}; to get a cluster from Hive, lease with --claim"
            ),
            Self::CreationInHivePool { pool } => write!(
                f,
                "Hive runs pool {pool} and would delete a cluster that it did not create; lease with --claim"
            ),
            Self::Bound {
                cluster_deployment,
                pool,
                customization,
                standing,
            } => write!(
                f,
                "ClusterDeployment {cluster_deployment} is bound to {}, and cannot get another entry",
                standing.described(customization, pool)
            ),
            Self::HeldBefore {
                cluster_deployment,
                customization,
            } => write!(
                f,
                "{cluster_deployment} already holds {customization}, and another process may still use it; release it, or \
                 choose another name"
            ),
            Self::HeldUnfit {
                cluster_deployment,
                customization,
                why,
            } => write!(
                f,
                "{cluster_deployment} already holds {customization} and cannot get another entry: {why}"
            ),
            Self::Creation(why) => why.fmt(f),
            Self::Unfinished {
                customization,
                cluster_deployment,
                why,
            } => write!(f, "{}: {why}", unfinished(customization, cluster_deployment)),
            Self::LostWhileCreating {
                customization,
                cluster_deployment,
            } => write!(
                f,
                "{customization} was leased to another holder while cluster {cluster_deployment} was created with it: delete \
                 ClusterDeployment {cluster_deployment}"
            ),
            Self::NotRunByHive { pool } => {
                write!(f, "Hive does not run pool {pool}, so it would not answer a claim")
            }
            Self::ClaimOfOtherPool { claim, pool } => {
                write!(f, "ClusterClaim {claim} already exists, for pool {pool}")
            }
            Self::ClaimPending { why, claim } => {
                let what_then = match claim {
                    ClaimAfterTimeout::Kept => "the claim is kept",
                    ClaimAfterTimeout::Deleted => "the claim was deleted",
                    ClaimAfterTimeout::Foreign => "the claim existed before and is kept",
                };
                write!(f, "{why}; {what_then}")
            }
            Self::ClaimDeleting { claim } => write!(f, "ClusterClaim {claim} is being deleted"),
            Self::ClaimDeleted { claim } => write!(f, "ClusterClaim {claim} was deleted"),
            Self::ClaimedClusterDeleting {
                claim,
                cluster_deployment,
            } => write!(
                f,
                "ClusterDeployment {cluster_deployment} of ClusterClaim {claim} is being deleted"
            ),
        }
    }
}

impl Standing {
    /// After `which is`.
    const fn participle(&self) -> &'static str {
        match self {
            Self::Ours | Self::OursUnmarked | Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Referenced { .. } => "used",
            Self::Unfit(_) => "broken",
            Self::Deleting => "being deleted",
            Self::Unnamed => "not in the inventory",
            Self::Missing => "missing",
        }
    }

    /// ` by x`, with the pool if it is not the requested one.
    fn by(&self, asked: &str) -> String {
        let (cluster_deployment, pool) = self.user();
        let mut text = String::new();
        // Writing to a String cannot fail.
        if let Some(cluster_deployment) = cluster_deployment {
            let _ = write!(text, " by {cluster_deployment}");
        }
        if let Some(pool) = pool.filter(|pool| *pool != asked) {
            let _ = write!(text, " of pool {pool}");
        }
        text
    }

    /// `a, which is held by x`.
    pub fn described(&self, name: &str, asked: &str) -> String {
        format!("{name}, which is {}{}", self.participle(), self.by(asked))
    }

    /// `a by x`.
    fn named(&self, name: &str, asked: &str) -> String {
        format!("{name}{}", self.by(asked))
    }

    /// `a by x`, or `a (why it is broken)`.
    fn explained(&self, name: &str, asked: &str) -> String {
        match self {
            Self::Unfit(why) => format!("{name} ({})", shortened(&why.to_string(), EXPLANATION)),
            _ => self.named(name, asked),
        }
    }
}

/// `pool d/p has no free entry of 3: 2 held: a by x, b by y; 1 missing: c`.
fn none_free(pool: &PoolName, entries: &[(String, Standing)]) -> String {
    type Is = fn(&Standing) -> bool;
    let mut text = format!(
        "pool {}/{} has no free entry of {}: ",
        pool.namespace,
        pool.name,
        entries.len()
    );
    let groups: [(Is, &str); 5] = [
        (|standing| matches!(standing, Standing::Held { .. }), "held"),
        (
            |standing| matches!(standing, Standing::Referenced { .. }),
            "used by a cluster without a lease",
        ),
        (|standing| matches!(standing, Standing::Unfit(_)), "broken"),
        (|standing| *standing == Standing::Deleting, "being deleted"),
        (|standing| *standing == Standing::Missing, "missing"),
    ];
    let mut separator = "";
    for (is, title) in groups {
        let such: Vec<_> = entries.iter().filter(|(_, standing)| is(standing)).collect();
        if such.is_empty() {
            continue;
        }
        let names: Vec<_> = such
            .iter()
            .take(NAMED)
            .enumerate()
            .map(|(index, (name, standing))| {
                if index < EXPLAINED {
                    standing.explained(name, &pool.name)
                } else {
                    standing.named(name, &pool.name)
                }
            })
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{} {title}: {}", such.len(), names.join(", "));
        if such.len() > NAMED {
            let _ = write!(text, " and {} more", such.len() - NAMED);
        }
        separator = "; ";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{LeaseRefusal, PoolName, Standing, Unfit, none_free};
    use crate::objects::cluster_deployment::Deployment;

    #[test]
    fn one_entry_in_a_sentence() {
        let held = |cluster_deployment: Option<&str>, pool: Option<&str>| Standing::Held {
            cluster_deployment: cluster_deployment.map(str::to_owned),
            pool: pool.map(str::to_owned),
        };
        let by = Deployment {
            name: "x".to_owned(),
            pool: "other".to_owned(),
        };
        for (standing, expected) in [
            (held(Some("x"), Some("pool")), "a, which is held by x"),
            (
                held(Some("x"), Some("other")),
                "a, which is held by x of pool other",
            ),
            (held(None, None), "a, which is held"),
            (Standing::Referenced { by }, "a, which is used by x of pool other"),
            (Standing::Deleting, "a, which is being deleted"),
            (Standing::Unnamed, "a, which is not in the inventory"),
            (Standing::Missing, "a, which is missing"),
        ] {
            assert_eq!(standing.described("a", "pool"), expected);
        }
    }

    #[test]
    fn why_the_first_of_the_broken_are_so() {
        let pool = PoolName::new("d", "pool");
        let broken = |name: &str, why: String| (name.to_owned(), Standing::Unfit(Unfit::Broken(why)));
        let entries = ["a", "b", "c", "d"].map(|name| broken(name, format!("not {name}")));
        let exhausted = LeaseRefusal::Exhausted {
            pool: pool.clone(),
            entries: entries.into(),
        };
        assert_eq!(
            exhausted.to_string(),
            "pool d/pool has no free entry of 4: 4 broken: a (not a), b (not b), c (not c), d"
        );
        let long = none_free(&pool, &[broken("a", "ä".repeat(33_000))]);
        assert_eq!(
            long,
            format!(
                "pool d/pool has no free entry of 1: 1 broken: a ({}...)",
                "ä".repeat(400)
            )
        );
    }
}
