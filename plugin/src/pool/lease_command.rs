//! `pool lease`: what is read, what is written, and how it is told.

use std::hash::{BuildHasher as _, RandomState};

use anyhow::Context as _;
use jiff::Timestamp;

use super::{
    arguments::{LeaseArguments, LeaseOutput},
    capacity::Capacity,
    claim_command,
    cluster_pool::Pool,
    create_command,
    deployments::Deployments,
    document::{PoolLease, Reason},
    entry::Holder,
    entry_state::{EntryState, PoolName},
    install_config::InstallConfig,
    inventory_conditions,
    lease::{self, Attempt, Outcome, Request},
    patience::{Patience, WaitLimit},
    record::LeaseClaim,
    store::Store,
};
use crate::{
    cluster::Error,
    document::{text, yaml},
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// Who asks for which lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'w> {
    /// Holder and duration; whether its `ClusterDeployment` is there is found out.
    pub(super) claim: LeaseClaim<'w>,
    pub(super) install_config: Option<&'w InstallConfig>,
    /// Whether a lease that the holder has already is somebody else's.
    pub(super) is_new: bool,
}

/// Runs `pool lease`.
///
/// # Errors
/// When nothing could be decided.
pub(super) async fn run(arguments: LeaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let cluster_deployment = arguments
        .lessee
        .name()
        .context("neither a name nor a prefix is given")?;
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    session.terminal.on_interrupt(format!(
        "interrupted: a lease may have been taken; give it back with: kubectl kcp pool release {} \
         --cluster-deployment {cluster_deployment} -n {}",
        arguments.pool, connection.namespace
    ));
    let wish = Wish {
        claim: LeaseClaim {
            holder: Holder {
                pool: &arguments.pool,
                cluster_deployment: &cluster_deployment,
            },
            duration: arguments.ttl,
            cluster_deployment_uid: None,
            is_creating: false,
        },
        install_config: install_config.as_ref(),
        is_new: false,
    };
    if arguments.claim {
        let patience = Patience {
            since: Timestamp::now(),
            limit: arguments.wait.unwrap_or(WaitLimit::None),
        };
        let terminal = &session.terminal;
        let claim = claim_command::claim(&store, wish.claim.holder, patience, arguments.keep, terminal);
        return show(&claim.await?, arguments.output, terminal);
    }
    if let (true, Some(install_config)) = (arguments.create, &install_config) {
        let created = create_command::create(&store, wish, install_config).await?;
        return show(&created, arguments.output, &session.terminal);
    }
    let result = match arguments.wait {
        None => take(&store, wish).await?,
        Some(limit) => {
            let patience = Patience {
                since: Timestamp::now(),
                limit,
            };
            wait_for(&store, wish, patience, &session.terminal).await?
        }
    };
    show(&result, arguments.output, &session.terminal)
}

/// Prints a result.
fn show(result: &PoolLease, output: Option<LeaseOutput>, terminal: &Terminal) -> anyhow::Result<Verdict> {
    for warning in result.warnings() {
        terminal.warning(warning);
    }
    let shown = match output {
        Some(LeaseOutput::Json) => Some(text(result)?),
        Some(LeaseOutput::Yaml) => Some(yaml(result)?),
        Some(LeaseOutput::Env) => result.variables().map(|variables| {
            // Names need no quotes.
            let lines = variables.iter().map(|(name, value)| format!("{name}={value}\n"));
            lines.collect()
        }),
        Some(LeaseOutput::Name) => result.resource_name().map(|name| name + "\n"),
        Some(LeaseOutput::InstallConfig) => match result.install_config() {
            Some(install_config) => Some(install_config.to_yaml()?),
            None => None,
        },
        None => result.sentence().map(|sentence| sentence + "\n"),
    };
    if let Some(shown) = shown {
        terminal.print(&shown)?;
    }
    match result.refusal() {
        Some(refusal) => {
            terminal.note(&refusal);
            Ok(Verdict::Negative)
        }
        None => Ok(Verdict::Met),
    }
}

/// Takes a lease as soon as there is one. Why it waits is told whenever that changes.
pub(super) async fn wait_for(
    store: &Store<'_>,
    wish: Wish<'_>,
    patience: Patience,
    terminal: &Terminal,
) -> anyhow::Result<PoolLease> {
    let random = RandomState::new();
    let mut told = String::new();
    let mut looks = 0_u64;
    loop {
        let result = match take(store, wish).await {
            Ok(result) if result.reason() != Some(Reason::Exhausted) => return Ok(result),
            // Before the first answer it may be the user's mistake.
            Err(error) if looks == 0 || !may_pass(&error) => return Err(error),
            result => result,
        };
        let now = Timestamp::now();
        let Some(rest) = patience.rest(now, random.hash_one(looks)) else {
            return result.map(|result| result.timed_out(patience.waited(now)));
        };
        let why = match &result {
            Ok(result) => result.refusal().unwrap_or_default(),
            Err(error) => format!("{error:#}"),
        };
        if why != told {
            terminal.note(&format!("waiting: {why}"));
            told = why;
        }
        terminal.spin("waiting for a free customization");
        looks += 1;
        tokio::time::sleep(rest).await;
        terminal.stop_spinning();
    }
}

fn may_pass(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<Error>());
    causes.any(Error::may_pass)
}

/// Takes a lease, if there is one.
pub(super) async fn take(store: &Store<'_>, wish: Wish<'_>) -> anyhow::Result<PoolLease> {
    let holder = wish.claim.holder;
    let cluster_deployment = holder.cluster_deployment;
    let pool = store.pool(holder.pool).await?;
    let deployments = match store.deployments().await {
        // Clusters are in namespaces of their own, and a lessee may have rights in the pool's alone.
        Err(error @ Error::Forbidden { .. }) => Err(error),
        deployments => Ok(deployments?),
    };
    let seen = deployments.as_ref().ok();
    let name = PoolName {
        namespace: store.namespace().to_owned(),
        name: holder.pool.to_owned(),
    };
    if let Some((reason, message)) = obstacle(store, &pool, seen, holder).await? {
        return Ok(PoolLease::refused(name, cluster_deployment, reason, message));
    }
    let references = seen.map(Deployments::by_customization);
    let cluster = seen.and_then(|deployments| deployments.proof_of_life(holder));
    let request = Request {
        names: &pool.inventory(),
        references: references.as_ref(),
        claim: LeaseClaim {
            cluster_deployment_uid: cluster.map(|cluster| cluster.metadata.uid.as_str()),
            ..wish.claim
        },
        install_config: wish.install_config,
        is_new: wish.is_new,
        is_run_by_hive: pool.is_run_by_hive(),
    };
    let Attempt { outcome, entries } = lease::lease(store, request).await?;
    if let (Some(deployments), false) = (seen, pool.is_run_by_hive()) {
        let capacity = Capacity::of(&pool, deployments.of_pool(holder.pool));
        if let Some(patch) = inventory_conditions::patch(&pool, &entries, &capacity, Timestamp::now()) {
            // A lessee may have no right to it, and others say the same: no lease fails for it.
            drop(store.write_pool_status(holder.pool, &patch).await);
        }
    }
    let lease = match outcome {
        Outcome::Leased(leased) => {
            PoolLease::leased(name, cluster_deployment, leased).lasting(wish.claim.duration)
        }
        Outcome::Exhausted(standings) => {
            let entries = standings
                .into_iter()
                .map(|(name, standing)| EntryState::new(name, standing));
            PoolLease::exhausted(name, cluster_deployment, entries.collect())
        }
        Outcome::Bound {
            customization,
            standing,
        } => {
            let state = EntryState::new(customization, standing);
            let message = format!(
                "ClusterDeployment {cluster_deployment} was made with {}, and gets no other",
                state.described(holder.pool)
            );
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
        Outcome::HeldBefore { customization } => {
            let message = format!(
                "{cluster_deployment} holds {customization} already, for somebody who may still use it; release it, or \
                 choose another name"
            );
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
        Outcome::HeldUnfit { customization, why } => {
            let message = format!("{cluster_deployment} holds {customization}, and gets no other: {why}");
            PoolLease::refused(name, cluster_deployment, Reason::Blocked, message)
        }
    };
    Ok(match deployments {
        Ok(_) => lease,
        Err(why) => lease.without_deployments(&why),
    })
}

/// What keeps a lease from being taken at all.
async fn obstacle(
    store: &Store<'_>,
    pool: &Pool,
    deployments: Option<&Deployments>,
    holder: Holder<'_>,
) -> Result<Option<(Reason, String)>, Error> {
    let Holder {
        pool: name,
        cluster_deployment,
    } = holder;
    if pool.inventory().is_empty() {
        let message = format!("pool {name} has no inventory: there is nothing to lease");
        return Ok(Some((Reason::NoSuchEntry, message)));
    }
    if pool.is_deleting() {
        return Ok(Some((Reason::Blocked, format!("pool {name} is being deleted"))));
    }
    if pool.is_run_by_hive() {
        let is_made_for_it = match deployments {
            Some(deployments) => deployments.contains(cluster_deployment, name),
            None => store
                .deployment(cluster_deployment)
                .await?
                .contains(cluster_deployment, name),
        };
        if !is_made_for_it {
            let message = format!(
                "Hive runs pool {name} and would revoke the lease at once: there is no ClusterDeployment \
                 {cluster_deployment} of that pool; to get a cluster from Hive, lease with --claim"
            );
            return Ok(Some((Reason::Blocked, message)));
        }
    }
    Ok(None)
}
