//! Rules for `spec.clusterPoolRef`, with which a ClusterDeployment of Hive names its ClusterPool.

use crate::{
    api::{ClusterDeployment, hive::ClusterPoolReference},
    cel::Cel,
    change::Change,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, ON_CREATE, ON_UPDATE, Rule, Scope},
    topics::Topic,
};

pub(super) const TOPIC: Topic = Topic {
    name: "pool-reference",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "pool-ref-changed",
        summary: "the pool and customization of a cluster must not change",
        why: "Hive finds the pool and the customization of a cluster by clusterPoolRef. If this field \
              changes, the customization loses its lease, and another cluster can use the same addresses.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "Hive, validating webhook of ClusterDeployment: clusterPoolRef is immutable",
        check: Check::ClusterDeployment(reference_changed),
        cel: Cel::Faults(include_str!("cel/pool-ref-changed.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "claim-name-changed",
        summary: "claimName of a ClusterDeployment must not change once it is set",
        why: "claimName assigns a cluster to its ClusterClaim. A change takes the cluster away from its \
              user, or gives the cluster to two users.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        source: "Hive, validating webhook of ClusterDeployment: claimName is immutable once set",
        check: Check::ClusterDeployment(claim_changed),
        cel: Cel::Faults(include_str!("cel/claim-name-changed.cel")),
        ..Rule::USUAL
    },
    Rule {
        id: "claim-name-given",
        summary: "a new cluster of a pool must not have a claim",
        why: "Hive assigns a cluster to a claim once the cluster exists. A claimName that is set at creation \
              can give the cluster to a claim that Hive did not choose.",
        operations: ON_CREATE,
        scope: Scope::Object,
        source: "Hive, validating webhook of ClusterDeployment: claimName must be empty, unless the ClusterDeployment is restored from a backup",
        check: Check::ClusterDeployment(claim_set_on_creation),
        cel: Cel::Faults(include_str!("cel/claim-name-given.cel")),
        ..Rule::USUAL
    },
];

pub(crate) const REFERENCE: &str = "spec.clusterPoolRef";
pub(crate) const NAMESPACE: &str = "spec.clusterPoolRef.namespace";
pub(crate) const POOL: &str = "spec.clusterPoolRef.poolName";
pub(crate) const CUSTOMIZATION: &str = "spec.clusterPoolRef.clusterDeploymentCustomization";
pub(crate) const CLAIM: &str = "spec.clusterPoolRef.claimName";

/// The label that makes Hive accept a new cluster with a claim. Users set it to restore a cluster from a backup.
const RESTORED: &str = "hive.openshift.io/disable-creation-webhook-for-dr";

fn reference_changed(change: &Change<'_, ClusterDeployment<'_>>, faults: &mut Faults) {
    let Some(old) = change.old else { return };
    let mut push = |field: &'static str, value: Option<String>, detail: String, remedy: String| {
        faults.push(Fault {
            field: field.into(),
            reason: CauseReason::Forbidden,
            value,
            detail: detail.into(),
            remedy: remedy.into(),
        });
    };
    let (old, new) = match (old.pool(), change.new.pool()) {
        (Some(old), Some(new)) => (old, new),
        (None, None) => return,
        (None, Some(new)) => {
            let detail = "this cluster was created without a pool, and with this reference, Hive would delete it as surplus";
            let remedy = "remove the reference; to get a cluster from the pool, create a ClusterClaim";
            return push(
                REFERENCE,
                Some(quote(&new.pool_name)),
                detail.to_owned(),
                remedy.to_owned(),
            );
        }
        (Some(old), None) => {
            let detail = format!(
                "this cluster was created for pool {}, which would no longer count the cluster",
                quote(&old.pool_name)
            );
            let remedy =
                "keep the reference; to remove the cluster from the pool, claim the cluster".to_owned();
            return push(REFERENCE, None, detail, remedy);
        }
    };
    let customization = |pool: &ClusterPoolReference| pool.customization().map(quote);
    for (field, created, old, new) in [
        (
            NAMESPACE,
            "for a pool in namespace",
            Some(quote(&old.namespace)),
            Some(quote(&new.namespace)),
        ),
        (
            POOL,
            "for pool",
            Some(quote(&old.pool_name)),
            Some(quote(&new.pool_name)),
        ),
        (
            CUSTOMIZATION,
            "with customization",
            customization(old),
            customization(new),
        ),
    ] {
        if old != new {
            let old = old.map_or_else(
                || "without a customization".to_owned(),
                |old| format!("{created} {old}"),
            );
            let detail = format!("the field is immutable, and this cluster was created {old}");
            let remedy = "keep the reference; to get another cluster, create a ClusterClaim".to_owned();
            push(field, new, detail, remedy);
        }
    }
}

fn claim_changed(change: &Change<'_, ClusterDeployment<'_>>, faults: &mut Faults) {
    let (Some(old), Some(new)) = (change.old.and_then(ClusterDeployment::pool), change.new.pool()) else {
        return;
    };
    let Some(claim) = old.claim().filter(|claim| new.claim() != Some(claim)) else {
        return;
    };
    faults.push(Fault {
        field: CLAIM.into(),
        reason: CauseReason::Forbidden,
        value: new.claim().map(quote),
        detail: format!("ClusterClaim {} holds this cluster", quote(claim)).into(),
        remedy:
            "keep claimName; to give up the cluster, delete the ClusterClaim, which also deletes the cluster"
                .into(),
    });
}

fn claim_set_on_creation(change: &Change<'_, ClusterDeployment<'_>>, faults: &mut Faults) {
    let Some(claim) = change.new.pool().and_then(ClusterPoolReference::claim) else {
        return;
    };
    let labels = change.new.metadata.labels.as_ref();
    if labels
        .and_then(|labels| labels.get(RESTORED))
        .map(|label| &**label)
        == Some("true")
    {
        return;
    }
    faults.push(Fault {
        field: CLAIM.into(),
        reason: CauseReason::Forbidden,
        value: Some(quote(claim)),
        detail: "Hive sets claimName once the cluster exists".into(),
        remedy: format!("remove claimName, or set label {RESTORED}=true if you restore a backup").into(),
    });
}
