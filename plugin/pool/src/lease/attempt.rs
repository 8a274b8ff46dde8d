//! One attempt to lease entries of an inventory for a holder: mostly one, or several.
//!
//! One write of an entry acquires a lease. If the holder already has a lease, this module writes the lease again before it
//! reports the lease. The write changes the entry's resourceVersion, so that the server rejects a release by a client that read
//! the entry earlier. After it has written a lease, this module lists the clusters again. If a cluster of another holder uses the
//! entry, this module gives the lease to that holder.
//!
//! - [`mod@rounds`]: lists the entries and decides, again and again
//! - [`inventory`]: the entries as the decision sees them
//! - [`writes`]: the writes of one entry; [`several`]: those of several entries

mod inventory;
mod rounds;
mod several;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use kcp_client::Error;

use crate::{
    install_config::{
        InstallConfig,
        patches::{PatchProblem, PatchedInstallConfig},
    },
    lease::{
        LeaseError, Ttl,
        access::LeaseStore,
        choice::{Availability, UnusableReason},
        queue::Place,
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule},
        usage::Clusters,
    },
    objects::{ClusterName, Holder, entry::Entry, record::LeaseRecord},
};
use rounds::rounds;
use several::give_back;

/// How many times at most to list the entries again, if other clients have leased every free entry in the meantime. In each round
/// at least one client gets an entry, so the limit is reached only if entries are released as fast as they are leased.
const MAX_ROUNDS: usize = 32;

/// The holder, the pool, and the conditions of one attempt to lease entries.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRequest<'r> {
    /// The names of the entries in the pool's inventory that the request selects.
    pub names: &'r [&'r str],
    /// The other names in the pool's inventory.
    pub unselected: &'r [&'r str],
    pub clusters: &'r Clusters,
    pub holder: Holder<'r>,
    /// How many entries the holder wants.
    pub count: usize,
    /// How long the lease lasts. If `None`, a new lease gets the default. An existing lease that ends later keeps its end.
    pub ttl: Option<Ttl>,
    /// The cluster that the holder will create; `None` if the holder creates no cluster.
    pub cluster: Option<&'r ClusterName>,
    pub user: Option<&'r str>,
    /// The install-config to which the entry's patches must be applicable; `None` to leave the patches unchecked.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether to refuse if the holder already has a lease, because another process may use it.
    pub must_be_new: bool,
    /// The only entry that the request accepts; `None` accepts every entry in `names`.
    pub only_entry: Option<&'r str>,
    /// The lessees in the queue that the request may overtake.
    pub overtaken: &'r [Place],
    /// What becomes of the pool's entries when their leases end.
    pub reuse: Reuse,
}

#[derive(Debug)]
pub struct Attempt {
    pub outcome: AttemptOutcome,
    /// All entries of the namespace, as they were last listed.
    pub entries: Vec<Entry>,
    /// The entries of the inventory that the request does not accept, because it does not select them or their patches cannot be
    /// applied, and their states for others.
    pub others: Vec<(String, Availability)>,
    /// Why the queue could not be read. The request may then have overtaken lessees that wait.
    pub queue_error: Option<Error>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Leased(Box<LeasedEntry>),
    /// The holder wanted several entries, and has exactly these.
    LeasedSet(LeasedSet),
    /// No entry of the inventory is free, or others have waited longer for the free ones. Contains each entry's name and
    /// state.
    Exhausted(Vec<(String, Availability)>),
    /// The holder must get this entry again, because its cluster or an earlier lease refers to it. But the entry is not
    /// available.
    BoundButUnavailable {
        customization: String,
        availability: Availability,
    },
    /// The holder already holds this entry, but the request is for a new lease.
    AlreadyHeld {
        customization: String,
    },
    /// The holder already has this entry, and the request is for another one.
    HeldInstead {
        customization: String,
        requested: String,
    },
    /// The holder already has these entries, or its cluster uses them: more than the request is for.
    HeldMore {
        customizations: Vec<String>,
    },
    /// The holder has this entry, but its patches cannot be applied.
    HeldWithPatchProblem {
        customization: String,
        why: PatchProblem,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedEntry {
    pub customization: String,
    pub record: LeaseRecord,
    /// Whether the holder already held the entry before the request.
    pub was_already_held: bool,
    /// The install-config with the entry's patches applied; `None` if the request had no install-config.
    pub patched_install_config: Option<PatchedInstallConfig>,
    /// Entries that were skipped, because their patches cannot be applied to the install-config.
    pub patch_problems: PatchProblems,
}

/// Several entries of one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedSet {
    /// Sorted by name.
    pub entries: Vec<LeasedEntry>,
    /// Entries that were skipped, because their patches cannot be applied to the install-config.
    pub patch_problems: PatchProblems,
}

pub type PatchProblems = BTreeMap<String, PatchProblem>;

impl AttemptOutcome {
    /// The entries that the holder has; empty if it got none.
    pub fn leased(&self) -> &[LeasedEntry] {
        match self {
            Self::Leased(leased) => std::slice::from_ref(leased),
            Self::LeasedSet(set) => &set.entries,
            _ => &[],
        }
    }

    /// The names of the entries whose patches neither this program nor Hive can apply.
    pub fn broken_entries(&self) -> BTreeSet<&str> {
        let is_unusable_by_patch = |availability: &Availability| match availability {
            Availability::Unusable(UnusableReason::Patches(why)) => is_broken(why),
            _ => false,
        };
        match self {
            Self::Leased(leased) => names_of_broken(&leased.patch_problems),
            Self::LeasedSet(set) => names_of_broken(&set.patch_problems),
            Self::Exhausted(availabilities) => {
                let broken = availabilities
                    .iter()
                    .filter(|(_, availability)| is_unusable_by_patch(availability));
                broken.map(|(name, _)| name.as_str()).collect()
            }
            Self::HeldWithPatchProblem { customization, why } if is_broken(why) => {
                BTreeSet::from([customization.as_str()])
            }
            Self::BoundButUnavailable {
                customization,
                availability,
            } if is_unusable_by_patch(availability) => BTreeSet::from([customization.as_str()]),
            Self::BoundButUnavailable { .. }
            | Self::AlreadyHeld { .. }
            | Self::HeldInstead { .. }
            | Self::HeldMore { .. }
            | Self::HeldWithPatchProblem { .. } => BTreeSet::new(),
        }
    }
}

const fn is_broken(why: &PatchProblem) -> bool {
    matches!(why, PatchProblem::Broken(_))
}

fn names_of_broken(problems: &PatchProblems) -> BTreeSet<&str> {
    let broken = problems.iter().filter(|(_, why)| is_broken(why));
    broken.map(|(name, _)| name.as_str()).collect()
}

/// What the rounds of an attempt have found and done so far.
#[derive(Debug, Default)]
struct Progress {
    patch_problems: PatchProblems,
    /// Of several entries, those that this attempt has leased and nobody has been told of.
    taken: Vec<LeasedEntry>,
}

/// Leases the entries, or confirms the leases that the holder already has. Fails if the API server cannot be reached or refuses a
/// request, or other clients lease every free entry first. If it is unknown whether an entry was leased, the error says so, and
/// the user can run the same command again to find out.
pub async fn attempt<S: LeaseStore>(store: &S, request: AttemptRequest<'_>) -> Result<Attempt, LeaseError> {
    let mut progress = Progress::default();
    let attempted = rounds(store, request, &mut progress).await;
    if let Ok(Attempt {
        outcome: AttemptOutcome::LeasedSet(_),
        ..
    }) = attempted
    {
        return attempted;
    }
    let (given_back, error) = give_back(store, &progress.taken).await;
    if let Some(error) = error {
        return Err(error);
    }
    let mut attempt = attempted?;
    if let AttemptOutcome::Exhausted(states) = &mut attempt.outcome {
        let given_back = |(name, _): &&mut (String, Availability)| given_back.contains(&name.as_str());
        for (_, state) in states.iter_mut().filter(given_back) {
            *state = Availability::Free;
        }
    }
    Ok(attempt)
}

fn rule(store: &impl LeaseStore, clusters: &Clusters) -> Rule {
    Rule {
        now: clusters.time_of_check(store.now()),
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    }
}

#[cfg(test)]
mod tests;
