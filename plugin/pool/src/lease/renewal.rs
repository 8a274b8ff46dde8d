//! Renews leases: once, or while a command runs.

use std::{
    fmt,
    time::{Duration, Instant},
};

use kcp_client::{Error, Written};

use crate::{
    lease::record_keeping::{delete_ours, write_once, write_unchanged},
    objects::record::{LeaseClaim, Record},
    store::{Customizations, Records, Store},
};

/// A lease that is renewed while a command runs.
#[derive(Clone, Copy)]
pub struct RenewedLease<'k> {
    pub store: &'k Store<'k>,
    pub customization: &'k str,
    pub claim: LeaseClaim<'k>,
    pub heartbeat: Heartbeat,
}

/// Why a lease is lost.
#[derive(Debug)]
pub enum Lost {
    NotNamed,
    Revoked,
    /// Another client wrote the record.
    Overwritten,
    NotRenewed {
        since: Duration,
    },
    Unreachable(Error),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNamed => f.write_str("the customization no longer names this holder"),
            Self::Revoked => f.write_str("it was revoked"),
            Self::Overwritten => f.write_str("conflict: another client changed its Lease"),
            Self::NotRenewed { since } => write!(f, "it could not be renewed for {} s", since.as_secs()),
            Self::Unreachable(error) => error.fmt(f),
        }
    }
}

enum Renewal {
    Renewed,
    /// Another client wrote the record at the same time.
    Changed,
    Lost(Lost),
}

impl RenewedLease<'_> {
    /// Renews a lease that took long to acquire, before a command depends on it. Returns when the current term began.
    ///
    /// # Errors
    /// Why the lease is lost.
    pub async fn begin(self, taken: Instant) -> Result<Instant, Lost> {
        let started = Instant::now();
        if !self.heartbeat.until_renewal(taken.elapsed(), false).is_zero() {
            return Ok(taken);
        }
        match self.renew().await {
            Ok(Renewal::Renewed) => Ok(started),
            Ok(Renewal::Lost(why)) => Err(why),
            Ok(Renewal::Changed) => Err(Lost::Overwritten),
            Err(error) => Err(Lost::Unreachable(error)),
        }
    }

    /// Renews the lease, acquired at `taken` or later, until it is lost; returns why. Calls `failed_renewal` after
    /// each renewal that fails.
    pub async fn renew_until_lost(self, taken: Instant, failed_renewal: impl Fn(&Error)) -> Lost {
        let mut last = taken;
        let mut failed = false;
        loop {
            tokio::time::sleep(self.heartbeat.until_renewal(last.elapsed(), failed)).await;
            let started = Instant::now();
            let left = self.heartbeat.left(last.elapsed());
            match tokio::time::timeout(left, self.renew()).await {
                Ok(Ok(Renewal::Renewed)) => {
                    last = started;
                    failed = false;
                }
                Ok(Ok(Renewal::Lost(why))) => return why,
                Ok(Err(error)) => {
                    failed_renewal(&error);
                    failed = true;
                }
                Ok(Ok(Renewal::Changed)) | Err(_) => failed = true,
            }
            if self.heartbeat.left(last.elapsed()).is_zero() {
                return Lost::NotRenewed {
                    since: last.elapsed(),
                };
            }
        }
    }

    /// Renews the lease once, if the holder still has it.
    async fn renew(&self) -> Result<Renewal, Error> {
        let customization = self.customization;
        let entry = self.store.get(customization).await?;
        if !entry.is_some_and(|entry| entry.is_held_by(self.claim.holder)) {
            return Ok(Renewal::Lost(Lost::NotNamed));
        }
        let record = self.store.record(customization).await?;
        if record.as_ref().is_some_and(Record::is_revoked) {
            return Ok(Renewal::Lost(Lost::Revoked));
        }
        let written = write_once(self.store, customization, record.as_ref(), self.claim).await?;
        match written {
            Written::Stored => Ok(Renewal::Renewed),
            Written::Changed => Ok(Renewal::Changed),
            Written::Unknown(error) => Err(error),
        }
    }
}

/// How often a record is read again that other clients change.
const MAX_ATTEMPTS: usize = 5;

/// Renews a lease once; false if the holder has lost it. A record of another holder stays.
///
/// # Errors
/// If the API server cannot be asked, or the record changes faster than it can be written.
pub async fn hold<S: Customizations + Records>(
    store: &S,
    customization: &str,
    claim: LeaseClaim<'_>,
) -> Result<bool, Error> {
    let holder = claim.holder;
    for _ in 0..MAX_ATTEMPTS {
        let record = store.record(customization).await?;
        let Some(record) = record.filter(|record| record.names(holder) && !record.is_revoked()) else {
            return Ok(false);
        };
        if write_unchanged(store, customization, Some(&record), claim).await? {
            let entry = store.get(customization).await?;
            let is_held = entry.is_some_and(|entry| entry.is_held_by(holder));
            if !is_held {
                delete_ours(store, customization, holder).await?;
            }
            return Ok(is_held);
        }
    }
    Err(Error::Contended {
        goal: format!("renew the lease on {customization}"),
        attempts: MAX_ATTEMPTS,
    })
}

/// The longest time that a command gets to end by itself.
const MAX_GRACE: Duration = Duration::from_secs(10);

/// The longest time between two renewals that fail.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// When a lease with this ttl is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub ttl: Duration,
}

impl Heartbeat {
    /// How long until the next renewal. Two renewals may fail before the lease is lost.
    pub fn until_renewal(&self, since_last: Duration, failed: bool) -> Duration {
        let third = self.ttl / 3;
        if failed {
            (third / 4).min(MAX_RETRY)
        } else {
            third.saturating_sub(since_last)
        }
    }

    /// How long until the lease counts as lost: early enough for the command to end before another client can have
    /// the entry.
    pub fn left(&self, since_last: Duration) -> Duration {
        self.ttl.saturating_sub(self.grace()).saturating_sub(since_last)
    }

    /// How long a command has to end by itself after the lease is lost.
    pub fn grace(&self) -> Duration {
        (self.ttl / 3).min(MAX_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Heartbeat, hold};
    use crate::{
        objects::{
            entry::Holder,
            record::{LeaseClaim, first},
        },
        store::Customizations as _,
        testing::fake::{Fake, Fault, reserved},
    };

    fn claim(name: &str, seconds: u64) -> LeaseClaim<'_> {
        LeaseClaim {
            holder: Holder {
                pool: "pool",
                cluster_deployment: name,
            },
            duration: Some(Duration::from_secs(seconds)),
            cluster_deployment_uid: None,
            is_creating: false,
        }
    }

    /// Entry `a` of this holder, with the record of that one.
    fn held(entry: Option<&str>, record: Option<&str>, faults: &[Option<Fault>]) -> Fake {
        let fake = Fake::free(&["a"]).with_record_faults(faults);
        if let Some(holder) = entry {
            fake.put("a", &reserved(holder));
        }
        if let Some(holder) = record {
            let before = fake.now() - Duration::from_secs(30);
            fake.put_record(first("a", claim(holder, 60), before));
        }
        fake
    }

    /// Whether the lease is held, and the record afterwards.
    fn renewed(fake: &Fake) -> (bool, Option<(String, u64)>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_held = runtime.block_on(hold(fake, "a", claim("us", 600))).unwrap();
        let told = fake.recorded("a").map(|record| {
            let holder = record.cluster_deployment().unwrap().to_owned();
            (holder, record.duration().unwrap().as_secs())
        });
        (is_held, told)
    }

    #[test]
    fn a_lease_is_renewed_by_the_one_who_has_it_alone() {
        let of = |holder: &str, seconds| Some((holder.to_owned(), seconds));
        let (us, them) = (Some("us"), Some("them"));
        for (case, entry, record, expected) in [
            ("ours", us, us, (true, of("us", 600))),
            ("freed, and taken by another", them, them, (false, of("them", 60))),
            ("another is about to take it", None, them, (false, of("them", 60))),
            ("freed", None, None, (false, None)),
            ("freed, and the record left", None, us, (false, None)),
            ("its record is gone", us, None, (false, None)),
        ] {
            assert_eq!(renewed(&held(entry, record, &[])), expected, "{case}");
        }
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            let fake = held(us, us, &[Some(fault)]);
            assert_eq!(renewed(&fake), (true, of("us", 600)), "{fault:?}");
        }
    }

    #[test]
    fn a_lease_that_is_being_taken_away_is_not_renewed() {
        let fake = held(Some("us"), None, &[]);
        let mut revoked: Value = first("a", claim("us", 60), fake.now());
        revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = json!("2026-11-21T05:00:00.000000Z");
        fake.put_record(revoked);
        assert_eq!(renewed(&fake), (false, Some(("us".to_owned(), 60))));
    }

    #[test]
    fn the_rhythm() {
        let seconds = Duration::from_secs;
        for (ttl, since_last, renewal, retry, left, grace) in [
            (60, 0, 20, 5, 50, 10),
            (300, 0, 100, 5, 290, 10),
            (60, 15, 5, 5, 35, 10),
            (60, 49, 0, 5, 1, 10),
            (60, 50, 0, 5, 0, 10),
            (12, 0, 4, 1, 8, 4),
            (12, 9, 0, 1, 0, 4),
        ] {
            let heartbeat = Heartbeat { ttl: seconds(ttl) };
            let since_last = seconds(since_last);
            let found = (
                heartbeat.until_renewal(since_last, false),
                heartbeat.until_renewal(since_last, true),
                heartbeat.left(since_last),
                heartbeat.grace(),
            );
            let expected = (seconds(renewal), seconds(retry), seconds(left), seconds(grace));
            assert_eq!(found, expected, "{ttl} {since_last:?}");
        }
    }
}
