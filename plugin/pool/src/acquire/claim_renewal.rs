//! Extends a ClusterClaim for as long as a command runs.

use std::time::Duration;

use jiff::Timestamp;
use kcp_api::{ClusterClaim, ClusterPool, metadata::Object as _};
use kcp_client::Error;

use crate::{
    acquire::claim::{ClaimState, extend, poll},
    lease::renewal::Heartbeat,
    objects::{Holder, claim::ClaimLifetime as _},
    store::{LeaseStore as _, Store},
};

/// How long a check of the claim may take while the end of the claim is unknown.
const MAX_CHECK: Duration = Duration::from_secs(60);

/// A claim that this process extends while its command runs.
pub struct HeldClaim<'k> {
    pub store: &'k Store<'k>,
    pub holder: Holder<'k>,
    pub pool: ClusterPool,
    /// The claim as it was last read or written.
    pub claim: ClusterClaim,
    /// The name of the ClusterDeployment that the claim had when the command started.
    pub cluster: &'k str,
    pub heartbeat: Heartbeat,
    /// How long the claim may last at most.
    pub limit: Option<Duration>,
}

impl HeldClaim<'_> {
    /// Extends the claim until it is about to end or no longer has its cluster, and returns the reason. While the API server
    /// cannot be reached, the claim counts as unchanged, and each failed check calls `failed`.
    pub async fn wait_until_lost(mut self, failed: impl Fn(&Error)) -> String {
        loop {
            let left = self.left();
            if let (Some(Duration::ZERO), Some(end)) = (left, self.claim.end(Some(&self.pool))) {
                return format!("ClusterClaim {} ends at {end}", self.claim.name());
            }
            let left = left.unwrap_or(MAX_CHECK);
            tokio::time::sleep(self.heartbeat.time_until_check(left)).await;
            match tokio::time::timeout(left, self.check()).await {
                Ok(Ok(None)) | Err(_) => {}
                Ok(Ok(Some(why))) => return why,
                Ok(Err(error)) => failed(&error),
            }
        }
    }

    /// Returns why the claim has lost its cluster; `None` if it still has the cluster. Extends the claim if it is time to.
    async fn check(&mut self) -> Result<Option<String>, Error> {
        let name = self.claim.name().to_owned();
        let found = self.store.read_claim(&name).await?;
        let Some(claim) = found.filter(|found| found.uid() == self.claim.uid()) else {
            return Ok(Some(format!("ClusterClaim {name} was deleted")));
        };
        match poll(self.store, &claim, self.holder).await? {
            ClaimState::Given(given) if given.cluster == self.cluster => {}
            ClaimState::Given(given) => {
                return Ok(Some(format!(
                    "Hive assigned another cluster, {}, to ClusterClaim {name}",
                    given.cluster
                )));
            }
            ClaimState::Deleting => return Ok(Some(format!("ClusterClaim {name} is being deleted"))),
            ClaimState::ClusterLost(lost) => return Ok(Some(lost.to_string())),
            ClaimState::Pending(why) => return Ok(Some(why)),
        }
        self.claim = claim;
        if self.is_due() {
            match extend(self.store, &self.claim, self.heartbeat.ttl, self.limit).await? {
                Some(extended) => self.claim = extended,
                None => return Ok(Some(format!("ClusterClaim {name} was deleted"))),
            }
        }
        Ok(None)
    }

    /// Whether it is time to extend the claim, and an extension would change its end. An extension changes nothing if the claim
    /// has reached `limit` or the maximum of the pool.
    fn is_due(&self) -> bool {
        let is_time = self.left().is_some_and(|left| self.heartbeat.is_due(left));
        let now = self.store.now().latest;
        let lifetime = self.claim.extended_lifetime(self.heartbeat.ttl, self.limit, now);
        let extended = self.claim.with_lifetime(lifetime).end(Some(&self.pool));
        is_time && extended > self.claim.end(Some(&self.pool))
    }

    /// How long the command may still run before it must be stopped, so that it has ended when Hive deletes the claim.
    /// `None` while Hive has not recorded the assignment.
    fn left(&self) -> Option<Duration> {
        let end: Timestamp = self.claim.end(Some(&self.pool))?;
        let left = end.duration_since(self.store.now().latest) - self.heartbeat.grace();
        Some(Duration::try_from(left).unwrap_or_default())
    }
}
