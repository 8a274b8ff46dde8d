//! Cases of the rules in [`crate::topics::pool_change`].

use crate::{
    testing::case::Case,
    view::{ClusterDeployment, View},
};

/// A view of the clusters of the pool, each with its name, customization and claim.
fn clusters(clusters: &[(&str, &str, Option<&str>)]) -> View {
    let cluster = |&(name, customization, claim): &(&str, &str, Option<&str>)| ClusterDeployment {
        namespace: name.to_owned(),
        name: name.to_owned(),
        pool: "example".to_owned(),
        claim: claim.map(str::to_owned),
        customization: Some(customization.to_owned()),
        ..ClusterDeployment::default()
    };
    View {
        cluster_deployments: clusters.iter().map(cluster).collect::<Vec<_>>().into(),
        customizations: ["foo", "bar"].map(str::to_owned).to_vec().into(),
        ..View::default()
    }
}

const TWO: &str = r#"{"spec":{"inventory":[{"name":"foo"},{"name":"bar"}]}}"#;
const FOUR: &str = r#"{"spec":{"inventory":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]}}"#;
const NO_INVENTORY: &str = r#"{"spec":{"inventory":null}}"#;
const OTHER_RELEASE: &str = r#"{"spec":{"imageSetRef":{"name":"other"}}}"#;

pub(super) const CASES: &[Case] = &[
    Case::pool_update(
        "accepts_another_size",
        "{}",
        r#"{"spec":{"size":1,"runningCount":1}}"#,
        &[],
    )
    .with_view(|| clusters(&[("example-1", "foo", None)])),
    Case::pool_update("accepts_entry_added", "{}", TWO, &[])
        .with_view(|| clusters(&[("example-1", "foo", None)])),
    Case::pool_update(
        "warns_of_another_release",
        "{}",
        OTHER_RELEASE,
        &[("pool-version-changed", "spec.imageSetRef")],
    )
    .with_view(|| {
        clusters(&[
            ("example-1", "foo", None),
            ("example-2", "bar", None),
            ("example-3", "c", Some("us")),
        ])
    }),
    Case::pool_update(
        "warns_of_another_release_when_clusters_are_unknown",
        "{}",
        OTHER_RELEASE,
        &[("pool-version-changed", "spec.imageSetRef")],
    ),
    Case::pool_update(
        "accepts_another_release_when_all_are_claimed",
        "{}",
        OTHER_RELEASE,
        &[],
    )
    .with_view(|| clusters(&[("example-1", "foo", Some("us"))])),
    Case::pool_update(
        "warns_of_change_of_all_version_fields",
        "{}",
        r#"{"spec":{"platform":{"vsphere":{"folder":"/dc/vm/x"}},"baseDomain":"example.org",
            "installConfigSecretTemplateRef":{"name":"template"},"skipMachinePools":true,
            "customizationRef":{"name":"all"}}}"#,
        &[("pool-version-changed", "spec.platform")],
    )
    .with_view(|| clusters(&[("example-1", "foo", None)])),
    Case::pool_update(
        "warns_of_inventory_added",
        NO_INVENTORY,
        TWO,
        &[("pool-version-changed", "spec.inventory")],
    ),
    Case::pool_update(
        "warns_of_inventory_removed",
        "{}",
        NO_INVENTORY,
        &[("pool-version-changed", "spec.inventory")],
    )
    .with_view(|| clusters(&[("example-1", "foo", None)])),
    Case::pool_update(
        "accepts_equivalent_platform",
        r#"{"spec":{"platform":{"vsphere":null,"openstack":{"cloud":"c"}}}}"#,
        r#"{"spec":{"platform":{"openstack":{"trunkSupport":false}}}}"#,
        &[],
    ),
    Case::pool_update(
        "warns_of_entry_of_unclaimed_cluster_removed",
        TWO,
        r#"{"spec":{"inventory":[{"name":"bar"}]}}"#,
        &[("inventory-entry-removed", "spec.inventory")],
    )
    .with_view(|| clusters(&[("example-1", "foo", None), ("example-2", "bar", None)])),
    Case::pool_update(
        "warns_of_many_entries_replaced",
        FOUR,
        TWO,
        &[("inventory-entry-removed", "spec.inventory")],
    )
    .with_view(|| {
        clusters(&[
            ("p-1", "a", None),
            ("p-2", "b", None),
            ("p-3", "c", None),
            ("p-4", "d", None),
        ])
    }),
    Case::pool_update(
        "warns_of_entry_removed_when_clusters_are_unknown",
        TWO,
        r#"{"spec":{"inventory":[{"name":"bar"}]}}"#,
        &[("inventory-entry-removed", "spec.inventory")],
    ),
    Case::pool_update(
        "accepts_entry_of_claimed_cluster_removed",
        TWO,
        r#"{"spec":{"inventory":[{"name":"bar"}]}}"#,
        &[],
    )
    .with_view(|| clusters(&[("example-1", "foo", Some("us"))])),
    Case::pool_update(
        "accepts_unused_entry_removed",
        TWO,
        r#"{"spec":{"inventory":[{"name":"bar"}]}}"#,
        &[],
    )
    .with_view(|| clusters(&[("example-2", "bar", None)])),
];
