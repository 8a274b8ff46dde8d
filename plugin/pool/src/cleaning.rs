//! Cleans entries between two holders: which entry a janitor cleans next, and what becomes of the entry afterwards.
//!
//! - [`Cleaner::next`], [`after_command`]: the decisions, without I/O
//! - [`take`], [`finish`]: the writes, each of which requires the version that was judged

use std::{fmt, time::Duration};

use jiff::Timestamp;
use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_client::{Error, ServerTime};

use crate::{
    cordon::set_cordon_if,
    lease::{
        LeaseError, Ttl,
        generated_name::generate_lease_id,
        renewal::Renewable,
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule, Transition},
        usage::{Clusters, Usage},
        write::{WriteResult, write_status},
    },
    objects::{
        CleaningRecord,
        cleaning::Janitor,
        entry::{Entry, EntryStatus as _, Reservation},
    },
    store::LeaseStore,
};

/// How many times janitors fail to clean an entry before it is cordoned, unless `--failures` says otherwise.
pub const DEFAULT_FAILURES: u32 = 3;

/// The maximum number of attempts to write an entry that other clients change at the same time.
const MAX_ATTEMPTS: usize = 8;

/// What a janitor cleans, and how.
#[derive(Clone, Copy, Debug)]
pub struct Cleaner<'c> {
    pub pool: &'c ClusterPool,
    /// The only customization to clean; `None` for all of the pool.
    pub only: Option<&'c str>,
    /// How long a janitor keeps an entry that it does not renew.
    pub ttl: Duration,
}

/// What a janitor does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<'e> {
    /// Take this entry, whose record is then this one.
    Take(&'e Entry, CleaningRecord),
    /// No entry of the pool needs a janitor now. Contains the entries that this janitor cannot clean, and why.
    Nothing(Vec<(&'e str, Obstacle)>),
}

/// Why a janitor does not clean an entry that must be cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Cordoned(String),
    /// Another janitor cleans the entry, unless it stops renewing its hold before this time.
    OtherJanitor(Timestamp),
    /// A cluster with this name uses the entry.
    Used(String),
    /// The clusters could not be listed, so a cluster may use the entry.
    MaybeUsed,
    Unreadable,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordoned(why) => write!(f, "it is cordoned: {why}"),
            Self::OtherJanitor(until) => write!(
                f,
                "another janitor cleans it, at least until {}",
                until.strftime("%Y-%m-%dT%H:%M:%SZ")
            ),
            Self::Used(cluster) => write!(f, "ClusterDeployment {cluster} uses it"),
            Self::MaybeUsed => f.write_str(
                "a cluster may use it, and you are not allowed to list clusterdeployments.hive.openshift.io to check this",
            ),
            Self::Unreadable => {
                f.write_str("its record cannot be read; to see what to do, run: kubectl kcp pool repair")
            }
        }
    }
}

/// How the command of a janitor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// The command ended by itself with this exit code.
    Exited(u8),
    /// The command did not start, or a signal to the janitor ended it. This says nothing about the entry.
    Aborted,
}

/// What becomes of an entry after the command of its janitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    Free,
    /// The entry waits again, with this record.
    Wait(CleaningRecord),
    /// The entry is cordoned for this reason, and then waits with this record.
    Cordon(String, CleaningRecord),
}

impl Cleaner<'_> {
    /// The entry that a janitor takes next, if it takes one. Entries that failed less often come first, and among these the one
    /// that has waited longest. Also takes entries whose lease has ended since the last check. Without the clusters, assumes
    /// that none uses an entry; so a janitor lists the clusters only if there is an entry for it.
    pub fn next<'e>(&self, entries: &'e [Entry], clusters: Option<&Clusters>, now: ServerTime) -> Next<'e> {
        let rule = Rule {
            now: clusters.map_or(now, |clusters| clusters.time_of_check(now)),
            grace: DEFAULT_GRACE,
            reuse: Reuse::Free,
        };
        let (mut takeable, mut others) = (Vec::new(), Vec::new());
        for entry in entries.iter().filter(|entry| self.includes(entry)) {
            let usage = clusters.map_or(Usage::Unused, |clusters| clusters.usage(entry));
            match self.judge(entry, usage, rule) {
                Some(Ok(record)) => takeable.push((entry, record)),
                Some(Err(why)) => others.push((entry.name(), why)),
                None => {}
            }
        }
        let order =
            |(entry, record): &(&'e Entry, CleaningRecord)| (record.failures, record.since, entry.name());
        let first = takeable.into_iter().min_by(|a, b| order(a).cmp(&order(b)));
        match first {
            Some((entry, record)) => {
                let janitor = Janitor {
                    id: generate_lease_id(),
                    deadline: self.deadline(now),
                };
                let record = CleaningRecord {
                    janitor: Some(janitor),
                    ..record
                };
                Next::Take(entry, record)
            }
            None => Next::Nothing(others),
        }
    }

    /// Whether the entry is reserved for the pool. An entry that the pool no longer lists is cleaned, too.
    fn includes(&self, entry: &Entry) -> bool {
        let is_of_pool = match entry.status.pool() {
            Some(pool) => pool == self.pool.name(),
            None => self.pool.inventory().contains(&entry.name()),
        };
        is_of_pool && self.only.is_none_or(|only| only == entry.name())
    }

    /// The record of an entry that must be cleaned, or why this janitor cannot clean it; `None` if the entry must not be cleaned.
    fn judge(&self, entry: &Entry, usage: Usage<'_>, rule: Rule) -> Option<Result<CleaningRecord, Obstacle>> {
        let record = match entry.status.reservation() {
            Reservation::Cleaning(record) => record,
            Reservation::Leased(lease) => {
                let reuse = Reuse::decide(Some(self.pool), false);
                let Transition::Clean(record) = (Rule { reuse, ..rule }).transition(&lease, usage) else {
                    return None;
                };
                record
            }
            Reservation::Unreadable(_) => return Some(Err(Obstacle::Unreadable)),
            Reservation::Free | Reservation::Unrecorded => return None,
        };
        let running = record.janitor.as_ref().map(|janitor| janitor.deadline);
        let obstacle = match usage {
            Usage::Used(cluster) => Some(Obstacle::Used(cluster.name().to_owned())),
            Usage::Unknown => Some(Obstacle::MaybeUsed),
            Usage::Unused => match (entry.cordoned(), running) {
                (Some(why), _) => Some(Obstacle::Cordoned(why.to_owned())),
                (None, Some(deadline)) if !rule.has_ended(Some(deadline)) => {
                    Some(Obstacle::OtherJanitor(deadline))
                }
                (None, _) => None,
            },
        };
        Some(obstacle.map_or(Ok(record), Err))
    }

    fn deadline(&self, now: ServerTime) -> Timestamp {
        Ttl::For(self.ttl).deadline(now).unwrap_or(Timestamp::MAX)
    }
}

/// What becomes of an entry with this record, after the command of its janitor has ended. After `max_failures` in a row, the entry is
/// cordoned.
pub fn after_command(record: &CleaningRecord, end: CommandEnd, max_failures: u32) -> After {
    let waiting = |failures| CleaningRecord {
        janitor: None,
        failures,
        ..record.clone()
    };
    match end {
        CommandEnd::Exited(0) => After::Free,
        CommandEnd::Aborted => After::Wait(waiting(record.failures)),
        CommandEnd::Exited(code) => {
            let failures = record.failures.saturating_add(1);
            if failures < max_failures {
                return After::Wait(waiting(failures));
            }
            let times = if failures == 1 { "time" } else { "times" };
            let reason = format!("cleaning failed {failures} {times}, last with exit code {code}");
            After::Cordon(reason, waiting(failures))
        }
    }
}

/// The hold of a janitor on an entry, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JanitorId<'j>(pub &'j str);

impl Renewable for JanitorId<'_> {
    type Record = CleaningRecord;

    fn find_record(&self, entry: &Entry) -> Option<CleaningRecord> {
        match entry.status.reservation() {
            Reservation::Cleaning(record)
                if record
                    .janitor
                    .as_ref()
                    .is_some_and(|janitor| janitor.id == self.0) =>
            {
                Some(record)
            }
            _ => None,
        }
    }

    fn deadline(record: &CleaningRecord) -> Option<Timestamp> {
        record.janitor.as_ref().map(|janitor| janitor.deadline)
    }

    fn extended(record: &CleaningRecord, deadline: Option<Timestamp>) -> CleaningRecord {
        let janitor = record.janitor.clone().map(|janitor| Janitor {
            deadline: deadline.unwrap_or(janitor.deadline),
            ..janitor
        });
        CleaningRecord {
            janitor,
            ..record.clone()
        }
    }

    fn is_renewal(found: &CleaningRecord, written: &CleaningRecord) -> bool {
        found.janitor == written.janitor
    }

    fn patch(&self, entry: &Entry, record: &CleaningRecord, now: Timestamp) -> serde_json::Value {
        entry.clean(record, now)
    }
}

/// Takes the entry for this janitor. Returns whether the janitor has it; if not, another client has changed the entry.
pub async fn take(
    store: &impl LeaseStore,
    entry: &Entry,
    record: &CleaningRecord,
) -> Result<bool, LeaseError> {
    let patch = entry.clean(record, store.now().latest);
    match write_status(store, entry, &patch).await? {
        WriteResult::Stored => Ok(true),
        WriteResult::Superseded(current) => {
            let id = record.janitor.as_ref().map(|janitor| janitor.id.as_str());
            let found = current
                .zip(id)
                .and_then(|(current, id)| JanitorId(id).find_record(&current));
            Ok(found.is_some())
        }
        WriteResult::Refused(error) => Err(error.into()),
    }
}

/// Writes what becomes of the entry after the command of its janitor. Returns `None` if the janitor no longer has the entry. An entry
/// is cordoned first, so that a janitor that is killed in between leaves no entry that is tried for ever.
pub async fn finish(
    store: &impl LeaseStore,
    customization: &str,
    id: JanitorId<'_>,
    decide: impl Fn(&CleaningRecord) -> After,
) -> Result<Option<After>, LeaseError> {
    let holds = |entry: &Entry| id.find_record(entry).is_some();
    for _ in 0..MAX_ATTEMPTS {
        let Some((entry, after)) = read_decided(store, customization, id, &decide).await? else {
            return Ok(None);
        };
        if let After::Cordon(reason, _) = &after
            && entry.cordoned().is_none()
        {
            set_cordon_if(store, customization, Some(reason), holds).await?;
            continue;
        }
        if write_end(store, &entry, &after).await? {
            return Ok(Some(after));
        }
    }
    Err(Error::Contended {
        goal: format!("record the cleaning of {customization}"),
        attempts: MAX_ATTEMPTS,
    }
    .into())
}

async fn read_decided(
    store: &impl LeaseStore,
    customization: &str,
    id: JanitorId<'_>,
    decide: impl Fn(&CleaningRecord) -> After,
) -> Result<Option<(Entry, After)>, Error> {
    let entry = store.get(customization).await?;
    Ok(entry.and_then(|entry| {
        let after = decide(&id.find_record(&entry)?);
        Some((entry, after))
    }))
}

/// Writes the end of a cleaning. Returns whether it is certain that the write was stored.
async fn write_end(store: &impl LeaseStore, entry: &Entry, after: &After) -> Result<bool, LeaseError> {
    let now = store.now().latest;
    let patch = match after {
        After::Free => entry.free(now),
        After::Wait(record) | After::Cordon(_, record) => entry.clean(record, now),
    };
    match write_status(store, entry, &patch).await? {
        WriteResult::Stored => Ok(true),
        // A write whose answer was lost shows in the entry, unless another client has taken the entry since.
        WriteResult::Superseded(Some(current)) => Ok(match (after, current.status.reservation()) {
            (After::Free, Reservation::Free) => true,
            (After::Wait(record) | After::Cordon(_, record), Reservation::Cleaning(found)) => {
                found == *record
            }
            _ => false,
        }),
        WriteResult::Superseded(None) => Ok(false),
        WriteResult::Refused(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
