//! Clusters that refer to a customization that another cluster holds, or that Hive manages.

use kcp_api::{
    lease_record::{LeaseRecord, Unreadable},
    names::annotation,
};

use crate::{
    action::Action,
    api::{
        ClusterDeployment,
        hive::{ClusterPoolReference, Reservation},
    },
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_CREATE, Rule, Scope},
    syntax::is_dns1123_subdomain,
    topics::Topic,
    view::{self, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "customization-holder",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "customization-held-by-another",
        summary: "a cluster must not use a customization that another cluster uses or has leased",
        why: "A customization contains names and addresses that only one cluster can use. Two clusters with the \
              same addresses disrupt each other.",
        scope: Scope::Cluster(&[Part::ClusterDeployments, Part::Customization]),
        overridable: true,
        source: "Hive design document \"ClusterPool inventory\", section \"Maintaining the lease of the \
                 ClusterDeploymentCustomization\"",
        check: Check::ClusterDeployment(held_by_another),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "cluster-not-made-by-hive",
        summary: "only Hive should create clusters of a pool that Hive manages",
        why: "Hive counts every ClusterDeployment of the pool. Within seconds, Hive deletes a ClusterDeployment that the pool \
              does not need, or gives the ClusterDeployment to a ClusterClaim.",
        operations: ON_CREATE,
        action: Action::Warn,
        scope: Scope::Cluster(&[Part::Customization]),
        source: "Hive, ClusterPool controller: it deletes excess clusters, and sets a finalizer on each customization \
                 of an inventory",
        check: Check::ClusterDeployment(not_made_by_hive),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.clusterPoolRef.clusterDeploymentCustomization";

fn held_by_another(change: &Change<'_, ClusterDeployment<'_>>, faults: &mut Faults) {
    let Some((pool, customization)) = added_customization(change) else {
        return;
    };
    let Some(view) = change.context.view else {
        return faults.unread();
    };
    let (clusters, used) = (view.cluster_deployments.as_ref(), view.customization.as_ref());
    if clusters.is_none() || used.is_none() {
        faults.unread();
    }
    let metadata = &change.new.metadata;
    let is_itself = |cluster: &view::ClusterDeployment| {
        Some(cluster.name.as_str()) == metadata.name.as_deref()
            && cluster.namespace == metadata.namespace.as_deref().unwrap_or_default()
    };
    let mut others = clusters
        .into_iter()
        .flatten()
        .filter(|cluster| cluster.customization.as_deref() == Some(customization) && !is_itself(cluster));
    let mut push = |detail: String, remedy: String| {
        faults.push(Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(quote(customization)),
            detail: detail.into(),
            remedy: remedy.into(),
        });
    };
    if let Some(view::ClusterDeployment { namespace, name, .. }) = others.next() {
        return push(
            format!(
                "ClusterDeployment {name} uses this customization, and two clusters cannot share its names and addresses"
            ),
            format!(
                "refer to another customization, or delete that ClusterDeployment first: \
                 kubectl delete clusterdeployment {name} -n {namespace}"
            ),
        );
    }
    let Some(used) = used.and_then(Option::as_ref) else {
        return;
    };
    let lease = used.status.reservation();
    match &lease {
        _ if lease.has_ended(change.context.now) => {}
        Reservation::Free | Reservation::Unrecorded => {}
        Reservation::Leased(record) if is_own(change.new, record) => {}
        Reservation::Leased(record) => {
            let until = lease
                .end()
                .map_or_else(String::new, |end| format!(" until {end}"));
            push(
                format!("the customization is leased by {}{until}", quote(&record.holder)),
                remedy(change.new, pool),
            );
        }
        Reservation::Cleaning(cleaning) => {
            let holder = cleaning.holder.as_deref();
            let after = holder.map_or_else(String::new, |holder| format!(" after {} held it", quote(holder)));
            push(
                format!("the customization is being cleaned{after}, and is not free yet"),
                remedy(change.new, pool),
            );
        }
        Reservation::Unreadable(Unreadable::Cleaning) => push(
            "the customization's cleaning record cannot be read: it is damaged, or a newer kubectl-kcp wrote it"
                .to_owned(),
            remedy(change.new, pool),
        ),
        Reservation::Unreadable(_) => push(
            "the customization's lease record cannot be read: it is damaged, or a newer kubectl-kcp wrote \
             it"
            .to_owned(),
            remedy(change.new, pool),
        ),
    }
}

fn not_made_by_hive(change: &Change<'_, ClusterDeployment<'_>>, faults: &mut Faults) {
    let (Some((pool, customization)), Some(view)) = (added_customization(change), change.context.view) else {
        return;
    };
    let annotations = change.new.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.get(annotation::CLUSTER_POOL_SPEC_HASH).is_some()) {
        return;
    }
    let Some(used) = view.customization.as_ref() else {
        return faults.unread();
    };
    let Some(used) = used else { return };
    let lease = used.status.reservation();
    let is_leased = !lease.has_ended(change.context.now)
        && matches!(&lease, Reservation::Leased(record) if is_own(change.new, record));
    let finalizer = format!("hive.openshift.io/{}", pool.pool_name);
    if is_leased || !used.finalizers.contains(&finalizer) {
        return;
    }
    faults.push(Fault {
        field: FIELD.into(),
        reason: CauseReason::Forbidden,
        value: Some(quote(customization)),
        detail: format!(
            "the customization has the finalizer of Hive's pool {}; Hive deletes clusters that it did not create, or gives them \
             to a ClusterClaim",
            quote(&pool.pool_name)
        )
        .into(),
        remedy: "create a ClusterClaim instead; if Hive no longer runs, lease the customization first".into(),
    });
}

/// The customization that this write adds to the object, and the reference that contains it.
fn added_customization<'c>(
    change: &Change<'c, ClusterDeployment<'_>>,
) -> Option<(&'c ClusterPoolReference, &'c str)> {
    let pool = change.new.pool()?;
    let named = |pool: &'c ClusterPoolReference| Some((pool.namespace.as_str(), pool.customization()?));
    let before = change.old.and_then(ClusterDeployment::pool).and_then(named);
    (named(pool) != before).then_some((pool, pool.customization()?))
}

/// Whether the cluster has the name of the lease's holder, or was created for this lease.
fn is_own(cluster: &ClusterDeployment<'_>, record: &LeaseRecord) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    let lease_id = annotations.and_then(|annotations| annotations.get(annotation::LEASE_ID));
    cluster.metadata.name.as_deref() == Some(record.holder.as_str())
        || lease_id.map(|id| &**id) == Some(record.id.as_str())
}

/// How to get a customization. The text contains a command only if all names in it are valid, because a shell would
/// interpret other text.
fn remedy(cluster: &ClusterDeployment<'_>, pool: &ClusterPoolReference) -> String {
    let lease = "refer to a customization that is leased for this cluster";
    let is_name = |name: &str| is_dns1123_subdomain(name.as_bytes());
    match cluster.metadata.name.as_deref() {
        Some(name) if is_name(name) && is_name(&pool.pool_name) && is_name(&pool.namespace) => format!(
            "{lease}; to lease one: kubectl kcp pool lease {} --cluster-deployment {name} -n {}",
            pool.pool_name, pool.namespace
        ),
        _ => lease.to_owned(),
    }
}
