//! The strategy and the times of rollouts.

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane},
    cel::{Cel, NoCel},
    change::{Change, Subresource},
    fault::{CauseReason, Fault, Faults, quote},
    progress::NOW_TOLERANCE,
    rule::{Check, InTopology, Rule, Scope},
    topics::Topic,
    view::Part,
};

pub(super) const TOPIC: Topic = Topic {
    name: "rollout",
    rules: RULES,
};

/// The id of the rule about a rollout time in the past. The rule is about the immediate effect of a write, so it does
/// not apply to existing objects.
pub const AFTER_PAST: &str = "rollout-after-past";

const RULES: &[Rule] = &[
    Rule {
        id: "rollout-type-unsupported",
        summary: "the rollout type must be RollingUpdate",
        why: "Cluster API implements only RollingUpdate for control planes. Its webhook replaces any other \
              type with RollingUpdate, without a message.",
        scope: Scope::Object,
        source: "KubeadmControlPlane proposal, Rollout strategy",
        check: Check::ControlPlaneSpec(type_unsupported),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
    Rule {
        id: "max-surge-unsupported",
        summary: "maxSurge must be 0 or 1",
        why: "A control plane grows by at most one Machine during a rollout, because Cluster API changes one \
              etcd member at a time. Cluster API reads text such as 50% as 0, and then deletes a Machine \
              before it creates one.",
        scope: Scope::Object,
        source: "KubeadmControlPlane proposal, Rollout strategy: an absolute number 1 or 0",
        check: Check::ControlPlaneSpec(max_surge_unsupported),
        cel: Cel::Faults(include_str!("cel/max-surge-unsupported.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "max-surge-zero-below-three",
        summary: "maxSurge 0 requires at least three Machines",
        why: "With maxSurge 0, Cluster API deletes a Machine before it creates the replacement. With two Machines, etcd then has \
              one member. With one, Cluster API 1.14 never ends the rollout, and earlier releases delete etcd's data.",
        scope: Scope::Object,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, Rolling update strategy: replica count is >= 3",
        check: Check::ControlPlane(max_surge_zero_below_three),
        cel: Cel::Faults(include_str!("cel/max-surge-zero-below-three.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: AFTER_PAST,
        summary: "a rollout time in the past starts a rollout now, or has no effect",
        why: "Cluster API replaces every Machine that was created before this time. If the time is past, it \
              replaces these Machines immediately; if every Machine is newer, the time has no effect.",
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Machines]),
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, rollout: set rolloutAfter to now for an immediate rollout",
        check: Check::ControlPlane(rollout_time_past),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

/// The field manager of `kubectl kcp`. A rollout that a user starts with `kubectl kcp` needs no warning.
pub const FIELD_MANAGER: &str = "kubectl-kcp";

fn type_unsupported(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(kind) = change
        .new
        .rollout_strategy()
        .and_then(|strategy| strategy.kind.as_ref())
    else {
        return;
    };
    if &**kind != "RollingUpdate" {
        faults.push(Fault {
            field: change.new.rollout_strategy_path("type"),
            reason: CauseReason::NotSupported,
            value: Some(quote(kind)),
            detail: "control planes support only rolling updates".into(),
            remedy: "set \"RollingUpdate\", or omit the strategy".into(),
        });
    }
}

fn max_surge_unsupported(change: &Change<'_, ControlPlaneSpec<'_>>, faults: &mut Faults) {
    let Some(max_surge) = change.new.max_surge() else {
        return;
    };
    if !matches!(max_surge.as_int(), Some(0 | 1)) {
        faults.push(Fault {
            field: change.new.rollout_strategy_path("rollingUpdate.maxSurge"),
            reason: CauseReason::Invalid,
            value: Some(max_surge.to_string()),
            detail: "a control plane grows by at most one Machine during a rollout".into(),
            remedy: "set 1 to create a Machine before deleting one, or 0 to delete one first".into(),
        });
    }
}

fn max_surge_zero_below_three(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let (Some(max_surge), Some(replicas)) = (change.new.max_surge(), change.new.spec.replicas) else {
        return;
    };
    if max_surge.as_int() != Some(0) || !(1..3).contains(&replicas) {
        return;
    }
    let scaling = change.subresource == Some(Subresource::Scale);
    let fault = Fault {
        // A Scale object has no maxSurge, so report the replicas.
        field: if scaling {
            "spec.replicas".into()
        } else {
            change.new.rollout_strategy_path("rollingUpdate.maxSurge")
        },
        reason: CauseReason::Forbidden,
        value: Some(if scaling {
            replicas.to_string()
        } else {
            max_surge.to_string()
        }),
        detail: format!(
            "with maxSurge 0, Cluster API deletes a Machine before it creates one, and replicas is only {replicas}"
        )
        .into(),
        remedy: if change.context.topology.is_some() {
            "use at least three Machines, or set maxSurge to 1 in the template of the ClusterClass".into()
        } else {
            "set maxSurge to 1, or use at least three Machines".into()
        },
    };
    faults.push_at_most(change.context.of_configuration(), fault);
}

fn rollout_time_past(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let (Some(after), Some(now)) = (change.new.rollout_after(), change.context.now) else {
        return;
    };
    let unchanged = change.old.and_then(KubeadmControlPlane::rollout_after) == Some(after);
    // Accept the current time: the proposal and `clusterctl alpha rollout restart` use it to start a rollout immediately.
    let is_past = now.duration_since(after) > NOW_TOLERANCE;
    if !is_past || unchanged || change.context.field_manager == Some(FIELD_MANAGER) {
        return;
    }
    let machines = change.context.view.and_then(|view| view.machines.as_ref());
    if machines.is_none() {
        faults.request();
    }
    let older = machines.map(|machines| {
        machines
            .iter()
            .filter(|machine| machine.created.is_some_and(|created| created < after))
            .count()
    });
    let detail = match older {
        _ if change.old.is_none() => {
            "this time is in the past, so it has no effect on a new control plane".to_owned()
        }
        Some(0) => "no Machine is older than this time, so the time has no effect".to_owned(),
        Some(1) => "this time is in the past, so Cluster API replaces one Machine now".to_owned(),
        Some(older) => format!("this time is in the past, so Cluster API replaces {older} Machines now"),
        None => "this time is in the past, so Cluster API replaces older Machines now".to_owned(),
    };
    faults.push(Fault {
        field: change.new.rollout_after_path().into(),
        reason: CauseReason::Invalid,
        value: Some(format!("\"{after}\"")),
        detail: detail.into(),
        remedy: "set a time in the future".into(),
    });
}
