//! The one rule that moves a lease on, and that frees its entry. Pure.
//!
//! ```text
//! held -> in-use(uid) -> gone(deadline) -> free
//! ```
//!
//! | a look finds | held | in-use(uid) | gone |
//! |---|---|---|---|
//! | a cluster uses the entry | in-use | in-use, with its uid | in-use |
//! | it is unknown | | | |
//! | no cluster, before the deadline | | gone, at the later of the deadline and now plus the grace period | |
//! | no cluster, after the deadline | gone, after the grace period; without a cluster free | the same | free |
//!
//! A lease that may have had a cluster is freed by a second look only: the first one may have come between the
//! deletion of a cluster and its next creation.

use jiff::{SignedDuration, Timestamp};
use kcp_api::metadata::Object as _;
use kcp_client::ServerTime;

use crate::{
    lease::usage::Seen,
    objects::{
        ClusterName, Holder,
        cluster_deployment::Lifetime as _,
        entry::{Entry, Reservation, Reserved as _},
        record::{LeaseRecord, State},
    },
};

/// The default of how long an entry stays reserved after its cluster was found gone.
pub const GRACE: SignedDuration = SignedDuration::from_mins(10);

/// How long after its deadline a lease ends for others: its holder counts from a time that may be a little earlier.
const MARGIN: SignedDuration = SignedDuration::from_secs(5);

/// The time and the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub now: ServerTime,
    pub grace: SignedDuration,
}

/// What a look does to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Keep,
    Write(LeaseRecord),
    Free,
}

impl Rule {
    /// Whether a lease with this deadline has ended, so that another holder can have the entry.
    pub fn has_ended(&self, deadline: Option<Timestamp>) -> bool {
        let end = deadline.and_then(|deadline| deadline.checked_add(MARGIN).ok());
        self.now.is_certain && end.is_some_and(|end| self.now.earliest >= end)
    }

    /// What follows for a lease from whether a cluster uses its entry.
    pub fn step(&self, record: &LeaseRecord, seen: Seen<'_>) -> Step {
        match (seen, &record.state) {
            (Seen::Unknown, _) => Step::Keep,
            (Seen::Used(cluster), State::InUse { uid }) if uid == cluster.uid() => Step::Keep,
            (Seen::Used(cluster), _) => Step::Write(LeaseRecord {
                state: State::InUse {
                    uid: cluster.uid().to_owned(),
                },
                ..record.clone()
            }),
            (Seen::Unused, State::InUse { .. }) => Step::Write(self.gone(record)),
            (Seen::Unused, _) if !self.has_ended(record.deadline) => Step::Keep,
            (Seen::Unused, State::Held) if record.cluster.is_some() => Step::Write(self.gone(record)),
            (Seen::Unused, _) => Step::Free,
        }
    }

    /// The lease of a cluster that was found gone.
    fn gone(&self, record: &LeaseRecord) -> LeaseRecord {
        LeaseRecord {
            state: State::Gone,
            deadline: record.deadline.map(|deadline| deadline.max(self.after_grace())),
            ..record.clone()
        }
    }

    /// The record of a reservation that has none, for the holder that it names or the cluster that uses it. None if
    /// neither is known.
    pub fn adopted(&self, holder: Option<Holder<'_>>, seen: Seen<'_>, id: String) -> Option<LeaseRecord> {
        let (name, state) = match (seen, holder) {
            (Seen::Used(cluster), _) => {
                let uid = cluster.uid().to_owned();
                (cluster.name(), State::InUse { uid })
            }
            (Seen::Unused, Some(holder)) => (holder.cluster_deployment, State::Gone),
            (Seen::Unused, None) | (Seen::Unknown, _) => return None,
        };
        Some(LeaseRecord {
            state,
            holder: name.to_owned(),
            id,
            renewals: 0,
            acquired: LeaseRecord::whole_second(self.now.latest),
            deadline: Some(self.after_grace()),
            cluster: Some(ClusterName::new(name, name)),
            user: None,
        })
    }

    /// What a look does to an entry, and the pool that the entry is reserved for then. The id is for a reservation that
    /// has no record.
    pub fn look(&self, entry: &Entry, seen: Seen<'_>, id: impl FnOnce() -> String) -> (String, Step) {
        let used_by = match seen {
            Seen::Used(cluster) => cluster.pool(),
            Seen::Unused | Seen::Unknown => None,
        };
        let pool = entry.cluster_pool().or(used_by).unwrap_or_default().to_owned();
        let holder = entry.cluster_deployment().filter(|_| !pool.is_empty());
        let holder = holder.map(|cluster_deployment| Holder {
            pool: &pool,
            cluster_deployment,
        });
        let step = match entry.reservation() {
            Reservation::Leased(record) => self.step(&record, seen),
            Reservation::Unrecorded => self.adopted(holder, seen, id()).map_or(Step::Keep, Step::Write),
            Reservation::Free | Reservation::Unreadable(_) => Step::Keep,
        };
        (pool, step)
    }

    fn after_grace(&self) -> Timestamp {
        let after = self.now.latest.checked_add(self.grace).unwrap_or(Timestamp::MAX);
        LeaseRecord::whole_second(after)
    }
}

#[cfg(test)]
mod tests;
