//! Gets a cluster from Hive with a ClusterClaim. Hive chooses the cluster and its customization.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;
use kcp_api::{ClusterClaim, ClusterPool, Secret, kind::SECRET, metadata::Object as _};
use kcp_client::{CreateResult, Error, Written};
use serde_json::Value;

use crate::{
    acquire::{
        answer::{ClaimCleanup, ClaimedCluster, LeaseOutcome, LeaseRefusal, LeaseResult, LostCluster},
        wait::{Progress, Timeout},
    },
    hive::HiveMode,
    lease::DEFAULT_TTL,
    objects::{Holder, claim::ClaimLifetime as _},
    store::{LeaseStore as _, NewClaim, Store},
};

/// How many times to try to create, extend or delete a ClusterClaim if the response is lost, or if Hive changes the claim at
/// the same time.
const MAX_ATTEMPTS: usize = 5;

/// The pause before this program reads the ClusterClaim again, after a response is lost.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The key of the kubeconfig in the Secret that Hive writes for a cluster.
const KUBECONFIG: &str = "kubeconfig";

/// How long a request for a cluster waits if it sets no time limit. Hive may have to install a cluster first.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct ClaimRequest<'r> {
    pub holder: Holder<'r>,
    /// Identifies this command. Only a claim with this id was created by this command.
    pub id: &'r str,
    pub timeout: Timeout,
    /// Whether to keep a ClusterClaim that this command created but that gets no cluster.
    pub keep_failed_claim: bool,
    /// Whether to refuse if a ClusterClaim with this name already exists, because another process may use its cluster.
    pub must_be_new: bool,
    /// How long the claim lasts after Hive has assigned a cluster. If `None`, an existing claim keeps its end, and a new claim
    /// lasts for `limit`, or without a limit for [`DEFAULT_TTL`].
    pub ttl: Option<Duration>,
    /// How long the claim may last at most.
    pub limit: Option<Duration>,
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
pub async fn claim(
    store: &Store<'_>,
    request: &ClaimRequest<'_>,
    progress: &impl Progress,
) -> Result<LeaseResult, ClaimError> {
    let holder = request.holder;
    let name = holder.cluster_deployment.to_owned();
    let answer = |outcome| LeaseResult::new(store.namespace(), holder, outcome);
    let refused = |refusal| Ok(answer(LeaseOutcome::Refused(refusal)));
    let pool = store.read_pool(holder.pool).await?;
    let conclusion = store.read_hive(request.hive).await?.conclude(&pool);
    if pool.is_deleting() {
        return refused(LeaseRefusal::PoolDeleting {
            pool: holder.pool.to_owned(),
        });
    }
    if !conclusion.is_managed {
        return refused(LeaseRefusal::NotManagedByHive {
            pool: holder.pool.to_owned(),
            because: conclusion.evidence,
        });
    }
    let mut claim = find_or_create(store, request).await?;
    let is_ours = claim.id() == Some(request.id);
    if claim.spec.cluster_pool_name != holder.pool {
        return refused(LeaseRefusal::ClaimOfOtherPool {
            claim: name,
            pool: claim.spec.cluster_pool_name,
        });
    }
    if request.must_be_new && !is_ours {
        return refused(LeaseRefusal::ClaimExists { claim: name });
    }
    if let (false, Some(ttl)) = (is_ours, request.ttl) {
        match extend(store, &claim, ttl, request.limit).await? {
            Some(extended) => claim = extended,
            None => return refused(LeaseRefusal::ClaimDeleted { claim: name }),
        }
    }
    let uid = claim.uid().to_owned();
    let waited = match wait(store, claim, request, progress).await {
        Ok(ClaimWait::Given(mut given)) => {
            given.ends = ends(&given.claim, &pool, store.now().latest);
            return Ok(LeaseResult {
                cluster_deployment: given.cluster.clone(),
                ..answer(LeaseOutcome::Claimed(given))
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
        Ok(ClaimWait::ClusterLost(lost)) => refused(LeaseRefusal::ClaimedClusterLost {
            claim: name,
            lost,
            cleanup,
        }),
        Ok(ClaimWait::ClaimDeleting) => refused(LeaseRefusal::ClaimDeleting { claim: name }),
        Ok(ClaimWait::ClaimDeleted | ClaimWait::Given(_)) => {
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
    Given(Box<ClaimedCluster>),
    ClaimDeleting,
    ClaimDeleted,
    ClusterLost(LostCluster),
    TimedOut { why: String, waited: Duration },
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
            Ok(ClaimState::Given(cluster)) => return Ok(ClaimWait::Given(cluster)),
            Ok(ClaimState::Deleting) => return Ok(ClaimWait::ClaimDeleting),
            Ok(ClaimState::ClusterLost(lost)) => return Ok(ClaimWait::ClusterLost(lost)),
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
pub(super) enum ClaimState {
    Given(Box<ClaimedCluster>),
    Deleting,
    ClusterLost(LostCluster),
    Pending(String),
}

/// Polls a ClusterClaim. The claim has a cluster only if the ClusterDeployment refers back to the claim, because
/// every client that is allowed to write claims can write the name of any cluster into a claim.
pub(super) async fn poll(
    store: &Store<'_>,
    claim: &ClusterClaim,
    holder: Holder<'_>,
) -> Result<ClaimState, Error> {
    let name = claim.name();
    if claim.is_deleting() {
        return Ok(ClaimState::Deleting);
    }
    let Some(cluster) = claim.cluster_deployment() else {
        let why = claim.pending_reason();
        return Ok(ClaimState::Pending(format!(
            "ClusterClaim {name} is pending: {}",
            why.unwrap_or("Hive has not processed the claim yet")
        )));
    };
    let lost = |is_gone| {
        ClaimState::ClusterLost(LostCluster {
            cluster: cluster.to_owned(),
            is_gone,
        })
    };
    // A cluster's namespace has the cluster's name. Hive assigns only clusters that exist.
    let Some(deployment) = store.read_cluster(cluster, cluster).await? else {
        return Ok(lost(true));
    };
    if !deployment.belongs_to_pool(store.namespace(), holder.pool) || deployment.claim() != Some(name) {
        return Ok(ClaimState::Pending(format!(
            "ClusterClaim {name} refers to ClusterDeployment {cluster}, but the ClusterDeployment does not refer to \
            the claim"
        )));
    }
    if deployment.is_deleting() {
        return Ok(lost(false));
    }
    Ok(ClaimState::Given(Box::new(ClaimedCluster {
        claim: claim.clone(),
        cluster: cluster.to_owned(),
        customization: deployment.customization().map(str::to_owned),
        ends: None,
    })))
}

/// Returns when the claim ends if nobody extends it. Hive counts from the time when it assigns the cluster. Until Hive has
/// recorded this time, counts from `now`, so that the result is never too late.
pub fn ends(claim: &ClusterClaim, pool: &ClusterPool, now: Timestamp) -> Option<Timestamp> {
    let lifetime = claim.lifetime(Some(pool))?;
    claim.end(Some(pool)).or_else(|| now.checked_add(lifetime).ok())
}

/// Returns the ClusterClaim with the holder's name. Creates it if there is none. Only the id tells whether this command
/// created it: another command may have created it in the meantime, and the response to this command's own request may be
/// lost.
async fn find_or_create(store: &Store<'_>, request: &ClaimRequest<'_>) -> Result<ClusterClaim, Error> {
    let holder = request.holder;
    let lifetime = request.ttl.or(request.limit).unwrap_or(DEFAULT_TTL);
    let mut user = None;
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(claim) = store.read_claim(holder.cluster_deployment).await? {
            return Ok(claim);
        }
        if user.is_none() {
            user = store.read_user().await;
        }
        let claim = NewClaim {
            holder,
            id: request.id,
            user: user.as_deref(),
            lifetime: request.limit.map_or(lifetime, |limit| lifetime.min(limit)),
            subjects: request.subjects,
        };
        if let CreateResult::Unknown(error) = store.create_claim(claim).await? {
            unanswered = Some(error);
            store.pause(RETRY_PAUSE).await;
        }
    }
    Err(unanswered.unwrap_or_else(|| Error::Contended {
        goal: format!("create ClusterClaim {}", holder.cluster_deployment),
        attempts: MAX_ATTEMPTS,
    }))
}

/// Extends a claim so that it lasts for this time from now, but no longer than `limit` in total. Returns `None` if the claim
/// no longer exists or is being deleted. Never changes a later claim with the same name.
pub async fn extend(
    store: &Store<'_>,
    claim: &ClusterClaim,
    time: Duration,
    limit: Option<Duration>,
) -> Result<Option<ClusterClaim>, Error> {
    let mut current = Some(claim.clone());
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = current.filter(|found| found.uid() == claim.uid() && !found.is_deleting()) else {
            return Ok(None);
        };
        let lifetime = found.extended_lifetime(time, limit, store.now().latest);
        match store.write_lifetime(&found, lifetime).await? {
            Written::Stored => return Ok(Some(found.with_lifetime(lifetime))),
            Written::Changed => {}
            // The next attempt writes a lifetime that is at least as long.
            Written::Unknown(_) => store.pause(RETRY_PAUSE).await,
        }
        current = store.read_claim(claim.name()).await?;
    }
    Err(Error::Contended {
        goal: format!("extend ClusterClaim {}", claim.name()),
        attempts: MAX_ATTEMPTS,
    })
}

/// Deletes a ClusterClaim. Hive then deprovisions its cluster.
pub async fn delete(store: &Store<'_>, claim: &ClusterClaim) -> Result<(), Error> {
    let mut unanswered = None;
    for _ in 0..MAX_ATTEMPTS {
        match store.delete_claim(claim, None).await? {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Method;
    use kcp_client::{Connection, testing::failure};
    use serde_json::json;

    use super::{ClaimRequest, DEFAULT_WAIT, find_or_create};
    use crate::{
        acquire::wait::{Timeout, WaitLimit},
        hive::HiveMode,
        objects::{Holder, claim::ClaimLifetime as _},
        store::Store,
        testing::objects::NOW,
    };

    /// Whether a claim with this id counts as the command's own, if the claim appears while the create request of the command
    /// gets this answer.
    async fn is_own(code: u16, reason: &'static str, id: &'static str) -> bool {
        let was_created = AtomicBool::new(false);
        let connection =
            Connection::canned(
                move |method, path| match (method, path.contains("clusterclaims")) {
                    (&Method::POST, true) => {
                        was_created.store(true, Ordering::Relaxed);
                        failure(code, reason, "")
                    }
                    (_, true) if was_created.load(Ordering::Relaxed) => {
                        let metadata =
                            json!({"name": "paris", "annotations": {"kubectl-kcp.dev/lease-id": id}});
                        (
                            200,
                            json!({"metadata": metadata, "spec": {"clusterPoolName": "pool"}}),
                        )
                    }
                    _ => {
                        let (code, mut status) = failure(404, "NotFound", "not found");
                        status["details"] = json!({"name": "paris"});
                        (code, status)
                    }
                },
            );
        let request = ClaimRequest {
            holder: Holder {
                pool: "pool",
                cluster_deployment: "paris",
            },
            id: "k4x7",
            timeout: Timeout {
                started_at: NOW.parse().unwrap(),
                limit: WaitLimit::AtMost(DEFAULT_WAIT),
            },
            keep_failed_claim: false,
            must_be_new: true,
            ttl: None,
            limit: None,
            subjects: &[],
            hive: HiveMode::Manages,
        };
        let claim = find_or_create(&Store::new(&connection, "m"), &request)
            .await
            .unwrap();
        claim.id() == Some(request.id)
    }

    #[tokio::test]
    async fn only_the_id_makes_a_claim_the_commands_own() {
        assert!(!is_own(409, "AlreadyExists", "theirs").await);
        assert!(!is_own(504, "Timeout", "theirs").await);
        assert!(is_own(504, "Timeout", "k4x7").await);
        assert!(is_own(409, "AlreadyExists", "k4x7").await);
    }
}
