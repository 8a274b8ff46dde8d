//! `pool lease`.

pub(crate) mod document;

use std::{convert::Infallible, future::pending, time::Duration};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use kcp_pool::{
    acquire::{
        LeaseRequest, acquire,
        claim::claim,
        create::create,
        wait::{Timeout, WaitLimit, wait_for},
    },
    install_config::InstallConfig,
    lease::generated_name,
    objects::{entry::Holder, record::LeaseClaim},
    store::Store,
};
use serde::Serialize;

use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    commands::pool::{InstallConfigSource, Waiting, parse_wait, reported, verdict},
    output::{Formats, OutputArguments, Report, Special, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};
use document::PoolLease;

/// Arguments of `pool lease`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("lessee").required(true))]
#[command(mut_arg("output", |output| {
    output.value_parser(Formats::LEASE).requires_if("install-config", "install_config")
}))]
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

    /// How it is printed.
    #[command(flatten)]
    pub output: OutputArguments,

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
    let result = PrintedLease {
        lease: PoolLease::of(&answer),
        install_config: document::install_config(&answer),
    };
    for warning in result.lease.warnings() {
        session.terminal.warning(warning);
    }
    print(&result, &arguments.output, &session.terminal)?;
    Ok(verdict(result.lease.refusal(), &session.terminal))
}

/// A lease with what is not part of its document.
pub(crate) struct PrintedLease<'a> {
    pub(crate) lease: PoolLease,
    pub(crate) install_config: Option<&'a InstallConfig>,
}

impl Report for PrintedLease<'_> {
    fn table(&self, _: Layout) -> String {
        self.lease
            .sentence()
            .map_or_else(String::new, |sentence| sentence + "\n")
    }

    fn document(&self) -> impl Serialize {
        &self.lease
    }

    fn names(&self) -> Vec<String> {
        self.lease.resource_name().into_iter().collect()
    }

    fn special(&self, format: Special) -> Option<anyhow::Result<String>> {
        match format {
            Special::Env => Some(shell_variables(&self.lease)),
            Special::InstallConfig => {
                let yaml = self.install_config.map(InstallConfig::to_yaml);
                Some(yaml.unwrap_or_else(|| Ok(String::new())).map_err(Into::into))
            }
            Special::Github => None,
        }
    }
}

/// For `eval`: a value from an object is not always a valid name.
fn shell_variables(lease: &PoolLease) -> anyhow::Result<String> {
    let variables = lease.variables().unwrap_or_default();
    let lines = variables
        .iter()
        .map(|(name, value)| Ok(format!("{name}={}\n", shlex::try_quote(value)?)));
    lines.collect()
}
