//! Extracts from a Lease the fields that concern a lock, and the field manager that wrote the holder.

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kcp_control_plane::leader_migration::ObservedLease;

/// The path of `spec.holderIdentity` in `managedFields`.
const HOLDER_PATH: &str = "/f:spec/f:holderIdentity";

pub(super) fn observed_lease(lease: Lease) -> ObservedLease {
    let entries = lease.metadata.managed_fields.unwrap_or_default();
    let spec = lease.spec.unwrap_or_default();
    let duration = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    ObservedLease {
        writer: entries.into_iter().find_map(writer),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or_default().into(),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        duration: duration.map(Duration::from_secs),
    }
}

fn writer(entry: ManagedFieldsEntry) -> Option<String> {
    entry.fields_v1?.0.pointer(HOLDER_PATH)?;
    entry.manager
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_field_manager_of_the_holder_wrote_the_lease() {
        let fields = |fields| json!({"f:spec": fields});
        let lease = json!({
            "metadata": {"name": "m", "managedFields": [
                {"manager": "kubectl", "operation": "Update", "apiVersion": "coordination.k8s.io/v1",
                    "fieldsType": "FieldsV1", "fieldsV1": fields(json!({"f:leaseDurationSeconds": {}}))},
                {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "coordination.k8s.io/v1",
                    "fieldsType": "FieldsV1", "fieldsV1": fields(json!({"f:holderIdentity": {}, "f:renewTime": {}}))},
            ]},
            "spec": {"holderIdentity": "n1_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
                "acquireTime": "2026-11-22T11:00:00.000000Z", "renewTime": "2026-11-22T12:00:00.000000Z"},
        });
        assert_eq!(
            observed_lease(serde_json::from_value(lease).unwrap()),
            ObservedLease {
                holder: Some("n1_1".to_owned()),
                transitions: 3,
                acquired: "2026-11-22T11:00:00Z".parse().ok(),
                renewed: "2026-11-22T12:00:00Z".parse().ok(),
                duration: Some(Duration::from_secs(15)),
                writer: Some("kube-controller-manager".to_owned()),
            }
        );
        let released = json!({"metadata": {"name": "m"}, "spec": {"holderIdentity": ""}});
        let released = observed_lease(serde_json::from_value(released).unwrap());
        assert_eq!(released, ObservedLease::default());
    }
}
