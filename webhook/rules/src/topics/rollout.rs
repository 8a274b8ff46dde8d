//! The strategy and the times of rollouts.

use crate::{
    action::Action,
    api::{ControlPlaneSpec, KubeadmControlPlane},
    case::{Case, V1BETA1, V1BETA2},
    cel::{Cel, NoCel},
    change::{Change, Subresource},
    fault::{CauseReason, Fault, Faults, quote},
    progress::NOW_TOLERANCE,
    rule::{Check, InTopology, ON_WRITE, Rule, Scope},
    topics::Topic,
    view::{Machine, Part, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "rollout",
    rules: RULES,
    cases: CASES,
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
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "KubeadmControlPlane proposal, Rollout strategy",
        check: Check::ControlPlaneSpec(type_unsupported),
        cel: Cel::None(NoCel::SchemaFirst),
    },
    Rule {
        id: "max-surge-unsupported",
        summary: "maxSurge must be 0 or 1",
        why: "A control plane grows by at most one Machine during a rollout, because Cluster API changes one \
              etcd member at a time. Cluster API reads text such as 50% as 0, and then deletes a Machine \
              before it creates one.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "KubeadmControlPlane proposal, Rollout strategy: an absolute number 1 or 0",
        check: Check::ControlPlaneSpec(max_surge_unsupported),
        cel: Cel::Faults(include_str!("cel/max-surge-unsupported.cel")),
    },
    Rule {
        id: "max-surge-zero-below-three",
        summary: "maxSurge 0 requires at least three Machines",
        why: "With maxSurge 0, Cluster API deletes a Machine before it creates the replacement. With two Machines, etcd then has \
              one member. With one, Cluster API 1.14 never ends the rollout, and earlier releases delete etcd's data.",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, Rolling update strategy: replica count is >= 3",
        check: Check::ControlPlane(max_surge_zero_below_three),
        cel: Cel::Faults(include_str!("cel/max-surge-zero-below-three.cel")),
    },
    Rule {
        id: AFTER_PAST,
        summary: "a rollout time in the past starts a rollout now, or has no effect",
        why: "Cluster API replaces every Machine that was created before this time. If the time is past, it \
              replaces these Machines immediately; if every Machine is newer, the time has no effect.",
        operations: ON_WRITE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Machines]),
        overridable: false,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal, rollout: set rolloutAfter to now for an immediate rollout",
        check: Check::ControlPlane(rollout_time_past),
        cel: Cel::None(NoCel::OtherObjects),
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

fn machines_of_may() -> View {
    let machine = Machine {
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_controller: true,
        ..Machine::default()
    };
    View {
        machines: vec![machine.clone(), machine].into(),
        ..View::default()
    }
}

const V1BETA2_TYPE: &str = "spec.rollout.strategy.type";
const V1BETA2_MAX_SURGE: &str = "spec.rollout.strategy.rollingUpdate.maxSurge";
const V1BETA1_TYPE: &str = "spec.rolloutStrategy.type";
const V1BETA1_MAX_SURGE: &str = "spec.rolloutStrategy.rollingUpdate.maxSurge";

const CASES: &[Case] = &[
    Case::template(
        "rejects_on_delete_in_template",
        r#"{"spec":{"template":{"spec":{"rollout":{"strategy":{"type":"OnDelete"}}}}}}"#,
        &[("rollout-type-unsupported", "spec.template.spec.rollout.strategy.type")],
    ).only_in_version(V1BETA2),
    Case::template(
        "rejects_max_surge_percentage_in_template",
        r#"{"spec":{"template":{"spec":{"rollout":{"strategy":{"rollingUpdate":{"maxSurge":"50%"}}}}}}}"#,
        &[("max-surge-unsupported", "spec.template.spec.rollout.strategy.rollingUpdate.maxSurge")],
    ).only_in_version(V1BETA2),
    Case::create("accepts_rollout_in_the_future", r#"{"spec":{"rollout":{"after":"2026-06-02T00:00:00Z"}}}"#, &[]).only_in_version(V1BETA2),
    Case::update("accepts_rollout_at_this_moment", "{}", r#"{"spec":{"rollout":{"after":"2026-06-01T12:00:00Z"}}}"#, &[])
        .with_view(machines_of_may).only_in_version(V1BETA2),
    Case::update("accepts_rollout_a_moment_ago", "{}", r#"{"spec":{"rollout":{"after":"2026-06-01T11:58:30Z"}}}"#, &[])
        .with_view(machines_of_may).only_in_version(V1BETA2),
    Case::create("accepts_zero_time", r#"{"spec":{"rollout":{"after":"0001-01-01T00:00:00Z"}}}"#, &[]).only_in_version(V1BETA2),
    Case::update(
        "warns_of_rollout_now",
        "{}",
        r#"{"spec":{"rollout":{"after":"2026-05-02T00:00:00Z"}}}"#,
        &[("rollout-after-past", "spec.rollout.after")],
    )
    .with_view(machines_of_may).only_in_version(V1BETA2),
    Case::update(
        "warns_of_rollout_without_effect",
        "{}",
        r#"{"spec":{"rollout":{"after":"2026-04-01T00:00:00Z"}}}"#,
        &[("rollout-after-past", "spec.rollout.after")],
    )
    .with_view(machines_of_may).only_in_version(V1BETA2),
    Case::update("accepts_rollout_started_by_the_plugin", "{}", r#"{"spec":{"rollout":{"after":"2026-05-02T00:00:00Z"}}}"#, &[])
        .with_field_manager(FIELD_MANAGER).only_in_version(V1BETA2),
    Case::update(
        "accepts_unchanged_rollout_in_the_past",
        r#"{"spec":{"replicas":3,"rollout":{"after":"2026-05-02T00:00:00Z"}}}"#,
        r#"{"spec":{"replicas":5}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::update(
        "warns_of_rollout_now_in_v1beta1",
        "{}",
        r#"{"spec":{"rolloutAfter":"2026-05-02T00:00:00Z"}}"#,
        &[("rollout-after-past", "spec.rolloutAfter")],
    )
    .only_in_version(V1BETA1),
    Case::create("accepts_no_strategy", r#"{"spec":{"rollout":null}}"#, &[]).only_in_version(V1BETA2),
    Case::create(
        "accepts_max_surge_1",
        r#"{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_max_surge_as_string",
        r#"{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"1"}}}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_on_delete",
        r#"{"spec":{"rollout":{"strategy":{"type":"OnDelete"}}}}"#,
        &[("rollout-type-unsupported", V1BETA2_TYPE)],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_max_surge_2",
        r#"{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":2}}}}}"#,
        &[("max-surge-unsupported", V1BETA2_MAX_SURGE)],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_max_surge_percentage",
        r#"{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"50%"}}}}}"#,
        &[("max-surge-unsupported", V1BETA2_MAX_SURGE)],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_max_surge_percentage_with_an_owner_of_another_group",
        r#"{"metadata":{"ownerReferences":[{"apiVersion":"evil.example.com/v1","kind":"Cluster","name":"example","uid":"u"}]},
            "spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"50%"}}}}}"#,
        &[("max-surge-unsupported", V1BETA2_MAX_SURGE)],
    )
    .only_in_version(V1BETA2),
    Case::create(
        "rejects_max_surge_text",
        r#"{"spec":{"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"abc"}}}}}"#,
        &[("max-surge-unsupported", V1BETA2_MAX_SURGE)],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_max_surge_0_with_three",
        r#"{"spec":{"replicas":3,"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}}"#,
        &[],
    ).only_in_version(V1BETA2),
    Case::create(
        "rejects_max_surge_0_with_one",
        r#"{"spec":{"replicas":1,"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}}"#,
        &[("max-surge-zero-below-three", V1BETA2_MAX_SURGE)],
    ).only_in_version(V1BETA2),
    Case::scale(
        "rejects_scale_to_one_with_max_surge_0",
        r#"{"spec":{"replicas":3,"rollout":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}}"#,
        1,
        &[("max-surge-zero-below-three", "spec.replicas")],
    ).only_in_version(V1BETA2),
    Case::create(
        "accepts_max_surge_1_in_v1beta1",
        r#"{"spec":{"rolloutStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        &[],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_on_delete_in_v1beta1",
        r#"{"spec":{"rolloutStrategy":{"type":"OnDelete"}}}"#,
        &[("rollout-type-unsupported", V1BETA1_TYPE)],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_max_surge_percentage_in_v1beta1",
        r#"{"spec":{"rolloutStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"50%"}}}}"#,
        &[("max-surge-unsupported", V1BETA1_MAX_SURGE)],
    )
    .only_in_version(V1BETA1),
    Case::create(
        "rejects_max_surge_0_with_one_in_v1beta1",
        r#"{"spec":{"replicas":1,"rolloutStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0}}}}"#,
        &[("max-surge-zero-below-three", V1BETA1_MAX_SURGE)],
    )
    .only_in_version(V1BETA1),
];
