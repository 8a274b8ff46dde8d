//! Elects one manager with a Lease.
//!
//! The election only avoids useless work: every write of a manager is conditional on what it has read, so two managers at
//! the same time would not undo each other's writes. It works like leader election in k8s.io/client-go
//! (tools/leaderelection): a candidate takes over when it has seen no renewal for the duration of the Lease, by its own
//! clock, because the clocks of hosts differ.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tracing::{info, warn};

/// The name of the Lease.
pub(crate) const LEASE: &str = "kcp-webhook-manager";

/// How long a candidate waits after the last renewal that it has seen. This and the next two are the defaults of
/// k8s.io/component-base, config/v1alpha1/defaults.go, `RecommendedDefaultLeaderElectionConfiguration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// How long the leader acts after its last renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// The time between two attempts to acquire or renew the Lease.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// What a candidate writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Create,
    Acquire,
    Renew,
    Wait,
}

/// `unchanged` is how long the Lease has not changed, by the clock of this candidate.
fn decide(lease: Option<&LeaseSpec>, unchanged: Duration, identity: &str) -> Action {
    let Some(lease) = lease else {
        return Action::Create;
    };
    let seconds = lease
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let duration = seconds.map_or(LEASE_DURATION, Duration::from_secs);
    match lease.holder_identity.as_deref().unwrap_or_default() {
        "" => Action::Acquire,
        holder if holder == identity => Action::Renew,
        _ if unchanged >= duration => Action::Acquire,
        _ => Action::Wait,
    }
}

/// One candidate.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    identity: String,
    seen: Option<(Option<LeaseSpec>, Instant)>,
}

impl Candidate {
    pub(crate) const fn new(leases: Api<Lease>, identity: String) -> Self {
        Self {
            leases,
            identity,
            seen: None,
        }
    }

    /// Takes part in the election forever, and reports whether this candidate leads.
    pub(crate) async fn run(mut self, leads: watch::Sender<bool>) {
        let mut renewed = Instant::now();
        loop {
            let started = Instant::now();
            match time::timeout(RENEW_DEADLINE / 2, self.try_once()).await {
                Ok(Ok(true)) => {
                    renewed = started;
                    if !leads.send_replace(true) {
                        info!(identity = self.identity, lease = LEASE, "this manager leads");
                    }
                }
                Ok(Ok(false)) => {
                    if leads.send_replace(false) {
                        warn!(lease = LEASE, "another manager leads now");
                    }
                }
                Ok(Err(error)) => {
                    warn!(%error, lease = LEASE, "cannot read or write the Lease; trying again");
                }
                Err(_) => warn!(lease = LEASE, "the API server does not respond; trying again"),
            }
            if *leads.borrow() && renewed.elapsed() >= RENEW_DEADLINE {
                warn!(
                    lease = LEASE,
                    "this manager could not renew the Lease, and stops acting"
                );
                leads.send_replace(false);
            }
            time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Acquires or renews the Lease, if it is free or its own. Returns whether this candidate holds it.
    async fn try_once(&mut self) -> Result<bool, kube::Error> {
        let lease = self.leases.get_opt(LEASE).await?;
        let spec = lease.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        let since = match &self.seen {
            Some((seen, since)) if *seen == spec => *since,
            _ => Instant::now(),
        };
        self.seen = Some((spec.clone(), since));
        let action = decide(spec.as_ref(), since.elapsed(), &self.identity);
        let parameters = PostParams::default();
        let written = match (action, lease) {
            (Action::Wait, _) => return Ok(false),
            (Action::Create, _) | (_, None) => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(LEASE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(next_spec(None, action, &self.identity, Timestamp::now())),
                };
                self.leases.create(&parameters, &lease).await
            }
            (_, Some(mut lease)) => {
                lease.spec = Some(next_spec(spec, action, &self.identity, Timestamp::now()));
                self.leases.replace(LEASE, &parameters, &lease).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            // Another candidate was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The Lease after a candidate has acquired or renewed it.
fn next_spec(before: Option<LeaseSpec>, action: Action, identity: &str, now: Timestamp) -> LeaseSpec {
    let before = before.unwrap_or_default();
    let is_acquired = action != Action::Renew;
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
        acquire_time: if is_acquired {
            Some(MicroTime(now))
        } else {
            before.acquire_time
        },
        lease_transitions: Some(transitions.saturating_add(i32::from(is_acquired))),
        renew_time: Some(MicroTime(now)),
        ..before
    }
}

/// Gives up the Lease, so that another manager takes over at once. Errors are ignored: the Lease then expires.
pub(crate) async fn release(leases: &Api<Lease>, identity: &str) {
    let releasing = async {
        let mut lease = leases.get_opt(LEASE).await.ok()??;
        let spec = lease.spec.as_mut()?;
        if spec.holder_identity.as_deref() != Some(identity) {
            return None;
        }
        spec.holder_identity = None;
        leases.replace(LEASE, &PostParams::default(), &lease).await.ok()
    };
    _ = time::timeout(RETRY_PERIOD, releasing).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_a_free_or_expired_lease() {
        let held = |holder: &str| {
            Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            })
        };
        let seconds = Duration::from_secs;
        for (name, lease, unchanged, expected) in [
            ("absent", None, 0, Action::Create),
            ("released", held(""), 0, Action::Acquire),
            ("never held", Some(LeaseSpec::default()), 0, Action::Acquire),
            ("own", held("me"), 0, Action::Renew),
            ("own, after a pause", held("me"), 60, Action::Renew),
            ("renewed by another", held("other"), 14, Action::Wait),
            ("not renewed by another", held("other"), 15, Action::Acquire),
        ] {
            assert_eq!(
                decide(lease.as_ref(), seconds(unchanged), "me"),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_lease_records_its_holder_and_how_often_it_changed_hands() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let (first, later) = (time("2026-12-01T00:00:00Z"), time("2026-12-01T00:00:02Z"));
        let created = next_spec(None, Action::Create, "a", first);
        assert_eq!(created.acquire_time, Some(MicroTime(first)));
        let renewed = next_spec(Some(created.clone()), Action::Renew, "a", later);
        assert_eq!(renewed.acquire_time, created.acquire_time);
        assert_eq!(
            (renewed.renew_time.clone(), renewed.lease_transitions),
            (Some(MicroTime(later)), Some(1))
        );
        let acquired = next_spec(Some(renewed), Action::Acquire, "b", later);
        assert_eq!(acquired.holder_identity.as_deref(), Some("b"));
        assert_eq!(
            (acquired.acquire_time, acquired.lease_transitions),
            (Some(MicroTime(later)), Some(2))
        );
    }
}
