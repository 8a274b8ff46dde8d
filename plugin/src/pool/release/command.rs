//! `pool release`: what is read, what is written, and how it is told.

use std::time::Duration;

use crate::{
    cluster::{Error, Written},
    document::{text, yaml},
    pool::{
        arguments::{ReleaseArguments, ReleaseOutput},
        claim_command,
        document::{PoolRelease, Reason},
        inventory::entry_state::PoolName,
        objects::{
            claims::Claim,
            deployments::{ClusterDeployment, Deployments, LEASE_FINALIZER, Life},
            entry::{Entry, Holder},
            record::Record,
        },
        release::{
            self,
            held::Held,
            needs::{Needs, needs},
        },
        store::{Customizations as _, Records as _, Store},
    },
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// How often a cluster is read anew that others change.
const MAX_ATTEMPTS: usize = 8;

/// Before it is read anew after a write without an answer.
const REST: Duration = Duration::from_millis(200);

/// Runs `pool release`.
///
/// # Errors
/// When nothing could be decided.
pub(in crate::pool) async fn run(arguments: ReleaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let result = give_back(
        &store,
        &arguments.held,
        &arguments.cluster_deployment,
        arguments.force,
    )
    .await?;
    show(&result, arguments.output, &session.terminal)
}

/// Prints a result.
fn show(result: &PoolRelease, output: Option<ReleaseOutput>, terminal: &Terminal) -> anyhow::Result<Verdict> {
    for warning in result.warnings() {
        terminal.warning(warning);
    }
    terminal.print(&match output {
        Some(ReleaseOutput::Json) => text(result)?,
        Some(ReleaseOutput::Yaml) => yaml(result)?,
        Some(ReleaseOutput::Name) => result.resource_names(),
        None => result.sentences(),
    })?;
    match result.refusal() {
        Some(refusal) => {
            terminal.note(&refusal);
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Met),
    }
}

/// Gives back what is meant, if the holder has it.
pub(in crate::pool) async fn give_back(
    store: &Store<'_>,
    held: &Held,
    cluster_deployment: &str,
    force: bool,
) -> anyhow::Result<PoolRelease> {
    match held {
        Held::FromPool(pool) => {
            let holder = Holder {
                pool,
                cluster_deployment,
            };
            if let Some(claim) = claim_of(store, holder).await? {
                claim_command::delete(store, &claim).await?;
                let name = PoolName {
                    namespace: store.namespace().to_owned(),
                    name: pool.clone(),
                };
                let released = PoolRelease::new(Some(name), cluster_deployment, &[]);
                return Ok(released.of_claim(&claim.metadata.name));
            }
            Meant {
                holder,
                only: None,
                force,
            }
            .give_back(store)
            .await
        }
        Held::Customization(name) => {
            let entry = store.get(name).await?;
            let pool = match whose(name, entry.as_ref(), cluster_deployment) {
                Whose::Holders(pool) => pool,
                Whose::Nobodys => match left_behind(store, name, cluster_deployment).await? {
                    Some(pool) => &pool.clone(),
                    None => return Ok(PoolRelease::new(None, cluster_deployment, &[])),
                },
                Whose::Another(reason, message) => {
                    return Ok(PoolRelease::refused(None, cluster_deployment, reason, message));
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
    Another(Reason, String),
}

fn whose<'e>(name: &str, entry: Option<&'e Entry>, cluster_deployment: &str) -> Whose<'e> {
    let Some(entry) = entry else {
        let message = format!("there is no customization {name}");
        return Whose::Another(Reason::NoSuchEntry, message);
    };
    match (entry.cluster_deployment(), entry.pool()) {
        (Some(holder), Some(pool)) if holder == cluster_deployment => Whose::Holders(pool),
        (None, None) if !entry.is_reserved() => Whose::Nobodys,
        (Some(holder), _) if holder != cluster_deployment => Whose::Another(
            Reason::NotHolder,
            format!("{name} is held by {holder}, not by {cluster_deployment}"),
        ),
        _ => Whose::Another(
            Reason::NotHolder,
            format!("{name} is reserved, and does not say for {cluster_deployment} of which pool"),
        ),
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
    async fn give_back(self, store: &Store<'_>) -> anyhow::Result<PoolRelease> {
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
        let release::Outcome { released, needed } =
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
        let name = PoolName {
            namespace: store.namespace().to_owned(),
            name: pool.to_owned(),
        };
        let left = released
            .iter()
            .filter_map(|name| Some(needs.get(name)?.left(name)));
        let mut result = PoolRelease::new(Some(name), cluster_deployment, &released).warned(left);
        if let Some(why) = unseen {
            result = result.without_deployment(&why);
        }
        let why: Vec<_> = needed
            .iter()
            .filter_map(|name| Some(needs.get(name)?.refusal(name)))
            .collect();
        Ok(if why.is_empty() {
            result
        } else {
            result.blocked(&why)
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

    use super::{Whose, whose};
    use crate::pool::document::Reason;

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
        let another = |reason, why: &str| Whose::Another(reason, why.to_owned());
        let unclear = "a is reserved, and does not say for us of which pool";
        for (entry, expected) in [
            (held(named("us"), named("p"), "False"), Whose::Holders("p")),
            (held(named("us"), named("p"), "True"), Whose::Holders("p")),
            (held(Value::Null, Value::Null, "True"), Whose::Nobodys),
            (
                held(named("them"), named("p"), "False"),
                another(Reason::NotHolder, "a is held by them, not by us"),
            ),
            (
                held(Value::Null, Value::Null, "False"),
                another(Reason::NotHolder, unclear),
            ),
            (
                held(named("us"), Value::Null, "False"),
                another(Reason::NotHolder, unclear),
            ),
        ] {
            let entry = serde_json::from_value(entry).unwrap();
            assert_eq!(whose("a", Some(&entry), "us"), expected);
        }
        let missing = another(Reason::NoSuchEntry, "there is no customization a");
        assert_eq!(whose("a", None, "us"), missing);
    }
}
