//! Changes and deletion of a customization while it is leased.

use crate::{
    action::Action,
    api::{
        ClusterDeploymentCustomization,
        hive::{ClusterDeploymentCustomizationStatus, Reservation},
    },
    case::{Answer, Case},
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, ON_DELETE, ON_UPDATE, Rule, Scope},
    syntax::is_dns1123_subdomain,
    topics::Topic,
    view::{ClusterDeployment, Part, View},
};

pub(super) const TOPIC: Topic = Topic {
    name: "customization-lease",
    rules: RULES,
    cases: CASES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "spec-changed-while-leased",
        summary: "a customization's patches must not change while a cluster uses it",
        why: "The cluster was installed with the old patches. A change has no effect on that cluster, and the \
              customization no longer shows the names and addresses that the cluster uses.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        overridable: false,
        topology: InTopology::Unjudged,
        source: "Hive, clusterpool_controller.go: patches are applied once, when the cluster is created",
        check: Check::Customization(patches_changed_while_leased),
        cel: Cel::Faults(include_str!("cel/spec-changed-while-leased.cel")),
    },
    Rule {
        id: "customization-in-use",
        summary: "a customization must not be deleted while a cluster uses it",
        why: "Once the customization is deleted, its names and addresses appear to be free, although a \
              cluster still uses them.",
        operations: ON_DELETE,
        action: Action::Deny,
        scope: Scope::Cluster(&[Part::NamespaceTerminating, Part::ClusterDeployments]),
        overridable: true,
        topology: InTopology::Unjudged,
        source: "Hive design document \"ClusterPool inventory\", section \"Maintaining the lease of the \
                 ClusterDeploymentCustomization\"",
        check: Check::Customization(deleted_while_in_use),
        cel: Cel::None(NoCel::OtherObjects),
    },
];

fn patches_changed_while_leased(
    change: &Change<'_, ClusterDeploymentCustomization<'_>>,
    faults: &mut Faults,
) {
    let Some(old) = change
        .old
        .filter(|old| old.spec != change.new.spec && old.status.is_leased())
    else {
        return;
    };
    faults.push(Fault {
        field: "spec".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!(
            "the customization is leased{}, and the cluster that uses it does not get this change",
            by_holder(&old.status)
        )
        .into(),
        remedy: "recreate the cluster to apply the change".into(),
    });
}

fn by_holder(lease: &ClusterDeploymentCustomizationStatus) -> String {
    lease
        .holder()
        .map_or_else(String::new, |holder| format!(" by {}", quote(holder)))
}

fn deleted_while_in_use(change: &Change<'_, ClusterDeploymentCustomization<'_>>, faults: &mut Faults) {
    let customization = change.new;
    let Some(name) = customization
        .metadata
        .name
        .as_deref()
        .filter(|_| !customization.metadata.is_deleting())
    else {
        return;
    };
    let Some(view) = change.context.view else {
        return faults.unread();
    };
    let (terminating, clusters) = (
        view.namespace_terminating.as_ref(),
        view.cluster_deployments.as_ref(),
    );
    if terminating == Some(&true) {
        return;
    }
    if terminating.is_none() {
        return faults.unread();
    }
    if clusters.is_none() {
        faults.unread();
    }
    let status = &customization.status;
    let lease = status.reservation();
    let mut users = clusters
        .into_iter()
        .flatten()
        .filter(|cluster| cluster.customization.as_deref() == Some(name));
    let fault = |detail: String, remedy: String| Fault {
        field: "spec".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: detail.into(),
        remedy: remedy.into(),
    };
    if let Some(ClusterDeployment { namespace, name, .. }) = users.next() {
        faults.push(fault(
            format!(
                "ClusterDeployment {name} uses this customization; after the deletion, the names and \
                     addresses of the customization would appear to be free"
            ),
            format!(
                "delete the ClusterDeployment first: kubectl delete clusterdeployment {name} -n {namespace}"
            ),
        ));
    } else if matches!(lease, Reservation::Leased(_) | Reservation::Unreadable(_))
        && !lease.has_ended(change.context.now)
    {
        let until = lease
            .end()
            .map_or_else(String::new, |until| format!(" until {until}"));
        faults.push(fault(
            format!(
                "the customization is leased{}{until}, so its names and addresses are in use",
                by_holder(status)
            ),
            release_remedy(customization),
        ));
    } else if clusters.is_some() && status.is_leased() {
        let detail = format!("the lease{} has not been released", by_holder(status));
        let remedy = "check that the names and addresses of the customization are free".to_owned();
        faults.push_at_most(Action::Warn, fault(detail, remedy));
    }
}

/// How to release the lease. The text contains a command only if the names in the status are valid, because other
/// clients wrote them, and a shell would interpret other text.
fn release_remedy(customization: &ClusterDeploymentCustomization<'_>) -> String {
    match (customization.status.pool(), customization.status.holder()) {
        (Some(pool), Some(holder)) if is_name(pool) && is_name(holder) => format!(
            "release the lease first: kubectl kcp pool release {pool} --cluster-deployment {holder}{}",
            customization.metadata.namespace_flag()
        ),
        _ => "release the lease first".to_owned(),
    }
}

fn is_name(text: &str) -> bool {
    is_dns1123_subdomain(text.as_bytes())
}

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
const UNSAFE: &str = r#"{"status":{"clusterDeploymentRef":{"name":"$(reboot)"},"clusterPoolRef":{"name":"pool"},"conditions":[
    {"type":"kubectl-kcp.dev/Lease","status":"True","reason":"Held","lastTransitionTime":"2026-05-01T00:00:00Z",
    "message":"v1 state=held uid=- holder=$(reboot) id=a renewals=0 acquired=2026-05-01T00:00:00Z deadline=- cluster=- user=-"}]}}"#;
const RESERVED: &str = r#"{"status":{"conditions":[
    {"type":"Available","status":"False","reason":"Reserved","message":"reserved","lastTransitionTime":"2026-05-01T00:00:00Z"}]}}"#;
const AVAILABLE: &str = r#"{"status":{"clusterDeploymentRef":null,"conditions":[
    {"type":"Available","status":"True","reason":"Available","message":"available","lastTransitionTime":"2026-05-01T00:00:00Z"}]}}"#;
const DELETING: &str = r#"{"metadata":{"deletionTimestamp":"2026-06-01T11:00:00Z"}}"#;
const PATCH: &str = r#"{"spec":{"installConfigPatches":[{"op":"remove","path":"/a"}]}}"#;
const IN_USE: &[(&str, &str)] = &[("customization-in-use", "spec")];
const CHANGED: &[(&str, &str)] = &[("spec-changed-while-leased", "spec")];

const CASES: &[Case] = &[
    Case::customization_update("warns_of_change_while_leased", LEASED, PATCH, CHANGED),
    Case::customization_update("warns_of_change_while_reserved", RESERVED, PATCH, CHANGED),
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
