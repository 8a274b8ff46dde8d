//! Cases of the rules in [`crate::topics::version`].

use crate::{
    testing::case::{Answer, Case},
    topics::version::FIELD,
    view::{Machine, View},
};

pub(super) const CASES: &[Case] = &[
    Case::create("accepts_release", r#"{"spec":{"version":"v1.34.2"}}"#, &[]),
    Case::create(
        "accepts_pre_release_and_build",
        r#"{"spec":{"version":"v1.35.0-rc.1+build.5"}}"#,
        &[],
    ),
    Case::create(
        "rejects_two_numbers",
        r#"{"spec":{"version":"v1.34"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_text",
        r#"{"spec":{"version":"latest"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_leading_zero",
        r#"{"spec":{"version":"v1.034.2"}}"#,
        &[("version-not-semantic", FIELD)],
    ),
    Case::create(
        "rejects_no_v",
        r#"{"spec":{"version":"1.34.2"}}"#,
        &[("version-without-v", FIELD)],
    )
    .answered_by(Answer::Mutation(r#""v1.34.2""#)),
    Case::update(
        "accepts_next_minor",
        OLD,
        r#"{"spec":{"version":"v1.35.0"}}"#,
        &[],
    ),
    Case::update("accepts_patch", OLD, r#"{"spec":{"version":"v1.34.9"}}"#, &[]),
    Case::update(
        "rejects_skipped_minor",
        OLD,
        r#"{"spec":{"version":"v1.36.0"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
    Case::update(
        "rejects_skipped_minor_to_pre_release",
        OLD,
        r#"{"spec":{"version":"v1.36.0-alpha.1"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
    Case::update(
        "rejects_next_major",
        OLD,
        r#"{"spec":{"version":"v2.0.0"}}"#,
        &[("version-skips-minor", FIELD)],
    ),
    Case::update(
        "warns_of_lower_patch",
        OLD,
        r#"{"spec":{"version":"v1.34.1"}}"#,
        &[("version-patch-lowered", FIELD)],
    ),
    Case::update(
        "rejects_next_minor_while_one_rolls_out",
        r#"{"spec":{"version":"v1.34.2"},"status":{"version":"v1.33.4"}}"#,
        r#"{"spec":{"version":"v1.35.0"}}"#,
        &[("version-changes-too-early", FIELD)],
    ),
    Case::update(
        "rejects_next_minor_while_a_machine_is_behind",
        r#"{"spec":{"version":"v1.34.2"},"status":{"version":"v1.34.2"}}"#,
        r#"{"spec":{"version":"v1.35.0"}}"#,
        &[("version-changes-too-early", FIELD)],
    )
    .with_view(joined),
    Case::update(
        "accepts_next_minor_once_rolled_out",
        r#"{"spec":{"version":"v1.34.2"},"status":{"version":"v1.34.2"}}"#,
        r#"{"spec":{"version":"v1.35.0"}}"#,
        &[],
    ),
    Case::update(
        "accepts_patch_while_a_minor_rolls_out",
        r#"{"spec":{"version":"v1.34.2"},"status":{"version":"v1.33.4"}}"#,
        r#"{"spec":{"version":"v1.34.3"}}"#,
        &[],
    ),
    Case::update(
        "rejects_downgrade_of_joined_machine",
        OLD,
        LOWER,
        &[("version-lowered", FIELD)],
    )
    .with_view(joined),
    Case::update(
        "warns_of_reverted_upgrade",
        OLD,
        LOWER,
        &[("version-reverted", FIELD)],
    )
    .with_view(not_joined),
    Case::update(
        "rejects_reverted_upgrade_while_its_machine_joins_the_only_other",
        OLD,
        LOWER,
        &[("version-reverted", FIELD), ("joining-machine-outdated", FIELD)],
    )
    .with_view(joins_the_only_other),
    Case::update(
        "warns_of_downgrade_of_joined_machine_when_paused",
        PAUSED,
        LOWER,
        &[("version-lowered", FIELD)],
    )
    .with_view(joined),
    Case::update(
        "rejects_unverified_downgrade",
        OF_CLUSTER,
        LOWER,
        &[("version-lowered-unverified", FIELD)],
    ),
    Case::update(
        "warns_of_reverted_upgrade_without_cluster",
        WITHOUT_CLUSTER,
        LOWER,
        &[("version-reverted", FIELD)],
    ),
];

const PAUSED: &str =
    r#"{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}},"spec":{"version":"v1.34.2"}}"#;
const OF_CLUSTER: &str = r#"{"metadata":{"generation":1,"labels":{"cluster.x-k8s.io/cluster-name":"example"}},
    "spec":{"version":"v1.34.2"}}"#;
const WITHOUT_CLUSTER: &str = r#"{"metadata":{"generation":1},"spec":{"version":"v1.34.2"}}"#;

const OLD: &str = r#"{"spec":{"version":"v1.34.2"}}"#;
const LOWER: &str = r#"{"spec":{"version":"v1.33.4"}}"#;

fn machine(name: &str, version: &str, has_node: bool) -> Machine {
    Machine {
        name: name.to_owned(),
        version: Some(version.to_owned()),
        has_node,
        has_controller: true,
        ..Machine::default()
    }
}

fn joined() -> View {
    let machines = vec![machine("old", "v1.33.4", true), machine("new", "v1.34.2", true)];
    View {
        machines: machines.into(),
        ..View::default()
    }
}

fn not_joined() -> View {
    let machines = vec![
        machine("old", "v1.33.4", true),
        machine("another", "v1.33.4", true),
        machine("new", "v1.34.2", false),
    ];
    View {
        machines: machines.into(),
        ..View::default()
    }
}

fn joins_the_only_other() -> View {
    let machines = vec![machine("old", "v1.33.4", true), machine("new", "v1.34.2", false)];
    View {
        machines: machines.into(),
        ..View::default()
    }
}
