//! Cases of the rules in [`crate::topics::rollout`].

use crate::{
    testing::case::{Case, V1BETA1, V1BETA2},
    topics::rollout::FIELD_MANAGER,
    view::{Machine, View},
};

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

pub(super) const CASES: &[Case] = &[
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
