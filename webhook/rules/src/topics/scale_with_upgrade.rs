//! Scaling and upgrading at the same time (2019 proposal, Scale Up and Scale Down).

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::Change,
    context::TOPOLOGY_MANAGER,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, ON_UPDATE, Rule, Scope},
    topics::Topic,
    view::{Cluster, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "scale-with-upgrade",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "replicas-with-upgrade",
        summary: "replicas do not change in a write that also starts a rollout",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Cluster,
        overridable: true,
        source: "2019 proposal, Scale Up: not in conjunction with an upgrade, enforced by a validation webhook",
        check: Check::ControlPlane(with_upgrade),
        cel: Cel::None(NoCel::OtherObjects),
    },
    Rule {
        id: "replicas-during-rollout",
        summary: "replicas do not change while a rollout is in progress",
        operations: ON_UPDATE,
        action: Action::Deny,
        scope: Scope::Cluster,
        overridable: true,
        source: "2019 proposal, Scale Up and Scale Down: not in conjunction with an upgrade operation",
        check: Check::ControlPlane(during_rollout),
        cel: Cel::None(NoCel::OtherObjects),
    },
];

const FIELD: &str = "spec.replicas";

/// The label on objects of Cluster API's topology controller.
const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

fn with_upgrade(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = scaled(change) else {
        return;
    };
    let (was, is) = (&old.spec, &change.new.spec);
    let upgrade = [
        ("version", was.version != is.version),
        (
            "infrastructureRef",
            match (old.infrastructure_ref(), change.new.infrastructure_ref()) {
                (Some(was), Some(is)) => !was.is_same(is),
                (was, is) => was.is_some() != is.is_some(),
            },
        ),
        (
            "kubeadmConfigSpec",
            was.kubeadm_config_spec != is.kubeadm_config_spec,
        ),
    ];
    let Some((what, _)) = upgrade.into_iter().find(|(_, changed)| *changed) else {
        return;
    };
    faults.push_at_most(
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "this write scales from {from} and starts a rollout by changing {what}, and both move etcd members"
            )
            .into(),
            remedy: format!("change {what} first, wait for the rollout, then scale").into(),
        },
    );
}

fn during_rollout(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = scaled(change) else {
        return;
    };
    let Some(rolling) = rolling_out(old) else { return };
    faults.push_at_most(
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "a rollout is in progress ({rolling}), and scaling from {from} would move etcd members at the same time"
            )
            .into(),
            remedy: format!(
                "wait for the rollout, then scale: kubectl kcp rollout status {} --watch{}",
                name(change.new),
                change.new.metadata.namespace_flag()
            )
            .into(),
        },
    );
}

fn name<'c>(control_plane: &'c KubeadmControlPlane<'_>) -> &'c str {
    control_plane.metadata.name.as_deref().unwrap_or("NAME")
}

/// The old object, the old and the new replicas, if the write changes replicas.
fn scaled<'c, 'a>(
    change: &Change<'c, KubeadmControlPlane<'a>>,
) -> Option<(&'c KubeadmControlPlane<'a>, i64, i64)> {
    let old = change.old?;
    let (from, to) = (old.spec.replicas?, change.new.spec.replicas?);
    (from != to).then_some((old, from, to))
}

/// The severest action for a fault. A paused object only gets a warning, because manual recovery has priority (2019
/// proposal, Scale Down).
fn severity(change: &Change<'_, KubeadmControlPlane<'_>>) -> Action {
    let owned = change
        .old
        .is_some_and(|old| old.metadata.has_label(TOPOLOGY_OWNED));
    // Any client can claim this field manager, so the control plane must also have the label.
    if owned && change.context.is_topology_controller() {
        return Action::Audit;
    }
    let paused = |control_plane: &KubeadmControlPlane<'_>| control_plane.metadata.has_annotation(PAUSED);
    let cluster_paused = || {
        let cluster = change.context.view.and_then(|view| view.cluster.get());
        matches!(cluster, Some(Some(Cluster { paused: true, .. })))
    };
    let stale = change.old.is_some_and(|old| {
        let observed = old.status.as_ref().and_then(|status| status.observed_generation);
        observed.is_some() && old.metadata.generation.is_some() && observed != old.metadata.generation
    });
    if paused(change.new) || stale || cluster_paused() {
        Action::Warn
    } else {
        Action::Deny
    }
}

/// Cluster API checks only whether the annotation is present.
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// The evidence that a rollout is in progress, if there is any.
fn rolling_out(control_plane: &KubeadmControlPlane<'_>) -> Option<String> {
    let status = control_plane.status.as_ref()?;
    let version = control_plane.spec.version.as_deref();
    if let (Some(lowest), Some(version)) = (status.version.as_deref(), version)
        && lowest != version
    {
        return Some(format!("a Machine is still at {lowest}, not {version}"));
    }
    if let (Some(matching), Some(replicas)) = (status.matching_replicas(), status.replicas)
        && matching < replicas
    {
        return Some(format!("{matching} of {replicas} Machines are up to date"));
    }
    status
        .is_true("RollingOut")
        .then(|| "condition RollingOut is True".to_owned())
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

const THREE: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const THREE_OWNED: &str = r#"{"metadata":{"generation":4,"labels":{"topology.cluster.x-k8s.io/owned":""}},
    "spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.34.2"}}"#;
const ROLLING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const UPGRADING: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"upToDateReplicas":3,"version":"v1.33.4"}}"#;
const STALE: &str = r#"{"metadata":{"generation":5},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1,"version":"v1.34.2"}}"#;
const PAUSED_ROLLING: &str = r#"{"metadata":{"generation":4,"annotations":{"cluster.x-k8s.io/paused":""}},
    "spec":{"replicas":3},"status":{"observedGeneration":4,"replicas":4,"upToDateReplicas":1}}"#;
const ROLLING_V1BETA1: &str = r#"{"metadata":{"generation":4},"spec":{"replicas":3,"version":"v1.34.2"},
    "status":{"observedGeneration":4,"replicas":3,"updatedReplicas":3,"v1beta2":{"conditions":[{"type":"RollingOut",
    "status":"True","reason":"RollingOut","message":"","lastTransitionTime":"2026-06-01T11:00:00Z"}]}}}"#;
const FIVE: &str = r#"{"spec":{"replicas":5}}"#;
const FIVE_UPGRADED: &str = r#"{"spec":{"replicas":5,"version":"v1.34.3"}}"#;

const CASES: &[Case] = &[
    Case::update(
        "accepts_scale_with_another_api_version_of_the_infrastructure",
        "{}",
        r#"{"spec":{"replicas":5,"machineTemplate":{"infrastructureRef":
            {"apiVersion":"infrastructure.cluster.x-k8s.io/v1alpha4"}}}}"#,
        &[],
    )
    .only_in(V1BETA1),
    Case::update("accepts_scale_alone", THREE, FIVE, &[]).only_in(V1BETA2),
    Case::update(
        "accepts_upgrade_alone",
        THREE,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    )
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_with_version",
        THREE,
        FIVE_UPGRADED,
        &[("replicas-with-upgrade", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_with_infrastructure",
        THREE,
        r#"{"spec":{"replicas":5,"machineTemplate":{"spec":{"infrastructureRef":{"name":"other"}}}}}"#,
        &[("replicas-with-upgrade", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_with_kubeadm_configuration",
        THREE,
        r#"{"spec":{"replicas":5,"kubeadmConfigSpec":{"joinConfiguration":{"patches":{"directory":"/a"}}}}}"#,
        &[("replicas-with-upgrade", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_the_topology_controller",
        THREE_OWNED,
        FIVE_UPGRADED,
        &[("replicas-with-upgrade", FIELD)],
    )
    .managed_by(TOPOLOGY_MANAGER)
    .only_in(V1BETA2),
    Case::update(
        "rejects_false_field_manager_of_the_topology_controller",
        THREE,
        FIVE_UPGRADED,
        &[("replicas-with-upgrade", FIELD)],
    )
    .managed_by(TOPOLOGY_MANAGER)
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_while_machines_are_replaced",
        ROLLING,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_while_a_version_rolls_out",
        UPGRADING,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA2),
    Case::scale(
        "rejects_scale_subresource_during_rollout",
        ROLLING,
        5,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_when_status_is_stale",
        STALE,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_when_paused",
        PAUSED_ROLLING,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA2),
    Case::update(
        "warns_when_the_cluster_is_paused",
        ROLLING,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .with_view(paused_cluster)
    .only_in(V1BETA2),
    Case::update(
        "rejects_scale_during_rollout_in_v1beta1",
        ROLLING_V1BETA1,
        FIVE,
        &[("replicas-during-rollout", FIELD)],
    )
    .only_in(V1BETA1),
];
