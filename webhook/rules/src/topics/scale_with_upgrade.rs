//! Scaling and upgrading at the same time (2019 proposal, Scale Up and Scale Down).

use crate::{
    action::Action,
    api::{KubeadmControlPlane, Verbatim, control_plane::Shape},
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    context::TOPOLOGY_MANAGER,
    fault::{CauseReason, Fault, Faults},
    progress::{self, Stage, UnobservedChange},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::Topic,
    trusted_users,
    view::{Cluster, Machine, Part, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "scale-with-upgrade",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "replicas-with-upgrade",
        summary: "replicas must not change in a write that also starts a rollout",
        why: "Scaling and a rollout both add and remove etcd members. One change at a time keeps the order clear \
              and lets you stop between the two changes.",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal of 2019, Scale Up: not in conjunction with an upgrade, enforced by \
                 a validation webhook",
        check: Check::ControlPlane(scales_with_upgrade),
        cel: Cel::None(NoCel::OtherObjects),
    },
    Rule {
        id: "replicas-during-rollout",
        summary: "replicas must not change while a rollout is, or may be, in progress",
        why: "Scaling and a rollout both add and remove etcd members. During a rollout, Cluster API scales \
              while it replaces Machines, so the order is hard to predict. A change that Cluster API has not \
              compared with the Machines yet may start a rollout.",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal of 2019, Scale Up and Scale Down: not in conjunction with an \
                 upgrade operation",
        check: Check::ControlPlane(scales_during_rollout),
        cel: Cel::None(NoCel::OtherObjects),
    },
    Rule {
        id: "replicas-while-adopting",
        summary: "replicas must not change while the control plane adopts Machines",
        why: "Cluster API counts a Machine only after the control plane has adopted it. Once the control plane has adopted all \
              Machines, Cluster API compares their number with the new replicas, and deletes the surplus Machines.",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposals of 2019 and 2021, Scale Up and Scale Down: not in conjunction \
                 with adopting Machines",
        check: Check::ControlPlane(scales_while_adopting),
        cel: Cel::None(NoCel::OtherObjects),
    },
];

const FIELD: &str = "spec.replicas";

/// The fields of `kubeadmConfigSpec` whose change does not replace Machines. Cluster API writes them into the workload
/// cluster, or only new Machines use them (Cluster API, `matchesKubeadmConfig`).
const FIELDS_WITHOUT_ROLLOUT: &[&str] = &[
    "clusterConfiguration.controlPlaneEndpoint",
    "clusterConfiguration.dns",
    "clusterConfiguration.apiServer.timeoutForControlPlane",
    "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
    "joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
    "joinConfiguration.discovery",
];

fn scales_with_upgrade(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    if progress::is_before_first_machine(change, faults) {
        return;
    }
    let Some(what) = starts_rollout(change, old) else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "this write scales from {from} and changes {what}, which starts a rollout; both operations \
                 change etcd members"
            )
            .into(),
            remedy: format!("change {what} first, wait for the rollout, then scale").into(),
        },
    );
}

/// The path of a changed field that starts a rollout; `None` if the write starts none.
pub(super) fn starts_rollout(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    old: &KubeadmControlPlane<'_>,
) -> Option<&'static str> {
    let (was, is) = (&old.spec, &change.new.spec);
    if was.version != is.version {
        return Some("version");
    }
    let same_template = match (old.infrastructure_ref(), change.new.infrastructure_ref()) {
        (Some(was), Some(is)) => was.is_same(is),
        (was, is) => was.is_some() == is.is_some(),
    };
    if !same_template {
        return Some("infrastructureRef");
    }
    let (was, is) = (was.kubeadm_config_spec.as_ref(), is.kubeadm_config_spec.as_ref());
    if !Verbatim::differences_except(was, is, FIELDS_WITHOUT_ROLLOUT).is_empty() {
        return Some("kubeadmConfigSpec");
    }
    progress::immediate_rollout_time(change).map(|_| match change.new.shape() {
        Shape::V1Beta1 => "rolloutAfter",
        Shape::V1Beta2 => "rollout.after",
    })
}

fn scales_during_rollout(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    let place = format!("{}{}", name(change.new), change.new.metadata.namespace_flag());
    let (action, detail, remedy) = if let Some(rolling) = progress::rollout_evidence(old) {
        let why = format!("a rollout is in progress ({rolling})");
        (
            Action::Deny,
            changes_members(&why, from),
            wait_for_rollout(&place),
        )
    } else if let Some(unobserved) = progress::unobserved_change(change, faults) {
        unobserved_fault(unobserved, from, &place)
    } else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change).min(action),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: detail.into(),
            remedy: remedy.into(),
        },
    );
}

fn changes_members(why: &str, from: i64) -> String {
    format!("{why}, and scaling from {from} would add or remove etcd members at the same time")
}

fn wait_for_rollout(place: &str) -> String {
    format!("wait for the rollout, then scale: kubectl kcp rollout status {place}")
}

/// The severest action, the detail and the remedy for a scale while `status.observedGeneration` does not include the last
/// change.
fn unobserved_fault(
    UnobservedChange {
        generation,
        observed,
        stage,
    }: UnobservedChange,
    from: i64,
    place: &str,
) -> (Action, String, String) {
    let observed = observed.map_or_else(|| "none".to_owned(), |observed| observed.to_string());
    let generations = format!("(generation {generation}, observed {observed})");
    match stage {
        Stage::Waiting => {
            let why = format!(
                "Cluster API has not yet compared the Machines with the last change {generations}, which may start a rollout"
            );
            (Action::Deny, changes_members(&why, from), wait_for_rollout(place))
        }
        Stage::Ignored => (
            Action::Warn,
            format!(
                "for more than five minutes, Cluster API has not compared the Machines with the last change {generations}; the \
                 last change may start a rollout while this write scales"
            ),
            format!("check that Cluster API's controller is running: kubectl kcp why {place}"),
        ),
        Stage::Compared => (
            Action::Warn,
            format!(
                "Cluster API may be unable to scale now, because a reconcile of the last change failed: the last change has generation \
                 {generation}, but status.observedGeneration is still {observed}. Cluster API has found no outdated Machine, so the \
                 last change starts no rollout"
            ),
            format!("find the cause: kubectl kcp why {place}"),
        ),
    }
}

fn scales_while_adopting(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((_, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    let Some(machines) = progress::machines(change) else {
        return progress::unread_unless_paused(change, faults, severity(change));
    };
    let Some(machine) = machines.iter().find(|machine| !machine.has_controller) else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "no controller owns Machine {}, so the control plane is about to adopt it; until then, the current \
                 number of replicas, {from}, does not include this Machine",
                machine.name
            )
            .into(),
            remedy: "wait until the control plane has adopted every Machine, then scale".into(),
        },
    );
}

fn name<'c>(control_plane: &'c KubeadmControlPlane<'_>) -> &'c str {
    control_plane.metadata.name.as_deref().unwrap_or("NAME")
}

/// The old object, the old replicas and the new replicas; `None` if the write does not change replicas.
fn replica_change<'c, 'a>(
    change: &Change<'c, KubeadmControlPlane<'a>>,
) -> Option<(&'c KubeadmControlPlane<'a>, i64, i64)> {
    let old = change.old?;
    let (from, to) = (old.spec.replicas?, change.new.spec.replicas?);
    (from != to).then_some((old, from, to))
}

/// The severest action for a change of replicas.
fn severity(change: &Change<'_, KubeadmControlPlane<'_>>) -> Action {
    if is_topology_controller(change) {
        Action::Audit
    } else {
        Action::Deny
    }
}

/// Whether the topology controller writes replicas that it owns before or after this write. It owns them only after the write if
/// the topology sets the replicas for the first time, or takes them back from `kubectl scale`. Labels and the field manager of
/// the request do not show this, because any client can set them.
fn is_topology_controller(change: &Change<'_, KubeadmControlPlane<'_>>) -> bool {
    let owns_replicas =
        |object: &KubeadmControlPlane<'_>| object.metadata.has_applied(TOPOLOGY_MANAGER, "f:replicas");
    change.context.is_written_by_cluster_api()
        && (owns_replicas(change.new) || change.old.is_some_and(owns_replicas))
}

fn paused_cluster() -> View {
    let cluster = Cluster {
        name: "example".to_owned(),
        paused: true,
        ..Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..View::default()
    }
}

fn machine(has_controller: bool) -> View {
    let machine = Machine {
        name: "one".to_owned(),
        version: Some("v1.34.2".to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node: true,
        has_controller,
        ..Machine::default()
    };
    View {
        machines: vec![machine].into(),
        ..View::default()
    }
}

fn adopted() -> View {
    machine(true)
}

fn not_adopted() -> View {
    machine(false)
}

fn no_machines() -> View {
    View {
        machines: Vec::new().into(),
        ..View::default()
    }
}

const THREE: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"updatedReplicas":3,"version":"v1.34.2"}}"#;
const THREE_OWNED: &str = r#"{"metadata":{"generation":4,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_LABELLED: &str = r#"{"metadata":{"generation":4,"labels":{"topology.cluster.x-k8s.io/owned":""}},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const ROLLING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.33.4"}}"#;
/// A control plane whose kubelets report another version than its Machines have.
const VENDOR: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":0,"version":"v1.34.2-x",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[{"type":"RollingOut",
    "status":"True","reason":"RollingOut","message":"","lastTransitionTime":"2026-06-01T11:00:00Z"}]}}"#;
/// A control plane whose spec has changed since the controller last processed it.
const UNOBSERVED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const UNOBSERVED_PAUSED: &str = r#"{"metadata":{"generation":3,"annotations":{"cluster.x-k8s.io/paused":""}},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const UNOBSERVED_V1BETA1: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"version":"v1.34.2"}}"#;
/// A control plane with Machines that its controller has compared with the last change, before a later step failed.
const COMPARED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3},
    {"type":"RollingOut","status":"False","reason":"NotRollingOut","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
const COMPARED_V1BETA1: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"version":"v1.34.2",
    "v1beta2":{"upToDateReplicas":3,"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}}"#;
/// Only conditions that the controller writes before it compares the Machines include the last change.
const PAUSE_OBSERVED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2","conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":2},
    {"type":"Paused","status":"False","reason":"NotPaused","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
/// The controller has written its conditions, but not yet the number of Machines that match the spec.
const COUNTS_OUTDATED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":3}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3},
    {"type":"RollingOut","status":"True","reason":"RollingOut","message":"",
     "lastTransitionTime":"2026-06-01T12:00:00Z","observedGeneration":3}]}}"#;
/// The Machines do not match the last change, and a later step failed.
const COMPARED_OUTDATED: &str = r#"{"metadata":{"generation":3},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":2,"version":"v1.34.2",
    "deprecated":{"v1beta1":{"updatedReplicas":2}},"conditions":[
    {"type":"ControlPlaneComponentsHealthy","status":"True","reason":"Healthy","message":"",
     "lastTransitionTime":"2026-06-01T11:00:00Z","observedGeneration":3}]}}"#;
/// A change that no reconcile has compared with the Machines for an hour.
const IGNORED: &str = r#"{"metadata":{"generation":3,"managedFields":[
    {"manager":"kubectl","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:version":{}}}},
    {"manager":"annotator","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:58:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:a":{}}}}},
    {"manager":"manager","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:59:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{}},"subresource":"status"}]},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const RECENT: &str = r#"{"metadata":{"generation":3,"managedFields":[
    {"manager":"kubectl","operation":"Update","apiVersion":"controlplane.cluster.x-k8s.io/v1beta2",
     "time":"2026-06-01T11:56:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:version":{}}}}]},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":2,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
/// A control plane that no controller has processed, or whose reconciles all failed.
const NEVER_OBSERVED: &str = r#"{"metadata":{"generation":1},"spec":{"replicas":3,"version":"v1.34.2"}}"#;
const NEVER_OBSERVED_WITH_CLUSTER: &str = r#"{"metadata":{"generation":1,
    "labels":{"cluster.x-k8s.io/cluster-name":"example"}},"spec":{"replicas":3,"version":"v1.34.2"}}"#;
const PAUSED_ROLLING: &str = r#"{"metadata":{"generation":4,"annotations":{"cluster.x-k8s.io/paused":""}},
    "spec":{"replicas":3},"status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1}}"#;
const ROLLING_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"updatedReplicas":2}}"#;
const FIVE: &str = r#"{"spec":{"replicas":5}}"#;
const FIVE_UPGRADED: &str = r#"{"spec":{"replicas":5,"version":"v1.34.3"}}"#;
/// A control plane that `kubectl scale` has scaled, so that the topology controller does not own the replicas.
const SCALED: &str = r#"{"metadata":{"generation":5,"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-05-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:version":{}}}},{"manager":"kubectl","operation":"Update","subresource":"scale",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T11:59:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{}}}}]},"spec":{"replicas":5,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_AND_OWNED: &str = r#"{"metadata":{"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":3}}"#;
const FIVE_UPGRADED_AND_OWNED: &str = r#"{"metadata":{"managedFields":[{"manager":"capi-topology","operation":"Apply",
    "apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","time":"2026-06-01T00:00:00Z","fieldsType":"FieldsV1",
    "fieldsV1":{"f:spec":{"f:replicas":{},"f:version":{}}}}]},"spec":{"replicas":5,"version":"v1.34.3"}}"#;
const WITH: &str = "replicas-with-upgrade";
const DURING: &str = "replicas-during-rollout";
const ADOPTING: &str = "replicas-while-adopting";

const CASES: &[Case] = &[
    Case::update(
        "accepts_scale_with_another_api_version_of_the_infrastructure",
        "{}",
        r#"{"spec":{"replicas":5,"machineTemplate":{"infrastructureRef":
            {"apiVersion":"infrastructure.cluster.x-k8s.io/v1alpha4"}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::update("accepts_scale_alone", THREE, FIVE, &[]).only_in_version(V1BETA2),
    Case::update(
        "accepts_upgrade_alone",
        THREE,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_version",
        THREE,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_infrastructure",
        THREE,
        r#"{"spec":{"replicas":5,"machineTemplate":{"spec":{"infrastructureRef":{"name":"other"}}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_kubeadm_configuration",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"joinConfiguration":{"patches":{"directory":"/a"}}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_the_topology_controller",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_false_field_manager_of_the_topology_controller",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), ("version-owned-by-topology", "spec.version")],
    )
    .with_writer("mallory")
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_service_account_of_the_same_name_in_another_namespace",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), ("version-owned-by-topology", "spec.version")],
    )
    .with_writer("system:serviceaccount:default:capi-manager")
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_label_of_the_topology_controller_without_its_fields",
        THREE_LABELLED,
        FIVE_UPGRADED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_rollout_now",
        THREE,
        r#"{"spec":{"replicas":5,"rollout":{"after":"2026-06-01T12:00:00Z"}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_rollout_now_in_v1beta1",
        THREE_V1BETA1,
        r#"{"spec":{"replicas":5,"rolloutAfter":"2026-06-01T12:00:00Z"}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "accepts_scale_with_rollout_later",
        THREE,
        r#"{"spec":{"replicas":5,"rollout":{"after":"2026-06-02T12:00:00Z"}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_scale_with_dns_repository",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageRepository":"a.example/b"}}}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_dns_repository_and_another_change",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"clusterConfiguration":{"dns":{"imageRepository":"a.example/b"},
            "imageRepository":"a.example/b"}}}}"#,
        &[(WITH, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_machines_are_replaced",
        ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_a_version_rolls_out",
        UPGRADING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "rejects_scale_subresource_during_rollout",
        ROLLING,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_scale_if_only_the_kubelets_report_another_version",
        VENDOR,
        FIVE,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_the_last_change_is_unobserved",
        UNOBSERVED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_while_the_last_change_is_unobserved_in_v1beta1",
        UNOBSERVED_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::scale(
        "rejects_scale_subresource_while_the_last_change_is_unobserved",
        UNOBSERVED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "warns_of_scale_after_the_machines_were_compared_with_the_last_change",
        COMPARED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_of_scale_after_the_machines_were_compared_in_v1beta1",
        COMPARED_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "rejects_scale_before_the_machines_are_compared_with_the_last_change",
        PAUSE_OBSERVED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_before_the_outdated_machines_are_counted",
        COUNTS_OUTDATED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_if_the_comparison_found_outdated_machines",
        COMPARED_OUTDATED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::scale(
        "warns_of_scale_after_a_change_was_ignored_for_long",
        IGNORED,
        5,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_after_a_recent_change",
        RECENT,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_with_version_while_the_last_change_is_unobserved",
        UNOBSERVED,
        FIVE_UPGRADED,
        &[(WITH, FIELD), (DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_corrected_configuration_while_the_last_change_is_unobserved",
        UNOBSERVED,
        r#"{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["true"]}}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_version_alone_while_the_last_change_is_unobserved",
        UNOBSERVED,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_when_paused_and_the_last_change_is_unobserved",
        UNOBSERVED_PAUSED,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "accepts_everything_before_the_first_machine",
        NEVER_OBSERVED,
        FIVE_UPGRADED,
        &[],
    )
    .with_view(no_machines),
    Case::update(
        "rejects_scale_with_version_after_the_first_machine",
        NEVER_OBSERVED_WITH_CLUSTER,
        FIVE_UPGRADED,
        &[(WITH, FIELD), (DURING, FIELD)],
    )
    .with_view(adopted),
    Case::scale(
        "rejects_scale_while_a_machine_is_adopted",
        THREE,
        5,
        &[(ADOPTING, FIELD)],
    )
    .with_view(not_adopted)
    .only_in_version(V1BETA2),
    Case::update("accepts_scale_after_adoption", THREE, FIVE, &[])
        .with_view(adopted)
        .only_in_version(V1BETA2),
    Case::update(
        "warns_when_paused",
        PAUSED_ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA2),
    Case::update(
        "warns_when_the_cluster_is_paused",
        ROLLING,
        FIVE,
        &[(DURING, FIELD)],
    )
    .with_view(paused_cluster)
    .only_in_version(V1BETA2),
    Case::update(
        "rejects_scale_during_rollout_in_v1beta1",
        ROLLING_V1BETA1,
        FIVE,
        &[(DURING, FIELD)],
    )
    .only_in_version(V1BETA1),
    Case::update(
        "warns_the_topology_controller_that_sets_replicas_for_the_first_time",
        THREE,
        FIVE_UPGRADED_AND_OWNED,
        &[(WITH, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
    Case::update(
        "warns_the_topology_controller_that_takes_back_a_scale",
        SCALED,
        THREE_AND_OWNED,
        &[(DURING, FIELD)],
    )
    .with_writer(trusted_users::CLUSTER_API)
    .with_field_manager(TOPOLOGY_MANAGER)
    .only_in_version(V1BETA2),
];
