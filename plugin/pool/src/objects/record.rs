//! The record of a lease: a `coordination.k8s.io` Lease beside the customization. The status of the customization
//! decides who holds it; the record is the evidence that allows a repair to free it.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::{entry::Holder, metadata::Metadata};

/// Followed by the customization's name.
const PREFIX: &str = "kcp-pool-";

/// The longest name of a Lease, in bytes: a DNS subdomain.
const MAX_NAME: usize = 253;

/// Marks our Leases, so that they can be listed.
pub const LABEL: &str = "kubectl-kcp.dev/pool-lease";
/// The pool. An annotation, because a label's value has at most 63 characters.
const POOL_ANNOTATION: &str = "kubectl-kcp.dev/cluster-pool";
/// The UID of the holder's ClusterDeployment, once it was seen.
const UID_ANNOTATION: &str = "kubectl-kcp.dev/cluster-deployment-uid";
/// When the lease was revoked. Written before the entry is freed, so that its holder stops renewing.
const REVOKED_ANNOTATION: &str = "kubectl-kcp.dev/revoked";
/// Set while the holder's ClusterDeployment is being created: until then the lease has an end that the holder did not
/// ask for.
const CREATING_ANNOTATION: &str = "kubectl-kcp.dev/creating";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubectl-kcp");

/// For how long a record may belong to a client that is about to write the entry's status too. A write takes less
/// time; a client that was killed between the two writes blocks the entry for no longer than this.
const BETWEEN_WRITES: SignedDuration = SignedDuration::from_secs(10);

/// A Lease that records who holds a customization.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Record {
    pub metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    /// In seconds.
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i32>,
}

/// What a holder writes into its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseClaim<'c> {
    pub holder: Holder<'c>,
    /// None: until it is released.
    pub duration: Option<Duration>,
    /// None if the holder's ClusterDeployment does not exist.
    pub cluster_deployment_uid: Option<&'c str>,
    /// Whether the ClusterDeployment is being created. Once it exists, the lease has no end.
    pub is_creating: bool,
}

pub fn name_of(customization: &str) -> String {
    format!("{PREFIX}{customization}")
}

/// Whether a record can be created: the prefix makes the longest customization names too long.
pub fn can_be_made(customization: &str) -> bool {
    name_of(customization).len() <= MAX_NAME
}

/// The record of a customization that has none yet.
pub fn first(customization: &str, claim: LeaseClaim<'_>, now: Timestamp) -> Value {
    let creating = claim.creating().map(|value| (CREATING_ANNOTATION, value));
    let uid = claim.cluster_deployment_uid.map(|uid| (UID_ANNOTATION, uid));
    let annotations = [(POOL_ANNOTATION, claim.holder.pool)];
    let annotations: BTreeMap<_, _> = annotations.into_iter().chain(uid).chain(creating).collect();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name_of(customization), "labels": labels(), "annotations": annotations},
        "spec": claim.spec(now, 0, now),
    })
}

fn labels() -> Value {
    json!({ MANAGED_BY.0: MANAGED_BY.1, LABEL: "true" })
}

impl LeaseClaim<'_> {
    fn creating(&self) -> Option<&'static str> {
        self.is_creating.then_some("true")
    }

    fn spec(&self, acquired: Timestamp, transitions: i32, now: Timestamp) -> Value {
        let seconds = self.duration.map(whole_seconds);
        json!({
            "holderIdentity": self.holder.cluster_deployment,
            "leaseDurationSeconds": seconds,
            "acquireTime": micros(acquired),
            "renewTime": micros(now),
            "leaseTransitions": transitions,
        })
    }
}

/// The API takes whole seconds, at least one, in 31 bits. Rounded up: a lease must not end early.
pub fn whole_seconds(duration: Duration) -> u32 {
    const MAX: u32 = i32::MAX.unsigned_abs();
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(MAX).clamp(1, MAX)
}

impl Record {
    pub fn customization(&self) -> Option<&str> {
        self.metadata.name.strip_prefix(PREFIX)
    }

    pub fn cluster_deployment(&self) -> Option<&str> {
        self.spec
            .holder_identity
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// The pool that the lease is for.
    pub fn pool(&self) -> Option<&str> {
        self.metadata.annotations.get(POOL_ANNOTATION).map(String::as_str)
    }

    pub fn names(&self, holder: Holder<'_>) -> bool {
        self.cluster_deployment() == Some(holder.cluster_deployment) && self.pool() == Some(holder.pool)
    }

    /// None until the ClusterDeployment was seen.
    pub fn cluster_deployment_uid(&self) -> Option<&str> {
        self.metadata.annotations.get(UID_ANNOTATION).map(String::as_str)
    }

    pub fn acquired(&self) -> Option<Timestamp> {
        self.spec.acquire_time
    }

    pub fn renewed(&self) -> Option<Timestamp> {
        self.spec.renew_time
    }

    /// How long it lasts from each renewal; none if it has no end.
    pub fn duration(&self) -> Option<Duration> {
        self.spec
            .lease_duration_seconds
            .map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// When it ends unless it is renewed.
    pub fn expires(&self) -> Option<Timestamp> {
        self.renewed()?.checked_add(self.duration()?).ok()
    }

    pub fn is_revoked(&self) -> bool {
        self.metadata.annotations.contains_key(REVOKED_ANNOTATION)
    }

    /// Whether the holder's ClusterDeployment was being created at the last write.
    pub fn is_creating(&self) -> bool {
        self.metadata.annotations.contains_key(CREATING_ANNOTATION)
    }

    /// Whether another client may be about to reserve the entry: it has just written this record. A time further
    /// ahead of ours comes from a wrong clock.
    pub fn is_being_reserved_by_another(&self, holder: Holder<'_>, now: Timestamp) -> bool {
        let is_recent = |renewed: Timestamp| now.duration_since(renewed).abs() < BETWEEN_WRITES;
        !self.names(holder) && !self.is_revoked() && self.renewed().is_some_and(is_recent)
    }

    /// A merge patch that makes this record the claim's. The server refuses it if the record has changed. Null
    /// removes a field.
    pub fn claimed(&self, claim: LeaseClaim<'_>, now: Timestamp) -> Value {
        let is_ours = self.names(claim.holder) && !self.is_revoked();
        let ours = Some(self).filter(|_| is_ours);
        let uid = claim
            .cluster_deployment_uid
            .or_else(|| ours?.cluster_deployment_uid());
        let acquired = ours.and_then(Self::acquired).unwrap_or(now);
        let transitions = self
            .spec
            .lease_transitions
            .unwrap_or(0)
            .saturating_add(i32::from(!is_ours));
        json!({
            "metadata": {
                "resourceVersion": self.metadata.resource_version,
                "labels": labels(),
                "annotations": {
                    POOL_ANNOTATION: claim.holder.pool,
                    UID_ANNOTATION: uid,
                    REVOKED_ANNOTATION: null,
                    CREATING_ANNOTATION: claim.creating(),
                },
            },
            "spec": claim.spec(acquired, transitions, now),
        })
    }

    /// A merge patch that revokes the lease, under the record's resourceVersion.
    pub fn revoked(&self, now: Timestamp) -> Value {
        json!({"metadata": {
            "resourceVersion": self.metadata.resource_version,
            "annotations": {REVOKED_ANNOTATION: micros(now)},
        }})
    }

    /// A merge patch that restores this record over the one that replaced it, under that one's resourceVersion.
    pub fn in_place_of(&self, other: &Self) -> Value {
        let transitions = other.spec.lease_transitions.unwrap_or(0).saturating_add(1);
        json!({
            "metadata": {
                "resourceVersion": other.metadata.resource_version,
                "annotations": {
                    POOL_ANNOTATION: self.pool(),
                    UID_ANNOTATION: self.cluster_deployment_uid(),
                    REVOKED_ANNOTATION: self.metadata.annotations.get(REVOKED_ANNOTATION),
                },
            },
            "spec": {
                "holderIdentity": self.spec.holder_identity,
                "leaseDurationSeconds": self.spec.lease_duration_seconds,
                "acquireTime": self.spec.acquire_time.map(micros),
                "renewTime": self.spec.renew_time.map(micros),
                "leaseTransitions": transitions,
            },
        })
    }

    /// A merge patch that records the holder's ClusterDeployment, under the record's resourceVersion.
    pub fn with_uid(&self, uid: &str) -> Value {
        json!({"metadata": {
            "resourceVersion": self.metadata.resource_version,
            "annotations": {UID_ANNOTATION: uid},
        }})
    }
}

/// Kubernetes' `MicroTime`: always six digits.
fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests;
