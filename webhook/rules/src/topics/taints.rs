//! Taints for the Nodes of Machines.

use std::{borrow::Cow, collections::HashSet};

use crate::{
    api::{ControlPlaneSpec, Text},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, Rule, Scope},
    syntax::key_fault,
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "taints",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "taints-gate-off",
        summary: "taints on Machines require Cluster API's feature gate MachineTaintPropagation",
        why: "With the feature gate off, Cluster API ignores the taints or rejects them, so Pods can run on Nodes \
              that should be tainted.",
        scope: Scope::Object,
        overridable: true,
        source: "Cluster API, internal/util/taints/validation.go",
        check: Check::ControlPlaneSpec(gate_off),
        cel: Cel::Faults(include_str!("cel/taints-gate-off.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "taint-key-reserved",
        summary: "taints that Kubernetes or Cluster API manages must not be set",
        why: "Kubernetes or Cluster API adds and removes these taints to reflect the state of a Node. A fixed \
              taint would block the Node forever.",
        scope: Scope::Object,
        source: "Cluster API, internal/util/taints/validation.go",
        check: Check::ControlPlaneSpec(key_reserved),
        cel: Cel::Faults(include_str!("cel/taint-key-reserved.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "taint-key-invalid",
        summary: "the key of a taint must be valid",
        why: "The API server rejects a taint with an invalid key, so the Node never gets its taints.",
        scope: Scope::Object,
        source: "Cluster API, internal/util/taints/validation.go",
        check: Check::ControlPlaneSpec(key_invalid),
        cel: Cel::None(NoCel::TooLong),
        ..Rule::USUAL
    },
    Rule {
        id: "taint-duplicate",
        summary: "two taints must not have the same key and effect",
        why: "A Node has at most one taint with the same key and effect, so one of the two values would be lost.",
        scope: Scope::Object,
        source: "CRD of KubeadmControlPlane: taints are a map by key and effect",
        check: Check::ControlPlaneSpec(taint_duplicate),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
];

fn gate_off(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    if change.context.feature_gates.machine_taints || change.new.taints().is_empty() {
        return;
    }
    faults.push_gate_off(
        "MachineTaintPropagation",
        &change.context,
        (change.new.taints_path(), None),
        "remove the taints, or enable the gate in Cluster API and set featureGates.machineTaints in kcp-webhook's \
         AdmissionConfiguration",
    );
}

/// The keys of all taints that have a key, each with its index.
fn keys<'c>(spec: &ControlPlaneSpec<'c>) -> impl Iterator<Item = (usize, &'c Text<'c>)> {
    let taints = spec.taints().iter().enumerate();
    taints.filter_map(|(index, taint)| Some((index, taint.key.as_ref()?)))
}

fn key_path(spec: &ControlPlaneSpec<'_>, index: usize) -> Cow<'static, str> {
    format!("{}[{index}].key", spec.taints_path()).into()
}

/// Why users must not set a taint with this key; `None` if they may.
fn why_reserved(key: &str) -> Option<&'static str> {
    match key {
        "node.cluster.x-k8s.io/uninitialized" | "node.cluster.x-k8s.io/outdated-revision" => {
            Some("Cluster API sets and removes this taint itself")
        }
        "node.kubernetes.io/out-of-service" => None,
        "node-role.kubernetes.io/master" => Some("Kubernetes stopped using this taint in 1.24"),
        _ if key.starts_with("node.kubernetes.io/") => {
            Some("Kubernetes sets and removes this taint according to the Node's state")
        }
        _ if key.starts_with("node.cloudprovider.kubernetes.io/") => {
            Some("the cloud controller manager sets and removes this taint itself")
        }
        _ => None,
    }
}

fn key_reserved(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, key) in keys(change.new) {
        let Some(reason) = why_reserved(key) else { continue };
        faults.push(Fault {
            field: key_path(change.new, index),
            reason: CauseReason::Invalid,
            value: Some(quote(key)),
            detail: reason.into(),
            remedy: if &**key == "node-role.kubernetes.io/master" {
                "use \"node-role.kubernetes.io/control-plane\"".into()
            } else {
                "remove the taint, or use a key in your own domain".into()
            },
        });
    }
}

fn key_invalid(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    for (index, key) in keys(change.new) {
        let Some(detail) = key_fault(key) else { continue };
        faults.push(Fault {
            field: key_path(change.new, index),
            reason: CauseReason::Invalid,
            value: Some(quote(key)),
            detail: detail.into(),
            remedy: "rename the key, for example to \"example.com/name\"".into(),
        });
    }
}

fn taint_duplicate(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (index, taint) in change.new.taints().iter().enumerate() {
        let (Some(key), Some(effect)) = (taint.key.as_deref(), taint.effect.as_deref()) else {
            continue;
        };
        if !seen.insert((key, effect)) {
            faults.push(Fault {
                field: format!("{}[{index}]", change.new.taints_path()).into(),
                reason: CauseReason::Duplicate,
                value: Some(quote(&format!("{key}:{effect}"))),
                detail: "an earlier taint has the same key and effect".into(),
                remedy: "remove one of the two taints".into(),
            });
        }
    }
}
