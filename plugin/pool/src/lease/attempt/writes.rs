//! The writes of one entry: a new lease, one more renewal of a lease, and the lease of another holder's cluster.

use kcp_api::metadata::Object as _;
use kcp_client::Error;
use serde_json::Value;

use super::{AttemptOutcome, AttemptRequest, LeasedEntry, MAX_ROUNDS, PatchProblems, rule};
use crate::{
    install_config::patches::{PatchProblem, PatchedInstallConfig, patch_install_config},
    lease::{
        DEFAULT_TTL, LeaseError, Ttl,
        access::LeaseStore,
        generated_name::generate_lease_id,
        rule::Rule,
        usage::{Clusters, Usage, belongs_to_holder, belongs_to_lease, uses},
        write::{WriteResult, write_status},
    },
    objects::{
        cluster_deployment::ClusterDeployment,
        entry::{Entry, EntryStatus as _, Reservation},
        record::{LeaseRecord, LeaseState},
    },
};

/// What happened in one round of an attempt, which lists the entries once.
pub(super) enum RoundOutcome {
    Ended(AttemptOutcome),
    /// The entries must be listed again, because other clients have changed them, or their patches cannot be applied.
    ListAgain,
    /// The entries must be listed again: this client leased one, but another holder's cluster uses it. Contains the
    /// clusters that were listed after the lease was written.
    Withdrawn(Clusters),
}

/// The record of a new lease of the entry by the requesting holder.
fn new_record(store: &impl LeaseStore, entry: &Entry, request: AttemptRequest<'_>) -> LeaseRecord {
    let now = store.now();
    let ttl = request.ttl.unwrap_or(Ttl::For(DEFAULT_TTL));
    let state = match request.clusters.usage(entry) {
        Usage::Used(cluster) => LeaseState::InUse {
            uid: cluster.uid().to_owned(),
        },
        Usage::Unused | Usage::Unknown => LeaseState::Held,
    };
    LeaseRecord {
        state,
        holder: request.holder.cluster_deployment.to_owned(),
        id: generate_lease_id(),
        renewals: 0,
        acquired: LeaseRecord::round_up_to_second(now.latest),
        deadline: ttl.deadline(now),
        cluster: request.cluster.cloned(),
        user: request.user.map(str::to_owned),
    }
}

/// The record that confirms a lease that the holder already has. If that lease has ended, the record gets a new id, because
/// a process that uses the old id has lost the lease.
fn record_again(
    store: &impl LeaseStore,
    entry: &Entry,
    request: AttemptRequest<'_>,
    rule: Rule,
) -> LeaseRecord {
    let Reservation::Leased(before) = entry.status.reservation() else {
        return new_record(store, entry, request);
    };
    let is_used = matches!(before.state, LeaseState::InUse { .. });
    if rule.has_ended(before.deadline) && !is_used {
        return new_record(store, entry, request);
    }
    LeaseRecord {
        state: if is_used {
            before.state.clone()
        } else {
            LeaseState::Held
        },
        deadline: request
            .ttl
            .map_or(before.deadline, |ttl| ttl.extend(before.deadline, store.now())),
        cluster: request.cluster.cloned(),
        ..before.after_confirmation()
    }
}

/// Writes the holder's existing lease again. `rule` is the one with which the entry was chosen.
pub(super) async fn confirm(
    store: &impl LeaseStore,
    held: &Entry,
    request: AttemptRequest<'_>,
    rule: Rule,
) -> Result<RoundOutcome, LeaseError> {
    let customization = held.name().to_owned();
    let patched = match apply_patches(store, held, request).await? {
        Ok(patched) => patched,
        Err(why) => {
            let outcome = AttemptOutcome::HeldWithPatchProblem { customization, why };
            return Ok(RoundOutcome::Ended(outcome));
        }
    };
    let record = record_again(store, held, request, rule);
    let patch = held.lease(request.holder.pool, &record, store.now().latest);
    let leased = LeasedEntry {
        customization,
        record,
        was_already_held: true,
        patched_install_config: patched,
        patch_problems: PatchProblems::new(),
    };
    let outcome = write_lease(store, held, &patch, leased, request).await?;
    Ok(outcome.unwrap_or(RoundOutcome::ListAgain))
}

/// Writes a lease of the holder. Returns `None` if another client has changed the entry, but not for the same holder.
async fn write_lease(
    store: &impl LeaseStore,
    entry: &Entry,
    patch: &Value,
    leased: LeasedEntry,
    request: AttemptRequest<'_>,
) -> Result<Option<RoundOutcome>, LeaseError> {
    match write_status(store, entry, patch).await? {
        WriteResult::Stored => {}
        WriteResult::Superseded(after) if has_record(after.as_deref(), &leased.record) => {}
        WriteResult::Superseded(after) => {
            // Another process may have leased the entry for the same holder. The next list of entries shows this lease.
            let is_ours = after.is_some_and(|after| after.refers_to(request.holder));
            return Ok(is_ours.then_some(RoundOutcome::ListAgain));
        }
        WriteResult::Refused(error) => return Err(error.into()),
    }
    // A check has seen the cluster of the holder.
    let is_used = leased.was_already_held && leased.record.state != LeaseState::Held;
    if !is_used {
        match withdraw(store, &leased, request).await {
            Ok(Some(clusters)) => return Ok(Some(RoundOutcome::Withdrawn(clusters))),
            Ok(None) => {}
            Err(error) => return Err(undo(store, &leased, error).await),
        }
    }
    Ok(Some(RoundOutcome::Ended(AttemptOutcome::Leased(Box::new(
        leased,
    )))))
}

/// Frees an entry that this attempt has leased, because an error prevents the command from reporting the lease. Returns the
/// error, which says so if the entry may still be leased.
async fn undo(store: &impl LeaseStore, leased: &LeasedEntry, error: LeaseError) -> LeaseError {
    if leased.was_already_held || matches!(free(store, leased).await, Ok(true)) {
        return error;
    }
    LeaseError::InDoubt {
        customization: leased.customization.clone(),
        source: error.into_cause().into(),
    }
}

/// Whether the entry has this record, perhaps in another state. Another process under the same name may have renewed the same lease
/// at the same time, with as many renewals but another deadline.
pub(super) fn has_record(entry: Option<&Entry>, record: &LeaseRecord) -> bool {
    let key = |record: &LeaseRecord| (record.id.clone(), record.renewals, record.deadline);
    entry.is_some_and(|entry| match entry.status.reservation() {
        Reservation::Leased(found) => key(&found) == key(record),
        _ => false,
    })
}

/// Applies the entry's patches to the request's install-config, if there is one. If Hive cannot apply the
/// patches either, writes this problem to the entry's status.
async fn apply_patches(
    store: &impl LeaseStore,
    entry: &Entry,
    request: AttemptRequest<'_>,
) -> Result<Result<Option<PatchedInstallConfig>, PatchProblem>, Error> {
    let Some(install_config) = request.install_config else {
        return Ok(Ok(None));
    };
    let outcome = patch_install_config(install_config, &entry.spec);
    if let Err(PatchProblem::Broken(why)) = &outcome
        && !entry.already_reports_broken(why)
    {
        // Ignore errors: the next client reports the same problem, unless the patches were corrected.
        store
            .write_status(entry.name(), &entry.broken(why, store.now().latest))
            .await?;
    }
    Ok(outcome.map(Some))
}

/// Tries to lease these entries, one after the other, until one write succeeds.
pub(super) async fn try_entries(
    store: &impl LeaseStore,
    free: &[&Entry],
    request: AttemptRequest<'_>,
    patch_problems: &mut PatchProblems,
) -> Result<RoundOutcome, LeaseError> {
    for listed in free {
        let name = listed.name();
        // Read the entry first. Among hundreds of clients the list is out of date once it is parsed, and a read is cheaper
        // than a conflict.
        let Some(current) = store.get(name).await? else {
            continue;
        };
        if !is_unchanged(&current, listed) {
            continue;
        }
        let patched = match apply_patches(store, &current, request).await? {
            Ok(patched) => patched,
            Err(why) => {
                patch_problems.insert(name.to_owned(), why);
                continue;
            }
        };
        let record = new_record(store, &current, request);
        let now = store.now().latest;
        let pool = request.holder.pool;
        let patch = if patched.is_some() {
            current.lease_patched(pool, &record, now)
        } else {
            current.lease(pool, &record, now)
        };
        let leased = LeasedEntry {
            customization: name.to_owned(),
            record,
            was_already_held: false,
            patched_install_config: patched,
            patch_problems: patch_problems.clone(),
        };
        if let Some(outcome) = write_lease(store, &current, &patch, leased, request).await? {
            return Ok(outcome);
        }
    }
    Ok(RoundOutcome::ListAgain)
}

/// Whether the entry's lease is the same as when the entries were listed. Other fields may have changed.
fn is_unchanged(current: &Entry, listed: &Entry) -> bool {
    fn lease(entry: &Entry) -> (bool, bool, Option<&str>, Option<&str>, Reservation) {
        let names = (entry.status.holder(), entry.status.pool());
        (
            entry.status.is_reserved(),
            entry.is_deleting(),
            names.0,
            names.1,
            entry.status.reservation(),
        )
    }
    lease(current) == lease(listed)
}

/// Lists the clusters after this client has leased the entry or confirmed its lease. If another holder's cluster uses
/// the entry, gives the lease to that holder and returns the clusters.
async fn withdraw(
    store: &impl LeaseStore,
    LeasedEntry {
        customization,
        record,
        ..
    }: &LeasedEntry,
    request: AttemptRequest<'_>,
) -> Result<Option<Clusters>, LeaseError> {
    if request.clusters.cluster_deployments().is_none() {
        return Ok(None);
    }
    let clusters = store.clusters().await?;
    let Some(deployments) = clusters.cluster_deployments() else {
        return Ok(None);
    };
    let namespace = deployments.namespace();
    let is_others = |cluster: &&ClusterDeployment| {
        uses(cluster, namespace, customization, Some(record))
            && !belongs_to_holder(cluster, namespace, request.holder)
            && !belongs_to_lease(cluster, record)
    };
    let Some(other) = deployments.iter().find(is_others) else {
        return Ok(None);
    };
    let reference = other.spec.cluster_pool_ref.as_ref();
    let pool = reference.map_or(request.holder.pool, |reference| &reference.pool_name);
    let patch = |entry: &Entry| {
        let now = store.now().latest;
        let others = rule(store, &clusters).new_record(None, Usage::Used(other), generate_lease_id());
        Some(others.map_or_else(|| entry.free(now), |others| entry.lease(pool, &others, now)))
    };
    match end_lease(store, customization, record, patch).await? {
        WriteResult::Stored | WriteResult::Superseded(_) => Ok(Some(clusters)),
        WriteResult::Refused(error) => Err(error.into()),
    }
}

/// Frees an entry if it still has this lease. Returns whether the entry is free now.
pub(super) async fn free(store: &impl LeaseStore, leased: &LeasedEntry) -> Result<bool, LeaseError> {
    let record = &leased.record;
    let patch = |entry: &Entry| {
        // Otherwise, a check has found that a cluster uses the entry.
        let is_unused =
            matches!(entry.status.reservation(), Reservation::Leased(found) if found.state == record.state);
        is_unused.then(|| entry.free(store.now().latest))
    };
    match end_lease(store, &leased.customization, record, patch).await? {
        WriteResult::Stored => Ok(true),
        WriteResult::Superseded(entry) => {
            Ok(entry.is_some_and(|entry| entry.status.reservation() == Reservation::Free))
        }
        WriteResult::Refused(error) => Err(error.into()),
    }
}

/// Ends a lease of this client with this patch. Writes nothing if the entry no longer has the lease, or if there is no patch for it.
async fn end_lease(
    store: &impl LeaseStore,
    customization: &str,
    record: &LeaseRecord,
    patch: impl Fn(&Entry) -> Option<Value>,
) -> Result<WriteResult, LeaseError> {
    for _ in 0..MAX_ROUNDS {
        let entry = store.get(customization).await?.map(Box::new);
        let is_ours = has_record(entry.as_deref(), record);
        let Some((current, patch)) = entry
            .as_deref()
            .filter(|_| is_ours)
            .and_then(|entry| Some((entry, patch(entry)?)))
        else {
            return Ok(WriteResult::Superseded(entry));
        };
        match write_status(store, current, &patch).await? {
            WriteResult::Superseded(_) => {}
            result => return Ok(result),
        }
    }
    Err(Error::Contended {
        goal: format!("end the lease of {customization}"),
        attempts: MAX_ROUNDS,
    }
    .into())
}
