//! The only rule that changes the state of a lease and frees its entry. No I/O.
//!
//! ```text
//! held -> in-use(uid) -> gone(deadline) -> free, or cleaning if the pool asks for it
//! ```
//!
//! | a check finds | held | in-use(uid) | gone |
//! |---|---|---|---|
//! | a cluster uses the entry | in-use | in-use, with its uid | in-use |
//! | the clusters could not be listed | no change | no change | no change |
//! | no cluster, before the deadline | no change | gone until the deadline, or until the grace period ends if that is later | no change |
//! | no cluster, after the deadline | gone until the grace period ends; free if the holder creates no cluster | gone until the grace period ends | free |
//! | another holder's cluster uses the entry | no change before the deadline; in-use by that holder after it | in-use by that holder | in-use by that holder |
//!
//! Where this table says free, the entry is cleaned first if its pool asks for it, and stays as it is if the pool cannot be read.
//!
//! If a lease may have had a cluster, only a second check frees its entry, because the first check may have run after the
//! cluster was deleted and before it was created again.

use jiff::{SignedDuration, Timestamp};
use kcp_api::metadata::Object as _;
use kcp_client::ServerTime;
use serde_json::Value;

use crate::{
    lease::{
        reuse::Reuse,
        usage::{Usage, belongs_to_lease},
    },
    objects::{
        CleaningRecord, ClusterName, Holder,
        cluster_deployment::Deletion as _,
        entry::{Entry, EntryStatus as _, Reservation},
        record::{CLOCK_MARGIN, LeaseRecord, LeaseState},
    },
};

/// How long an entry stays reserved after its cluster no longer exists, unless `--grace` says otherwise.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_mins(10);

/// The time and the grace period with which leases are checked, and what becomes of an entry whose lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub now: ServerTime,
    pub grace: SignedDuration,
    pub reuse: Reuse,
}

/// What a check does with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    Keep,
    Write(LeaseRecord),
    Free,
    /// The lease has ended, and the entry must be cleaned.
    Clean(CleaningRecord),
    /// The lease has ended, but it is unknown whether the entry must be cleaned. Nothing is written.
    Unclear,
}

impl Transition {
    /// The patch that writes the change to the entry, reserved for this pool; `None` if nothing changes.
    pub fn patch(&self, entry: &Entry, pool: &str, now: Timestamp) -> Option<Value> {
        match self {
            Self::Keep | Self::Unclear => None,
            Self::Write(record) => Some(entry.lease(pool, record, now)),
            Self::Free => Some(entry.free(now)),
            Self::Clean(record) => Some(entry.clean(record, now)),
        }
    }
}

impl Rule {
    /// Whether a lease with this deadline has ended for certain, so that another holder can have the entry.
    pub fn has_ended(&self, deadline: Option<Timestamp>) -> bool {
        let end = deadline.and_then(|deadline| deadline.checked_add(CLOCK_MARGIN).ok());
        self.now.is_certain && end.is_some_and(|end| self.now.earliest >= end)
    }

    /// Whether this lease holds the entry and has not ended, although the cluster of another holder uses the
    /// entry. No check can tell which of the two holders is right.
    pub fn is_contested(&self, record: &LeaseRecord, seen: Usage<'_>) -> bool {
        let is_others = matches!(seen, Usage::Used(cluster) if !belongs_to_lease(cluster, record));
        is_others && record.state == LeaseState::Held && !self.has_ended(record.deadline)
    }

    /// What a check does with a lease, depending on whether a cluster of the lease uses its entry.
    pub fn transition(&self, record: &LeaseRecord, seen: Usage<'_>) -> Transition {
        match (seen, &record.state) {
            (Usage::Unknown, _) => Transition::Keep,
            (Usage::Used(cluster), LeaseState::InUse { uid }) if uid == cluster.uid() => Transition::Keep,
            (Usage::Used(cluster), _) => Transition::Write(LeaseRecord {
                state: LeaseState::InUse {
                    uid: cluster.uid().to_owned(),
                },
                ..record.clone()
            }),
            (Usage::Unused, LeaseState::InUse { .. }) => Transition::Write(self.gone(record)),
            (Usage::Unused, _) if !self.has_ended(record.deadline) => Transition::Keep,
            (Usage::Unused, LeaseState::Held) if record.cluster.is_some() => {
                Transition::Write(self.gone(record))
            }
            (Usage::Unused, _) => self.end_of(Some(record), None),
        }
    }

    /// What becomes of an entry whose lease ends. `lease` is its record, and `holder` its holder, as far as they are known.
    pub fn end_of(&self, lease: Option<&LeaseRecord>, holder: Option<&str>) -> Transition {
        match self.reuse {
            Reuse::Free => Transition::Free,
            Reuse::Clean => Transition::Clean(CleaningRecord::after_lease(lease, holder, self.now.latest)),
            Reuse::Unknown => Transition::Unclear,
        }
    }

    /// The record of the lease, after a check found that its cluster no longer exists.
    fn gone(&self, record: &LeaseRecord) -> LeaseRecord {
        LeaseRecord {
            state: LeaseState::ClusterGone,
            deadline: record.deadline.map(|deadline| deadline.max(self.after_grace())),
            ..record.clone()
        }
    }

    /// The new record for an entry that is reserved without a record. The record names the cluster that uses the
    /// entry, or else the holder in the entry's status. `None` if neither is known.
    pub fn new_record(&self, holder: Option<Holder<'_>>, seen: Usage<'_>, id: String) -> Option<LeaseRecord> {
        let (name, state) = match (seen, holder) {
            (Usage::Used(cluster), _) => {
                let uid = cluster.uid().to_owned();
                (cluster.name(), LeaseState::InUse { uid })
            }
            (Usage::Unused, Some(holder)) => (holder.cluster_deployment, LeaseState::ClusterGone),
            (Usage::Unused, None) | (Usage::Unknown, _) => return None,
        };
        Some(LeaseRecord {
            state,
            holder: name.to_owned(),
            id,
            renewals: 0,
            acquired: LeaseRecord::round_up_to_second(self.now.latest),
            deadline: Some(self.after_grace()),
            cluster: Some(ClusterName::new(name, name)),
            user: None,
        })
    }

    /// What a check does with an entry's lease, and the pool for which the entry is then reserved. `id` generates the id of
    /// the record if the entry has none.
    pub fn check(&self, entry: &Entry, seen: Usage<'_>, id: impl FnOnce() -> String) -> (String, Transition) {
        let pool_of = |holder: Option<&str>| {
            let used_by = match seen {
                Usage::Used(cluster) => cluster.pool(),
                Usage::Unused | Usage::Unknown => None,
            };
            let pool = holder.or(entry.status.pool()).or(used_by);
            pool.unwrap_or_default().to_owned()
        };
        let adopt = |pool: String| {
            let holder = entry.status.holder().filter(|_| !pool.is_empty());
            let holder = holder.map(|cluster_deployment| Holder {
                pool: &pool,
                cluster_deployment,
            });
            let record = self.new_record(holder, seen, id());
            let transition = record.map_or(Transition::Keep, Transition::Write);
            (pool, transition)
        };
        match (entry.status.reservation(), seen) {
            (Reservation::Leased(record), Usage::Used(cluster)) if !belongs_to_lease(cluster, &record) => {
                if self.is_contested(&record, seen) {
                    (pool_of(None), Transition::Keep)
                } else {
                    adopt(pool_of(cluster.pool()))
                }
            }
            (Reservation::Leased(record), _) => (pool_of(None), self.transition(&record, seen)),
            (Reservation::Unrecorded, _) => adopt(pool_of(None)),
            (Reservation::Free | Reservation::Cleaning(_) | Reservation::Unreadable(_), _) => {
                (pool_of(None), Transition::Keep)
            }
        }
    }

    fn after_grace(&self) -> Timestamp {
        let after = self.now.latest.checked_add(self.grace).unwrap_or(Timestamp::MAX);
        LeaseRecord::round_up_to_second(after)
    }
}

#[cfg(test)]
mod tests;
