//! The number of Machines in a control plane.

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "replicas",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "replicas-not-positive",
        summary: "a control plane must have at least one Machine",
        why: "A control plane without Machines has no API server and no etcd, and Cluster API cannot restore \
              such a control plane.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal of 2019, Scale Down: scale to 0 must be rejected",
        check: Check::ControlPlane(replicas_not_positive),
        cel: Cel::FaultsAlsoForScale(include_str!("cel/replicas-not-positive.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "replicas-even",
        summary: "with stacked etcd, the number of Machines must be odd",
        why: "etcd needs a majority of its members. An even number tolerates no more failures than the odd number \
              below it, but has one more member that can fail.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, New API Types",
        check: Check::ControlPlane(replicas_even),
        cel: Cel::Faults(include_str!("cel/replicas-even.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "replicas-dropped",
        summary: "an update must not scale the control plane to 1 by omitting replicas",
        why: "If replicas is omitted, the field defaults to 1. If you remove the field from a manifest, for example \
              because an autoscaler sets it, applying the manifest would delete all Machines but one.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, New API Types: replicas default to 1",
        check: Check::ControlPlane(replicas_dropped),
        cel: Cel::None(NoCel::DefaultedFirst),
        ..Rule::USUAL
    },
    Rule {
        id: "replicas-above-seven",
        summary: "more than seven etcd members slow down every write",
        why: "The leader of etcd confirms a write once a majority of the members has stored it. Each \
              additional pair of members adds one member to this majority, so every write takes longer.",
        action: Action::Warn,
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, Non-Goals: etcd limits; etcd FAQ: at most seven members",
        check: Check::ControlPlane(replicas_above_seven),
        cel: Cel::Faults(include_str!("cel/replicas-above-seven.cel")),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.replicas";

fn replicas_not_positive(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(replicas) = change.new.spec.replicas else {
        return;
    };
    if replicas <= 0 {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(replicas.to_string()),
            detail: "a control plane needs at least one Machine".into(),
            remedy: "set 1 or more, or delete the Cluster to remove its control plane".into(),
        });
    }
}

fn replicas_even(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(replicas) = change.new.spec.replicas else {
        return;
    };
    if replicas > 0 && replicas % 2 == 0 && !change.new.has_external_etcd() {
        let fewer = replicas - 1;
        let action = change.context.of_configuration();
        let etcd = match action {
            Action::Deny => "with stacked etcd",
            _ => "unless etcd is external",
        };
        faults.push_at_most(
            action,
            Fault {
                field: FIELD.into(),
                reason: CauseReason::Invalid,
                value: Some(replicas.to_string()),
                detail: format!("{etcd}, {replicas} Machines tolerate no more failures than {fewer} would")
                    .into(),
                remedy: format!("set {fewer} or {}", replicas.saturating_add(1)).into(),
            },
        );
    }
}

fn replicas_dropped(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old.and_then(|old| old.spec.replicas) else {
        return;
    };
    if change.new.spec.replicas.is_none() && old != 1 {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Required,
            value: None,
            detail: format!("if omitted, replicas defaults to 1, but the stored value is {old}").into(),
            remedy: format!("set {old} to keep all Machines, or 1 to scale down").into(),
        });
    }
}

fn replicas_above_seven(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(replicas) = change.new.spec.replicas else {
        return;
    };
    if replicas > 7 && !change.new.has_external_etcd() {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some(replicas.to_string()),
            detail: "more than 7 etcd members slow down writes".into(),
            remedy: "set 7 or fewer, or use external etcd".into(),
        });
    }
}
