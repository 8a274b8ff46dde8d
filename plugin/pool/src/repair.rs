//! Finds problems of the leases of pools, and repairs them.
//!
//! - [`options`]: the request
//! - [`decision`], [`hive`], [`claims`], [`leftovers`], [`old_secrets`] -> [`finding`]: the problems and their remedies
//! - [`apply`]: writes entries, each after reading and checking it again
//! - [`report`]: the findings, and the results of their remedies

pub mod apply;
mod claims;
pub mod decision;
pub mod finding;
mod hive;
mod leftovers;
mod old_secrets;
pub mod options;
pub mod report;

use std::{collections::BTreeSet, time::Duration};

use kcp_api::{ClusterDeployment, ClusterPool, metadata::Object, names::finalizer};
use kcp_client::{Connection, Error, Written};

use crate::{
    acquire::{
        LeaseRequest, Selection,
        answer::{LeaseOutcome, LeaseRefusal},
        create::create,
    },
    creation::make::CreationObstacle,
    events::{LeaseChange, record_by_name},
    hive::HiveMode,
    install_config::InstallConfig,
    inventory::capacity::{Capacity, InventoryFacts, inventory_patch},
    lease::{LeaseError, usage::Clusters},
    objects::{
        ClusterName,
        cluster_deployment::{BelongsToPool as _, ClusterDeployments, CustomizationCopy},
        entry::{Entry, EntryStatus as _, Reservation},
    },
    release::remove_finalizer,
    repair::{
        apply::{RepairOutcome, apply, confirm_finding, record_use},
        claims::check_claim,
        decision::{findings, is_installed, updated_record},
        finding::{Cause, LeaseProblem, ProblemSubject, Remedy},
        options::RepairOptions,
        report::{FindingResult, RepairRefusal},
    },
    snapshot::Snapshot,
    store::{CUSTOMIZATION, LeaseStore as _, Store},
};

/// How many times to try to delete a copy of a customization if the response is lost.
const MAX_ATTEMPTS: usize = 5;

/// The pause before the next attempt to delete the copy, after the response is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A request for a repair, the same for every namespace.
#[derive(Clone, Copy, Debug)]
pub struct RepairRequest<'r> {
    pub options: RepairOptions<'r>,
    /// The install-config for creating missing clusters again; `None` if they are not created again.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether to repair the problems. If not, they are only reported.
    pub is_confirmed: bool,
    pub hive: HiveMode,
}

/// The namespaces that `--all-namespaces` must read: those with pools or with leases.
pub async fn list_namespaces(
    connection: &Connection,
    field_manager: &str,
) -> Result<BTreeSet<String>, Error> {
    let store = Store::new(connection, field_manager);
    let traces = LeaseObjects {
        pools: store.list_pools(None).await?,
        entries: connection
            .list(&CUSTOMIZATION.api_resource("v1"), None, None)
            .await?,
        clusters: store.list_cluster_deployments().await?.iter().cloned().collect(),
    };
    Ok(traces.namespaces())
}

/// The reasons why the repair of one namespace is incomplete.
#[derive(Debug, Default)]
pub struct RepairGaps {
    pub refusal: Option<RepairRefusal>,
    pub cluster_list_error: Option<Error>,
}

/// Repairs one namespace. Adds findings and results to `found`, which keeps them even if a later step fails.
pub async fn repair(
    store: &Store<'_>,
    request: RepairRequest<'_>,
    found: &mut Vec<FindingResult>,
) -> Result<RepairGaps, Error> {
    let options = &request.options;
    let mut snapshot = store.snapshot(request.hive, options.pool).await?;
    if let Some(pool) = options.pool
        && snapshot.pool(pool).is_none()
    {
        // Report the server's error if the pool does not exist.
        store.read_pool(pool).await?;
    }
    let missing = options.forced.iter().find(|name| snapshot.entry(name).is_none());
    if let Some(name) = missing {
        return Ok(RepairGaps {
            refusal: Some(RepairRefusal::NoSuchEntry { name: name.clone() }),
            ..RepairGaps::default()
        });
    }
    let mut unfreed = BTreeSet::new();
    for finding in findings(&snapshot, options) {
        if matches!(finding.cause, Cause::Contested { .. })
            && !confirm_finding(store, &mut snapshot, options, &finding).await?
        {
            continue;
        }
        let result = if request.is_confirmed && finding.remedy.is_safe() {
            let holds = finding
                .cluster_deployment
                .as_ref()
                .is_some_and(|name| unfreed.contains(name));
            Some(if finding.is_removed_after_its_entry() && holds {
                Ok(RepairOutcome::WaitsForCustomization)
            } else {
                apply_remedy(store, &mut snapshot, &request, &finding).await
            })
        } else {
            None
        };
        let is_done = matches!(result, Some(Ok(RepairOutcome::Repaired | RepairOutcome::Settled)));
        if finding.remedy.ends_lease() && !is_done {
            unfreed.extend(finding.cluster_deployment.clone());
        }
        found.push(FindingResult {
            namespace: store.namespace().to_owned(),
            finding,
            result,
        });
    }
    let freed = found.iter().filter(|found| {
        found.finding.remedy.ends_lease() && matches!(found.result, Some(Ok(RepairOutcome::Repaired)))
    });
    let changes = freed.filter_map(|found| match &found.finding.subject {
        ProblemSubject::Entry { name } => {
            let holder = found.finding.cluster_deployment.as_deref();
            Some((name.as_str(), LeaseChange::Reclaimed { holder }))
        }
        _ => None,
    });
    Box::pin(record_by_name(store, options.pool, changes)).await;
    if request.is_confirmed {
        for entry in store.list().await? {
            if let Some((pool, seen)) = updated_record(&snapshot, &entry, options) {
                record_use(store, &entry, &pool, &seen).await?;
            } else if is_installed(&snapshot, &entry, options) {
                // One attempt is enough, because the next repair tries again.
                store
                    .write_status(entry.name(), &entry.succeeded(store.now().latest))
                    .await?;
            }
        }
        write_pool_conditions(store, &snapshot, options).await;
    }
    Ok(RepairGaps {
        refusal: None,
        cluster_list_error: match snapshot.clusters {
            Clusters::Unknown(error) => Some(error),
            Clusters::All(_) => None,
        },
    })
}

async fn apply_remedy(
    store: &Store<'_>,
    snapshot: &mut Snapshot,
    request: &RepairRequest<'_>,
    finding: &LeaseProblem,
) -> Result<RepairOutcome, Error> {
    match &finding.subject {
        ProblemSubject::Entry { name } if finding.remedy == Remedy::Recreate => {
            recreate_cluster(store, request, name, finding).await
        }
        ProblemSubject::Entry { .. } => apply(store, snapshot, &request.options, finding).await,
        ProblemSubject::Cluster { namespace, name } => {
            let mut clusters = snapshot
                .cluster_deployments()
                .into_iter()
                .flat_map(ClusterDeployments::iter);
            let Some(cluster) =
                clusters.find(|cluster| cluster.name() == name && cluster.namespace() == namespace)
            else {
                return Ok(RepairOutcome::Settled);
            };
            remove_finalizer(store, cluster).await?;
            Ok(RepairOutcome::Repaired)
        }
        ProblemSubject::Copy { namespace, name } => {
            let is_it = |copy: &&CustomizationCopy| copy.name() == name && copy.namespace() == namespace;
            let Some(copy) = snapshot.copies.iter().find(is_it) else {
                return Ok(RepairOutcome::Settled);
            };
            for _ in 0..MAX_ATTEMPTS {
                match store.delete_customization(&copy.metadata).await? {
                    Written::Stored => return Ok(RepairOutcome::Repaired),
                    Written::Changed => break,
                    // The request names the version of the copy, so a repeated request cannot delete a later copy.
                    Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
                }
            }
            Ok(RepairOutcome::Contended)
        }
        ProblemSubject::Claim { name } => {
            for _ in 0..MAX_ATTEMPTS {
                let claim = store.read_claim(name).await?;
                let claim = claim.filter(|claim| {
                    let found = check_claim(snapshot, claim, &request.options);
                    found.is_some_and(|found| found.is_same(finding))
                });
                let Some(claim) = claim else {
                    return Ok(RepairOutcome::Settled);
                };
                match store.delete_claim(&claim, Some(claim.resource_version())).await? {
                    Written::Stored => return Ok(RepairOutcome::Repaired),
                    Written::Changed => {}
                    Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
                }
            }
            Ok(RepairOutcome::Contended)
        }
        ProblemSubject::OldRecord { .. } => Ok(RepairOutcome::Settled),
    }
}

/// Creates the missing cluster of a lease again, as `pool lease --create` does.
async fn recreate_cluster(
    store: &Store<'_>,
    request: &RepairRequest<'_>,
    entry: &str,
    finding: &LeaseProblem,
) -> Result<RepairOutcome, Error> {
    let (Some(holder), Some(install_config)) = (finding.holder(), request.install_config) else {
        return Ok(RepairOutcome::Settled);
    };
    let cluster = ClusterName::new(holder.cluster_deployment, holder.cluster_deployment);
    let lease = LeaseRequest {
        holder,
        count: 1,
        ttl: None,
        cluster: Some(&cluster),
        install_config: Some(install_config),
        must_be_new: false,
        selection: Selection {
            customization: Some(entry),
            labels: None,
        },
        hive: request.hive,
        overtaken: &[],
    };
    let answer = Box::pin(create(store, lease))
        .await
        .map_err(LeaseError::into_cause)?;
    let obstacle = |why: &LeaseRefusal| match why {
        LeaseRefusal::Creation(why) | LeaseRefusal::ClusterNotCreated { why, .. } => why.clone(),
        LeaseRefusal::HeldWithPatchProblem { why, .. } => CreationObstacle::PatchProblem(why.clone()),
        _ => CreationObstacle::LeaseLost {
            customization: entry.to_owned(),
        },
    };
    Ok(match &answer.outcome {
        // The cluster of the holder has another of its entries.
        LeaseOutcome::Refused(LeaseRefusal::HeldInstead { .. }) => RepairOutcome::Settled,
        LeaseOutcome::Leased(_) | LeaseOutcome::LeasedSet(_) | LeaseOutcome::Claimed(_) => {
            RepairOutcome::Repaired
        }
        LeaseOutcome::Refused(why) => RepairOutcome::Blocked(obstacle(why)),
    })
}

/// Writes the conditions of the pools that Hive does not manage. Ignores errors, because an account that is not allowed
/// to write pools can still repair entries.
async fn write_pool_conditions(store: &Store<'_>, snapshot: &Snapshot, options: &RepairOptions<'_>) {
    let Some(deployments) = snapshot.cluster_deployments() else {
        return;
    };
    let is_ours = |pool: &&ClusterPool| {
        let is_asked = options.pool.is_none_or(|asked| asked == pool.name());
        is_asked && pool.spec.inventory.is_some() && !snapshot.hive.manages(pool) && !pool.is_deleting()
    };
    for pool in snapshot.pools.iter().filter(is_ours) {
        let capacity = Capacity::count(pool, deployments.in_pool(pool.name()));
        let findings = InventoryFacts {
            entries: &snapshot.entries,
            broken_entries: &BTreeSet::new(),
        };
        if let Some(patch) = inventory_patch(pool, findings, &capacity, store.now().latest) {
            drop(store.write_pool_status(pool.name(), &patch).await);
        }
    }
}

/// The objects of all namespaces that may belong to leases.
#[derive(Clone, Debug, Default)]
struct LeaseObjects {
    pools: Vec<ClusterPool>,
    /// All `ClusterDeploymentCustomizations`, including copies in the namespaces of clusters.
    entries: Vec<Entry>,
    clusters: Vec<ClusterDeployment>,
}

impl LeaseObjects {
    /// The namespaces with pools, or with leases whose pool may have been deleted.
    fn namespaces(self) -> BTreeSet<String> {
        let pools = self.pools.iter().map(Object::namespace);
        let entries = self.entries.iter().flat_map(|entry| {
            let is_taken = entry.status.reservation() != Reservation::Free;
            let own = is_taken.then(|| entry.namespace());
            entry.pool_namespace().into_iter().chain(own)
        });
        let clusters = self.clusters.iter().filter_map(|cluster| {
            let is_ours = cluster.has_finalizer(finalizer::POOL_LEASE);
            let reference = cluster.spec.cluster_pool_ref.as_ref().filter(|_| is_ours)?;
            Some(reference.namespace.as_str())
        });
        let all = pools.chain(entries).chain(clusters);
        all.filter(|namespace| !namespace.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::LeaseObjects;
    use crate::testing::objects::{cluster, entry, pool_object, read};

    #[test]
    fn finds_the_namespace_of_each_lease_object() {
        let none = LeaseObjects::default;
        let mut copy = entry("True", None);
        copy["metadata"]["namespace"] = "us".into();
        copy["metadata"]["labels"] = json!({"hive.openshift.io/clusterpool-namespace": "d"});
        let mut kept = cluster("us", "gone", Some("a"));
        kept["metadata"]["finalizers"] = json!(["kubectl-kcp.dev/pool-lease"]);
        let of_pool = |object| LeaseObjects {
            pools: vec![read(&object)],
            ..none()
        };
        let of_entry = |object| LeaseObjects {
            entries: vec![read(&object)],
            ..none()
        };
        let of_cluster = |object| LeaseObjects {
            clusters: vec![read(&object)],
            ..none()
        };
        for (case, traces, expected) in [
            ("nothing", none(), None),
            ("a pool", of_pool(pool_object("pool", &json!({}))), Some("d")),
            (
                "an entry of a pool",
                of_entry(entry("True", Some("us"))),
                Some("d"),
            ),
            (
                "reserved without a holder",
                of_entry(entry("False", None)),
                Some("d"),
            ),
            ("a free entry", of_entry(entry("True", None)), None),
            ("a copy", of_entry(copy), Some("d")),
            ("a cluster with our finalizer", of_cluster(kept), Some("d")),
            (
                "a cluster without it",
                of_cluster(cluster("us", "gone", Some("a"))),
                None,
            ),
        ] {
            let namespaces: Vec<_> = traces.namespaces().into_iter().collect();
            assert_eq!(namespaces, Vec::from_iter(expected), "{case}");
        }
    }
}
