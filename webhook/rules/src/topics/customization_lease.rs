//! Changes and deletion of a customization while it is leased.

use kcp_api::lease_record::Unreadable;

use crate::{
    action::Action,
    api::{
        ClusterDeploymentCustomization,
        hive::{ClusterDeploymentCustomizationStatus, Reservation},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_DELETE, ON_UPDATE, Rule, Scope},
    syntax::is_dns1123_subdomain,
    topics::Topic,
    view::{ClusterDeployment, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "customization-lease",
    rules: RULES,
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
        source: "Hive, clusterpool_controller.go: patches are applied once, when the cluster is created",
        check: Check::Customization(patches_changed_while_leased),
        cel: Cel::Faults(include_str!("cel/spec-changed-while-leased.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "customization-in-use",
        summary: "a customization must not be deleted while a cluster uses it",
        why: "Once the customization is deleted, its names and addresses appear to be free, although a \
              cluster still uses them.",
        operations: ON_DELETE,
        scope: Scope::Cluster(&[Part::NamespaceTerminating, Part::ClusterDeployments]),
        overridable: true,
        source: "Hive design document \"ClusterPool inventory\", section \"Maintaining the lease of the \
                 ClusterDeploymentCustomization\"",
        check: Check::Customization(deleted_while_in_use),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
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
    let (detail, remedy) = if old.status.must_be_cleaned() {
        (
            "the customization is being cleaned, and the janitor that cleans it may not get this change"
                .to_owned(),
            "make the change once the customization is free",
        )
    } else {
        (
            format!(
                "the customization is leased{}, and the cluster that uses it does not get this change",
                by_holder(&old.status)
            ),
            "recreate the cluster to apply the change",
        )
    };
    faults.push(Fault {
        field: "spec".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: detail.into(),
        remedy: remedy.into(),
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
    } else if let Reservation::Cleaning(_) | Reservation::Unreadable(Unreadable::Cleaning) = &lease {
        let holder = match &lease {
            Reservation::Cleaning(record) => record.holder.as_deref(),
            _ => None,
        };
        let after = holder.map_or_else(String::new, |holder| format!(" after {} held it", quote(holder)));
        faults.push(fault(
            format!(
                "the customization is being cleaned{after}; if you delete it now, no record shows that its host still needs \
                 cleaning"
            ),
            cleaning_remedy(customization, name),
        ));
    } else if let Reservation::Unreadable(why) = &lease {
        faults.push(fault(
            format!("the customization counts as leased to an unknown holder, because {why}"),
            force_remedy(customization, name),
        ));
    } else if matches!(lease, Reservation::Leased(_)) && !lease.has_ended(change.context.now) {
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

/// What to do about a customization that is being cleaned. Contains a command only if the name is valid.
fn cleaning_remedy(customization: &ClusterDeploymentCustomization<'_>, name: &str) -> String {
    let wait = "wait until a janitor has cleaned it";
    if is_name(name) {
        let flag = customization.metadata.namespace_flag();
        format!("{wait}, or free it uncleaned: kubectl kcp pool repair --yes --force {name}{flag}")
    } else {
        wait.to_owned()
    }
}

/// How to free a customization whose holder is unknown.
fn force_remedy(customization: &ClusterDeploymentCustomization<'_>, name: &str) -> String {
    let free = "if nobody uses the names and addresses of the customization, free it first";
    if !is_name(name) {
        return free.to_owned();
    }
    let namespace = customization.metadata.namespace_flag();
    format!("{free}: kubectl kcp pool repair --yes --force {name}{namespace}")
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
