//! The record of who holds a customization and since when: a `coordination.k8s.io` Lease beside it. What the
//! customization's status says decides; the record is the evidence by which a lease that nobody gives back is freed.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::{entry::Holder, metadata::Metadata};

/// Before the customization's name.
const PREFIX: &str = "kcp-pool-";

/// The longest name of a Lease, in bytes: a DNS subdomain.
const MAX_NAME: usize = 253;

/// Marks our Leases, so that they can be listed.
pub const LABEL: &str = "kubectl-kcp.dev/pool-lease";
/// The pool, which a label could not always name: those have 63 characters at most.
const POOL_ANNOTATION: &str = "kubectl-kcp.dev/cluster-pool";
/// The holder's `ClusterDeployment`, once it was seen.
const UID_ANNOTATION: &str = "kubectl-kcp.dev/cluster-deployment-uid";
/// When the lease was taken away. Set before the customization is freed, so that its holder renews no more.
const REVOKED_ANNOTATION: &str = "kubectl-kcp.dev/revoked";
/// Set while the holder's `ClusterDeployment` is made: the end of the lease is not one that the holder has asked for.
const CREATING_ANNOTATION: &str = "kubectl-kcp.dev/creating";

/// Says whose they are.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kubectl-kcp");

/// How long after it was written a record whose customization does not name its holder may be that of a lessee who is
/// about to write the status too. A write and its answer take less; a lessee who was killed between the two keeps
/// others from the entry no longer than this.
const BETWEEN_WRITES: SignedDuration = SignedDuration::from_secs(10);

/// A `Lease` as leases on customizations use it.
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
    /// Seconds.
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i32>,
}

/// What a holder says of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseClaim<'c> {
    pub holder: Holder<'c>,
    /// None: until it is given back.
    pub duration: Option<Duration>,
    /// The UID of its `ClusterDeployment`, where that is there.
    pub cluster_deployment_uid: Option<&'c str>,
    /// Whether its `ClusterDeployment` is being made, and the lease has no end once that is there.
    pub is_creating: bool,
}

/// The name of a customization's record.
pub fn name_of(customization: &str) -> String {
    format!("{PREFIX}{customization}")
}

/// Whether a customization can have one: there are longer names than leave room for the prefix.
pub fn can_be_made(customization: &str) -> bool {
    name_of(customization).len() <= MAX_NAME
}

/// The record of a customization that has none.
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

/// A part of a second would end the lease too early; the API takes whole ones, from one on, in 31 bits.
pub fn whole_seconds(duration: Duration) -> u32 {
    const MAX: u32 = i32::MAX.unsigned_abs();
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(MAX).clamp(1, MAX)
}

impl Record {
    /// The customization.
    pub fn customization(&self) -> Option<&str> {
        self.metadata.name.strip_prefix(PREFIX)
    }

    /// The holder's `ClusterDeployment`.
    pub fn cluster_deployment(&self) -> Option<&str> {
        self.spec
            .holder_identity
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// The pool that it was taken for.
    pub fn pool(&self) -> Option<&str> {
        self.metadata.annotations.get(POOL_ANNOTATION).map(String::as_str)
    }

    pub fn names(&self, holder: Holder<'_>) -> bool {
        self.cluster_deployment() == Some(holder.cluster_deployment) && self.pool() == Some(holder.pool)
    }

    /// The UID of the holder's `ClusterDeployment`, once it was seen.
    pub fn cluster_deployment_uid(&self) -> Option<&str> {
        self.metadata.annotations.get(UID_ANNOTATION).map(String::as_str)
    }

    pub fn acquired(&self) -> Option<Timestamp> {
        self.spec.acquire_time
    }

    pub fn renewed(&self) -> Option<Timestamp> {
        self.spec.renew_time
    }

    /// How long it lasts from each renewal; none when until it is given back.
    pub fn duration(&self) -> Option<Duration> {
        self.spec
            .lease_duration_seconds
            .map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// When it ends unless it is renewed.
    pub fn expires(&self) -> Option<Timestamp> {
        self.renewed()?.checked_add(self.duration()?).ok()
    }

    /// Whether it was taken away from its holder.
    pub fn is_revoked(&self) -> bool {
        self.metadata.annotations.contains_key(REVOKED_ANNOTATION)
    }

    /// Whether its holder's `ClusterDeployment` was being made when it was last written.
    pub fn is_creating(&self) -> bool {
        self.metadata.annotations.contains_key(CREATING_ANNOTATION)
    }

    /// Whether another may be about to take the customization, which names nobody: its record was written just now.
    /// A time ahead of ours by more than that is of a clock that is wrong.
    pub fn is_sought_by_another(&self, holder: Holder<'_>, now: Timestamp) -> bool {
        let is_recent = |renewed: Timestamp| now.duration_since(renewed).abs() < BETWEEN_WRITES;
        !self.names(holder) && !self.is_revoked() && self.renewed().is_some_and(is_recent)
    }

    /// Says it of this record: a merge patch that the server refuses once the record has changed. Null removes a field.
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

    /// Takes it away from its holder, under its resourceVersion.
    pub fn revoked(&self, now: Timestamp) -> Value {
        json!({"metadata": {
            "resourceVersion": self.metadata.resource_version,
            "annotations": {REVOKED_ANNOTATION: micros(now)},
        }})
    }

    /// Puts this one back in the place of the one that replaced it, under that one's resourceVersion.
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

    /// Says that the holder's `ClusterDeployment` was seen, under its resourceVersion.
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
