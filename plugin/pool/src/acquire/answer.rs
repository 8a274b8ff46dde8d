//! The answer to a request for a lease.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use kcp_client::Error;

use crate::{
    creation::make::Obstacle,
    hive::Because,
    install_config::patches::{Unfit, shortened},
    lease::{
        attempt::Leased,
        choice::{Standing, Until, Unusable},
        unfinished,
    },
    objects::{Holder, PoolName},
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
    /// Whether the leased customization has patches that no install-config was there for.
    pub are_patches_unchecked: bool,
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
    /// The customization that the pool applies to all of its clusters cannot be applied.
    PoolUnfit {
        pool: String,
        customization: String,
        why: String,
    },
    PoolDeleting {
        pool: String,
    },
    /// The holder's ClusterDeployment is being deleted.
    ClusterDeleting {
        cluster_deployment: String,
        pool: String,
    },
    /// The pool's inventory has no entry that was asked for.
    NoneSelected {
        pool: String,
    },
    /// Hive frees an entry that it has not reserved itself, and deletes a cluster that it did not create.
    RunByHive {
        pool: String,
        because: Because,
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
    NotRunByHive {
        pool: String,
        because: Because,
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
            are_patches_unchecked: false,
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
            Self::PoolUnfit {
                pool,
                customization,
                why,
            } => write!(
                f,
                "customizationRef {customization} of pool {pool} cannot be applied: {why}"
            ),
            Self::PoolDeleting { pool } => write!(f, "pool {pool} is being deleted"),
            Self::ClusterDeleting {
                cluster_deployment,
                pool,
            } => write!(
                f,
                "ClusterDeployment {cluster_deployment} of pool {pool} is being deleted; release it first, or choose \
                 another name"
            ),
            Self::NoneSelected { pool } => {
                write!(
                    f,
                    "the inventory of pool {pool} has no such entry: there is nothing to lease"
                )
            }
            Self::RunByHive { pool, because } => write!(
                f,
                "Hive runs pool {pool} ({because}) and would revoke the lease: to get a cluster from Hive, lease with \
                 --claim; if Hive does not run it, use --hive=no"
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
            Self::NotRunByHive { pool, because } => write!(
                f,
                "Hive does not run pool {pool} ({because}), so it would not answer a claim; if it does, use --hive=yes"
            ),
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
            Self::Ours | Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Referenced { .. } => "used",
            Self::Unusable(why) => why.participle(),
        }
    }

    /// ` by x until ...`, with the pool if it is not the requested one.
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
        if let Self::Held {
            until: Some(until), ..
        } = self
        {
            let _ = write!(text, " {until}");
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

    /// `a by x`, or `a (why it cannot be used)`.
    fn explained(&self, name: &str, asked: &str) -> String {
        match self {
            Self::Unusable(Unusable::Unfit(why)) => {
                format!("{name} ({})", shortened(&why.to_string(), EXPLANATION))
            }
            Self::Unusable(Unusable::Cordoned(why)) => format!("{name} ({})", shortened(why, EXPLANATION)),
            Self::Unusable(Unusable::Unreadable(why)) => format!("{name} ({why})"),
            _ => self.named(name, asked),
        }
    }
}

impl Unusable {
    /// After `which is`.
    pub const fn participle(&self) -> &'static str {
        match self {
            Self::Unfit(_) => "broken",
            Self::Cordoned(_) => "cordoned",
            Self::Deleting => "being deleted",
            Self::Unnamed => "not in the inventory",
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Follows the holder.
impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterGone => f.write_str("until its cluster is gone"),
            Self::Time(time) => write!(f, "until {}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::Look => f.write_str("whose lease has ended; pool repair --yes moves it on"),
            Self::Never => f.write_str("until it is released"),
        }
    }
}

/// `pool d/p has no free entry of 3: 2 held: a by x, b by y; 1 missing: c`.
fn none_free(pool: &PoolName, entries: &[(String, Standing)]) -> String {
    const USED: &str = "used by a cluster without a lease";
    const TITLES: [&str; 8] = [
        "held",
        USED,
        "broken",
        "cordoned",
        "being deleted",
        "missing",
        "not in the inventory",
        "unreadable",
    ];
    let title = |standing: &Standing| match standing {
        Standing::Referenced { .. } => USED,
        standing => standing.participle(),
    };
    let mut text = format!(
        "pool {}/{} has no free entry of {}: ",
        pool.namespace,
        pool.name,
        entries.len()
    );
    let mut separator = "";
    for of_title in TITLES {
        let such: Vec<_> = entries
            .iter()
            .filter(|(_, standing)| title(standing) == of_title)
            .collect();
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
        let _ = write!(text, "{separator}{} {of_title}: {}", such.len(), names.join(", "));
        if such.len() > NAMED {
            let _ = write!(text, " and {} more", such.len() - NAMED);
        }
        separator = "; ";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{LeaseRefusal, PoolName, Standing, Until, Unusable, none_free};
    use crate::{install_config::patches::Unfit, objects::ClusterName};

    #[test]
    fn one_entry_in_a_sentence() {
        let held = |cluster_deployment: Option<&str>, pool: Option<&str>, until| Standing::Held {
            cluster_deployment: cluster_deployment.map(str::to_owned),
            pool: pool.map(str::to_owned),
            until,
        };
        let by = ClusterName::new("x", "x");
        let at = Until::Time("2026-11-22T05:00:00Z".parse().unwrap());
        for (standing, expected) in [
            (held(Some("x"), Some("pool"), None), "a, which is held by x"),
            (
                held(Some("x"), Some("other"), Some(at)),
                "a, which is held by x of pool other until 2026-11-22T05:00:00Z",
            ),
            (
                held(Some("x"), Some("pool"), Some(Until::Look)),
                "a, which is held by x whose lease has ended; pool repair --yes moves it on",
            ),
            (held(None, None, None), "a, which is held"),
            (Standing::Referenced { by }, "a, which is used by x"),
            (
                Standing::Unusable(Unusable::Deleting),
                "a, which is being deleted",
            ),
            (
                Standing::Unusable(Unusable::Unnamed),
                "a, which is not in the inventory",
            ),
            (Standing::Unusable(Unusable::Missing), "a, which is missing"),
        ] {
            assert_eq!(standing.described("a", "pool"), expected);
        }
    }

    #[test]
    fn why_the_first_of_the_broken_are_so() {
        let pool = PoolName::new("d", "pool");
        let broken = |name: &str, why: String| {
            let unfit = Unusable::Unfit(Unfit::Broken(why));
            (name.to_owned(), Standing::Unusable(unfit))
        };
        let entries = ["a", "b", "c", "d"].map(|name| broken(name, format!("not {name}")));
        let mut entries: Vec<_> = entries.into();
        let cordoned = Unusable::Cordoned("fan is broken".to_owned());
        entries.push(("e".to_owned(), Standing::Unusable(cordoned)));
        let exhausted = LeaseRefusal::Exhausted {
            pool: pool.clone(),
            entries,
        };
        assert_eq!(
            exhausted.to_string(),
            "pool d/pool has no free entry of 5: 4 broken: a (not a), b (not b), c (not c), d; \
             1 cordoned: e (fan is broken)"
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
