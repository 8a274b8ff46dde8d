//! `pool lease`.

pub(crate) mod document;

use std::{convert::Infallible, future::pending, time::Duration};

use anyhow::Context as _;
use clap::{ArgGroup, Args, ValueEnum};
use jiff::Timestamp;
use kcp_pool::{
    acquire::{
        LeaseRequest, acquire,
        answer::LeaseAnswer,
        claim::claim,
        create::create,
        wait::{Timeout, WaitLimit, wait_for},
    },
    lease::generated_name,
    objects::{entry::Holder, record::LeaseClaim},
    store::Store,
};

use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    commands::pool::{InstallConfigSource, Waiting, parse_wait, reported},
    document::{text, yaml},
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};
use document::{PoolLease, install_config};

/// Arguments of `pool lease`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("lessee").required(true))]
pub struct LeaseArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    /// The holder of the lease.
    #[command(flatten)]
    pub lessee: Lessee,

    /// How long the lease lasts; leasing again renews it [default: until it is released]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub ttl: Option<Duration>,

    /// Wait until a customization is free, at most for the given duration
    #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wait: Option<WaitLimit>,

    /// Apply the customization's patches to this install-config: a file, - for stdin, or secret/NAME with the key
    /// install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME")]
    pub install_config: Option<InstallConfigSource>,

    /// Also create the cluster, in pools that Hive does not run: its namespace, install-config, customization and
    /// cluster deployment
    #[arg(long, requires = "install_config", conflicts_with = "wait")]
    pub create: bool,

    /// Ask Hive for a cluster of the pool, with a cluster claim of that name, and wait for it
    #[arg(long, conflicts_with_all = ["ttl", "install_config", "create"])]
    pub claim: bool,

    /// Keep the claim if it gets no cluster in time
    #[arg(long, requires = "claim")]
    pub keep: bool,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    #[arg(requires_if("install-config", "install_config"))]
    pub output: Option<LeaseOutput>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// The holder of the lease.
#[derive(Clone, Debug, Args)]
pub struct Lessee {
    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name, group = "lessee")]
    pub cluster_deployment: Option<String>,

    /// Generate that name, with this prefix
    #[arg(long, value_name = "PREFIX", value_parser = generated_name::parse_prefix, group = "lessee")]
    pub generate_name: Option<String>,
}

impl Lessee {
    /// The name; none if neither option was given.
    pub(crate) fn name(&self) -> Option<String> {
        let generated = || Some(generated_name::generate(self.generate_name.as_deref()?));
        self.cluster_deployment.clone().or_else(generated)
    }
}

/// Output formats of `pool lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseOutput {
    /// A JSON document: `PoolLease`
    Json,
    /// The same document as YAML
    Yaml,
    /// Shell variables, one per line: `KCP_NAMESPACE`, `KCP_POOL`, `KCP_CUSTOMIZATION`, `KCP_CLUSTER_DEPLOYMENT`
    Env,
    /// The leased customization as RESOURCE/NAME
    Name,
    /// The patched install-config; it may contain secrets
    InstallConfig,
}

/// Runs `pool lease`.
///
/// # Errors
/// If nothing could be decided.
pub(crate) async fn run(arguments: LeaseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let cluster_deployment = arguments
        .lessee
        .name()
        .context("neither a name nor a prefix is given")?;
    let install_config = match &arguments.install_config {
        Some(source) => Some(source.read(&connection).await?),
        None => None,
    };
    session.terminal.on_interrupt(format!(
        "interrupted: a lease may have been acquired; release it with: kubectl kcp pool release {} \
         --cluster-deployment {cluster_deployment} -n {}",
        arguments.pool, connection.namespace
    ));
    let request = LeaseRequest {
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
    let timeout = |limit| Timeout {
        since: Timestamp::now(),
        limit,
    };
    let progress = Waiting(&session.terminal);
    let answer = if arguments.claim {
        let timeout = timeout(arguments.wait.unwrap_or(WaitLimit::Unlimited));
        claim(&store, request.claim.holder, timeout, arguments.keep, &progress).await?
    } else if let (true, Some(install_config)) = (arguments.create, &install_config) {
        create(&store, request, install_config).await.map_err(reported)?
    } else if let Some(limit) = arguments.wait {
        let attempt = async || acquire(&store, request).await;
        let waited = wait_for(attempt, timeout(limit), pending::<Infallible>(), &progress);
        let Ok(answer) = waited.await.map_err(reported)?;
        answer
    } else {
        acquire(&store, request).await.map_err(reported)?
    };
    show(&answer, arguments.output, &session.terminal)
}

fn show(answer: &LeaseAnswer, output: Option<LeaseOutput>, terminal: &Terminal) -> anyhow::Result<Verdict> {
    let result = &PoolLease::of(answer);
    for warning in result.warnings() {
        terminal.warning(warning);
    }
    let shown = match output {
        Some(LeaseOutput::Json) => Some(text(result)?),
        Some(LeaseOutput::Yaml) => Some(yaml(result)?),
        Some(LeaseOutput::Env) => result
            .variables()
            .map(|variables| {
                let lines = variables.iter().map(|(name, value)| {
                    // For `eval`: a value from an object is not always a valid name.
                    let value = shlex::try_quote(value)?;
                    Ok(format!("{name}={value}\n"))
                });
                lines.collect::<Result<String, shlex::QuoteError>>()
            })
            .transpose()?,
        Some(LeaseOutput::Name) => result.resource_name().map(|name| name + "\n"),
        Some(LeaseOutput::InstallConfig) => match install_config(answer) {
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
