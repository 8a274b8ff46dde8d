//! Leases several entries for one holder, all or none.
//!
//! No lessee waits while it has only some of its entries: if too few are left after another client was faster, it gives back those
//! that it has taken. So lessees that want the same entries never wait for each other. A process that is killed between two
//! writes leaves entries with its holder until their leases end; the same request again takes the missing ones.

use kcp_api::metadata::Object as _;

use super::{
    AttemptOutcome, AttemptRequest, LeasedEntry, LeasedSet, PatchProblems, Progress,
    writes::{RoundOutcome, confirm, free, has_record, try_entries},
};
use crate::lease::{LeaseError, access::LeaseStore, choice::SeveralEntries, rule::Rule};

/// Leases the missing entries, one after the other, and then confirms those that the holder held before the attempt.
pub(super) async fn take_several(
    store: &impl LeaseStore,
    entries: &SeveralEntries<'_>,
    request: AttemptRequest<'_>,
    rule: Rule,
    progress: &mut Progress,
) -> Result<RoundOutcome, LeaseError> {
    // Another process under the same name may have confirmed or released what an earlier round took. It then counts as held.
    progress.taken.retain(|taken| {
        let mut held = entries.held.iter();
        held.any(|held| is_of(taken, held.name()) && has_record(Some(held), &taken.record))
    });
    let is_taken = |name: &str, taken: &[LeasedEntry]| taken.iter().any(|taken| is_of(taken, name));
    let held: Vec<_> = entries
        .held
        .iter()
        .filter(|held| !is_taken(held.name(), &progress.taken))
        .collect();
    if request.must_be_new && !held.is_empty() {
        let names: Vec<_> = held.iter().map(|held| held.name()).collect();
        return Ok(RoundOutcome::Ended(AttemptOutcome::AlreadyHeld {
            customization: names.join(", "),
        }));
    }
    let mut missing = entries.own.len() + entries.missing;
    for listed in entries.own.iter().chain(&entries.free) {
        if missing == 0 {
            break;
        }
        match try_entries(store, &[*listed], request, &mut progress.patch_problems).await? {
            RoundOutcome::Ended(AttemptOutcome::Leased(leased)) => {
                progress.taken.push(LeasedEntry {
                    patch_problems: PatchProblems::new(),
                    ..*leased
                });
                missing -= 1;
            }
            RoundOutcome::ListAgain if progress.patch_problems.contains_key(listed.name()) => {}
            other => return Ok(other),
        }
    }
    if missing > 0 {
        return Ok(RoundOutcome::ListAgain);
    }
    let mut leased = progress.taken.clone();
    for held in held {
        match confirm(store, held, request, rule).await? {
            RoundOutcome::Ended(AttemptOutcome::Leased(confirmed)) => leased.push(*confirmed),
            other => return Ok(other),
        }
    }
    leased.sort_by(|a, b| a.customization.cmp(&b.customization));
    Ok(RoundOutcome::Ended(AttemptOutcome::LeasedSet(LeasedSet {
        entries: leased,
        patch_problems: std::mem::take(&mut progress.patch_problems),
    })))
}

fn is_of(leased: &LeasedEntry, name: &str) -> bool {
    leased.customization == name
}

/// Frees the entries that an attempt has taken, the last one first, unless another client has changed their leases. Nobody has
/// been told of these leases, so nothing uses the entries. Returns the names of those that are free now, and the
/// first error, which says that its entry may still be leased.
pub(super) async fn give_back<'t>(
    store: &impl LeaseStore,
    taken: &'t [LeasedEntry],
) -> (Vec<&'t str>, Option<LeaseError>) {
    let (mut given_back, mut first_error) = (Vec::new(), None);
    for leased in taken.iter().rev() {
        match free(store, leased).await {
            Ok(is_free) => given_back.extend(is_free.then_some(leased.customization.as_str())),
            Err(error) => {
                first_error.get_or_insert_with(|| LeaseError::InDoubt {
                    customization: leased.customization.clone(),
                    source: error.into_cause().into(),
                });
            }
        }
    }
    (given_back, first_error)
}

#[cfg(test)]
mod tests;
