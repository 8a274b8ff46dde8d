//! The result of a request for a lease or a cluster, and the messages that explain a refusal.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use jiff::Timestamp;
use kcp_api::ClusterClaim;
use kcp_client::Error;

use crate::{
    creation::make::CreationObstacle,
    hive::HiveEvidence,
    install_config::patches::{PatchProblem, shorten},
    lease::{
        attempt::{LeasedEntry, LeasedSet},
        choice::{Availability, HeldUntil, UnusableReason},
        unfinished_message,
    },
    objects::{Holder, PoolName},
};

/// The maximum number of entries in each state that a refusal names. The refusal only counts the other entries.
const MAX_NAMED: usize = 10;

/// The maximum number of entries in each state for which a refusal gives a reason.
const MAX_EXPLAINED: usize = 3;

/// The maximum length of the reason that a refusal gives for one entry, in characters.
const MAX_EXPLANATION_CHARS: usize = 400;

/// The state of an entry whose pool cannot be read, as a participle.
const UNKNOWN_POOL: &str = "reserved for an unknown pool";

#[derive(Debug)]
pub struct LeaseResult {
    pub pool: PoolName,
    /// The ClusterDeployment that holds the lease, or that Hive assigned to the claim.
    pub cluster_deployment: String,
    pub outcome: LeaseOutcome,
    /// How long the command waited before it gave up; `None` if it did not wait, or if it got a lease.
    pub timed_out_after: Option<Duration>,
    /// Why the ClusterDeployments could not be listed. If set, it is unknown which customizations they use.
    pub cluster_list_error: Option<Error>,
    /// Why the queue could not be read. If set, it is unknown whether other lessees have waited longer.
    pub queue_error: Option<Error>,
    /// The entries of the pool's inventory that the request does not accept, and their states for others.
    pub others: Vec<(String, Availability)>,
    /// Whether a leased customization has patches that this program did not check, because it had no install-config.
    pub are_patches_unchecked: bool,
}

#[derive(Debug)]
pub enum LeaseOutcome {
    Leased(Lease),
    /// The holder wanted several customizations, and has exactly these.
    LeasedSet(LeasedSet),
    Claimed(Box<ClaimedCluster>),
    Refused(LeaseRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub entry: LeasedEntry,
    /// Whether the holder's ClusterDeployment exists, no matter whether this command created it.
    pub has_cluster: bool,
}

/// A cluster that Hive assigned to a ClusterClaim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedCluster {
    pub claim: ClusterClaim,
    /// The name of the ClusterDeployment.
    pub cluster: String,
    /// The customization that Hive assigned to the cluster; `None` if the pool has no inventory.
    pub customization: Option<String>,
    /// When the claim ends unless it is extended; `None` if it never ends.
    pub ends: Option<Timestamp>,
}

/// A ClusterDeployment that Hive assigned to a ClusterClaim, and that is no longer usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCluster {
    pub cluster: String,
    /// True if the ClusterDeployment no longer exists, false if it is being deleted.
    pub is_gone: bool,
}

impl fmt::Display for LostCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_gone {
            "was deleted"
        } else {
            "is being deleted"
        };
        write!(f, "ClusterDeployment {} {what}", self.cluster)
    }
}

/// Why the holder gets no lease or cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRefusal {
    /// Fewer entries of the pool's inventory are free than the request is for, or others have waited longer for the free ones.
    /// Contains each entry's name and state.
    Exhausted {
        pool: PoolName,
        entries: Vec<(String, Availability)>,
        count: usize,
    },
    NoInventory {
        pool: String,
        /// Why the pool has none, if this is known.
        why: Option<String>,
    },
    /// The request is for more entries than the pool's inventory has, or than the selection allows.
    TooFewEntries {
        pool: String,
        entries: usize,
        is_selection: bool,
        count: usize,
    },
    /// The patches in the pool's `customizationRef`, which apply to all clusters of the pool, cannot be applied.
    PoolPatchProblem {
        pool: String,
        customization: String,
        why: String,
    },
    PoolDeleting {
        pool: String,
    },
    ClusterDeleting {
        cluster_deployment: String,
        pool: String,
    },
    /// No entry of the pool's inventory matches `--customization` or `--selector`.
    NoEntryMatches {
        pool: String,
    },
    /// Hive manages the pool. Hive would free an entry that Hive has not reserved, and delete a cluster that Hive did not
    /// create.
    ManagedByHive {
        pool: String,
        because: HiveEvidence,
    },
    /// The holder must get this customization again, because its cluster or an earlier lease refers to it. But the
    /// customization is not available.
    BoundButUnavailable {
        cluster_deployment: String,
        pool: String,
        customization: String,
        availability: Availability,
    },
    /// The holder already holds this customization, but `--new` requests a new lease.
    AlreadyHeld {
        cluster_deployment: String,
        customization: String,
    },
    /// The holder already has this entry, and the request is for another one.
    HeldInstead {
        cluster_deployment: String,
        customization: String,
        requested: String,
    },
    /// The holder already has these customizations, or its cluster uses them: more than the request is for.
    HeldMore {
        cluster_deployment: String,
        customizations: Vec<String>,
        count: usize,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldWithPatchProblem {
        cluster_deployment: String,
        customization: String,
        why: PatchProblem,
    },
    /// The cluster for the lease cannot be created, so no customization was leased.
    Creation(CreationObstacle),
    /// The holder leased the customization, but the cluster cannot be created.
    ClusterNotCreated {
        customization: String,
        cluster_deployment: String,
        why: CreationObstacle,
    },
    NotManagedByHive {
        pool: String,
        because: HiveEvidence,
    },
    ClaimOfOtherPool {
        claim: String,
        pool: String,
    },
    /// Hive did not assign a cluster to the ClusterClaim in time.
    ClaimPending {
        why: String,
        cleanup: ClaimCleanup,
    },
    /// The ClusterClaim already exists, but `--new` requests a new claim.
    ClaimExists {
        claim: String,
    },
    ClaimDeleting {
        claim: String,
    },
    ClaimDeleted {
        claim: String,
    },
    ClaimedClusterLost {
        claim: String,
        lost: LostCluster,
        cleanup: ClaimCleanup,
    },
}

/// What happened to a ClusterClaim that got no cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimCleanup {
    /// The command keeps the claim, because `--keep` is set.
    Kept,
    Deleted,
    /// The claim existed before the command, so the command does not delete it.
    Existed,
    /// The command could not delete the claim, for this reason.
    NotDeleted(String),
}

impl fmt::Display for ClaimCleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("the claim remains, because --keep is set"),
            Self::Deleted => f.write_str("this command deleted the claim"),
            Self::Existed => f.write_str("the claim remains, because it existed before this command"),
            Self::NotDeleted(why) => {
                write!(
                    f,
                    "this command could not delete the claim ({why}); delete the claim, or Hive may assign \
                     a cluster to it later"
                )
            }
        }
    }
}

impl LeaseResult {
    pub fn new(namespace: &str, holder: Holder<'_>, outcome: LeaseOutcome) -> Self {
        Self {
            pool: PoolName::new(namespace, holder.pool),
            cluster_deployment: holder.cluster_deployment.to_owned(),
            outcome,
            timed_out_after: None,
            cluster_list_error: None,
            queue_error: None,
            others: Vec::new(),
            are_patches_unchecked: false,
        }
    }

    /// Records how long the command waited before it gave up.
    pub fn with_timed_out_after(self, waited: Duration) -> Self {
        Self {
            timed_out_after: Some(waited),
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

    /// The leases of the holder; empty without a lease.
    pub fn leased(&self) -> &[LeasedEntry] {
        match &self.outcome {
            LeaseOutcome::Leased(lease) => std::slice::from_ref(&lease.entry),
            LeaseOutcome::LeasedSet(set) => &set.entries,
            LeaseOutcome::Claimed(_) | LeaseOutcome::Refused(_) => &[],
        }
    }

    /// The only leased customization, or that of the claimed cluster.
    pub fn customization(&self) -> Option<&str> {
        match &self.outcome {
            LeaseOutcome::Leased(lease) => Some(&lease.entry.customization),
            LeaseOutcome::Claimed(claimed) => claimed.customization.as_deref(),
            LeaseOutcome::LeasedSet(_) | LeaseOutcome::Refused(_) => None,
        }
    }
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { pool, entries, count } => f.write_str(&no_free_entry(pool, entries, *count)),
            Self::TooFewEntries {
                pool,
                entries,
                is_selection,
                count,
            } => f.write_str(&too_few_entries(pool, *entries, *is_selection, *count)),
            Self::NoInventory { pool, why } => {
                write!(f, "pool {pool} has no inventory, so nothing can be leased")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            Self::PoolPatchProblem {
                pool,
                customization,
                why,
            } => f.write_str(&pool_patch_problem(pool, customization, why)),
            Self::PoolDeleting { pool } => write!(f, "pool {pool} is being deleted"),
            Self::ClusterDeleting {
                cluster_deployment,
                pool,
            } => write!(
                f,
                "ClusterDeployment {cluster_deployment} of pool {pool} is being deleted; release its lease first, or \
                pass another name with --cluster-deployment"
            ),
            Self::NoEntryMatches { pool } => write!(
                f,
                "no entry in the inventory of pool {pool} matches --customization and --selector; list the entries with: \
                 kubectl kcp pool status {pool}"
            ),
            Self::ManagedByHive { pool, because } => f.write_str(&managed_by_hive(pool, *because)),
            Self::BoundButUnavailable {
                cluster_deployment,
                pool,
                customization,
                availability,
            } => {
                let entry = availability.describe_entry(customization, pool);
                f.write_str(&bound_but_unavailable(cluster_deployment, &entry))
            }
            Self::AlreadyHeld {
                cluster_deployment,
                customization,
            } => write!(
                f,
                "{cluster_deployment} already holds {customization}, which another process may still use; release \
                the lease, or pass another name with --cluster-deployment"
            ),
            Self::HeldInstead {
                cluster_deployment,
                customization,
                requested,
            } => f.write_str(&held_instead(cluster_deployment, customization, requested)),
            Self::HeldMore {
                cluster_deployment,
                customizations,
                count,
            } => f.write_str(&held_more(cluster_deployment, customizations, *count)),
            Self::HeldWithPatchProblem {
                cluster_deployment,
                customization,
                why,
            } => f.write_str(&held_with_patch_problem(cluster_deployment, customization, why)),
            Self::Creation(why) => why.fmt(f),
            Self::ClusterNotCreated {
                customization,
                cluster_deployment,
                why,
            } => {
                let message = unfinished_message(customization, cluster_deployment);
                write!(f, "{message}: {why}")
            }
            Self::NotManagedByHive { pool, because } => write!(
                f,
                "Hive does not appear to manage pool {pool} ({because}), so a claim would stay pending; if Hive does \
                 manage it, use --hive=yes"
            ),
            Self::ClaimOfOtherPool { claim, pool } => write!(
                f,
                "ClusterClaim {claim} already exists, but for pool {pool}; pass another name with --cluster-deployment"
            ),
            Self::ClaimPending { why, cleanup } => write!(f, "{why}; {cleanup}"),
            Self::ClaimExists { claim } => write!(
                f,
                "ClusterClaim {claim} already exists, and another process may use its cluster; pass another name with \
                 --cluster-deployment"
            ),
            Self::ClaimDeleting { claim } => write!(
                f,
                "ClusterClaim {claim} is being deleted; try again later, or pass another name with --cluster-deployment"
            ),
            Self::ClaimDeleted { claim } => write!(f, "ClusterClaim {claim} was deleted"),
            Self::ClaimedClusterLost { claim, lost, cleanup } => {
                write!(
                    f,
                    "{lost}, although Hive had assigned it to ClusterClaim {claim}; {cleanup}"
                )
            }
        }
    }
}

impl Availability {
    /// The state of the entry as a participle, to print after `which is`, such as `held`.
    const fn participle(&self) -> &'static str {
        match self {
            Self::Ours | Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Cleaning(_) => "being cleaned",
            Self::Referenced { .. } => "used",
            Self::Unusable(why) => why.participle(),
        }
    }

    /// The holder and the end of its lease, such as ` by x until ...`. Names the holder's pool if it differs from
    /// `asked`.
    fn holder_and_end(&self, asked: &str) -> String {
        let (cluster_deployment, pool) = self.cluster_deployment_and_pool();
        let mut text = String::new();
        // Writing to a String cannot fail.
        if let Some(cluster_deployment) = cluster_deployment {
            let _ = write!(text, " by {cluster_deployment}");
        }
        if let Some(pool) = pool.filter(|pool| *pool != asked) {
            let _ = write!(text, " of pool {pool}");
        }
        match self {
            Self::Held {
                until: Some(until), ..
            } => drop(write!(text, " {until}")),
            Self::Cleaning(record) => {
                let since = record.since.strftime("%Y-%m-%dT%H:%M:%SZ");
                let _ = write!(text, " since {since}");
                if record.failures > 0 {
                    let failures = if record.failures == 1 {
                        "failure"
                    } else {
                        "failures"
                    };
                    let _ = write!(text, ", with {} {failures}", record.failures);
                }
            }
            _ => {}
        }
        text
    }

    /// The entry with its state, such as `a, which is held by x`. Names the holder's pool if it differs from `asked`.
    pub fn describe_entry(&self, name: &str, asked: &str) -> String {
        format!(
            "{name}, which is {}{}",
            self.participle(),
            self.holder_and_end(asked)
        )
    }

    /// The entry with its holder, such as `a by x`. Names the holder's pool if it differs from `asked`.
    fn with_holder(&self, name: &str, asked: &str) -> String {
        format!("{name}{}", self.holder_and_end(asked))
    }

    /// The entry with its holder or with the reason why it cannot be leased, such as `a by x` or `a (no such
    /// customization)`.
    fn with_reason(&self, name: &str, asked: &str) -> String {
        match self {
            Self::Unusable(UnusableReason::Patches(why)) => {
                format!("{name} ({})", shorten(&why.to_string(), MAX_EXPLANATION_CHARS))
            }
            Self::Unusable(UnusableReason::Cordoned(why)) => {
                format!("{name} ({})", shorten(why, MAX_EXPLANATION_CHARS))
            }
            Self::Unusable(UnusableReason::Unreadable(why)) => format!("{name} ({why})"),
            Self::Unusable(UnusableReason::PoolUnknown(pool)) => format!(
                "{name} (its lease has ended, but pool {pool} cannot be read, so it may need cleaning first)"
            ),
            _ => self.with_holder(name, asked),
        }
    }
}

impl UnusableReason {
    /// The reason as a participle, to print after `which is`, such as `cordoned`.
    pub const fn participle(&self) -> &'static str {
        match self {
            Self::Patches(_) => "broken",
            Self::Cordoned(_) => "cordoned",
            Self::Deleting => "being deleted",
            Self::NotInInventory => "not in the inventory",
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
            Self::PoolUnknown(_) => UNKNOWN_POOL,
        }
    }
}

/// Says how long the entry stays with its holder, such as `until it is released`. In messages, this follows the holder's
/// name.
impl fmt::Display for HeldUntil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterGone => f.write_str("until its cluster no longer exists"),
            Self::Time(time) => write!(f, "until {}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::NextCheck => f.write_str(
                "although the lease has ended; to free the entry, run: kubectl kcp pool repair --yes",
            ),
            Self::Never => f.write_str("until it is released"),
        }
    }
}

/// Why a pool that Hive manages, or may manage, gets no lease.
fn managed_by_hive(pool: &str, because: HiveEvidence) -> String {
    if because == HiveEvidence::Unreadable {
        return format!(
            "{because}; if Hive manages pool {pool}, it would revoke the lease: ask for this permission, or use --hive=no \
             if Hive does not manage the pool"
        );
    }
    format!(
        "Hive manages pool {pool} ({because}) and would revoke the lease; request a cluster with --claim, or use \
         --hive=no if Hive does not manage the pool"
    )
}

fn held_instead(cluster_deployment: &str, held: &str, requested: &str) -> String {
    format!(
        "{cluster_deployment} already holds {held}, so it cannot lease {requested}; release the lease on \
         {held} first, or \
        pass another name with --cluster-deployment"
    )
}

fn held_with_patch_problem(cluster_deployment: &str, customization: &str, why: &PatchProblem) -> String {
    format!(
        "{cluster_deployment} already holds {customization}, but the patches of {customization} cannot be applied: {why}; to \
        get another entry, release the lease on {customization}, or pass another name with --cluster-deployment"
    )
}

fn pool_patch_problem(pool: &str, customization: &str, why: &str) -> String {
    format!("cannot apply customization {customization}, the customizationRef of pool {pool}: {why}")
}

fn bound_but_unavailable(cluster_deployment: &str, entry: &str) -> String {
    format!(
        "ClusterDeployment {cluster_deployment} can lease only the customization that it had before: {entry}"
    )
}

fn held_more(cluster_deployment: &str, customizations: &[String], count: usize) -> String {
    format!(
        "{cluster_deployment} already holds {}, and {count} are requested; release those that are not needed, or pass \
        another name with --cluster-deployment",
        customizations.join(", ")
    )
}

fn too_few_entries(pool: &str, entries: usize, is_selection: bool, count: usize) -> String {
    let noun = if entries == 1 { "entry" } else { "entries" };
    let selected = if is_selection { " matching --selector" } else { "" };
    format!("pool {pool} has {entries} {noun}{selected}, and {count} are requested")
}

/// The message for a pool without enough free entries, such as `pool d/p has no free entry (3 in total): 2 held: a by x, b by y;
/// 1 missing: c`.
fn no_free_entry(pool: &PoolName, entries: &[(String, Availability)], count: usize) -> String {
    const USED: &str = "used by a cluster without a lease";
    const AWAITED: &str = "free, but others have waited longer";
    const OURS: &str = "held by this holder already";
    const FREE: &str = "free";
    const TITLES: [&str; 13] = [
        OURS,
        AWAITED,
        FREE,
        "held",
        "being cleaned",
        USED,
        "broken",
        "cordoned",
        "being deleted",
        "missing",
        "not in the inventory",
        "unreadable",
        UNKNOWN_POOL,
    ];
    let is_possible =
        |availability: &Availability| matches!(availability, Availability::Free | Availability::Ours);
    let possible = entries
        .iter()
        .filter(|(_, availability)| is_possible(availability));
    let are_enough = possible.count() >= count;
    let title = |availability: &Availability| match availability {
        Availability::Referenced { .. } => USED,
        Availability::Free if are_enough => AWAITED,
        Availability::Free => FREE,
        Availability::Ours => OURS,
        availability => availability.participle(),
    };
    let what = match (count, are_enough) {
        (0 | 1, false) => "no free entry".to_owned(),
        (0 | 1, true) => "no free entry for this request".to_owned(),
        (count, _) => format!("too few free entries for this request of {count}"),
    };
    let mut text = format!(
        "pool {}/{} has {what} ({} in total): ",
        pool.namespace,
        pool.name,
        entries.len()
    );
    let mut separator = "";
    for of_title in TITLES {
        let such: Vec<_> = entries
            .iter()
            .filter(|(_, availability)| title(availability) == of_title)
            .collect();
        if such.is_empty() {
            continue;
        }
        let names: Vec<_> = such
            .iter()
            .take(MAX_NAMED)
            .enumerate()
            .map(|(index, (name, availability))| {
                if index < MAX_EXPLAINED {
                    availability.with_reason(name, &pool.name)
                } else {
                    availability.with_holder(name, &pool.name)
                }
            })
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{} {of_title}: {}", such.len(), names.join(", "));
        if such.len() > MAX_NAMED {
            let _ = write!(text, " and {} more", such.len() - MAX_NAMED);
        }
        separator = "; ";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Availability, HeldUntil, LeaseRefusal, PoolName, UnusableReason, no_free_entry};
    use crate::{install_config::patches::PatchProblem, objects::ClusterName};

    #[test]
    fn describes_an_entry_and_its_state() {
        let held = |cluster_deployment: Option<&str>, pool: Option<&str>, until| Availability::Held {
            cluster_deployment: cluster_deployment.map(str::to_owned),
            pool: pool.map(str::to_owned),
            until,
        };
        let user = ClusterName::new("x", "x");
        let deadline = HeldUntil::Time("2026-11-22T05:00:00Z".parse().unwrap());
        for (availability, expected) in [
            (held(Some("x"), Some("pool"), None), "a, which is held by x"),
            (
                held(Some("x"), Some("other"), Some(deadline)),
                "a, which is held by x of pool other until 2026-11-22T05:00:00Z",
            ),
            (
                held(Some("x"), Some("pool"), Some(HeldUntil::NextCheck)),
                "a, which is held by x although the lease has ended; to free the entry, run: kubectl kcp pool repair --yes",
            ),
            (held(None, None, None), "a, which is held"),
            (Availability::Referenced { by: user }, "a, which is used by x"),
            (
                Availability::Unusable(UnusableReason::Deleting),
                "a, which is being deleted",
            ),
            (
                Availability::Unusable(UnusableReason::NotInInventory),
                "a, which is not in the inventory",
            ),
            (
                Availability::Unusable(UnusableReason::Missing),
                "a, which is missing",
            ),
        ] {
            assert_eq!(availability.describe_entry("a", "pool"), expected);
        }
    }

    #[test]
    fn explains_only_the_first_broken_entries() {
        let pool = PoolName::new("d", "pool");
        let broken = |name: &str, why: String| {
            let reason = UnusableReason::Patches(PatchProblem::Broken(why));
            (name.to_owned(), Availability::Unusable(reason))
        };
        let entries = ["a", "b", "c", "d"].map(|name| broken(name, format!("not {name}")));
        let mut entries: Vec<_> = entries.into();
        let cordoned = UnusableReason::Cordoned("fan is broken".to_owned());
        entries.push(("e".to_owned(), Availability::Unusable(cordoned)));
        let exhausted = LeaseRefusal::Exhausted {
            pool: pool.clone(),
            entries,
            count: 1,
        };
        assert_eq!(
            exhausted.to_string(),
            "pool d/pool has no free entry (5 in total): 4 broken: a (not a), b (not b), c (not c), d; 1 cordoned: e \
             (fan is broken)"
        );
        let long = no_free_entry(&pool, &[broken("a", "ä".repeat(33_000))], 1);
        assert_eq!(
            long,
            format!(
                "pool d/pool has no free entry (1 in total): 1 broken: a ({}...)",
                "ä".repeat(400)
            )
        );
    }
}
