//! `Lease` of `coordination.k8s.io`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::LeaseSpec,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use serde::Deserialize;

use crate::{decode::null_as_default, metadata};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Lease {
    #[serde(deserialize_with = "metadata::slim")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: LeaseSpec,
}

impl Lease {
    /// Null and empty after a release.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.spec.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    pub fn acquire_time(&self) -> Option<Timestamp> {
        self.spec.acquire_time.as_ref().map(|MicroTime(time)| *time)
    }

    pub fn renew_time(&self) -> Option<Timestamp> {
        self.spec.renew_time.as_ref().map(|MicroTime(time)| *time)
    }

    /// How long it lasts from each renewal; none for one without end.
    pub fn duration(&self) -> Option<SignedDuration> {
        let seconds = self.spec.lease_duration_seconds?;
        Some(SignedDuration::from_secs(seconds.into()))
    }

    /// When it ends unless it is renewed.
    pub fn expires(&self) -> Option<Timestamp> {
        self.renew_time()?.checked_add(self.duration()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::Lease;
    use crate::{decode, metadata::Object as _};

    fn time(text: &str) -> Option<Timestamp> {
        text.parse().ok()
    }

    #[test]
    fn names_its_holder_and_its_end() {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kcp-pool-host-1"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 3600, "leaseTransitions": 2,
                "acquireTime": "2026-08-21T09:00:00.000000Z", "renewTime": "2026-08-21T10:00:00.123456Z"},
        });
        let lease: Lease = decode(&object.to_string()).expect("decodes");
        assert_eq!((lease.name(), lease.holder()), ("kcp-pool-host-1", Some("a")));
        assert_eq!(lease.acquire_time(), time("2026-08-21T09:00:00Z"));
        assert_eq!(lease.renew_time(), time("2026-08-21T10:00:00.123456Z"));
        assert_eq!(lease.expires(), time("2026-08-21T11:00:00.123456Z"));
        assert_eq!(lease.spec.lease_transitions, Some(2));
    }

    #[test]
    fn a_released_lease_has_no_holder_and_no_end() {
        for spec in [
            json!({"holderIdentity": "", "leaseDurationSeconds": 15}),
            json!({}),
            json!(null),
        ] {
            let object = json!({"metadata": {"name": "l"}, "spec": spec});
            let lease: Lease = decode(&object.to_string()).expect("decodes");
            assert_eq!((lease.holder(), lease.expires()), (None, None), "{spec}");
        }
    }
}
