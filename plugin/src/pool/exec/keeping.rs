//! Keeping the lease under which a command runs.

use std::time::Instant;

use super::heartbeat::Heartbeat;
use crate::{
    cluster::{Error, Written},
    pool::{
        lease::record_keeping::write_once,
        objects::record::{LeaseClaim, Record},
        store::{Customizations as _, Records as _, Store},
    },
    terminal::Terminal,
};

/// A lease that is renewed.
#[derive(Clone, Copy)]
pub(super) struct Keeping<'k> {
    pub(super) store: &'k Store<'k>,
    pub(super) customization: &'k str,
    pub(super) claim: LeaseClaim<'k>,
    pub(super) heartbeat: Heartbeat,
    pub(super) terminal: &'k Terminal,
}

/// What came of a renewal.
enum Renewal {
    Renewed,
    /// Somebody else wrote the record at the same time.
    Changed,
    Lost(String),
}

impl Keeping<'_> {
    /// Renews a lease that took long to be taken, before anything relies on it. Returns since when it lasts.
    ///
    /// # Errors
    /// Why it is lost.
    pub(super) async fn begin(self, taken: Instant) -> Result<Instant, String> {
        let started = Instant::now();
        if !self.heartbeat.until_renewal(taken.elapsed(), false).is_zero() {
            return Ok(taken);
        }
        match self.renew().await {
            Ok(Renewal::Renewed) => Ok(started),
            Ok(Renewal::Lost(why)) => Err(why),
            Ok(Renewal::Changed) => Err("somebody else wrote its record".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Renews the lease, which was taken after this moment, until it is lost; returns why.
    pub(super) async fn keep(self, taken: Instant) -> String {
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
                    let customization = self.customization;
                    self.terminal
                        .warning(&format!("the lease on {customization} is not renewed: {error}"));
                    failed = true;
                }
                Ok(Ok(Renewal::Changed)) | Err(_) => failed = true,
            }
            if self.heartbeat.left(last.elapsed()).is_zero() {
                return format!("it was not renewed for {} s", last.elapsed().as_secs());
            }
        }
    }

    /// Renews the lease once, if it is still ours.
    async fn renew(&self) -> Result<Renewal, Error> {
        let customization = self.customization;
        let entry = self.store.get(customization).await?;
        if !entry.is_some_and(|entry| entry.is_held_by(self.claim.holder)) {
            return Ok(Renewal::Lost("the customization no longer names us".to_owned()));
        }
        let record = self.store.record(customization).await?;
        if record.as_ref().is_some_and(Record::is_revoked) {
            return Ok(Renewal::Lost("it was taken away".to_owned()));
        }
        let written = write_once(self.store, customization, record.as_ref(), self.claim).await?;
        match written {
            Written::Stored => Ok(Renewal::Renewed),
            Written::Changed => Ok(Renewal::Changed),
            Written::Unknown(error) => Err(error),
        }
    }
}
