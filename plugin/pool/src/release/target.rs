//! A release: of all that a holder has from a pool, or of one customization.

use std::{fmt, time::Duration};

use kcp_client::{Error, Written};

use crate::{
    acquire::claim,
    objects::{
        cluster_deployment::{ClusterDeployment, Deployments, LEASE_FINALIZER, Life},
        cluster_pool::{Claim, PoolName},
        entry::{Entry, Holder},
        record::Record,
    },
    release::{
        Released,
        in_use::{Cluster, Users, users},
        release_entries,
    },
    store::{Customizations as _, Records as _, Store},
};

/// How often a cluster is read again that other clients change.
const MAX_ATTEMPTS: usize = 8;

/// Before it is read again after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// What to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All that the holder has from a pool.
    Pool(String),
    Customization(String),
}

/// The result.
#[derive(Debug)]
pub struct Release {
    /// None if one customization was named, and the holder does not have it.
    pub pool: Option<PoolName>,
    pub cluster_deployment: String,
    /// What was released.
    pub customizations: Vec<String>,
    /// The claim that was deleted, and with it the cluster.
    pub claim: Option<String>,
    pub refusal: Option<ReleaseRefusal>,
    /// Clusters that still use what was released.
    pub still_used: Vec<InUse>,
    /// Why it is unknown whether the holder's cluster uses it.
    pub clusters_unread: Option<Error>,
}

/// A customization that a cluster uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    pub customization: String,
    pub by: Cluster,
}

/// Why something is not released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseRefusal {
    NoSuchEntry {
        customization: String,
    },
    NotHolder {
        customization: String,
        holder: String,
        cluster_deployment: String,
    },
    /// It is reserved, but does not name the holder and a pool.
    UnclearHolder {
        customization: String,
        cluster_deployment: String,
    },
    /// Clusters use these.
    InUse(Vec<InUse>),
}

impl fmt::Display for ReleaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { customization } => write!(f, "customization {customization} does not exist"),
            Self::NotHolder {
                customization,
                holder,
                cluster_deployment,
            } => write!(
                f,
                "{customization} is held by {holder}, not by {cluster_deployment}"
            ),
            Self::UnclearHolder {
                customization,
                cluster_deployment,
            } => write!(
                f,
                "{customization} is reserved, but does not name {cluster_deployment} and a pool"
            ),
            Self::InUse(all) => {
                for (index, InUse { customization, by }) in all.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{}", by.refusal(customization))?;
                }
                Ok(())
            }
        }
    }
}

impl Release {
    fn new(pool: Option<PoolName>, cluster_deployment: &str) -> Self {
        Self {
            pool,
            cluster_deployment: cluster_deployment.to_owned(),
            customizations: Vec::new(),
            claim: None,
            refusal: None,
            still_used: Vec::new(),
            clusters_unread: None,
        }
    }
}

/// Releases the target, if the holder has it.
pub async fn release(
    store: &Store<'_>,
    target: &Target,
    cluster_deployment: &str,
    force: bool,
) -> Result<Release, Error> {
    match target {
        Target::Pool(pool) => {
            let holder = Holder {
                pool,
                cluster_deployment,
            };
            if let Some(claim) = claim_of(store, holder).await? {
                claim::delete(store, &claim).await?;
                let pool = PoolName::new(store.namespace(), pool);
                return Ok(Release {
                    claim: Some(claim.metadata.name),
                    ..Release::new(Some(pool), cluster_deployment)
                });
            }
            Request {
                holder,
                only: None,
                force,
            }
            .run(store)
            .await
        }
        Target::Customization(name) => {
            let entry = store.get(name).await?;
            let pool = match holding(name, entry.as_ref(), cluster_deployment) {
                Holding::Ours(pool) => pool,
                Holding::Free => match pool_of_leftovers(store, name, cluster_deployment).await? {
                    Some(pool) => &pool.clone(),
                    None => return Ok(Release::new(None, cluster_deployment)),
                },
                Holding::Another(refusal) => {
                    return Ok(Release {
                        refusal: Some(refusal),
                        ..Release::new(None, cluster_deployment)
                    });
                }
            };
            let holder = Holder {
                pool,
                cluster_deployment,
            };
            Request {
                holder,
                only: Some(name),
                force,
            }
            .run(store)
            .await
        }
    }
}

/// The pool of a record or finalizer that an interrupted release has left on a free customization.
async fn pool_of_leftovers(
    store: &Store<'_>,
    customization: &str,
    cluster_deployment: &str,
) -> Result<Option<String>, Error> {
    let record = store.record(customization).await?;
    let record = record.filter(|record| record.cluster_deployment() == Some(cluster_deployment));
    if let Some(pool) = record.as_ref().and_then(Record::pool) {
        return Ok(Some(pool.to_owned()));
    }
    let own = match store.deployment(cluster_deployment).await {
        Err(Error::Forbidden { .. }) => return Ok(None),
        own => own?,
    };
    let kept = own.of_namespace().find(|cluster| {
        cluster.customization() == Some(customization) && cluster.metadata.has_finalizer(LEASE_FINALIZER)
    });
    let reference = kept.and_then(|cluster| cluster.pool_reference.as_ref());
    Ok(reference.map(|reference| reference.pool_name.clone()))
}

/// The claim with the holder's name in a pool that Hive runs, or else the claim of the ClusterDeployment with that
/// name.
async fn claim_of(store: &Store<'_>, holder: Holder<'_>) -> Result<Option<Claim>, Error> {
    match store.pool(holder.pool).await {
        Ok(pool) if pool.is_run_by_hive() => {}
        // A lease outlives its pool.
        Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let is_of_pool = |claim: &Claim| claim.spec.cluster_pool_name == holder.pool;
    let name = holder.cluster_deployment;
    // An account that may not read claims has created none; one that may not read clusters was given the claim's
    // name.
    match store.claim(name).await {
        Err(Error::Forbidden { .. }) => return Ok(None),
        found => {
            if let Some(claim) = found?.filter(is_of_pool) {
                return Ok(Some(claim));
            }
        }
    }
    let cluster = match store.cluster(name, name).await {
        Err(Error::Forbidden { .. }) => None,
        found => found?,
    };
    let cluster = cluster.filter(|cluster| cluster.is_of(store.namespace(), holder.pool));
    let Some(claim) = cluster.as_ref().and_then(ClusterDeployment::claim) else {
        return Ok(None);
    };
    Ok(store.claim(claim).await?.filter(is_of_pool))
}

/// Who has a customization that is released by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holding<'e> {
    /// The caller, from this pool.
    Ours(&'e str),
    Free,
    Another(ReleaseRefusal),
}

fn holding<'e>(name: &str, entry: Option<&'e Entry>, cluster_deployment: &str) -> Holding<'e> {
    let customization = name.to_owned();
    let Some(entry) = entry else {
        return Holding::Another(ReleaseRefusal::NoSuchEntry { customization });
    };
    match (entry.cluster_deployment(), entry.pool()) {
        (Some(holder), Some(pool)) if holder == cluster_deployment => Holding::Ours(pool),
        (None, None) if !entry.is_reserved() => Holding::Free,
        (Some(holder), _) if holder != cluster_deployment => Holding::Another(ReleaseRefusal::NotHolder {
            customization,
            holder: holder.to_owned(),
            cluster_deployment: cluster_deployment.to_owned(),
        }),
        _ => Holding::Another(ReleaseRefusal::UnclearHolder {
            customization,
            cluster_deployment: cluster_deployment.to_owned(),
        }),
    }
}

/// What to release, and how.
#[derive(Clone, Copy)]
struct Request<'m> {
    holder: Holder<'m>,
    only: Option<&'m str>,
    /// Whether to release what a cluster uses.
    force: bool,
}

impl Request<'_> {
    async fn run(self, store: &Store<'_>) -> Result<Release, Error> {
        let Holder {
            pool,
            cluster_deployment,
        } = self.holder;
        let mut deployments = store.deployments().await;
        let mut unseen = None;
        if let Err(error @ Error::Forbidden { .. }) = deployments {
            unseen = Some(error);
            deployments = match store.deployment(cluster_deployment).await {
                Err(Error::Forbidden { .. }) => Ok(Deployments::default()),
                own => own,
            };
        }
        let deployments = deployments?;
        let users = users(&deployments, self.holder);
        let excluded = if self.force { Users::new() } else { users.clone() };
        let Released {
            released,
            in_use: used,
        } = release_entries(store, &excluded, self.holder, self.only).await?;
        if released.is_empty() && used.is_empty() {
            // A lease outlives its pool and can still be released; a mistyped name must not look like that.
            store.pool(pool).await?;
        }
        for cluster in deployments.of_holder(self.holder) {
            let is_meant = self.only.is_none() || cluster.customization() == self.only;
            if is_meant && (self.force || cluster.life() == Life::Over) {
                remove_finalizer(store, cluster).await?;
            }
        }
        let with_users = |names: &[String]| -> Vec<InUse> {
            let cluster = |name: &String| {
                let by = users.get(name)?.clone();
                let customization = name.clone();
                Some(InUse { customization, by })
            };
            names.iter().filter_map(cluster).collect()
        };
        let refused = with_users(&used);
        Ok(Release {
            still_used: with_users(&released),
            customizations: released,
            refusal: (!refused.is_empty()).then_some(ReleaseRefusal::InUse(refused)),
            clusters_unread: unseen,
            ..Release::new(Some(PoolName::new(store.namespace(), pool)), cluster_deployment)
        })
    }
}

/// Removes our finalizer, if it is there.
async fn remove_finalizer(store: &Store<'_>, cluster: &ClusterDeployment) -> Result<(), Error> {
    let (namespace, name) = (&cluster.metadata.namespace, cluster.name());
    let mut current = Some(cluster.clone());
    for _ in 0..MAX_ATTEMPTS {
        let is_it = |found: &ClusterDeployment| found.metadata.uid == cluster.metadata.uid;
        let Some(found) = current.filter(is_it) else {
            return Ok(());
        };
        if !found.metadata.has_finalizer(LEASE_FINALIZER) {
            return Ok(());
        }
        match store
            .write_cluster(namespace, name, &found.without_lease_finalizer())
            .await?
        {
            Written::Stored => return Ok(()),
            Written::Changed => {}
            Written::Unknown(_) => store.rest(REST).await,
        }
        current = store.cluster(namespace, name).await?;
    }
    Err(Error::Contended {
        goal: format!("remove the finalizer of ClusterDeployment {name}"),
        attempts: MAX_ATTEMPTS,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Holding, ReleaseRefusal, holding};

    #[test]
    fn who_has_a_customization() {
        let held = |holder: Value, pool: Value, status: &str| {
            let status = json!({
                "conditions": [{"type": "Available", "status": status}],
                "clusterDeploymentRef": holder, "clusterPoolRef": pool,
            });
            json!({"metadata": {"name": "a"}, "status": status})
        };
        let named = |name: &str| json!({ "name": name });
        let another = |refusal: ReleaseRefusal, why: &str| {
            assert_eq!(refusal.to_string(), why);
            Holding::Another(refusal)
        };
        let (customization, cluster_deployment) = ("a".to_owned(), "us".to_owned());
        let unclear_holder = ReleaseRefusal::UnclearHolder {
            customization: customization.clone(),
            cluster_deployment: cluster_deployment.clone(),
        };
        let not_holder = ReleaseRefusal::NotHolder {
            customization: customization.clone(),
            holder: "them".to_owned(),
            cluster_deployment,
        };
        let unclear = "a is reserved, but does not name us and a pool";
        for (entry, expected) in [
            (held(named("us"), named("p"), "False"), Holding::Ours("p")),
            (held(named("us"), named("p"), "True"), Holding::Ours("p")),
            (held(Value::Null, Value::Null, "True"), Holding::Free),
            (
                held(named("them"), named("p"), "False"),
                another(not_holder, "a is held by them, not by us"),
            ),
            (
                held(Value::Null, Value::Null, "False"),
                another(unclear_holder.clone(), unclear),
            ),
            (
                held(named("us"), Value::Null, "False"),
                another(unclear_holder.clone(), unclear),
            ),
        ] {
            let entry = serde_json::from_value(entry).unwrap();
            assert_eq!(holding("a", Some(&entry), "us"), expected);
        }
        let missing = another(
            ReleaseRefusal::NoSuchEntry { customization },
            "customization a does not exist",
        );
        assert_eq!(holding("a", None, "us"), missing);
    }
}
