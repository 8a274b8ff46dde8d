//! Names of pools and customizations, from which Hive derives labels and other names.

use crate::{
    api::{ClusterDeploymentCustomization, ClusterPool, Metadata},
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_CREATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "hive-names",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "pool-name-too-long",
        summary: "the name of a pool must not exceed 63 characters",
        why: "Hive labels the clusters of a pool with the name of the pool. A label value has at most 63 \
              characters, so Hive cannot create clusters for a pool with a longer name.",
        operations: ON_CREATE,
        scope: Scope::Object,
        source: "Hive, ClusterPool validating webhook",
        check: Check::ClusterPool(pool_name_too_long),
        cel: Cel::Faults(include_str!("cel/pool-name-too-long.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "customization-name-too-long",
        summary: "the name of a customization must not exceed 63 characters",
        why: "Hive accepts names of at most 63 characters, so Hive cannot use a customization with a longer \
              name.",
        operations: ON_CREATE,
        scope: Scope::Object,
        source: "Hive, validating webhook of ClusterDeploymentCustomization",
        check: Check::Customization(customization_name_too_long),
        cel: Cel::Faults(include_str!("cel/customization-name-too-long.cel")),
        ..Rule::USUAL
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
