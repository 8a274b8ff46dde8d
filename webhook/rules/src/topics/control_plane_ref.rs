//! `Cluster.spec.controlPlaneRef` and the control plane to which it refers.

use crate::{
    action::Action,
    api::{Cluster, KubeadmControlPlane},
    case::Case,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, InTopology, ON_WRITE, Rule, Scope},
    topics::Topic,
    view::{self, Part, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "control-plane-ref",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "control-plane-ref-unknown",
        summary: "a Cluster's controlPlaneRef must refer to an existing control plane",
        why: "A Cluster waits for the control plane that it refers to. If that control plane does not exist, only a condition of \
              the Cluster says so.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Cluster(&[Part::ControlPlanes]),
        overridable: false,
        topology: InTopology::Unjudged,
        source: "KubeadmControlPlane proposal, Create: the sample refers to my-controlplane, but creates \
                 my-control-plane",
        check: Check::Cluster(references_unknown_control_plane),
        cel: Cel::None(NoCel::OtherObjects),
    },
    Rule {
        id: "control-plane-ref-other",
        summary: "the Cluster of a control plane must refer to that control plane",
        why: "A Cluster owns only the control plane to which its controlPlaneRef refers. Cluster API does \
              not reconcile a control plane that its Cluster does not own.",
        operations: ON_WRITE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Cluster]),
        overridable: false,
        topology: InTopology::Unjudged,
        source: "KubeadmControlPlane proposal, Modifications required to existing API Types: Cluster.Spec.ControlPlaneRef",
        check: Check::ControlPlane(cluster_references_other),
        cel: Cel::None(NoCel::OtherObjects),
    },
];

const FIELD: &str = "spec.controlPlaneRef.name";

fn references_unknown_control_plane(change: &Change<'_, Cluster<'_>>, faults: &mut Faults) {
    let Some(name) = change.new.control_plane_name() else {
        return;
    };
    let Some(existing) = change.context.view.and_then(|view| view.control_planes.as_ref()) else {
        return faults.unread();
    };
    if existing.iter().any(|existing| existing == &**name) {
        return;
    }
    let suggestion = existing.first().map_or_else(
        || "an existing control plane".to_owned(),
        |first| format!("\"{first}\""),
    );
    faults.push(Fault {
        field: FIELD.into(),
        reason: CauseReason::NotFound,
        value: Some(format!("{name:?}")),
        detail: "no KubeadmControlPlane has this name, so the Cluster would wait forever".into(),
        remedy: format!("refer to {suggestion}, or create a control plane with this name first").into(),
    });
}

fn cluster_references_other(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(cluster) = change.context.view.and_then(|view| view.cluster.as_ref()) else {
        return faults.unread();
    };
    let (Some(cluster), Some(name)) = (cluster, change.new.metadata.name.as_deref()) else {
        return;
    };
    let Some(other) = cluster.control_plane.as_deref().filter(|other| *other != name) else {
        return;
    };
    faults.push(Fault {
        field: "spec".into(),
        reason: CauseReason::Invalid,
        value: None,
        detail: format!(
            "Cluster {} refers to control plane {other:?}, so no controller reconciles this control plane",
            cluster.name
        )
        .into(),
        remedy: "change the Cluster's controlPlaneRef".into(),
    });
}

fn control_planes(names: &[&str]) -> View {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    View {
        control_planes: names.into(),
        ..View::default()
    }
}

fn cluster_of(control_plane: &str) -> View {
    let cluster = view::Cluster {
        name: "example".to_owned(),
        control_plane: Some(control_plane.to_owned()),
        ..view::Cluster::default()
    };
    View {
        cluster: Some(cluster).into(),
        ..View::default()
    }
}

const CASES: &[Case] = &[
    Case::cluster("accepts_existing_control_plane", "{}", &[]).with_view(|| control_planes(&["example"])),
    Case::cluster("accepts_when_control_planes_are_unknown", "{}", &[]),
    Case::cluster(
        "accepts_another_kind",
        r#"{"spec":{"controlPlaneRef":{"kind":"AcmeControlPlane","name":"other"}}}"#,
        &[],
    )
    .with_view(|| control_planes(&["example"])),
    Case::cluster(
        "rejects_missing_control_plane",
        "{}",
        &[("control-plane-ref-unknown", FIELD)],
    )
    .with_view(|| control_planes(&["another"])),
    Case::create("accepts_control_plane_of_its_cluster", "{}", &[]).with_view(|| cluster_of("example")),
    Case::create(
        "warns_of_control_plane_that_its_cluster_does_not_refer_to",
        "{}",
        &[("control-plane-ref-other", "spec")],
    )
    .with_view(|| cluster_of("another")),
];
