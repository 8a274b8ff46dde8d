//! Names of pools and customizations, from which Hive derives labels and other names.

use crate::{
    action::Action,
    api::{ClusterDeploymentCustomization, ClusterPool, Metadata},
    case::Case,
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, ON_CREATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "hive-names",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "pool-name-too-long",
        summary: "the name of a pool must not exceed 63 characters",
        why: "Hive labels the clusters of a pool with the name of the pool. A label value has at most 63 \
              characters, so Hive cannot create clusters for a pool with a longer name.",
        operations: ON_CREATE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "Hive, ClusterPool validating webhook",
        check: Check::ClusterPool(pool_name_too_long),
        cel: Cel::Faults(include_str!("cel/pool-name-too-long.cel")),
    },
    Rule {
        id: "customization-name-too-long",
        summary: "the name of a customization must not exceed 63 characters",
        why: "Hive accepts names of at most 63 characters, so Hive cannot use a customization with a longer \
              name.",
        operations: ON_CREATE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "Hive, validating webhook of ClusterDeploymentCustomization",
        check: Check::Customization(customization_name_too_long),
        cel: Cel::Faults(include_str!("cel/customization-name-too-long.cel")),
    },
];

/// The maximum length of a label value, in characters.
const MAX_LABEL_CHARS: usize = 63;

fn pool_name_too_long(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let detail = "Hive labels the clusters of a pool with the pool's name, and a label value must have at most 63 \
        characters";
    check_name_length(&change.new.metadata, detail, faults);
}

fn customization_name_too_long(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    check_name_length(
        &change.new.metadata,
        "Hive accepts names of at most 63 characters",
        faults,
    );
}

fn check_name_length(metadata: &Metadata<'_>, detail: &'static str, faults: &mut Faults) {
    let Some(name) = metadata
        .name
        .as_deref()
        .filter(|name| name.len() > MAX_LABEL_CHARS)
    else {
        return;
    };
    faults.push(Fault {
        field: "metadata.name".into(),
        reason: CauseReason::TooLong,
        value: Some(quote(name)),
        detail: detail.into(),
        remedy: "use a name of at most 63 characters".into(),
    });
}

const CASES: &[Case] = &[
    Case::pool(
        "accepts_pool_name_of_63_characters",
        r#"{"metadata":{"name":"pool-5678901234567890123456789012345678901234567890123456789012"}}"#,
        &[],
    ),
    Case::pool(
        "rejects_pool_name_of_64_characters",
        r#"{"metadata":{"name":"pool-56789012345678901234567890123456789012345678901234567890123"}}"#,
        &[("pool-name-too-long", "metadata.name")],
    ),
    Case::pool_update(
        "accepts_existing_pool_with_long_name",
        r#"{"metadata":{"name":"pool-56789012345678901234567890123456789012345678901234567890123"}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
    Case::customization(
        "accepts_customization_name_of_63_characters",
        r#"{"metadata":{"name":"foo-45678901234567890123456789012345678901234567890123456789012"}}"#,
        &[],
    ),
    Case::customization(
        "rejects_customization_name_of_64_characters",
        r#"{"metadata":{"name":"foo-456789012345678901234567890123456789012345678901234567890123"}}"#,
        &[("customization-name-too-long", "metadata.name")],
    ),
];
