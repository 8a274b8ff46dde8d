//! Acquires a lease, or a cluster, from a pool.
//! - [`answer`]: the result of a request
//! - [`wait`]: tries again until an entry is free; [`turn`]: waits in the queue of the pool
//! - [`create`]: acquires a lease and creates its cluster without Hive; [`claim`]: gets a cluster from Hive, and
//!   [`claim_renewal`] keeps it

pub mod answer;
pub mod claim;
pub mod claim_renewal;
pub mod create;
pub mod turn;
pub mod wait;

use std::{collections::BTreeSet, time::Duration};

use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_client::Error;

use crate::{
    acquire::answer::{Lease, LeaseOutcome, LeaseRefusal, LeaseResult},
    events::{LeaseChange, MAX_ENTRIES, record},
    hive::{Hive, HiveMode},
    install_config::{InstallConfig, InstallConfigError, patches::patch_install_config},
    inventory::capacity::{Capacity, InventoryFacts, inventory_patch},
    lease::{
        LeaseError, Ttl,
        attempt::{Attempt, AttemptOutcome, AttemptRequest, LeasedEntry, attempt},
        queue::Place,
        reuse::Reuse,
        usage::Clusters,
    },
    objects::{ClusterName, Holder, PoolName},
    sources::lost_inventory::read_lost_inventory,
    store::{LeaseStore as _, Store},
};

/// How long a command tries to write the pool's conditions before it continues without them.
const POOL_STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Which entries of a pool's inventory a holder may lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'s> {
    /// The only customization that may be leased; `None` for any.
    pub customization: Option<&'s str>,
    /// A label selector that the customization must match; `None` for any customization.
    pub labels: Option<&'s str>,
}

#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'w> {
    pub holder: Holder<'w>,
    /// How many entries the holder wants, all or none.
    pub count: usize,
    /// How long the lease lasts. If `None`, a new lease gets [`DEFAULT_TTL`](crate::lease::DEFAULT_TTL). An existing lease that
    /// ends later keeps its end.
    pub ttl: Option<Ttl>,
    /// The cluster that the holder will create; `None` if the holder creates no cluster.
    pub cluster: Option<&'w ClusterName>,
    pub install_config: Option<&'w InstallConfig>,
    /// Whether to refuse if the holder already has a lease, because another process may use it.
    pub must_be_new: bool,
    pub selection: Selection<'w>,
    pub hive: HiveMode,
    /// The lessees in the queue that the request may overtake, because they do not take the entries that are free.
    pub overtaken: &'w [Place],
}

impl<'w> LeaseRequest<'w> {
    /// The same request, which may overtake these lessees in the queue.
    pub const fn overtaking<'o>(self, overtaken: &'o [Place]) -> LeaseRequest<'o>
    where
        'w: 'o,
    {
        LeaseRequest { overtaken, ..self }
    }
}

/// Leases a customization if an entry is free now, or several if enough are. Does not wait.
pub async fn acquire(store: &Store<'_>, request: LeaseRequest<'_>) -> Result<LeaseResult, LeaseError> {
    let holder = request.holder;
    let reads = async {
        tokio::join!(
            store.read_pool(holder.pool),
            store.read_hive(request.hive),
            store.read_user(),
            store.clusters()
        )
    };
    let (pool, hive, user, clusters) = Box::pin(reads).await;
    let (pool, hive, clusters) = (pool?, hive?, clusters?);
    let answer = |outcome| LeaseResult::new(store.namespace(), holder, outcome);
    let names = selected_entries(store, &pool, request.selection).await?;
    if let Some(mut refusal) = refusal(&pool, hive, &clusters, &names, request) {
        if let LeaseRefusal::NoInventory { why, .. } = &mut refusal
            && pool.spec.inventory.is_none()
        {
            *why = read_lost_inventory(store, &pool).await.explanation();
        }
        return Ok(answer(LeaseOutcome::Refused(refusal)));
    }
    let template = template(store, &pool, request.install_config.is_some()).await?;
    let install_config =
        match customized_install_config(store, &pool, request.install_config.or(template.as_ref())).await? {
            Ok(install_config) => install_config,
            Err(refusal) => return Ok(answer(LeaseOutcome::Refused(refusal))),
        };
    let inventory = pool.inventory().into_iter();
    let unselected: Vec<&str> = inventory.filter(|name| !names.contains(name)).collect();
    let attempted = AttemptRequest {
        names: &names,
        unselected: &unselected,
        clusters: &clusters,
        holder,
        count: request.count,
        ttl: request.ttl,
        cluster: request.cluster,
        user: user.as_deref(),
        install_config: install_config.as_ref(),
        must_be_new: request.must_be_new,
        only_entry: request.selection.customization,
        overtaken: request.overtaken,
        // `refusal` has excluded pools that Hive manages.
        reuse: if pool.asks_for_cleaning() {
            Reuse::Clean
        } else {
            Reuse::Free
        },
    };
    let Attempt {
        outcome,
        entries,
        others,
        queue_error,
    } = Box::pin(attempt(store, attempted)).await?;
    if let Some(deployments) = clusters.cluster_deployments() {
        let capacity = Capacity::count(&pool, deployments.in_pool(holder.pool));
        let findings = InventoryFacts {
            entries: &entries,
            broken_entries: &outcome.broken_entries(),
        };
        if let Some(patch) = inventory_patch(&pool, findings, &capacity, store.now().latest) {
            // Ignore errors: the client may not be allowed to write the pool, and the next command writes the same
            // conditions.
            let written = store.write_pool_status(holder.pool, &patch);
            drop(tokio::time::timeout(POOL_STATUS_TIMEOUT, written).await);
        }
    }
    let find = |leased: &LeasedEntry| entries.iter().find(|entry| entry.name() == leased.customization);
    let new = outcome.leased().iter().filter(|leased| !leased.was_already_held);
    for leased in new.take(MAX_ENTRIES) {
        let Some(entry) = find(leased) else { continue };
        let before = entry.status.holder();
        let change = LeaseChange::Leased {
            holder: holder.cluster_deployment,
            ends: leased.record.deadline,
            after: before.filter(|before| *before != holder.cluster_deployment),
        };
        Box::pin(record(store, user.as_deref(), Some(&pool), entry, change)).await;
    }
    let has_patches = |leased: &LeasedEntry| {
        find(leased).is_some_and(|entry| entry.spec.get("installConfigPatches").is_some())
    };
    let are_patches_unchecked = install_config.is_none() && outcome.leased().iter().any(has_patches);
    Ok(LeaseResult {
        cluster_list_error: match clusters {
            Clusters::All(_) => None,
            Clusters::Unknown(error) => Some(error),
        },
        are_patches_unchecked,
        queue_error,
        others,
        ..answer(outcome_of(outcome, store.namespace(), holder, request.count))
    })
}

/// The names in the pool's inventory that the selection allows.
async fn selected_entries<'p>(
    store: &Store<'_>,
    pool: &'p ClusterPool,
    selection: Selection<'_>,
) -> Result<Vec<&'p str>, Error> {
    let mut names = pool.inventory();
    if let Some(only) = selection.customization {
        names.retain(|name| *name == only);
    }
    if let Some(labels) = selection.labels {
        let labelled: BTreeSet<String> = store.list_labelled_entries(labels).await?.into_iter().collect();
        names.retain(|name| labelled.contains(*name));
    }
    Ok(names)
}

/// Reads the install-config of the pool's template, for a caller that passed no install-config. A customization whose
/// patches cannot be applied to this install-config is not leased. `None` if the template cannot be read.
async fn template(
    store: &Store<'_>,
    pool: &ClusterPool,
    is_given: bool,
) -> Result<Option<InstallConfig>, Error> {
    let template = pool.spec.install_config_secret_template_ref.as_ref();
    let Some(template) = template.filter(|_| !is_given) else {
        return Ok(None);
    };
    match InstallConfig::from_secret(store.connection(), &template.name).await {
        Ok(template) => Ok(Some(template)),
        Err(InstallConfigError::Secret(error)) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Applies the patches of the pool's `customizationRef` to the install-config. The pool uses these patches
/// for all of its clusters.
async fn customized_install_config(
    store: &Store<'_>,
    pool: &ClusterPool,
    install_config: Option<&InstallConfig>,
) -> Result<Result<Option<InstallConfig>, LeaseRefusal>, Error> {
    let (Some(install_config), Some(reference)) = (install_config, &pool.spec.customization_ref) else {
        return Ok(Ok(install_config.cloned()));
    };
    let refusal = |why: String| LeaseRefusal::PoolPatchProblem {
        pool: pool.name().to_owned(),
        customization: reference.name.clone(),
        why,
    };
    let Some(of_pool) = store.get(&reference.name).await? else {
        return Ok(Err(refusal("the customization does not exist".to_owned())));
    };
    Ok(match patch_install_config(install_config, &of_pool.spec) {
        Ok(patched) => Ok(Some(patched.install_config)),
        Err(why) => Err(refusal(why.to_string())),
    })
}

fn outcome_of(outcome: AttemptOutcome, namespace: &str, holder: Holder<'_>, count: usize) -> LeaseOutcome {
    let Holder {
        pool,
        cluster_deployment,
    } = holder;
    let cluster_deployment = cluster_deployment.to_owned();
    match outcome {
        AttemptOutcome::Leased(leased) => LeaseOutcome::Leased(Lease {
            entry: *leased,
            has_cluster: false,
        }),
        AttemptOutcome::LeasedSet(set) => LeaseOutcome::LeasedSet(set),
        AttemptOutcome::Exhausted(entries) => LeaseOutcome::Refused(LeaseRefusal::Exhausted {
            pool: PoolName::new(namespace, pool),
            entries,
            count,
        }),
        AttemptOutcome::BoundButUnavailable {
            customization,
            availability,
        } => LeaseOutcome::Refused(LeaseRefusal::BoundButUnavailable {
            cluster_deployment,
            pool: pool.to_owned(),
            customization,
            availability,
        }),
        AttemptOutcome::AlreadyHeld { customization } => LeaseOutcome::Refused(LeaseRefusal::AlreadyHeld {
            cluster_deployment,
            customization,
        }),
        AttemptOutcome::HeldInstead {
            customization,
            requested,
        } => LeaseOutcome::Refused(LeaseRefusal::HeldInstead {
            cluster_deployment,
            customization,
            requested,
        }),
        AttemptOutcome::HeldMore { customizations } => LeaseOutcome::Refused(LeaseRefusal::HeldMore {
            cluster_deployment,
            customizations,
            count,
        }),
        AttemptOutcome::HeldWithPatchProblem { customization, why } => {
            LeaseOutcome::Refused(LeaseRefusal::HeldWithPatchProblem {
                cluster_deployment,
                customization,
                why,
            })
        }
    }
}

/// Why no entry of the pool can be leased, whatever the state of the entries; `None` if the pool itself does not
/// prevent leases.
fn refusal(
    pool: &ClusterPool,
    hive: Hive,
    clusters: &Clusters,
    names: &[&str],
    request: LeaseRequest<'_>,
) -> Option<LeaseRefusal> {
    let name = pool.name().to_owned();
    if pool.inventory().is_empty() {
        return Some(LeaseRefusal::NoInventory {
            pool: name,
            why: None,
        });
    }
    if names.is_empty() {
        return Some(LeaseRefusal::NoEntryMatches { pool: name });
    }
    if names.len() < request.count {
        return Some(LeaseRefusal::TooFewEntries {
            pool: name,
            entries: names.len(),
            is_selection: names.len() < pool.inventory().len(),
            count: request.count,
        });
    }
    if pool.is_deleting() {
        return Some(LeaseRefusal::PoolDeleting { pool: name });
    }
    let conclusion = hive.conclude(pool);
    if conclusion.is_managed {
        return Some(LeaseRefusal::ManagedByHive {
            pool: name,
            because: conclusion.evidence,
        });
    }
    let own = clusters
        .cluster_deployments()
        .and_then(|deployments| deployments.for_holder(request.holder).next());
    own.filter(|own| own.is_deleting())
        .map(|own| LeaseRefusal::ClusterDeleting {
            cluster_deployment: own.name().to_owned(),
            pool: name,
        })
}
