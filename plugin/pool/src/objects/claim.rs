//! Reads the id and the end of a ClusterClaim, and decides its next lifetime. No I/O.
//!
//! Hive deletes a claim when its lifetime has passed since Hive assigned a cluster to it. Hive reads the lifetime at each
//! reconcile, so a longer lifetime extends the claim.

use std::time::Duration;

use jiff::Timestamp;
pub use kcp_api::ClusterClaim;
use kcp_api::{ClusterPool, metadata::Object as _, names::annotation};
use kcp_rules::syntax::parse_go_duration;

/// The condition that is False once Hive has assigned a cluster.
const PENDING: &str = "Pending";

pub trait ClaimLifetime {
    /// The id that the command which created the claim gave it; `None` if another program created the claim.
    fn id(&self) -> Option<&str>;

    /// When Hive assigned a cluster; `None` while the claim is pending.
    fn assigned_at(&self) -> Option<Timestamp>;

    /// How long Hive keeps the claim after the assignment; `None` if Hive keeps the claim until it is deleted.
    fn lifetime(&self, pool: Option<&ClusterPool>) -> Option<Duration>;

    /// When Hive deletes the claim; `None` while the claim is pending, and if it has no lifetime.
    fn end(&self, pool: Option<&ClusterPool>) -> Option<Timestamp>;

    /// The lifetime with which the claim lasts for this time from now, but no longer than `limit` in total. Never shorter
    /// than the lifetime that the claim has.
    fn extended_lifetime(&self, time: Duration, limit: Option<Duration>, now: Timestamp) -> Duration;

    /// The claim with this lifetime.
    fn with_lifetime(&self, lifetime: Duration) -> ClusterClaim;
}

impl ClaimLifetime for ClusterClaim {
    fn id(&self) -> Option<&str> {
        self.annotation(annotation::LEASE_ID)
    }

    fn assigned_at(&self) -> Option<Timestamp> {
        let conditions = &self.status.conditions;
        (conditions.status(PENDING) == Some("False"))
            .then(|| conditions.last_transition_time(PENDING))
            .flatten()
    }

    fn lifetime(&self, pool: Option<&ClusterPool>) -> Option<Duration> {
        let of_pool = |field: &str| {
            let text = pool?.whole_spec.pointer(field)?.as_str()?;
            parse_go_duration(text)
        };
        let own = own_lifetime(self).or_else(|| of_pool("/claimLifetime/default"));
        match (own, of_pool("/claimLifetime/maximum")) {
            (Some(own), Some(maximum)) => Some(own.min(maximum)),
            (own, maximum) => own.or(maximum),
        }
    }

    fn end(&self, pool: Option<&ClusterPool>) -> Option<Timestamp> {
        self.assigned_at()?.checked_add(self.lifetime(pool)?).ok()
    }

    fn extended_lifetime(&self, time: Duration, limit: Option<Duration>, now: Timestamp) -> Duration {
        let passed = self
            .assigned_at()
            .and_then(|assigned| Duration::try_from(now.duration_since(assigned)).ok());
        let wanted = passed.unwrap_or_default().saturating_add(time);
        let wanted = limit.map_or(wanted, |limit| wanted.min(limit));
        own_lifetime(self).map_or(wanted, |own| own.max(wanted))
    }

    fn with_lifetime(&self, lifetime: Duration) -> ClusterClaim {
        let mut claim = self.clone();
        claim.spec.lifetime = Some(lifetime_text(lifetime));
        claim
    }
}

/// The lifetime in the claim's own spec.
fn own_lifetime(claim: &ClusterClaim) -> Option<Duration> {
    parse_go_duration(claim.spec.lifetime.as_deref()?)
}

/// The lifetime as a Go duration in whole seconds, rounded up.
pub fn lifetime_text(lifetime: Duration) -> String {
    format!("{}s", lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{ClaimLifetime as _, ClusterClaim};
    use crate::testing::objects::{JUST_NOW, NOW, pool_object, read};

    fn claim(lifetime: &Value, pending: &str) -> ClusterClaim {
        read(&json!({
            "metadata": {"name": "paris", "uid": "u", "resourceVersion": "7"},
            "spec": {"clusterPoolName": "pool", "lifetime": lifetime},
            "status": {"conditions": [{"type": "Pending", "status": pending, "lastTransitionTime": JUST_NOW}]},
        }))
    }

    #[test]
    fn a_claim_ends_when_hive_deletes_it() {
        let none = Value::Null;
        for (lifetime, pending, of_pool, expected) in [
            (json!("15m0s"), "False", json!({}), Some("2026-11-21T05:14:00Z")),
            (json!("900s"), "False", json!({}), Some("2026-11-21T05:14:00Z")),
            (json!("15m"), "True", json!({}), None),
            (none.clone(), "False", json!({}), None),
            (
                none.clone(),
                "False",
                json!({"default": "1h"}),
                Some("2026-11-21T05:59:00Z"),
            ),
            (
                none,
                "False",
                json!({"maximum": "2h"}),
                Some("2026-11-21T06:59:00Z"),
            ),
            (
                json!("15m"),
                "False",
                json!({"default": "1h", "maximum": "2h"}),
                Some("2026-11-21T05:14:00Z"),
            ),
            (
                json!("15m"),
                "False",
                json!({"maximum": "1m"}),
                Some("2026-11-21T05:00:00Z"),
            ),
        ] {
            let pool = read(&pool_object("pool", &json!({"claimLifetime": of_pool})));
            let end = claim(&lifetime, pending).end(Some(&pool));
            assert_eq!(
                end.map(|end| end.to_string()).as_deref(),
                expected,
                "{lifetime} {pending} {of_pool}"
            );
        }
    }

    #[test]
    fn an_extension_counts_from_the_assignment_and_never_shortens() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        for (lifetime, pending, minutes_from_now, limit, expected) in [
            (json!("15m"), "False", 15, None, "960s"),
            (json!("15m"), "True", 15, None, "900s"),
            (json!("15m"), "False", 15, Some(minutes(15)), "900s"),
            (json!("1h"), "False", 15, None, "3600s"),
            (json!("1h"), "False", 15, Some(minutes(15)), "3600s"),
            (Value::Null, "False", 15, None, "960s"),
        ] {
            let claim = claim(&lifetime, pending);
            let longer = claim.extended_lifetime(minutes(minutes_from_now), limit, NOW.parse().unwrap());
            let longer = claim.with_lifetime(longer).spec.lifetime;
            assert_eq!(
                longer.as_deref(),
                Some(expected),
                "{lifetime} {pending} {limit:?}"
            );
        }
    }
}
