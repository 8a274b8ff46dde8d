//! Renews a lease, once or for as long as a command runs.

use std::{fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kcp_api::metadata::Object as _;
use kcp_client::Error;
use serde_json::Value;

use crate::{
    lease::{
        LeaseError, Ttl,
        access::LeaseStore,
        write::{WriteResult, write_status},
    },
    objects::{
        Holder,
        entry::{Entry, EntryStatus as _, Reservation},
        record::LeaseRecord,
    },
};

/// The maximum number of attempts to renew a lease in an entry that other clients change at the same time.
const MAX_ATTEMPTS: usize = 8;

/// Identifies a lease by its holder, and by its id if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseName<'l> {
    pub holder: Holder<'l>,
    pub id: Option<&'l str>,
}

/// A hold on an entry that a process renews while its command runs.
pub trait Renewable: Copy {
    type Record;

    /// The entry's record, if it is the record of this hold.
    fn find_record(&self, entry: &Entry) -> Option<Self::Record>;

    /// When the hold ends; `None` if it never ends.
    fn deadline(record: &Self::Record) -> Option<Timestamp>;

    /// The record after the hold was renewed until this time.
    fn extended(record: &Self::Record, deadline: Option<Timestamp>) -> Self::Record;

    /// Whether the record that was found shows that the written one was stored.
    fn is_renewal(found: &Self::Record, written: &Self::Record) -> bool;

    fn patch(&self, entry: &Entry, record: &Self::Record, now: Timestamp) -> Value;
}

impl LeaseName<'_> {
    /// The entry's lease record, if it is the record of this lease.
    pub fn find_record(&self, entry: &Entry) -> Option<LeaseRecord> {
        match entry.status.reservation() {
            Reservation::Leased(record)
                if entry.refers_to(self.holder) && self.id.is_none_or(|id| id == record.id) =>
            {
                Some(record)
            }
            _ => None,
        }
    }
}

impl Renewable for LeaseName<'_> {
    type Record = LeaseRecord;

    fn find_record(&self, entry: &Entry) -> Option<LeaseRecord> {
        LeaseName::find_record(self, entry)
    }

    fn deadline(record: &LeaseRecord) -> Option<Timestamp> {
        record.deadline
    }

    fn extended(record: &LeaseRecord, deadline: Option<Timestamp>) -> LeaseRecord {
        LeaseRecord {
            deadline,
            ..record.after_confirmation()
        }
    }

    fn is_renewal(found: &LeaseRecord, written: &LeaseRecord) -> bool {
        found.renewals == written.renewals && found.deadline == written.deadline
    }

    fn patch(&self, entry: &Entry, record: &LeaseRecord, now: Timestamp) -> Value {
        entry.lease(self.holder.pool, record, now)
    }
}

/// Renews a lease once. The lease then ends at its old deadline or after the ttl, whichever is later. Returns `None` if the
/// holder no longer has the lease.
pub async fn renew<L: Renewable>(
    store: &impl LeaseStore,
    customization: &str,
    lease: L,
    ttl: Ttl,
) -> Result<Option<L::Record>, LeaseError> {
    for _ in 0..MAX_ATTEMPTS {
        let entry = store.get(customization).await?;
        let Some((entry, record)) =
            entry.and_then(|entry| lease.find_record(&entry).map(|record| (entry, record)))
        else {
            return Ok(None);
        };
        let now = store.now();
        let deadline = ttl.extend(L::deadline(&record), now);
        let after = L::extended(&record, deadline);
        let patch = lease.patch(&entry, &after, now.latest);
        match write_status(store, &entry, &patch).await? {
            WriteResult::Stored => return Ok(Some(after)),
            WriteResult::Superseded(current) => {
                let found = current.and_then(|current| lease.find_record(&current));
                if found.is_some_and(|found| L::is_renewal(&found, &after)) {
                    return Ok(Some(after));
                }
            }
            WriteResult::Refused(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended {
        goal: format!("renew the lease on {customization}"),
        attempts: MAX_ATTEMPTS,
    }
    .into())
}

/// The names of the entries that have this lease, sorted.
pub async fn list_held_entries(store: &impl LeaseStore, lease: LeaseName<'_>) -> Result<Vec<String>, Error> {
    let entries = store.list().await?;
    let held = entries.iter().filter(|entry| lease.find_record(entry).is_some());
    let mut held: Vec<_> = held.map(|entry| entry.name().to_owned()).collect();
    held.sort();
    Ok(held)
}

/// A lease, or another hold on an entry, that this process renews while its command runs.
pub struct RenewedLease<'k, S, L> {
    pub store: &'k S,
    pub customization: &'k str,
    pub lease: L,
    pub heartbeat: Heartbeat,
}

/// Why a process that renews a lease has lost it.
#[derive(Debug)]
pub enum LossReason {
    /// The entry is free, or has another lease.
    NotHeld,
    /// This process could not renew the lease in time.
    NotRenewed,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => f.write_str("the customization is free or has another lease"),
            Self::NotRenewed => f.write_str("kubectl-kcp could not renew the lease in time"),
        }
    }
}

impl<S: LeaseStore, L: Renewable> RenewedLease<'_, S, L> {
    /// Renews the lease until it is lost, and returns why it was lost. `deadline` is the lease's current end. Each failed
    /// check calls `failed`.
    pub async fn wait_until_lost(self, mut deadline: Timestamp, failed: impl Fn(&Error)) -> LossReason {
        loop {
            let left = self.left(deadline);
            if left.is_zero() {
                return LossReason::NotRenewed;
            }
            tokio::time::sleep(self.heartbeat.time_until_check(left)).await;
            let left = self.left(deadline);
            let look = async {
                if self.heartbeat.is_due(left) {
                    return Ok(self.renew().await?.map(|record| L::deadline(&record)));
                }
                let entry = self.store.get(self.customization).await?;
                Ok(entry
                    .and_then(|entry| self.lease.find_record(&entry))
                    .map(|record| L::deadline(&record)))
            };
            match tokio::time::timeout(left, look).await {
                Ok(Ok(Some(end))) => deadline = end.unwrap_or(deadline),
                Ok(Ok(None)) => return LossReason::NotHeld,
                Ok(Err(error)) => failed(&error),
                Err(_) => {}
            }
        }
    }

    async fn renew(&self) -> Result<Option<L::Record>, Error> {
        let renewed = renew(
            self.store,
            self.customization,
            self.lease,
            Ttl::For(self.heartbeat.ttl),
        )
        .await;
        renewed.map_err(LeaseError::into_cause)
    }

    /// How long the command may still run before it must be stopped, so that it has ended when the lease ends.
    fn left(&self, deadline: Timestamp) -> Duration {
        let left = deadline.duration_since(self.store.now().latest) - self.heartbeat.grace();
        Duration::try_from(left.max(SignedDuration::ZERO)).unwrap_or_default()
    }
}

/// The maximum time between the signals TERM and KILL to a command that has lost its lease.
const MAX_GRACE: Duration = Duration::from_secs(10);

/// The maximum time between two checks of a lease while its command runs.
const MAX_BETWEEN_CHECKS: Duration = Duration::from_secs(10);

/// The schedule on which a lease is checked and renewed while its command runs. Depends on the ttl of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub ttl: Duration,
}

impl Heartbeat {
    /// The time until the next check of the lease, if the command may run for `left`.
    pub fn time_until_check(&self, left: Duration) -> Duration {
        (self.ttl / 6).min(MAX_BETWEEN_CHECKS).min(left)
    }

    /// Whether the lease must be renewed now, because a third of its ttl has passed.
    pub fn is_due(&self, left: Duration) -> bool {
        left + Duration::from_secs(self.grace().as_secs().unsigned_abs()) <= self.ttl * 2 / 3
    }

    /// The time between the signals TERM and KILL to the command, after the lease is lost.
    pub fn grace(&self) -> SignedDuration {
        let grace = (self.ttl / 3).min(MAX_GRACE);
        SignedDuration::try_from(grace).unwrap_or(SignedDuration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use serde_json::Value;

    use super::{Heartbeat, LeaseName, LossReason, RenewedLease, renew};
    use crate::{
        lease::Ttl,
        objects::Holder,
        testing::{
            attempts::run,
            fake::{Fake, Fault},
            objects::{lease, leased},
        },
    };

    const PARIS: Holder<'_> = Holder {
        pool: "pool",
        cluster_deployment: "paris",
    };

    const HOUR: Ttl = Ttl::For(Duration::from_secs(3600));

    /// Entry `a` with this status, and these faults of its writes.
    fn fake(entry: &Value, faults: &[Option<Fault>]) -> Fake {
        let fake = Fake::free(&["a"]).with_faults(faults);
        fake.put("a", &entry["status"]);
        fake
    }

    fn by_paris(deadline: Option<&str>) -> Value {
        leased(&lease("paris", deadline))
    }

    fn renewed(fake: &Fake, id: Option<&str>, ttl: Ttl) -> Option<String> {
        let lease = LeaseName { holder: PARIS, id };
        let record = run(renew(fake, "a", lease, ttl)).unwrap()?;
        assert_eq!(record, fake.record("a"));
        Some(record.deadline.map_or("never".to_owned(), |end| end.to_string()))
    }

    #[test]
    fn only_the_holder_extends_a_lease() {
        // The fake's time is 05:00:00.
        let (short, long) = (Some("2026-11-21T05:10:00Z"), Some("2026-11-22T05:00:00Z"));
        for (deadline, id, ttl, expected) in [
            (short, None, HOUR, Some("2026-11-21T06:00:00Z")),
            (short, Some("k4x7"), HOUR, Some("2026-11-21T06:00:00Z")),
            (short, Some("k4x8"), HOUR, None),
            (long, None, HOUR, Some("2026-11-22T05:00:00Z")),
            (short, None, Ttl::Never, Some("never")),
            (None, None, HOUR, Some("never")),
        ] {
            let fake = fake(&by_paris(deadline), &[]);
            assert_eq!(
                renewed(&fake, id, ttl).as_deref(),
                expected,
                "{deadline:?} {id:?} {ttl:?}"
            );
        }
        let of_rome = fake(&leased(&lease("rome", short)), &[]);
        assert_eq!(renewed(&of_rome, None, HOUR), None);
        let free = Fake::free(&["a"]);
        assert_eq!(renewed(&free, None, HOUR), None);
        for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Touched] {
            let fake = fake(&by_paris(short), &[Some(fault)]);
            assert_eq!(
                renewed(&fake, None, HOUR).as_deref(),
                Some("2026-11-21T06:00:00Z"),
                "{fault:?}"
            );
        }
    }

    #[test]
    fn a_heartbeat_checks_and_renews_in_time() {
        let seconds = Duration::from_secs;
        for (ttl, left, look, is_due, grace) in [
            (60, 50, 10, false, 10),
            (60, 30, 10, true, 10),
            (900, 880, 10, false, 10),
            (900, 590, 10, true, 10),
            (900, 3, 3, true, 10),
            (3, 2, 0, false, 1),
            (3, 1, 0, true, 1),
        ] {
            let heartbeat = Heartbeat { ttl: seconds(ttl) };
            let left = seconds(left);
            let found = (
                heartbeat.time_until_check(left).as_secs(),
                heartbeat.is_due(left),
                heartbeat.grace().as_secs(),
            );
            assert_eq!(found, (look, is_due, grace), "{ttl} {left:?}");
        }
    }

    /// Renews a lease of 15 minutes until it is lost. Returns why, and after how many seconds.
    fn kept(fake: &Fake) -> (LossReason, u64) {
        let kept = RenewedLease {
            store: fake,
            customization: "a",
            lease: LeaseName {
                holder: PARIS,
                id: Some("k4x7"),
            },
            heartbeat: Heartbeat {
                ttl: Duration::from_secs(900),
            },
        };
        let failures = RefCell::new(0);
        run(async {
            let begin = tokio::time::Instant::now();
            let deadline = fake.record("a").deadline.unwrap();
            let lost = kept
                .wait_until_lost(deadline, |_| *failures.borrow_mut() += 1)
                .await;
            (lost, begin.elapsed().as_secs())
        })
    }

    #[test]
    fn a_loss_is_noticed_within_ten_seconds() {
        let fake = fake(&by_paris(Some("2026-11-21T05:15:00Z")), &[]);
        fake.after(
            Duration::from_secs(21),
            "a",
            &leased(&lease("rome", None))["status"],
        );
        let (lost, seconds) = kept(&fake);
        assert!(matches!(lost, LossReason::NotHeld), "{lost:?}");
        assert_eq!(seconds, 30);
    }

    #[test]
    fn a_lease_survives_an_outage_until_the_command_must_end() {
        let fake = fake(&by_paris(Some("2026-11-21T05:15:00Z")), &[]);
        fake.outage(Duration::from_secs(60), Duration::from_secs(500));
        fake.after(
            Duration::from_secs(1_000),
            "a",
            &leased(&lease("rome", None))["status"],
        );
        assert!(matches!(kept(&fake), (LossReason::NotHeld, 1_000..=1_010)));
        let fake = super::tests::fake(&by_paris(Some("2026-11-21T05:15:00Z")), &[]);
        fake.outage(Duration::from_secs(60), Duration::from_secs(9_000));
        // The deadline is at 900 s, and the command has 10 s to end.
        assert!(matches!(kept(&fake), (LossReason::NotRenewed, 890)));
    }
}
