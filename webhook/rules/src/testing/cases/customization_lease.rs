//! Cases of the rules in [`crate::topics::customization_lease`].

use crate::{
    testing::case::{Answer, Case},
    view::{ClusterDeployment, View},
};

fn view(cluster: Option<&str>, terminating: bool) -> View {
    let cluster = cluster.map(|name| ClusterDeployment {
        namespace: name.to_owned(),
        name: name.to_owned(),
        pool: "pool".to_owned(),
        customization: Some("example".to_owned()),
        ..ClusterDeployment::default()
    });
    View {
        cluster_deployments: cluster.into_iter().collect::<Vec<_>>().into(),
        namespace_terminating: terminating.into(),
        ..View::default()
    }
}

const LEASED: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"Available","status":"False","reason":"Reserved","message":"reserved","lastTransitionTime":"2026-05-01T00:00:00Z"}]}}"#;
const PERMANENT: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Held","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=held uid=- holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=- cluster=us/us user=jane"}]}}"#;
const EXPIRING: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Held","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=held uid=- holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=2026-06-01T12:10:00Z cluster=us/us user=jane"}]}}"#;
const EXPIRED: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Gone","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=gone uid=- holder=us id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=2026-06-01T11:59:00Z cluster=us/us user=jane"}]}}"#;
const OF_A_NEWER_PROGRAM: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Gone","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v2 state=gone deadline=2026-06-01T12:00:00Z"}]}}"#;
/// A record of which only the holder and the deadline, which has passed, can be read.
const DAMAGED: &str = r#"{"status":{"clusterDeploymentRef":{"name":"us"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Held","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=held holder=us deadline=2026-05-02T00:00:00Z"}]}}"#;
const UNSAFE: &str = r#"{"status":{"clusterDeploymentRef":{"name":"$(reboot)"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Held","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=held uid=- holder=$(reboot) id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=- cluster=- user=-"}]}}"#;
const RESERVED: &str = r#"{"status":{"conditions":[
    {"type":"Available","status":"False","reason":"Reserved","message":"reserved","lastTransitionTime":"2026-05-01T00:00:00Z"}]}}"#;
const AVAILABLE: &str = r#"{"status":{"clusterDeploymentRef":null,"conditions":[
    {"type":"Available","status":"True","reason":"Available","message":"available","lastTransitionTime":"2026-05-01T00:00:00Z"}]}}"#;
const CLEANING: &str = r#"{"status":{"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"Available","status":"False","reason":"Reserved","message":"reserved","lastTransitionTime":"2026-05-01T00:00:00Z"},
    {"type":"kubectl-kcp.dev/Cleaning","status":"True","reason":"Waiting","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 holder=us since=2026-05-01T00:00:00Z janitor=- deadline=- failures=0 user=jane"}]}}"#;
const UNREADABLE_CLEANING: &str = r#"{"status":{"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"Available","status":"False","reason":"Reserved","message":"reserved","lastTransitionTime":"2026-05-01T00:00:00Z"},
    {"type":"kubectl-kcp.dev/Cleaning","status":"True","reason":"Waiting","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v2"}]}}"#;
const DELETING: &str = r#"{"metadata":{"deletionTimestamp":"2026-06-01T11:00:00Z"}}"#;
const PATCH: &str = r#"{"spec":{"installConfigPatches":[{"op":"remove","path":"/a"}]}}"#;
const IN_USE: &[(&str, &str)] = &[("customization-in-use", "spec")];
const CHANGED: &[(&str, &str)] = &[("spec-changed-while-leased", "spec")];

pub(super) const CASES: &[Case] = &[
    Case::customization_update("warns_of_change_while_leased", LEASED, PATCH, CHANGED),
    Case::customization_update("warns_of_change_while_reserved", RESERVED, PATCH, CHANGED),
    Case::customization_update("warns_of_change_while_cleaned", CLEANING, PATCH, CHANGED),
    Case::customization_update("accepts_change_while_available", AVAILABLE, PATCH, &[]),
    Case::customization_update("accepts_change_before_any_lease", "{}", PATCH, &[]),
    Case::customization_update(
        "accepts_label_while_leased",
        LEASED,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        &[],
    ),
    Case::customization_update(
        "accepts_change_with_status_of_the_design_document",
        r#"{"status":{"conditions":[{"lastProbeTime":"2020-11-05T14:49:26Z","status":false,"type":"Available"}]}}"#,
        PATCH,
        &[],
    ).answered_by(Answer::Schema(&[
        "status.conditions[0].lastProbeTime",
        "status.conditions[0].lastTransitionTime",
        "status.conditions[0].message",
        "status.conditions[0].reason",
        "status.conditions[0].status",
    ])),
    Case::customization_delete("rejects_deletion_with_cluster", LEASED, IN_USE)
        .with_view(|| view(Some("us"), false)),
    Case::customization_delete(
        "rejects_deletion_with_cluster_missing_from_status",
        "{}",
        IN_USE,
    )
    .with_view(|| view(Some("us"), false)),
    Case::customization_delete("rejects_deletion_with_permanent_lease", PERMANENT, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("rejects_deletion_with_expiring_lease", EXPIRING, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete(
        "rejects_deletion_with_record_of_a_newer_program",
        OF_A_NEWER_PROGRAM,
        IN_USE,
    )
    .with_view(|| view(None, false)),
    Case::customization_delete("rejects_deletion_while_cleaned", CLEANING, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("rejects_deletion_with_unreadable_cleaning", UNREADABLE_CLEANING, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("rejects_deletion_with_damaged_record", DAMAGED, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("rejects_deletion_with_holder_name_unsafe_for_a_shell", UNSAFE, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("warns_of_deletion_with_expired_lease", EXPIRED, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("warns_of_deletion_without_record", LEASED, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("warns_of_deletion_while_reserved_without_holder", RESERVED, IN_USE)
        .with_view(|| view(None, false)),
    Case::customization_delete("accepts_deletion_while_available", AVAILABLE, &[])
        .with_view(|| view(None, false)),
    Case::customization_delete("accepts_deletion_with_its_namespace", LEASED, &[])
        .with_view(|| view(Some("us"), true)),
    Case::customization_delete("accepts_second_deletion", DELETING, &[])
        .with_view(|| view(Some("us"), false)),
    Case::customization_delete("accepts_deletion_when_nothing_can_be_read", LEASED, &[]),
];
