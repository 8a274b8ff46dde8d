//! Cases of the rules in [`crate::topics::customization_holder`].

use crate::{
    testing::case::Case,
    topics::customization_holder::FIELD,
    view::{self, View},
};

/// A view with clusters that use customization `foo`, each with its name and whether it is being deleted, and with the lease
/// of `foo`.
fn view(clusters: &[(&str, bool)], record: Option<&str>) -> View {
    let using = |&(name, deleting): &(&str, bool)| view::ClusterDeployment {
        namespace: name.to_owned(),
        name: name.to_owned(),
        pool: "example".to_owned(),
        customization: Some("foo".to_owned()),
        is_deleting: deleting,
        ..view::ClusterDeployment::default()
    };
    let status = record.map(|record| {
        let status = serde_json::json!({
            "clusterDeploymentRef": {"name": "paris"},
            "clusterPoolRef": {"name": "example"},
            "conditions": [
                {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                    "lastTransitionTime": "2026-05-01T00:00:00Z"},
                {"type": "kubectl-kcp.dev/Lease", "status": "True", "reason": "Held", "message": record,
                    "lastTransitionTime": "2026-05-01T00:00:00Z"},
            ],
        });
        serde_json::from_value(status).unwrap_or_default()
    });
    View {
        cluster_deployments: clusters.iter().map(using).collect::<Vec<_>>().into(),
        customization: Some(view::Customization {
            finalizers: Vec::new(),
            status: status.unwrap_or_default(),
        })
        .into(),
        ..View::default()
    }
}

/// A view in which `foo` is being cleaned, with this record.
fn view_of_cleaning(record: &str) -> View {
    let status = serde_json::json!({
        "clusterPoolRef": {"name": "example"},
        "conditions": [
            {"type": "Available", "status": "False", "reason": "Reserved", "message": "reserved",
                "lastTransitionTime": "2026-05-01T00:00:00Z"},
            {"type": "kubectl-kcp.dev/Cleaning", "status": "True", "reason": "Waiting", "message": record,
                "lastTransitionTime": "2026-05-01T00:00:00Z"},
        ],
    });
    View {
        customization: Some(view::Customization {
            finalizers: Vec::new(),
            status: serde_json::from_value(status).unwrap_or_default(),
        })
        .into(),
        ..view(&[], None)
    }
}

/// A view in which Hive manages this pool, which lists `foo`.
fn view_of_hive(pool: &str, record: Option<&str>) -> View {
    let mut view = view(&[], record);
    let mut customization = view.customization.take().flatten().unwrap_or_default();
    customization.finalizers.push(format!("hive.openshift.io/{pool}"));
    view.customization = Some(customization).into();
    view
}

const HELD: &str = "v1 state=held uid=- holder=paris id=a renewals=0 acquired=2026-05-01T00:00:00Z \
                    deadline=2026-06-01T12:10:00Z cluster=paris/paris user=jane";
const PERMANENT: &str = "v1 state=held uid=- holder=paris id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=- \
                         cluster=paris/paris user=jane";
const IN_USE: &str = "v1 state=in-use uid=u holder=paris id=a renewals=0 acquired=2026-05-01T00:00:00Z \
                      deadline=2026-05-02T00:00:00Z cluster=paris/paris user=jane";
const GONE: &str = "v1 state=gone uid=- holder=paris id=a renewals=0 acquired=2026-05-01T00:00:00Z \
                    deadline=2026-06-01T12:10:00Z cluster=paris/paris user=jane";
const ENDED: &str = "v1 state=gone uid=- holder=paris id=a renewals=0 acquired=2026-05-01T00:00:00Z \
                     deadline=2026-06-01T11:59:00Z cluster=paris/paris user=jane";
const OF_A_NEWER_PROGRAM: &str = "v2 state=gone";
/// A record of which only the holder and the deadline, which has passed, can be read.
const DAMAGED: &str = "v1 state=held holder=paris deadline=2026-05-02T00:00:00Z";
const OF_PARIS: &str = r#"{"metadata":{"name":"paris","namespace":"example-1"}}"#;
const WITH_LEASE_ID: &str = r#"{"metadata":{"annotations":{"kubectl-kcp.dev/lease-id":"a"}}}"#;
const WITH_ANOTHER_LEASE_ID: &str = r#"{"metadata":{"annotations":{"kubectl-kcp.dev/lease-id":"b"}}}"#;
const NO_CUSTOMIZATION: &str = r#"{"spec":{"clusterPoolRef":{"clusterDeploymentCustomization":null}}}"#;
const CUSTOMIZATION: &str =
    r#"{"spec":{"clusterPoolRef":{"clusterDeploymentCustomization":{"name":"foo"}}}}"#;
const OF_HIVE: &str =
    r#"{"metadata":{"annotations":{"hive.openshift.io/cluster-pool-spec-hash":"a6dcbd6776a3c92b"}}}"#;
const HELD_BY_ANOTHER: &[(&str, &str)] = &[("customization-held-by-another", FIELD)];

pub(super) const CASES: &[Case] = &[
    Case::cluster_deployment("accepts_cluster_with_a_free_customization", "{}", &[])
        .with_view(|| view(&[], None)),
    Case::cluster_deployment("accepts_cluster_of_the_holder", OF_PARIS, &[])
        .with_view(|| view(&[], Some(HELD))),
    Case::cluster_deployment("accepts_holder_within_the_grace_period", OF_PARIS, &[])
        .with_view(|| view(&[], Some(GONE))),
    Case::cluster_deployment("accepts_cluster_with_the_id_of_the_lease", WITH_LEASE_ID, &[])
        .with_view(|| view(&[], Some(HELD))),
    Case::cluster_deployment("accepts_cluster_after_the_lease", "{}", &[])
        .with_view(|| view(&[], Some(ENDED))),
    Case::cluster_deployment("accepts_cluster_without_customization", NO_CUSTOMIZATION, &[])
        .with_view(|| view(&[("paris", false)], Some(HELD))),
    Case::cluster_deployment("rejects_cluster_while_another_leases", "{}", HELD_BY_ANOTHER)
        .with_view(|| view(&[], Some(HELD))),
    Case::cluster_deployment(
        "rejects_cluster_while_another_leases_without_end",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[], Some(PERMANENT))),
    Case::cluster_deployment(
        "rejects_cluster_while_the_record_says_in_use",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[], Some(IN_USE))),
    Case::cluster_deployment(
        "rejects_another_cluster_within_the_grace_period",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[], Some(GONE))),
    Case::cluster_deployment(
        "rejects_cluster_with_the_id_of_another_lease",
        WITH_ANOTHER_LEASE_ID,
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[], Some(HELD))),
    Case::cluster_deployment(
        "rejects_cluster_with_a_record_of_a_newer_program",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[], Some(OF_A_NEWER_PROGRAM))),
    Case::cluster_deployment("rejects_cluster_while_the_customization_is_cleaned", "{}", HELD_BY_ANOTHER)
        .with_view(|| {
            view_of_cleaning("v1 holder=paris since=2026-05-01T00:00:00Z janitor=- deadline=- failures=0 user=jane")
        }),
    Case::cluster_deployment("rejects_last_holder_while_the_customization_is_cleaned", OF_PARIS, HELD_BY_ANOTHER)
        .with_view(|| {
            view_of_cleaning(
                "v1 holder=paris since=2026-05-01T00:00:00Z janitor=k4 deadline=2026-05-02T00:00:00Z failures=1 user=-",
            )
        }),
    Case::cluster_deployment("rejects_cluster_with_unreadable_cleaning", "{}", HELD_BY_ANOTHER)
        .with_view(|| view_of_cleaning("v1")),
    Case::cluster_deployment("rejects_cluster_with_a_damaged_record", "{}", HELD_BY_ANOTHER)
        .with_view(|| view(&[], Some(DAMAGED))),
    Case::cluster_deployment("rejects_holder_with_a_damaged_record", OF_PARIS, HELD_BY_ANOTHER)
        .with_view(|| view(&[], Some(DAMAGED))),
    Case::cluster_deployment(
        "rejects_cluster_while_another_uses_the_customization",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[("lima", false)], None)),
    Case::cluster_deployment(
        "rejects_cluster_while_another_is_being_deleted",
        "{}",
        HELD_BY_ANOTHER,
    )
    .with_view(|| view(&[("lima", true)], Some(ENDED))),
    Case::cluster_deployment("rejects_holder_with_a_second_cluster", OF_PARIS, HELD_BY_ANOTHER)
        .with_view(|| view(&[("paris", false)], Some(IN_USE))),
    Case::cluster_deployment(
        "warns_of_a_cluster_that_hive_did_not_create",
        "{}",
        &[("cluster-not-made-by-hive", FIELD)],
    )
    .with_view(|| view_of_hive("example", None)),
    Case::cluster_deployment("accepts_cluster_that_hive_created", OF_HIVE, &[])
        .with_view(|| view_of_hive("example", None)),
    Case::cluster_deployment("accepts_cluster_of_a_holder_after_hive", OF_PARIS, &[])
        .with_view(|| view_of_hive("example", Some(HELD))),
    Case::cluster_deployment("accepts_cluster_of_a_pool_that_hive_does_not_manage", "{}", &[])
        .with_view(|| view_of_hive("other", None)),
    Case::cluster_deployment_update(
        "rejects_change_to_a_customization_of_another",
        NO_CUSTOMIZATION,
        CUSTOMIZATION,
        &[
            ("customization-held-by-another", FIELD),
            ("pool-ref-changed", FIELD),
        ],
    )
    .with_view(|| view(&[("lima", false)], None)),
    Case::cluster_deployment_update(
        "accepts_update_of_the_cluster_that_uses_the_customization",
        "{}",
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    )
    .with_view(|| view(&[("lima", false)], Some(HELD))),
];
