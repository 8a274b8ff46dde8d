//! The inventory of a cluster pool.

use std::collections::HashSet;

use crate::{
    api::ClusterPool,
    case::Case,
    change::Change,
    finding::{CauseReason, Fault, Faults},
    rule::{Action, Check, ON_WRITE, Rule, Scope},
    topics::Topic,
};

/// The inventory of a cluster pool.
pub const TOPIC: Topic = Topic {
    name: "inventory",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "inventory-empty",
        summary: "an inventory that is given has an entry",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "ClusterPool inventory, Validation: it is not an empty list",
        check: Check::ClusterPool(empty),
    },
    Rule {
        id: "inventory-name-empty",
        summary: "every inventory entry names a customization",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "ClusterPool inventory, Size and MaxSize: nonempty entries",
        check: Check::ClusterPool(name_empty),
    },
    Rule {
        id: "inventory-duplicate",
        summary: "an inventory names a customization once",
        operations: ON_WRITE,
        action: Action::Deny,
        scope: Scope::Object,
        overridable: false,
        source: "ClusterPool inventory, Maintaining the lease: one holder for each customization",
        check: Check::ClusterPool(duplicate),
    },
];

const FIELD: &str = "spec.inventory";

fn empty(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    if change.new.spec.inventory.as_ref().is_some_and(Vec::is_empty) {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some("[]".to_owned()),
            detail: "an empty inventory allows no cluster now, and plain ones as soon as Hive drops the empty list".into(),
            remedy: "add an entry, or remove the field for a pool without customizations".into(),
        });
    }
}

fn name_empty(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    for (index, entry) in change.new.spec.inventory.iter().flatten().enumerate() {
        if entry.name.is_empty() {
            faults.push(Fault {
                field: format!("{FIELD}[{index}].name").into(),
                reason: CauseReason::Required,
                value: None,
                detail: "the entry names no customization".into(),
                remedy: "write the name of a ClusterDeploymentCustomization in the pool's namespace".into(),
            });
        }
    }
}

fn duplicate(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (index, entry) in change.new.spec.inventory.iter().flatten().enumerate() {
        if !entry.name.is_empty() && !seen.insert(entry.name.as_str()) {
            faults.push(Fault {
                field: format!("{FIELD}[{index}].name").into(),
                reason: CauseReason::Duplicate,
                value: Some(format!("{:?}", entry.name)),
                detail: "a customization serves one cluster at a time, so naming it twice adds none".into(),
                remedy: "remove this entry, or name another customization".into(),
            });
        }
    }
}

const CASES: &[Case] = &[
    Case::pool("accepts_no_inventory", r#"{"spec":{"inventory":null}}"#, &[]),
    Case::pool(
        "accepts_two_entries",
        r#"{"spec":{"inventory":[{"name":"a"},{"name":"b"}]}}"#,
        &[],
    ),
    Case::pool(
        "rejects_empty_inventory",
        r#"{"spec":{"inventory":[]}}"#,
        &[("inventory-empty", FIELD)],
    ),
    Case::pool(
        "rejects_empty_name",
        r#"{"spec":{"inventory":[{"name":"a"},{"name":""}]}}"#,
        &[("inventory-name-empty", "spec.inventory[1].name")],
    ),
    Case::pool(
        "rejects_each_repetition",
        r#"{"spec":{"inventory":[{"name":"a"},{"name":"b"},{"name":"a"},{"name":"a"}]}}"#,
        &[
            ("inventory-duplicate", "spec.inventory[2].name"),
            ("inventory-duplicate", "spec.inventory[3].name"),
        ],
    ),
];
