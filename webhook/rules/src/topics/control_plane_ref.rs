//! `Cluster.spec.controlPlaneRef` and the control plane to which it refers.

use crate::{
    action::Action,
    api::{Cluster, KubeadmControlPlane},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, Rule, Scope},
    topics::Topic,
    view::Part,
};

pub(super) const TOPIC: Topic = Topic {
    name: "control-plane-ref",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "control-plane-ref-unknown",
        summary: "a Cluster's controlPlaneRef must refer to an existing control plane",
        why: "A Cluster waits for the control plane that it refers to. If that control plane does not exist, only a condition of \
              the Cluster says so.",
        scope: Scope::Cluster(&[Part::ControlPlanes]),
        source: "KubeadmControlPlane proposal, Create: the sample refers to my-controlplane, but creates \
                 my-control-plane",
        check: Check::Cluster(references_unknown_control_plane),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "control-plane-ref-other",
        summary: "the Cluster of a control plane must refer to that control plane",
        why: "A Cluster owns only the control plane to which its controlPlaneRef refers. Cluster API does \
              not reconcile a control plane that its Cluster does not own.",
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Cluster]),
        source: "KubeadmControlPlane proposal, Modifications required to existing API Types: Cluster.Spec.ControlPlaneRef",
        check: Check::ControlPlane(cluster_references_other),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.controlPlaneRef.name";

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
