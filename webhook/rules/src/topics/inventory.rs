//! The inventory of a cluster pool.

use std::collections::{HashMap, HashSet};

use crate::{
    action::Action,
    api::{
        ClusterPool,
        hive::{Inventory, InventoryEntry},
    },
    cel::{Cel, NoCel},
    change::{Change, Operation},
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, Rule, Scope},
    topics::Topic,
    view::Part,
};

pub(super) const TOPIC: Topic = Topic {
    name: "inventory",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "inventory-not-a-list",
        summary: "an inventory must be a list of entries",
        why: "Hive's design document puts the entries into a field of spec.inventory. In Hive's API, spec.inventory \
              itself is the list, so the API server would reject the pool.",
        scope: Scope::Object,
        source: "Hive's CRD: spec.inventory itself is the list, not \
                 spec.inventory.ClusterDeploymentCustomizations as in the design document",
        check: Check::ClusterPool(inventory_not_a_list),
        cel: Cel::None(NoCel::SchemaFirst),
        ..Rule::USUAL
    },
    Rule {
        id: "inventory-empty",
        summary: "an inventory must have at least one entry",
        why: "The pool creates no clusters until Hive removes the empty list. After that, the pool creates \
              clusters without customizations.",
        scope: Scope::Object,
        source: "Hive design document \"ClusterPool inventory\", section \"Validation\": the inventory is \
                 not an empty list",
        check: Check::ClusterPool(inventory_empty),
        cel: Cel::Faults(include_str!("cel/inventory-empty.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "inventory-name-empty",
        summary: "every inventory entry must have the name of a customization",
        why: "Hive looks up each customization by its name. An entry without a name can never serve a cluster.",
        scope: Scope::Object,
        source: "Hive design document \"ClusterPool inventory\", section \"Size and MaxSize\": nonempty entries",
        check: Check::ClusterPool(entry_name_empty),
        cel: Cel::Faults(include_str!("cel/inventory-name-empty.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "inventory-duplicate",
        summary: "an inventory must list each customization only once",
        why: "A customization serves one cluster at a time. A second entry with the same name adds no \
              capacity, although the pool counts both entries.",
        scope: Scope::Object,
        source: "Hive design document \"ClusterPool inventory\", section \"Maintaining the lease of the \
                 ClusterDeploymentCustomization\": one holder for each customization",
        check: Check::ClusterPool(entry_duplicate),
        cel: Cel::Faults(include_str!("cel/inventory-duplicate.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "inventory-name-unknown",
        summary: "every inventory entry should name an existing customization",
        why: "Hive cannot create a cluster from a missing customization, so the pool stays below its size.",
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Customizations]),
        source: "Hive design document \"ClusterPool inventory\", section \"Validation\": a reference to a \
                 ClusterDeploymentCustomization that does not exist",
        check: Check::ClusterPool(entry_name_unknown),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    // This rule cannot find every case: if two pools are written at the same time, neither review sees the other pool.
    Rule {
        id: "inventory-shared",
        summary: "a customization must be in the inventory of only one pool",
        why: "A pool does not know the leases of other pools. Two pools that list the same customization can give its \
              names and addresses to two clusters, or release each other's leases.",
        scope: Scope::Cluster(&[Part::Pools]),
        overridable: true,
        source: "Hive design document \"ClusterPool inventory\", section \"Maintaining the lease of the \
                 ClusterDeploymentCustomization\"; Hive: a pool frees the leases that another pool has on \
                 the same entries",
        check: Check::ClusterPool(entry_shared),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.inventory";

fn inventory_not_a_list(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let inventory = change.new.spec.inventory.as_ref();
    let Some(inventory) = inventory.filter(|inventory| inventory.is_object()) else {
        return;
    };
    faults.push(Fault {
        field: FIELD.into(),
        reason: CauseReason::Invalid,
        value: Some("{...}".to_owned()),
        detail: format!(
            "the field {} exists only in Hive's design document, and Hive's API requires a list",
            Inventory::LIST_FIELD_IN_DESIGN
        )
        .into(),
        remedy: format!("write inventory: [{}]", as_yaml(inventory)).into(),
    });
}

/// The first few inventory entries as YAML.
fn as_yaml(inventory: &Inventory) -> String {
    const SHOWN: usize = 3;
    let mut entries: Vec<_> = inventory
        .names()
        .take(SHOWN)
        .map(|name| format!("{{name: {}}}", quote(name)))
        .collect();
    if entries.is_empty() {
        entries.push("{name: NAME}".to_owned());
    } else if inventory.names().nth(SHOWN).is_some() {
        entries.push("...".to_owned());
    }
    entries.join(", ")
}

fn inventory_empty(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let inventory = change.new.spec.inventory.as_ref();
    if inventory.is_some_and(|inventory| inventory.is_empty() && !inventory.is_object()) {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Invalid,
            value: Some("[]".to_owned()),
            detail: "the pool creates no clusters until Hive removes the empty list; then the pool creates \
                     clusters without customizations"
                .into(),
            remedy: "add an entry, or remove the field for a pool without customizations".into(),
        });
    }
}

fn entry_name_empty(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    for (index, entry) in change.new.spec.inventory.iter().flatten().enumerate() {
        if entry.name.is_empty() {
            faults.push(Fault {
                field: format!("{FIELD}[{index}].name").into(),
                reason: CauseReason::Required,
                value: None,
                detail: "this entry has no name, so it refers to no customization".into(),
                remedy: "set the name of a ClusterDeploymentCustomization in the pool's namespace".into(),
            });
        }
    }
}

fn entry_duplicate(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (index, entry) in change.new.spec.inventory.iter().flatten().enumerate() {
        if !entry.name.is_empty() && !seen.insert(entry.name.as_str()) {
            faults.push(Fault {
                field: format!("{FIELD}[{index}].name").into(),
                reason: CauseReason::Duplicate,
                value: Some(quote(&entry.name)),
                detail: "the inventory already lists this customization, which serves one cluster at a time"
                    .into(),
                remedy: "remove this entry, or use the name of another customization".into(),
            });
        }
    }
}

/// The inventory entries that this write adds, each with its index. Empty if the old object is unknown.
fn added_entries<'c>(
    change: &Change<'c, ClusterPool<'_>>,
) -> impl Iterator<Item = (usize, &'c InventoryEntry)> {
    let known: HashSet<_> = change.old.iter().flat_map(|old| entry_names(old)).collect();
    let unknown = change.operation == Operation::Update && change.old.is_none();
    let inventory = change.new.spec.inventory.as_ref().filter(|_| !unknown);
    let entries = inventory.into_iter().flatten().enumerate();
    entries.filter(move |(_, entry)| !entry.name.is_empty() && !known.contains(entry.name.as_str()))
}

fn entry_names<'c>(pool: &'c ClusterPool<'_>) -> impl Iterator<Item = &'c str> {
    pool.spec.inventory.iter().flat_map(Inventory::names)
}

fn entry_name_unknown(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let mut added = added_entries(change).peekable();
    if added.peek().is_none() {
        return;
    }
    let Some(existing) = change.context.view.and_then(|view| view.customizations.as_ref()) else {
        return faults.unread();
    };
    let existing: HashSet<_> = existing.iter().map(String::as_str).collect();
    for (index, entry) in added.filter(|(_, entry)| !existing.contains(entry.name.as_str())) {
        faults.push(Fault {
            field: format!("{FIELD}[{index}].name").into(),
            reason: CauseReason::NotFound,
            value: Some(quote(&entry.name)),
            detail: "no customization has this name, so no cluster can use this entry".into(),
            remedy: "create the customization, or correct the name".into(),
        });
    }
}

fn entry_shared(change: &Change<'_, ClusterPool<'_>>, faults: &mut Faults) {
    let mut added = added_entries(change).peekable();
    if added.peek().is_none() {
        return;
    }
    let Some(others) = change.context.view.and_then(|view| view.pools.as_ref()) else {
        return faults.unread();
    };
    let name = change.new.metadata.name.as_deref();
    let mut listed = HashMap::new();
    let others = others.iter().filter(|pool| Some(pool.name.as_str()) != name);
    for pool in others.filter(|pool| !pool.is_deleting) {
        let entries = pool.inventory.iter().map(String::as_str);
        listed.extend(entries.map(|entry| (entry, pool.name.as_str())));
    }
    for (index, entry) in added {
        if let Some(pool) = listed.get(entry.name.as_str()) {
            faults.push(Fault {
                field: format!("{FIELD}[{index}].name").into(),
                reason: CauseReason::Forbidden,
                value: Some(quote(&entry.name)),
                detail: format!(
                    "ClusterPool {pool} also lists this customization, and each pool would release the other's leases on it"
                )
                .into(),
                remedy: format!("remove the customization from ClusterPool {pool} first, or use the name of another \
                    customization")
                    .into(),
            });
        }
    }
}
