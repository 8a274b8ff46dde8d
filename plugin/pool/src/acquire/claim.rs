//! Gets a cluster from Hive with a ClusterClaim. Hive chooses the cluster and its customization.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;
use kcp_api::{ClusterClaim, Secret, kind::SECRET, metadata::Object as _};
use kcp_client::{CreateResult, Error, Written};
use serde_json::Value;

use crate::{
    acquire::{
        answer::{ClaimCleanup, LeaseOutcome, LeaseRefusal, LeaseResult},
        wait::{Progress, Timeout},
    },
    hive::HiveMode,
    objects::Holder,
    store::{LeaseStore as _, Store},
};

/// How many times to try to create or delete a ClusterClaim if the response is lost.
const MAX_ATTEMPTS: usize = 5;

/// The pause before this program reads the ClusterClaim again, after a response is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How often a command that uses a claimed cluster checks that the claim still has the cluster.
const BETWEEN_CHECKS: Duration = Duration::from_secs(10);

/// The key of the kubeconfig in the Secret that Hive writes for a cluster.
const KUBECONFIG: &str = "kubeconfig";

#[derive(Clone, Debug)]
pub struct ClaimRequest<'r> {
    pub holder: Holder<'r>,
    pub timeout: Timeout,
    /// Whether to keep a ClusterClaim that this command created but that gets no cluster.
    pub keep_failed_claim: bool,
    /// Whether to refuse if a ClusterClaim with this name already exists, because another process may use its cluster.
    pub must_be_new: bool,
    /// How long Hive keeps the cluster, as a Go duration such as `8h30m`; `None` lets Hive decide.
    pub lifetime: Option<&'r str>,
    /// The RBAC subjects that Hive allows to use the cluster.
    pub subjects: &'r [Value],
    pub hive: HiveMode,
}

/// The API server could not be reached or refused a request, before or after the ClusterClaim was created.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The request failed before the ClusterClaim was created.
    #[error(transparent)]
    Api(#[from] Error),
    /// The request failed while the ClusterClaim waited for a cluster.
    #[error("ClusterClaim {claim} got no cluster ({cleanup})")]
    NoCluster {
        claim: String,
        cleanup: ClaimCleanup,
        source: Box<Error>,
    },
}

/// Creates a ClusterClaim, and waits until Hive has assigned a cluster to it. Deletes a claim that gets no cluster,
/// unless the request says to keep it, or the claim existed before this command.
///
/// # Errors
/// The API server cannot be reached or refuses a request. The error says what happened to the claim.
pub async fn claim(
    store: &Store<'_>,
    request: &ClaimRequest<'_>,
    progress: &impl Progress,
) -> Result<LeaseResult, ClaimError> {
    let holder = request.holder;
    let name = holder.cluster_deployment.to_owned();
    let answer = |outcome| LeaseResult::new(store.namespace(), holder, outcome);
    let refused = |refusal| Ok(answer(LeaseOutcome::Refused(refusal)));
    let conclusion = store
        .read_hive(request.hive)
        .await?
        .conclude(&store.read_pool(holder.pool).await?);
    if !conclusion.is_managed {
        return refused(LeaseRefusal::NotManagedByHive {
            pool: holder.pool.to_owned(),
            because: conclusion.evidence,
        });
    }
    let (claim, is_ours) = find_or_create(store, request).await?;
    if claim.spec.cluster_pool_name != holder.pool {
        return refused(LeaseRefusal::ClaimOfOtherPool {
            claim: name,
            pool: claim.spec.cluster_pool_name,
        });
    }
    if request.must_be_new && !is_ours {
        return refused(LeaseRefusal::ClaimExists { claim: name });
    }
    let uid = claim.uid().to_owned();
    let waited = match wait(store, claim, request, progress).await {
        Ok(ClaimWait::Given {
            customization,
            cluster,
        }) => {
            return Ok(LeaseResult {
                cluster_deployment: cluster,
                ..answer(LeaseOutcome::Claimed { name, customization })
            });
        }
        waited => waited,
    };
    let cleanup = match (request.keep_failed_claim, is_ours) {
        (true, _) => ClaimCleanup::Kept,
        (false, false) => ClaimCleanup::Existed,
        (false, true) => match delete_by_uid(store, &name, &uid).await {
            Ok(()) => ClaimCleanup::Deleted,
            Err(error) => ClaimCleanup::NotDeleted(error.to_string()),
        },
    };
    match waited {
        Err(source) => Err(ClaimError::NoCluster {
            claim: name,
            cleanup,
            source: Box::new(source),
        }),
        Ok(ClaimWait::TimedOut { why, waited }) => {
            let pending = LeaseRefusal::ClaimPending { why, cleanup };
            Ok(answer(LeaseOutcome::Refused(pending)).with_timed_out_after(waited))
        }
        Ok(ClaimWait::ClusterDeleting { cluster }) => refused(LeaseRefusal::ClaimedClusterDeleting {
            claim: name,
            cluster_deployment: cluster,
            cleanup,
        }),
        Ok(ClaimWait::ClaimDeleting) => refused(LeaseRefusal::ClaimDeleting { claim: name }),
        Ok(ClaimWait::ClaimDeleted | ClaimWait::Given { .. }) => {
            refused(LeaseRefusal::ClaimDeleted { claim: name })
        }
    }
}

/// Deletes the ClusterClaim with this name and uid, if it still exists.
async fn delete_by_uid(store: &Store<'_>, name: &str, uid: &str) -> Result<(), Error> {
    match store.read_claim(name).await?.filter(|claim| claim.uid() == uid) {
        Some(claim) => delete(store, &claim).await,
        None => Ok(()),
    }
}

/// Waits until the ClusterClaim no longer has this cluster, and returns the reason. While the API server cannot be reached,
/// the claim counts as unchanged, and each failed check calls `failed`.
pub async fn wait_until_lost(
    store: &Store<'_>,
    holder: Holder<'_>,
    cluster: &str,
    failed: impl Fn(&Error),
) -> String {
    let name = holder.cluster_deployment;
    loop {
        tokio::time::sleep(BETWEEN_CHECKS).await;
        let checked = match store.read_claim(name).await {
            Ok(Some(claim)) => poll(store, &claim, holder).await,
            Ok(None) => Ok(ClaimState::Ended(ClaimWait::ClaimDeleted)),
            Err(error) => Err(error),
        };
        match checked {
            Ok(ClaimState::Ended(ClaimWait::Given { cluster: current, .. })) if current == cluster => {}
            Ok(ClaimState::Ended(ClaimWait::Given { cluster: current, .. })) => {
                return format!("Hive assigned another cluster, {current}, to ClusterClaim {name}");
            }
            Ok(ClaimState::Ended(ClaimWait::ClaimDeleted)) => {
                return format!("ClusterClaim {name} was deleted");
            }
            Ok(ClaimState::Ended(ClaimWait::ClaimDeleting)) => {
                return format!("ClusterClaim {name} is being deleted");
            }
            Ok(ClaimState::Ended(_)) => return format!("ClusterDeployment {cluster} is being deleted"),
            Ok(ClaimState::Pending(why)) => return why,
            Err(error) => failed(&error),
        }
    }
}

/// Why the kubeconfig of a claimed cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(transparent)]
    Api(#[from] Error),
    #[error(
        "ClusterDeployment {0} is not installed yet: its spec.clusterMetadata does not refer to a Secret with the \
        kubeconfig"
    )]
    NotInstalled(String),
    #[error("Secret {namespace}/{name} has no key {KUBECONFIG}")]
    NoKey { namespace: String, name: String },
}

/// Reads the kubeconfig of a claimed cluster from its Secret. Hive allows the claim's subjects to read that Secret.
///
/// # Errors
/// The cluster is not installed yet, or its Secret cannot be read.
pub async fn read_kubeconfig(store: &Store<'_>, cluster: &str) -> Result<Vec<u8>, KubeconfigError> {
    let deployment = store.read_cluster(cluster, cluster).await?;
    let metadata = deployment.and_then(|deployment| deployment.spec.cluster_metadata);
    let reference = metadata.and_then(|metadata| metadata.admin_kubeconfig_secret_ref);
    let Some(reference) = reference else {
        return Err(KubeconfigError::NotInstalled(cluster.to_owned()));
    };
    let connection = store.connection();
    let secret: Secret = connection
        .get(&SECRET.api_resource("v1"), cluster, &reference.name)
        .await?;
    let kubeconfig = secret.value(KUBECONFIG).map(<[u8]>::to_vec);
    kubeconfig.ok_or_else(|| KubeconfigError::NoKey {
        namespace: cluster.to_owned(),
        name: reference.name,
    })
}

/// Why the wait for a claimed cluster ended.
enum ClaimWait {
    Given {
        customization: Option<String>,
        cluster: String,
    },
    ClaimDeleting,
    ClaimDeleted,
    /// The ClusterDeployment that Hive assigned to the claim is being deleted.
    ClusterDeleting {
        cluster: String,
    },
    TimedOut {
        why: String,
        waited: Duration,
    },
}

async fn wait(
    store: &Store<'_>,
    mut claim: ClusterClaim,
    request: &ClaimRequest<'_>,
    progress: &impl Progress,
) -> Result<ClaimWait, Error> {
    let (name, timeout) = (request.holder.cluster_deployment, request.timeout);
    let random = RandomState::new();
    let mut polls = 0_u64;
    let mut reported = String::new();
    loop {
        let why = match poll(store, &claim, request.holder).await {
            Ok(ClaimState::Ended(waited)) => return Ok(waited),
            Ok(ClaimState::Pending(why)) => why,
            Err(error) if error.is_transient() => error.to_string(),
            Err(error) => return Err(error),
        };
        let now = Timestamp::now();
        let Some(pause) = timeout.next_pause(now, random.hash_one(polls)) else {
            let waited = timeout.elapsed(now);
            return Ok(ClaimWait::TimedOut { why, waited });
        };
        if why != reported {
            progress.waiting(&why);
            reported = why;
        }
        polls += 1;
        tokio::time::sleep(pause).await;
        match store.read_claim(name).await {
            Ok(Some(found)) if found.uid() == claim.uid() => claim = found,
            Ok(_) => {
                return Ok(ClaimWait::ClaimDeleted);
            }
            // Ignore the error here: the next poll returns it if it lasts.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
    }
}

/// What one poll of a ClusterClaim found.
enum ClaimState {
    Ended(ClaimWait),
    Pending(String),
}

/// Polls a ClusterClaim. The claim has a cluster only if the ClusterDeployment refers back to the claim, because
/// every client that is allowed to write claims can write the name of any cluster into a claim.
async fn poll(store: &Store<'_>, claim: &ClusterClaim, holder: Holder<'_>) -> Result<ClaimState, Error> {
    let name = claim.name();
    if claim.is_deleting() {
        return Ok(ClaimState::Ended(ClaimWait::ClaimDeleting));
    }
    let pending = || {
        ClaimState::Pending(format!(
            "ClusterClaim {name} is pending: {}",
            claim
                .pending_reason()
                .unwrap_or("Hive has not processed the claim yet")
        ))
    };
    let Some(cluster) = claim.cluster_deployment() else {
        return Ok(pending());
    };
    // A cluster's namespace has the cluster's name.
    let Some(deployment) = store.read_cluster(cluster, cluster).await? else {
        return Ok(pending());
    };
    if !deployment.belongs_to_pool(store.namespace(), holder.pool) || deployment.claim() != Some(name) {
        return Ok(ClaimState::Pending(format!(
            "ClusterClaim {name} refers to ClusterDeployment {cluster}, but the ClusterDeployment does not refer to \
            the claim"
        )));
    }
    if deployment.is_deleting() {
        return Ok(ClaimState::Ended(ClaimWait::ClusterDeleting {
            cluster: cluster.to_owned(),
        }));
    }
    Ok(ClaimState::Ended(ClaimWait::Given {
        customization: deployment.customization().map(str::to_owned),
        cluster: cluster.to_owned(),
    }))
}

/// Returns the ClusterClaim with the holder's name, and whether this command created it.
async fn find_or_create(
    store: &Store<'_>,
    request: &ClaimRequest<'_>,
) -> Result<(ClusterClaim, bool), Error> {
    let holder = request.holder;
    let mut unanswered = None;
    for attempt in 0..MAX_ATTEMPTS {
        if let Some(claim) = store.read_claim(holder.cluster_deployment).await? {
            return Ok((claim, attempt > 0));
        }
        if let CreateResult::Unknown(error) = store
            .create_claim(holder, request.lifetime, request.subjects)
            .await?
        {
            unanswered = Some(error);
            store.pause(RETRY_PAUSE).await;
        }
    }
    Err(unanswered.unwrap_or_else(|| Error::Contended {
        goal: format!("create ClusterClaim {}", holder.cluster_deployment),
        attempts: MAX_ATTEMPTS,
    }))
}

/// Deletes a ClusterClaim. Hive then deprovisions its cluster.
///
/// # Errors
/// The API server cannot be reached, or refuses a request.
pub async fn delete(store: &Store<'_>, claim: &ClusterClaim) -> Result<(), Error> {
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        match store.delete_claim(claim).await? {
            // `Changed` means that the claim was deleted, and another claim has its name now.
            Written::Stored | Written::Changed => return Ok(()),
            Written::Unknown(error) => {
                unanswered = Some(error);
                store.pause(RETRY_PAUSE).await;
            }
        }
    }
    unanswered.map_or(Ok(()), Err)
}
