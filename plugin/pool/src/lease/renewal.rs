//! Renews the lease under which a command runs.

use std::{
    fmt,
    time::{Duration, Instant},
};

use kcp_client::{Error, Written};

use crate::{
    lease::{heartbeat::Heartbeat, record_keeping::write_once},
    objects::record::{LeaseClaim, Record},
    store::{Customizations as _, Records as _, Store},
};

/// A lease that is renewed.
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
    /// The customization no longer names the holder.
    NotNamed,
    Revoked,
    /// Somebody else wrote the record.
    Overwritten,
    NotRenewed {
        since: Duration,
    },
    Unreachable(Error),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNamed => f.write_str("the customization no longer names us"),
            Self::Revoked => f.write_str("it was taken away"),
            Self::Overwritten => f.write_str("somebody else wrote its record"),
            Self::NotRenewed { since } => write!(f, "it was not renewed for {} s", since.as_secs()),
            Self::Unreachable(error) => error.fmt(f),
        }
    }
}

/// What came of a renewal.
enum Renewal {
    Renewed,
    /// Somebody else wrote the record at the same time.
    Changed,
    Lost(Lost),
}

impl RenewedLease<'_> {
    /// Renews a lease that took long to be taken, before anything relies on it. Returns since when it lasts.
    ///
    /// # Errors
    /// Why it is lost.
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

    /// Renews the lease, which was taken after this moment, until it is lost; returns why. `failed_renewal` hears of each renewal
    /// that fails.
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

    /// Renews the lease once, if it is still ours.
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
