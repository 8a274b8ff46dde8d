//! Gives a lease back: all that a holder has from a pool, or one customization.

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
        self,
        in_use::{Cluster, Needs, needs},
    },
    store::{Customizations as _, Records as _, Store},
};

/// How often a cluster is read anew that others change.
const MAX_ATTEMPTS: usize = 8;

/// Before it is read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All that the holder has from a pool.
    Pool(String),
    Customization(String),
}

/// What came of it.
#[derive(Debug)]
pub struct Release {
    /// None where the customization was named, and is not held from a pool.
    pub pool: Option<PoolName>,
    pub cluster_deployment: String,
    /// What was given back.
    pub customizations: Vec<String>,
    /// The claim that was deleted, and with it the cluster.
    pub claim: Option<String>,
    pub refusal: Option<ReleaseRefusal>,
    /// Clusters that still use what was given back.
    pub still_used: Vec<InUse>,
    /// Why it is not known whether the holder's cluster uses it.
    pub clusters_unread: Option<Error>,
}

/// A customization that a cluster needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    pub customization: String,
    pub by: Cluster,
}

/// Why something is not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseRefusal {
    NoSuchEntry {
        customization: String,
    },
    /// Another holds it.
    NotHolder {
        customization: String,
        holder: String,
        cluster_deployment: String,
    },
    /// It is reserved, and says not for whom, or of which pool.
    UnclearHolder {
        customization: String,
        cluster_deployment: String,
    },
    /// Clusters need these.
    InUse(Vec<InUse>),
}

impl fmt::Display for ReleaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchEntry { customization } => write!(f, "there is no customization {customization}"),
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
                "{customization} is reserved, and does not say for {cluster_deployment} of which pool"
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

/// Gives back what is meant, if the holder has it.
pub async fn give_back(
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
            Meant {
                holder,
                only: None,
                force,
            }
            .give_back(store)
            .await
        }
        Target::Customization(name) => {
            let entry = store.get(name).await?;
            let pool = match whose(name, entry.as_ref(), cluster_deployment) {
                Whose::Holders(pool) => pool,
                Whose::Nobodys => match left_behind(store, name, cluster_deployment).await? {
                    Some(pool) => &pool.clone(),
                    None => return Ok(Release::new(None, cluster_deployment)),
                },
                Whose::Another(refusal) => {
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
            Meant {
                holder,
                only: Some(name),
                force,
            }
            .give_back(store)
            .await
        }
    }
}

/// The pool of which a release that was broken off has left a record, or our finalizer, of a customization that nobody
/// holds any more.
async fn left_behind(
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

/// The claim of the holder's name on its pool, where Hive runs that; or that which has the cluster of this name.
async fn claim_of(store: &Store<'_>, holder: Holder<'_>) -> Result<Option<Claim>, Error> {
    match store.pool(holder.pool).await {
        Ok(pool) if pool.is_run_by_hive() => {}
        // A lease outlives its pool.
        Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let is_of_pool = |claim: &Claim| claim.spec.cluster_pool_name == holder.pool;
    let name = holder.cluster_deployment;
    // Who may not read claims has made none; and who may not read clusters was told the claim's name.
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

/// Who has a customization that is to be given back by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whose<'e> {
    /// The one who says so, from this pool.
    Holders(&'e str),
    Nobodys,
    Another(ReleaseRefusal),
}

fn whose<'e>(name: &str, entry: Option<&'e Entry>, cluster_deployment: &str) -> Whose<'e> {
    let customization = name.to_owned();
    let Some(entry) = entry else {
        return Whose::Another(ReleaseRefusal::NoSuchEntry { customization });
    };
    match (entry.cluster_deployment(), entry.pool()) {
        (Some(holder), Some(pool)) if holder == cluster_deployment => Whose::Holders(pool),
        (None, None) if !entry.is_reserved() => Whose::Nobodys,
        (Some(holder), _) if holder != cluster_deployment => Whose::Another(ReleaseRefusal::NotHolder {
            customization,
            holder: holder.to_owned(),
            cluster_deployment: cluster_deployment.to_owned(),
        }),
        _ => Whose::Another(ReleaseRefusal::UnclearHolder {
            customization,
            cluster_deployment: cluster_deployment.to_owned(),
        }),
    }
}

/// What is to be given back, and how.
#[derive(Clone, Copy)]
struct Meant<'m> {
    holder: Holder<'m>,
    only: Option<&'m str>,
    /// Whether a cluster needs it or not.
    force: bool,
}

impl Meant<'_> {
    async fn give_back(self, store: &Store<'_>) -> Result<Release, Error> {
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
        let needs = needs(&deployments, self.holder);
        let kept = if self.force { Needs::new() } else { needs.clone() };
        let release::Released { released, needed } =
            release::release(store, &kept, self.holder, self.only).await?;
        if released.is_empty() && needed.is_empty() {
            // A lease outlives its pool, and can still be given back; a name that was mistyped must not look like that.
            store.pool(pool).await?;
        }
        for cluster in deployments.made_for(self.holder) {
            let is_meant = self.only.is_none() || cluster.customization() == self.only;
            if is_meant && (self.force || cluster.life() == Life::Over) {
                let_go(store, cluster).await?;
            }
        }
        let in_use = |names: &[String]| -> Vec<InUse> {
            let cluster = |name: &String| {
                let by = needs.get(name)?.clone();
                let customization = name.clone();
                Some(InUse { customization, by })
            };
            names.iter().filter_map(cluster).collect()
        };
        let refused = in_use(&needed);
        Ok(Release {
            still_used: in_use(&released),
            customizations: released,
            refusal: (!refused.is_empty()).then_some(ReleaseRefusal::InUse(refused)),
            clusters_unread: unseen,
            ..Release::new(Some(PoolName::new(store.namespace(), pool)), cluster_deployment)
        })
    }
}

/// Removes our finalizer, if it is there.
async fn let_go(store: &Store<'_>, cluster: &ClusterDeployment) -> Result<(), Error> {
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

    use super::{ReleaseRefusal, Whose, whose};

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
            Whose::Another(refusal)
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
        let unclear = "a is reserved, and does not say for us of which pool";
        for (entry, expected) in [
            (held(named("us"), named("p"), "False"), Whose::Holders("p")),
            (held(named("us"), named("p"), "True"), Whose::Holders("p")),
            (held(Value::Null, Value::Null, "True"), Whose::Nobodys),
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
            assert_eq!(whose("a", Some(&entry), "us"), expected);
        }
        let missing = another(
            ReleaseRefusal::NoSuchEntry { customization },
            "there is no customization a",
        );
        assert_eq!(whose("a", None, "us"), missing);
    }
}
