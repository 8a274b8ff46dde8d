//! Cases of the rules in [`crate::topics::inventory`].

use crate::{
    testing::case::{Answer, Case},
    topics::inventory::FIELD,
    view::{Pool, View},
};

fn customizations(names: &[&str]) -> View {
    View {
        customizations: names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
            .into(),
        ..View::default()
    }
}

fn other_pool(inventory: &[&str], deleting: bool) -> View {
    let pool = Pool {
        name: "other".to_owned(),
        inventory: inventory.iter().map(|&name| name.to_owned()).collect(),
        is_deleting: deleting,
    };
    View {
        pools: vec![pool].into(),
        ..customizations(&["foo", "bar"])
    }
}

pub(super) const CASES: &[Case] = &[
    Case::pool(
        "rejects_inventory_of_the_design_document",
        r#"{"spec":{"inventory":{"ClusterDeploymentCustomizations":[
            {"name":"foo-cluster-deployment-customization"},{"name":"bar-cluster-deployment-customization"}]}}}"#,
        &[("inventory-not-a-list", FIELD)],
    ).answered_by(Answer::Deny),
    Case::pool(
        "rejects_duplicate_and_empty_names_in_inventory_of_the_design_document",
        r#"{"spec":{"inventory":{"clusterDeploymentCustomizations":[
            {"name":"a"},{"name":""},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"a"}]}}}"#,
        &[
            ("inventory-not-a-list", FIELD),
            ("inventory-name-empty", "spec.inventory[1].name"),
            ("inventory-duplicate", "spec.inventory[5].name"),
        ],
    ).answered_by(Answer::Schema(&["spec.inventory.clusterDeploymentCustomizations"])),
    Case::pool(
        "rejects_an_object_without_entries",
        r#"{"spec":{"inventory":{"name":"a"}}}"#,
        &[("inventory-not-a-list", FIELD)],
    ).answered_by(Answer::Deny),
    Case::pool("accepts_customizations_that_exist", "{}", &[]).with_view(|| customizations(&["foo"])),
    Case::pool("accepts_entries_when_nothing_can_be_read", "{}", &[]),
    Case::pool(
        "warns_of_unknown_customization",
        r#"{"spec":{"inventory":[{"name":"foo"},{"name":"bra"}]}}"#,
        &[("inventory-name-unknown", "spec.inventory[1].name")],
    )
    .with_view(|| customizations(&["foo", "bar"])),
    Case::pool_update(
        "accepts_existing_unknown_customization",
        "{}",
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    )
    .with_view(|| customizations(&[])),
    Case::pool(
        "rejects_customization_of_another_pool",
        "{}",
        &[("inventory-shared", "spec.inventory[0].name")],
    )
    .with_view(|| other_pool(&["foo"], false)),
    Case::pool_update(
        "rejects_adding_customization_of_another_pool",
        "{}",
        r#"{"spec":{"inventory":[{"name":"foo"},{"name":"bar"}]}}"#,
        &[("inventory-shared", "spec.inventory[1].name")],
    )
    .with_view(|| other_pool(&["foo", "bar"], false)),
    Case::pool("accepts_customization_of_a_pool_being_deleted", "{}", &[])
        .with_view(|| other_pool(&["foo"], true)),
    Case::pool("accepts_pool_with_entries_of_its_own", "{}", &[]).with_view(|| other_pool(&["bar"], false)),
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
        "rejects_each_duplicate",
        r#"{"spec":{"inventory":[{"name":"a"},{"name":"b"},{"name":"a"},{"name":"a"}]}}"#,
        &[
            ("inventory-duplicate", "spec.inventory[2].name"),
            ("inventory-duplicate", "spec.inventory[3].name"),
        ],
    ),
    Case::pool_update(
        "warns_of_existing_duplicate",
        TWICE,
        r#"{"spec":{"maxConcurrent":1}}"#,
        &[("inventory-duplicate", "spec.inventory[1].name")],
    ),
    Case::pool_update(
        "rejects_additional_duplicate",
        TWICE,
        r#"{"spec":{"inventory":[{"name":"a"},{"name":"a"},{"name":"a"}]}}"#,
        &[
            ("inventory-duplicate", "spec.inventory[1].name"),
            ("inventory-duplicate", "spec.inventory[2].name"),
        ],
    ),
];

const TWICE: &str = r#"{"spec":{"inventory":[{"name":"a"},{"name":"a"}]}}"#;
