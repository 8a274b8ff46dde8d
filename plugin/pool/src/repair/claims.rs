//! Finds leftover ClusterClaims, whose clusters would otherwise run forever. No I/O.

use jiff::SignedDuration;
use kcp_api::metadata::Object as _;
use kcp_rules::syntax::is_dns1123_subdomain;

use crate::{
    objects::claim::{ClaimLifetime as _, ClusterClaim},
    repair::{
        finding::{Cause, LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
    },
    snapshot::Snapshot,
};

/// How long after the end of a claim Hive may need to delete it.
const DELETION_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// The finding for a claim that kubectl-kcp created and that has no end, or that Hive has not deleted at its end.
pub(super) fn check_claim(
    snapshot: &Snapshot,
    claim: &ClusterClaim,
    options: &RepairOptions<'_>,
) -> Option<LeaseProblem> {
    let pool = claim.spec.cluster_pool_name.as_str();
    if claim.id().is_none() || claim.is_deleting() || !options.includes(Some(pool)) {
        return None;
    }
    let spec = snapshot.pool(pool);
    let (cause, remedy) = match (claim.lifetime(spec), claim.end(spec)) {
        (None, _) => {
            // Suggest no command with other text, because a shell would interpret it.
            let renewal = is_dns1123_subdomain(pool.as_bytes()).then(|| {
                format!(
                    "; to give it an end, run: kubectl kcp pool renew {pool} --cluster-deployment {} -n {}",
                    claim.name(),
                    snapshot.namespace
                )
            });
            let why = format!(
                "the claim has no lifetime, so its cluster stays until you delete the claim{}",
                renewal.unwrap_or_default()
            );
            (Cause::Unknown { why }, Remedy::None)
        }
        (Some(_), Some(end))
            if snapshot.now.is_certain && snapshot.now.earliest.duration_since(end) >= DELETION_GRACE =>
        {
            let end = end.strftime("%Y-%m-%dT%H:%M:%SZ");
            let what = format!("the claim ended at {end}, but Hive has not deleted it");
            (Cause::Hive { what }, Remedy::Remove)
        }
        _ => return None,
    };
    Some(LeaseProblem {
        subject: ProblemSubject::Claim {
            name: claim.name().to_owned(),
        },
        pool: Some(pool.to_owned()),
        cluster_deployment: claim.cluster_deployment().map(str::to_owned),
        cause,
        remedy,
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::check_claim;
    use crate::{
        repair::options::RepairOptions,
        testing::objects::{LONG_AGO, Objects, pool_object, read},
    };

    /// A claim of kubectl-kcp that got a cluster an hour ago.
    fn claim(lifetime: &Value) -> Value {
        json!({
            "metadata": {"name": "paris", "annotations": {"kubectl-kcp.dev/lease-id": "k4x7"}},
            "spec": {"clusterPoolName": "pool", "namespace": "pool-x", "lifetime": lifetime},
            "status": {"conditions": [{"type": "Pending", "status": "False", "lastTransitionTime": LONG_AGO}]},
        })
    }

    #[test]
    fn a_claim_of_kubectl_kcp_must_have_an_end_that_hive_observes() {
        let changed = |mut claim: Value, pointer: &str, value: Value| {
            *claim.pointer_mut(pointer).unwrap() = value;
            claim
        };
        let ended = claim(&json!("59m"));
        let deleting = json!({"name": "paris", "annotations": {"kubectl-kcp.dev/lease-id": "k4x7"},
            "deletionTimestamp": LONG_AGO});
        for (case, claim, of_pool, expected) in [
            (
                "ended a minute ago",
                ended.clone(),
                json!({}),
                Some(
                    "clusterclaim/paris remove: the claim ended at 2026-11-21T04:59:00Z, but Hive has not deleted it",
                ),
            ),
            ("ended just now", claim(&json!("60m")), json!({}), None),
            ("lasts", claim(&json!("2h")), json!({}), None),
            (
                "the pool's maximum has passed",
                claim(&json!("2h")),
                json!({"maximum": "30m"}),
                Some(
                    "clusterclaim/paris remove: the claim ended at 2026-11-21T04:30:00Z, but Hive has not deleted it",
                ),
            ),
            (
                "without an end",
                claim(&Value::Null),
                json!({}),
                Some(
                    "clusterclaim/paris none: the claim has no lifetime, so its cluster stays until you delete the \
                     claim; to give it an end, run: kubectl kcp pool renew pool --cluster-deployment paris -n d",
                ),
            ),
            (
                "the pool's default",
                claim(&Value::Null),
                json!({"default": "2h"}),
                None,
            ),
            (
                "pending",
                changed(ended.clone(), "/status/conditions/0/status", "True".into()),
                json!({}),
                None,
            ),
            (
                "of another program",
                changed(ended.clone(), "/metadata/annotations", json!({})),
                json!({}),
                None,
            ),
            (
                "of another pool",
                changed(ended.clone(), "/spec/clusterPoolName", "other".into()),
                json!({}),
                None,
            ),
            (
                "being deleted",
                changed(ended, "/metadata", deleting),
                json!({}),
                None,
            ),
        ] {
            let objects = Objects {
                pools: vec![pool_object("pool", &json!({"claimLifetime": of_pool}))],
                ..Objects::default()
            };
            let options = RepairOptions {
                pool: Some("pool"),
                grace: SignedDuration::ZERO,
                forced: &[],
                recreate: false,
            };
            let found = check_claim(&objects.snapshot(), &read(&claim), &options);
            let found = found.map(|found| {
                format!(
                    "{} {}: {}",
                    found.subject,
                    found.remedy.as_str(),
                    found.sentence()
                )
            });
            assert_eq!(found.as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn no_command_names_a_pool_that_a_shell_would_interpret() {
        let mut claim = claim(&Value::Null);
        claim["spec"]["clusterPoolName"] = "a;b".into();
        let options = RepairOptions {
            pool: None,
            grace: SignedDuration::ZERO,
            forced: &[],
            recreate: false,
        };
        let found = check_claim(&Objects::default().snapshot(), &read(&claim), &options);
        let why = "the claim has no lifetime, so its cluster stays until you delete the claim";
        assert_eq!(found.map(|found| found.sentence()).as_deref(), Some(why));
    }
}
