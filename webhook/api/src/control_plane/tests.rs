use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{ControlPlaneWithoutConfig, KubeadmControlPlane, RemediationLimits};
use crate::{Machine, Reference, Remediation, decode, decode_list, metadata::Object as _};

fn control_plane(object: &Value) -> KubeadmControlPlane {
    decode(&object.to_string()).expect("decodes")
}

fn metadata() -> Value {
    json!({"name": "c1-cp", "namespace": "d", "uid": "u1", "generation": 7, "resourceVersion": "12",
        "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
        "annotations": {"cluster.x-k8s.io/paused": "false"}})
}

fn v1beta2() -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "metadata": metadata(),
        "spec": {
            "replicas": 3, "version": "v1.34.1",
            "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {"endpoints": []}}}},
            "rollout": {"after": "2026-08-21T09:00:00Z", "before": {"certificatesExpiryDays": 21},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}},
            "remediation": {"maxRetry": 2, "retryPeriodSeconds": 90, "minHealthyPeriodSeconds": 7200},
            "machineTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachineTemplate", "name": "t1"}}},
        },
        "status": {
            "observedGeneration": 7, "replicas": 4, "readyReplicas": 3, "availableReplicas": 3,
            "upToDateReplicas": 1, "version": "v1.33.4", "initialization": {"controlPlaneInitialized": true},
            "conditions": conditions(),
            "deprecated": {"v1beta1": {"failureReason": "R", "failureMessage": "M", "updatedReplicas": 2}},
        },
    })
}

fn v1beta1() -> Value {
    json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane", "metadata": metadata(),
        "spec": {
            "replicas": 3, "version": "v1.34.1",
            "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {"endpoints": []}}}},
            "rolloutAfter": "2026-08-21T09:00:00Z", "rolloutBefore": {"certificatesExpiryDays": 21},
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}},
            "remediationStrategy": {"maxRetry": 2, "retryPeriod": "1m30s", "minHealthyPeriod": "2h0m0s"},
            "machineTemplate": {"metadata": {"labels": {"a": "b"}}, "infrastructureRef": {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "DockerMachineTemplate", "name": "t1"}},
        },
        "status": {
            "observedGeneration": 7, "replicas": 4, "readyReplicas": 4, "unavailableReplicas": 2,
            "updatedReplicas": 2, "version": "v1.33.4", "initialized": true,
            "failureReason": "R", "failureMessage": "M",
            "conditions": [{"type": "Ready", "status": "False", "severity": "Error"}],
            "v1beta2": {"conditions": conditions(), "readyReplicas": 3, "availableReplicas": 3, "upToDateReplicas": 1},
        },
    })
}

fn conditions() -> Value {
    json!([{"type": "Available", "status": "True", "reason": "Available", "observedGeneration": 7,
        "lastTransitionTime": "2026-08-21T10:00:00Z", "message": ""}])
}

#[test]
fn both_versions_decode_to_the_same() {
    let (later, mut earlier) = (control_plane(&v1beta2()), control_plane(&v1beta1()));
    assert_eq!(earlier.spec.kubeadm_config_spec.version, "v1beta1");
    earlier.spec.kubeadm_config_spec.version = "v1beta2".to_owned();
    earlier.api_version.clone_from(&later.api_version);
    assert_eq!(later, earlier);

    assert_eq!((later.name(), later.cluster()), ("c1-cp", Some("c1")));
    assert!(
        later.is_paused()
            && later.is_observed()
            && later.is_rolling_out()
            && later.is_condition_true("Available")
    );
    assert!(later.status.initialized && later.spec.kubeadm_config_spec.has_external_etcd());
    assert_eq!(later.status.failure().as_deref(), Some("R: M"));
    assert_eq!(
        (later.status.available_replicas, later.status.up_to_date_replicas),
        (3, 1)
    );
    assert_eq!((later.desired_replicas(), later.spec.max_surge), (3, 0));
    assert_eq!(later.spec.certificates_expiry_days, Some(21));
    assert_eq!(later.spec.rollout_after, "2026-08-21T09:00:00Z".parse().ok());
    assert_eq!(
        later.spec.remediation,
        RemediationLimits {
            max_retry: Some(2),
            retry_period: SignedDuration::from_secs(90),
            min_healthy_period: SignedDuration::from_hours(2),
        }
    );
    assert_eq!(
        later.spec.infrastructure_ref,
        Reference {
            group: "infrastructure.cluster.x-k8s.io".to_owned(),
            kind: "DockerMachineTemplate".to_owned(),
            name: "t1".to_owned(),
        }
    );
}

#[test]
fn v1beta1_without_its_v1beta2_part_is_counted_by_its_own_fields() {
    let mut object = v1beta1();
    object["status"]["v1beta2"] = Value::Null;
    let status = control_plane(&object).status;
    assert_eq!(
        (
            status.ready_replicas,
            status.available_replicas,
            status.up_to_date_replicas
        ),
        (4, 2, 2)
    );
    assert_eq!(status.conditions.len(), 1);
}

#[test]
fn an_object_that_no_controller_has_seen_decodes() {
    for rest in [
        json!({}),
        json!({"spec": {}}),
        json!({"spec": {}, "status": {}}),
        json!({"spec": null, "status": null}),
    ] {
        let mut object = json!({"metadata": {"name": "c1-cp"}});
        object
            .as_object_mut()
            .expect("an object")
            .extend(rest.as_object().expect("an object").clone());
        let bare = control_plane(&object);
        assert!(!bare.is_observed() && !bare.is_rolling_out() && !bare.status.initialized);
        assert_eq!(
            (
                bare.cluster(),
                bare.status.observed_generation,
                bare.status.failure()
            ),
            (None, None, None)
        );
        assert_eq!((bare.desired_replicas(), bare.spec.max_surge), (1, 1));
        assert_eq!(
            (bare.spec.rollout_after, bare.spec.certificates_expiry_days),
            (None, None)
        );
        assert_eq!(bare.spec.remediation, RemediationLimits::default());
        assert_eq!(bare.spec.certificate_validity_days(), 365);
    }
}

#[test]
fn a_surge_that_is_no_whole_number_is_none() {
    for (surge, expected) in [
        (json!("1"), 1),
        (json!("50%"), 0),
        (json!(0), 0),
        (json!(-1), 0),
        (Value::Null, 1),
    ] {
        let mut object = v1beta2();
        object["spec"]["rollout"] = json!({"strategy": {"rollingUpdate": {"maxSurge": surge}}});
        assert_eq!(control_plane(&object).spec.max_surge, expected, "{surge}");
    }
    let mut object = v1beta2();
    object["spec"]["rollout"] = json!({"before": {"certificatesExpiryDays": 0}});
    assert_eq!(control_plane(&object).spec.certificates_expiry_days, None);
}

#[test]
fn a_failure_has_a_reason_a_message_or_both() {
    for (reason, message, failure) in [
        (Some("R"), Some("M"), Some("R: M")),
        (Some("R"), None, Some("R")),
        (None, Some("M"), Some("M")),
        (None, None, None),
    ] {
        let mut object = v1beta2();
        object["status"]["deprecated"] =
            json!({"v1beta1": {"failureReason": reason, "failureMessage": message}});
        assert_eq!(control_plane(&object).status.failure().as_deref(), failure);
    }
}

/// The entries are those that kube-apiserver 1.34 writes.
#[test]
fn the_time_of_an_unprocessed_change_is_known_if_its_write_has_a_time() {
    let entry = |hour: u8, subresource: Option<&str>, fields: Value| {
        json!({"manager": "m", "operation": "Update", "time": format!("2026-08-21T{hour:02}:00:00Z"),
            "subresource": subresource, "fieldsV1": fields})
    };
    let spec = |hour| entry(hour, None, json!({"f:spec": {"f:version": {}}}));
    let annotation = |hour| entry(hour, None, json!({"f:metadata": {"f:annotations": {"f:a": {}}}}));
    let status = |hour| entry(hour, Some("status"), json!({"f:status": {"f:replicas": {}}}));
    let scale = || {
        json!({"manager": "kubectl-kcp", "operation": "Update", "subresource": "scale",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    };
    let ten = Some("2026-08-21T10:00:00Z");
    for (unprocessed, scaled, entries, expected) in [
        (true, false, vec![], None),
        (true, false, vec![status(9)], None),
        (true, false, vec![spec(8), status(9), spec(10)], ten),
        (true, false, vec![spec(10), status(10)], ten),
        (true, false, vec![spec(10), status(11)], None),
        (true, false, vec![spec(8), status(9), annotation(10)], None),
        (true, false, vec![status(9), spec(10), annotation(11)], ten),
        (true, true, vec![status(9), spec(10), scale()], None),
        (true, false, vec![status(9), spec(10), scale()], ten),
        (
            true,
            true,
            vec![spec(8), status(9), annotation(10), scale()],
            None,
        ),
        (false, false, vec![status(9), spec(10)], None),
    ] {
        let mut object = v1beta2();
        object["metadata"]["generation"] = 7.into();
        object["status"]["observedGeneration"] = (7 - i64::from(unprocessed)).into();
        object["metadata"]["managedFields"] = json!(entries);
        let mut read = control_plane(&object);
        read.status.replicas = read.desired_replicas() - i64::from(scaled);
        let expected = expected.and_then(|time| time.parse().ok());
        assert_eq!(
            read.unprocessed_since(),
            expected,
            "{unprocessed} {scaled} {entries:?}"
        );
    }
}

#[test]
fn of_the_owned_fields_only_the_spec_is_remembered() {
    let mut object = v1beta2();
    object["metadata"]["managedFields"] = json!([
        {"manager": "a", "fieldsV1": {"f:spec": {"f:kubeadmConfigSpec": {"f:files": {}}}, "f:metadata": {}}},
        {"manager": "b", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]);
    let entries = control_plane(&object).metadata.managed_fields.unwrap_or_default();
    let fields = entries
        .iter()
        .map(|entry| entry.fields_v1.as_ref().map(|fields| &fields.0));
    assert_eq!(fields.collect::<Vec<_>>(), [Some(&json!({"f:spec": {}})), None]);
}

#[test]
fn an_annotation_records_a_remediation_in_progress() {
    let mut object = v1beta2();
    assert_eq!(control_plane(&object).remediation_in_progress(), None);
    object["metadata"]["annotations"]["controlplane.cluster.x-k8s.io/remediation-in-progress"] =
        json!(r#"{"machine":"m1"}"#);
    let remediation = Remediation {
        machine: "m1".to_owned(),
        ..Remediation::default()
    };
    assert_eq!(
        control_plane(&object).remediation_in_progress(),
        Some(remediation)
    );
}

#[test]
fn a_machine_is_its_owners_and_else_its_clusters() {
    let read = control_plane(&v1beta2());
    let owned_by = |name: &str| json!([{"kind": "KubeadmControlPlane", "name": name}]);
    for (case, namespace, owners, cluster, expected) in [
        ("owned", "d", owned_by("c1-cp"), "c1", true),
        ("another's", "d", owned_by("other"), "c1", false),
        ("not adopted yet", "d", json!([]), "c1", true),
        (
            "of a control plane of another kind",
            "d",
            json!([{"kind": "OtherControlPlane", "name": "c1-cp", "controller": true}]),
            "c1",
            false,
        ),
        (
            "owned by its Cluster only",
            "d",
            json!([{"kind": "Cluster", "name": "c1"}]),
            "c1",
            true,
        ),
        ("of another Cluster", "d", json!([]), "c2", false),
        ("in another namespace", "e", owned_by("c1-cp"), "c1", false),
    ] {
        let machine = json!({"metadata": {"name": "m", "namespace": namespace, "ownerReferences": owners},
            "spec": {"clusterName": cluster}});
        let machine: Machine = decode(&machine.to_string()).expect("decodes");
        assert_eq!(read.has_machine(&machine), expected, "{case}");
    }
}

#[test]
fn certificates_that_are_outdated_when_they_are_new_roll_out_without_end() {
    for (days, validity, endless) in [
        (None, None, false),
        (Some(90), None, false),
        (Some(364), None, false),
        (Some(365), None, true),
        (Some(90), Some(90), true),
        (Some(90), Some(91), false),
    ] {
        let mut object = v1beta2();
        object["spec"]["rollout"] = json!({"before": {"certificatesExpiryDays": days}});
        object["spec"]["kubeadmConfigSpec"] =
            json!({"clusterConfiguration": {"certificateValidityPeriodDays": validity}});
        assert_eq!(
            control_plane(&object).spec.rolls_out_forever(),
            endless,
            "{days:?} of {validity:?}"
        );
    }
}

#[test]
fn a_long_list_is_read_without_configurations() {
    let mut object = v1beta2();
    object["spec"]["kubeadmConfigSpec"]["users"] = json!([{"passwd": "sesame"}]);
    let list = json!({"items": [object]});
    let list = decode_list::<ControlPlaneWithoutConfig>(&list.to_string()).expect("decodes");
    let [ControlPlaneWithoutConfig(listed)] = list.items.as_slice() else {
        panic!("one item");
    };
    let config = &listed.spec.kubeadm_config_spec;
    assert!(config.has_external_etcd() && !config.fields.to_string().contains("sesame"));
    assert_eq!(listed.status, control_plane(&object).status);
}

/// `tests/fixtures` has every field of v1beta1 in it.
#[test]
fn a_manifest_with_every_field_decodes() {
    let fixture = include_str!("../../../../tests/fixtures/every-field-v1beta1.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(fixture).expect("YAML");
    let control_planes: Vec<KubeadmControlPlane> = documents.iter().map(control_plane).collect();
    let read = control_planes.first().expect("a control plane");
    assert_eq!(
        (read.name(), read.spec.replicas, read.spec.version.as_deref()),
        ("local-etcd", Some(3), Some("v1.34.2"))
    );
    assert_eq!(read.spec.rollout_after, "2030-01-01T00:00:00Z".parse().ok());
    assert_eq!(read.spec.remediation.retry_period, SignedDuration::from_secs(90));
    assert_eq!(
        read.spec.remediation.min_healthy_period,
        SignedDuration::from_hours(2)
    );
    assert_eq!(
        read.spec.infrastructure_ref.group_kind(),
        "StandInMachineTemplate.infrastructure.cluster.x-k8s.io"
    );
    assert!(
        control_planes
            .iter()
            .any(|read| read.spec.kubeadm_config_spec.has_external_etcd())
    );
}
