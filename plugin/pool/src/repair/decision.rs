//! Finds problems of the leases in a namespace, and decides how to repair each. No I/O.

use jiff::SignedDuration;
use kcp_api::metadata::Object as _;
use kcp_rules::syntax::is_dns1123_subdomain;

use crate::{
    lease::{
        generated_name::generate_lease_id,
        reuse::Reuse,
        rule::{Rule, Transition},
        usage::{Usage, clusters_using},
    },
    objects::{
        CleaningRecord,
        cleaning::Janitor,
        cluster_deployment::{ClusterDeployment, ClusterDeployments, Deletion as _},
        entry::{Entry, EntryStatus as _, Reservation},
        record::{LeaseRecord, LeaseState},
    },
    release::decision::cleaning_after,
    repair::{
        claims::check_claim,
        finding::{Cause, LeaseProblem, Remedy, StatusFault},
        hive::check_hive_entry,
        leftovers::{check_copy, check_finalizer, check_old_record},
        old_secrets::check_secrets,
        options::RepairOptions,
    },
    snapshot::Snapshot,
};

/// All problems in the namespace: first those of entries, then objects that can be removed once their entry is free.
pub fn findings(snapshot: &Snapshot, options: &RepairOptions<'_>) -> Vec<LeaseProblem> {
    let entries = snapshot.entries.iter();
    let entries: Vec<_> = entries
        .filter_map(|entry| check_entry(snapshot, entry, options))
        .collect();
    let clusters = snapshot
        .cluster_deployments()
        .into_iter()
        .flat_map(ClusterDeployments::in_namespace);
    let clusters = clusters.filter_map(|cluster| check_finalizer(cluster, options));
    let copies = snapshot.copies.iter();
    let copies = copies.filter_map(|copy| check_copy(snapshot, &entries, copy, options));
    let old = snapshot
        .old_records
        .iter()
        .filter_map(|lease| check_old_record(lease, options));
    let claims = snapshot.claims.iter().flatten();
    let claims = claims.filter_map(|claim| check_claim(snapshot, claim, options));
    let after: Vec<_> = clusters
        .chain(copies)
        .chain(claims)
        .chain(check_secrets(snapshot, options))
        .chain(old)
        .collect();
    entries.into_iter().chain(after).collect()
}

/// The problem of an entry and its remedy; `None` if the entry has no problem.
pub fn check_entry(snapshot: &Snapshot, entry: &Entry, options: &RepairOptions<'_>) -> Option<LeaseProblem> {
    let users = users_of(snapshot, entry);
    if !is_selected_entry(snapshot, entry, &users, options) {
        return None;
    }
    let found = if snapshot.is_managed_by_hive(entry, &users) {
        check_hive_entry(snapshot, entry, &users, options)
    } else {
        check_own_entry(snapshot, entry, &users, options)
    };
    found.or_else(|| not_freed_finding(snapshot, entry, &users, options))
}

/// The problem of an entry in pools that Hive does not manage.
fn check_own_entry(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    match (entry.status.reservation(), users) {
        (Reservation::Unreadable(why), _) => Some(unknown_holder_finding(
            snapshot,
            entry,
            why.to_string(),
            options,
            users,
        )),
        (Reservation::Unrecorded, []) if entry.status.holder().is_none() => {
            let why = "the entry is reserved, but its status names no ClusterDeployment".to_owned();
            Some(unknown_holder_finding(snapshot, entry, why, options, users))
        }
        (Reservation::Unrecorded, []) if entry.status.pool().is_none() && snapshot.is_unused(entry) => {
            let why = format!(
                "the entry's status refers to ClusterDeployment {}, which does not exist, and to no pool",
                entry.status.holder().unwrap_or_default()
            );
            Some(unknown_holder_finding(snapshot, entry, why, options, users))
        }
        (_, [_, _, ..]) => Some(LeaseProblem::contested(entry, users)),
        (Reservation::Leased(record), [user])
            if rule(snapshot, entry, options).is_contested(&record, Usage::Used(user)) =>
        {
            Some(LeaseProblem::contested(entry, users))
        }
        (reservation, users) => check_lease(snapshot, entry, &reservation, users.first().copied(), options),
    }
}

fn users_of<'s>(snapshot: &'s Snapshot, entry: &Entry) -> Vec<&'s ClusterDeployment> {
    let deployments = snapshot.cluster_deployments().into_iter();
    deployments
        .flat_map(|deployments| clusters_using(deployments, entry))
        .collect()
}

fn is_selected_entry(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
    options: &RepairOptions<'_>,
) -> bool {
    match (options.pool, entry.status.pool()) {
        (None, _) => true,
        (asked, Some(pool)) if asked == Some(pool) || snapshot.deleted_pool(entry).is_none() => {
            asked == Some(pool)
        }
        (asked, _) => {
            let mut naming = snapshot.pools_that_list(entry.name());
            users.iter().any(|user| asked == user.pool()) || naming.any(|pool| asked == Some(pool.name()))
        }
    }
}

fn rule(snapshot: &Snapshot, entry: &Entry, options: &RepairOptions<'_>) -> Rule {
    Rule {
        now: snapshot.now,
        grace: options.grace,
        reuse: snapshot.reuse(entry),
    }
}

/// Applies the rule for leases to the entry. A change that the rule requires is a problem to report, unless it only
/// records the holder's cluster for the first time.
fn check_lease(
    snapshot: &Snapshot,
    entry: &Entry,
    reservation: &Reservation,
    user: Option<&ClusterDeployment>,
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    let rule = rule(snapshot, entry, options);
    let seen = match user {
        Some(user) => Usage::Used(user),
        None => snapshot.clusters.usage(entry),
    };
    if let Some(user) = user
        && (*reservation == Reservation::Free || Some(user.name()) != entry.status.holder())
    {
        let cause = if entry.status.is_reserved() {
            StatusFault::UsedByAnother
        } else {
            StatusFault::MarkedAvailable
        };
        let pool = user.pool().or(entry.status.pool())?.to_owned();
        let record = rule.new_record(None, seen, generate_lease_id())?;
        return Some(record_finding(entry, Cause::StatusFault(cause), pool, record));
    }
    let (pool, transition) = rule.check(entry, seen, generate_lease_id);
    let is_mark_lost = !entry.status.is_reserved();
    match (transition, reservation) {
        (Transition::Free, Reservation::Leased(record)) => {
            let cause = Cause::Ended { at: record.deadline };
            Some(LeaseProblem::of_entry(entry, cause, Remedy::Free))
        }
        (Transition::Clean(cleaning), Reservation::Leased(record)) => {
            let cause = Cause::Ended { at: record.deadline };
            Some(LeaseProblem::of_entry(entry, cause, Remedy::Clean(cleaning)))
        }
        (Transition::Unclear, _) => {
            let pool = entry.status.pool().unwrap_or_default();
            let why = format!(
                "the lease has ended, but pool {pool} cannot be read, so the entry may need cleaning first"
            );
            Some(unknown_holder_finding(snapshot, entry, why, options, &[]))
        }
        (Transition::Keep, Reservation::Cleaning(cleaning)) if is_mark_lost => {
            let cause = Cause::StatusFault(StatusFault::DirtyMarkedAvailable);
            Some(LeaseProblem::of_entry(
                entry,
                cause,
                Remedy::Clean(cleaning.clone()),
            ))
        }
        // With `--force`, the entry is freed.
        (Transition::Keep, Reservation::Cleaning(cleaning))
            if !options.is_forced(entry) && running_janitor(cleaning, rule).is_none() =>
        {
            abandoned_finding(snapshot, entry)
        }
        (Transition::Write(record), Reservation::Leased(_)) if record.state == LeaseState::ClusterGone => {
            Some(missing_cluster_finding(snapshot, entry, pool, record, options))
        }
        (Transition::Write(record), _) if matches!(record.state, LeaseState::InUse { .. }) => is_mark_lost
            .then(|| {
                record_finding(
                    entry,
                    Cause::StatusFault(StatusFault::MarkedAvailable),
                    pool,
                    record,
                )
            }),
        (Transition::Keep, Reservation::Leased(record)) if is_mark_lost => {
            let cause = Cause::StatusFault(StatusFault::MarkLost);
            Some(record_finding(entry, cause, pool, record.clone()))
        }
        (Transition::Keep, Reservation::Leased(record))
            if options.recreate && record.state == LeaseState::ClusterGone =>
        {
            Some(missing_cluster_finding(
                snapshot,
                entry,
                pool,
                record.clone(),
                options,
            ))
        }
        // With `--force`, say why the entry is not freed, and how to free it.
        (Transition::Write(record), Reservation::Unrecorded) if !options.is_forced(entry) => Some(
            record_finding(entry, Cause::StatusFault(StatusFault::NoRecord), pool, record),
        ),
        _ => None,
    }
}

/// The new record of an entry's lease, if a cluster uses the entry and the current record does not say so.
pub fn updated_record(
    snapshot: &Snapshot,
    entry: &Entry,
    options: &RepairOptions<'_>,
) -> Option<(String, LeaseRecord)> {
    let users = users_of(snapshot, entry);
    let is_wrong =
        check_entry(snapshot, entry, options).is_some() || snapshot.is_managed_by_hive(entry, &users);
    if is_wrong || !is_selected_entry(snapshot, entry, &users, options) {
        return None;
    }
    let (pool, transition) =
        rule(snapshot, entry, options).check(entry, snapshot.clusters.usage(entry), generate_lease_id);
    match transition {
        Transition::Write(record) if matches!(record.state, LeaseState::InUse { .. }) => Some((pool, record)),
        _ => None,
    }
}

/// Whether the holder's cluster is installed, but `ApplySucceeded` does not say so yet. In pools that Hive manages, Hive sets
/// this condition.
pub fn is_installed(snapshot: &Snapshot, entry: &Entry, options: &RepairOptions<'_>) -> bool {
    const SUCCEEDED: &str = crate::objects::entry::APPLY_SUCCEEDED;
    let users = users_of(snapshot, entry);
    let is_meant =
        is_selected_entry(snapshot, entry, &users, options) && !snapshot.is_managed_by_hive(entry, &users);
    let says_so = entry.conditions().status(SUCCEEDED) == Some("True");
    let mut users = users.into_iter();
    is_meant
        && !says_so
        && entry.status.is_reserved()
        && users.any(|user| {
            user.spec.installed && !user.is_deleting() && Some(user.name()) == entry.status.holder()
        })
}

/// The finding that a lease's cluster no longer exists. The remedy is to record this, or with `--recreate` to create the
/// cluster again.
fn missing_cluster_finding(
    snapshot: &Snapshot,
    entry: &Entry,
    pool: String,
    record: LeaseRecord,
    options: &RepairOptions<'_>,
) -> LeaseProblem {
    let is_listed = snapshot
        .pool(&pool)
        .is_some_and(|pool| !pool.is_deleting() && pool.inventory().contains(&entry.name()));
    let cause = Cause::ClusterGone {
        until: record.deadline,
    };
    if options.recreate && is_listed && !entry.is_deleting() && record.cluster.is_some() {
        return LeaseProblem::of_entry(entry, cause, Remedy::Recreate);
    }
    record_finding(entry, cause, pool, record)
}

fn record_finding(entry: &Entry, cause: Cause, pool: String, record: LeaseRecord) -> LeaseProblem {
    LeaseProblem {
        pool: Some(pool.clone()),
        cluster_deployment: Some(record.holder.clone()),
        ..LeaseProblem::of_entry(entry, cause, Remedy::Record { pool, record })
    }
}

/// The finding that an entry's holder is unknown. With `--force`, the entry is freed, or cleaned if its pool asks for this, unless
/// a cluster uses it.
fn unknown_holder_finding(
    snapshot: &Snapshot,
    entry: &Entry,
    why: String,
    options: &RepairOptions<'_>,
    users: &[&ClusterDeployment],
) -> LeaseProblem {
    if snapshot.cluster_deployments().is_none() {
        let why = may_be_used(&why);
        return LeaseProblem::of_entry(entry, Cause::Unknown { why }, Remedy::None);
    }
    let remedy = match users {
        [] if options.is_forced(entry) => given_back(snapshot, entry),
        [] => Remedy::Force,
        _ => Remedy::None,
    };
    LeaseProblem::of_entry(entry, Cause::Unknown { why }, remedy)
}

/// Why an entry is not freed if its cluster cannot be listed.
fn may_be_used(why: &str) -> String {
    format!(
        "{why}, and a cluster may still use the entry; you are not allowed to list clusterdeployments.hive.openshift.io"
    )
}

/// The remedy that ends the lease of an entry by force. If it is unknown whether the entry must be cleaned, `--force` ends the
/// lease, too, and the entry is cleaned.
fn given_back(snapshot: &Snapshot, entry: &Entry) -> Remedy {
    let reuse = match snapshot.reuse(entry) {
        Reuse::Free => return Remedy::Free,
        Reuse::Clean | Reuse::Unknown => Reuse::Clean,
    };
    cleaning_after(entry, reuse, snapshot.now.latest).map_or(Remedy::Free, Remedy::Clean)
}

/// The finding about an entry that must be cleaned for a pool that does not exist.
fn abandoned_finding(snapshot: &Snapshot, entry: &Entry) -> Option<LeaseProblem> {
    let pool = snapshot.deleted_pool(entry)?;
    let why = format!(
        "the entry must be cleaned, but no janitor takes it, because pool {pool} does not exist; apply the pool again, or clean the \
         entry and run: kubectl kcp pool repair --yes --force {} -n {}",
        entry.name(),
        snapshot.namespace
    );
    Some(LeaseProblem::of_entry(
        entry,
        Cause::Unknown { why },
        Remedy::Force,
    ))
}

fn running_janitor(record: &CleaningRecord, rule: Rule) -> Option<&Janitor> {
    let janitor = record.janitor.as_ref();
    janitor.filter(|janitor| !rule.has_ended(Some(janitor.deadline)))
}

/// What `--force` does with an entry that is being cleaned.
fn forced_cleaning(
    snapshot: &Snapshot,
    entry: &Entry,
    record: &CleaningRecord,
    grace: SignedDuration,
) -> LeaseProblem {
    let rule = Rule {
        now: snapshot.now,
        grace,
        reuse: Reuse::Free,
    };
    let holder = record.holder.as_deref().unwrap_or("an unknown holder");
    let Some(janitor) = running_janitor(record, rule) else {
        let why = format!("the entry was not cleaned after {holder} held it");
        return LeaseProblem::of_entry(entry, Cause::Unknown { why }, Remedy::Free);
    };
    let until = janitor.deadline.strftime("%Y-%m-%dT%H:%M:%SZ");
    let why = format!(
        "a janitor is cleaning the entry, last held by {holder}, at least until {until}; stop the janitor first"
    );
    LeaseProblem::of_entry(entry, Cause::InUse { why }, Remedy::None)
}

/// The finding about an entry that has no problem, but that the user named with `--force`. The entry is freed if its
/// lease never ends and no cluster uses it.
fn not_freed_finding(
    snapshot: &Snapshot,
    entry: &Entry,
    users: &[&ClusterDeployment],
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    if !options.is_forced(entry) || entry.status.reservation() == Reservation::Free {
        return None;
    }
    let used = |why: String| Some(LeaseProblem::of_entry(entry, Cause::InUse { why }, Remedy::None));
    let holder = entry.status.holder().unwrap_or("an unknown holder");
    if let Some(user) = users.first() {
        return used(format!(
            "{holder} holds the entry, and its ClusterDeployment exists in namespace {}",
            user.namespace()
        ));
    }
    if snapshot.cluster_deployments().is_none() {
        return used(may_be_used(&format!("{holder} holds the entry")));
    }
    // Suggest no command with other text, because a shell would interpret it.
    let is_name = |name: &str| is_dns1123_subdomain(name.as_bytes());
    let release = entry
        .status
        .pool()
        .filter(|pool| is_name(pool) && is_name(holder));
    let release = release.map_or_else(String::new, |pool| {
        format!(
            "; to free the entry now, run: kubectl kcp pool release {pool} --cluster-deployment {holder} -n {}",
            snapshot.namespace
        )
    });
    match entry.status.reservation() {
        Reservation::Cleaning(record) => Some(forced_cleaning(snapshot, entry, &record, options.grace)),
        Reservation::Leased(LeaseRecord {
            deadline: Some(deadline),
            state,
            ..
        }) => {
            let until = deadline.strftime("%Y-%m-%dT%H:%M:%SZ");
            used(if state == LeaseState::ClusterGone {
                format!(
                    "the cluster of {holder} no longer exists, and the entry stays reserved until {until}{release}"
                )
            } else {
                format!("{holder} holds the entry, and the lease ends at {until}")
            })
        }
        Reservation::Unrecorded => used(format!(
            "the entry is reserved for ClusterDeployment {holder}, which does not exist; another process may be about to create it{release}"
        )),
        _ => {
            let why = "the lease never ends".to_owned();
            Some(LeaseProblem::of_entry(
                entry,
                Cause::Unknown { why },
                given_back(snapshot, entry),
            ))
        }
    }
}

#[cfg(test)]
mod tests;
