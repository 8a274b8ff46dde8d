//! `kubectl kcp pool`: a file for each verb, with its arguments and what it prints.
//!
//! This file has what the verbs share: how an install-config is named, how a wait is shown, and how errors reach the
//! terminal. The crate `kcp-pool` reads, decides and writes.

mod cordon;
mod exec;
mod lease;
mod list;
mod plan;
mod release;
mod renew;
mod repair;
mod status;

use std::{convert::Infallible, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use kcp_client::{Connection, Error};
use kcp_pool::{
    acquire::wait::{Progress, WaitLimit},
    hive::HiveMode,
    install_config::InstallConfig,
    lease::{LeaseError, Ttl},
    objects::PoolName,
};
use serde::Serialize;

use crate::{arguments::parse_duration, file, session::Session, terminal::Terminal, verdict::Verdict};
use cordon::{CordonArguments, UncordonArguments};
use exec::ExecArguments;
pub use exec::NO_LEASE;
use lease::LeaseArguments;
use list::ListArguments;
use plan::PoolPlanArguments;
use release::ReleaseArguments;
use renew::RenewArguments;
use repair::RepairArguments;
use status::PoolStatusArguments;

/// Lease and release the customizations of a cluster pool.
#[derive(Debug, Args)]
pub struct PoolArguments {
    /// The verb.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// A verb of `pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Lease a free customization of the pool's inventory for a cluster
    ///
    /// A second lease for the same cluster returns the same customization and the same lease id. A lease ends after 24h
    /// unless --ttl says otherwise; stderr says when. Exits with 1 if none is free: stderr and -o json say why.
    Lease(LeaseArguments),
    /// Extend a lease
    ///
    /// Exits with 1 if the lease is gone: another entry is never leased instead.
    Renew(RenewArguments),
    /// Release what a cluster has leased
    ///
    /// Exits with 0 if the cluster holds nothing, and with 1 while a cluster deployment still uses the customization, or
    /// may use it because you may not list them. Leases of other clusters are not changed.
    Release(ReleaseArguments),
    /// List the entries of pools: free, held, expired, cordoned
    List(ListArguments),
    /// Keep a customization from new leases; has no effect on Hive
    Cordon(CordonArguments),
    /// Let a customization be leased again
    Uncordon(UncordonArguments),
    /// List what is wrong with leases; --yes repairs it
    ///
    /// A customization is never freed while a cluster deployment uses it. When that is gone, it stays reserved for the
    /// grace period, and until its lease ends; with --recreate, the cluster deployment is created again instead. Exits
    /// with 1 while anything is wrong.
    Repair(RepairArguments),
    /// Show the entries of pools, who holds them, and what is wrong
    ///
    /// Exits with 1 if an entry is missing, broken, shared or leaked, if the inventory has fewer entries than the pool's
    /// size, or if Hive cannot make clusters.
    Status(PoolStatusArguments),
    /// Show what a change of a pool would make stale or delete; changes nothing
    ///
    /// The file replaces the whole pool, as with `kubectl replace`. Exits with 1 if a cluster would become stale or
    /// be deleted.
    Plan(PoolPlanArguments),
    /// Run a command while holding a lease
    ///
    /// The lease is renewed while the command runs, and released when it ends. The command's environment has
    /// `KCP_NAMESPACE`, `KCP_POOL`, `KCP_CUSTOMIZATION`, `KCP_CLUSTER_DEPLOYMENT` and `KCP_LEASE_ID`; with
    /// --install-config also `KCP_INSTALL_CONFIG`, the path of a file. Exits with the command's own code; with 75 if
    /// nothing was free in time; with 125 if the lease could not be acquired or is lost, which ends the command; with
    /// 126 or 127 if the command cannot be run or does not exist.
    Exec(ExecArguments),
}

/// Runs `pool`.
///
/// # Errors
/// If nothing could be decided.
pub async fn run(arguments: PoolArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        PoolCommand::Repair(arguments) => Box::pin(repair::run(arguments, session)).await,
        PoolCommand::Status(arguments) => Box::pin(status::run(arguments, session)).await,
        PoolCommand::Plan(arguments) => Box::pin(plan::run(arguments, session)).await,
        PoolCommand::Lease(arguments) => Box::pin(lease::run(arguments, session)).await,
        PoolCommand::Exec(arguments) => Box::pin(exec::run(arguments, session)).await,
        PoolCommand::Release(arguments) => Box::pin(release::run(arguments, session)).await,
        PoolCommand::Renew(arguments) => Box::pin(renew::run(arguments, session)).await,
        PoolCommand::List(arguments) => Box::pin(list::run(arguments, session)).await,
        PoolCommand::Cordon(arguments) => {
            Box::pin(cordon::run(arguments.change, Some(arguments.reason), session)).await
        }
        PoolCommand::Uncordon(arguments) => Box::pin(cordon::run(arguments.change, None, session)).await,
    }
}

/// The argument of `--install-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallConfigSource {
    /// `-` is stdin.
    File(PathBuf),
    /// In the pool's namespace.
    Secret(String),
}

impl FromStr for InstallConfigSource {
    type Err = Infallible;

    /// `secret/NAME`, otherwise a file. A file of that name is `./secret/NAME`.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix("secret/") {
            Some(name) => Self::Secret(name.to_owned()),
            None => Self::File(text.into()),
        })
    }
}

impl InstallConfigSource {
    async fn read(&self, connection: &Connection) -> anyhow::Result<InstallConfig> {
        Ok(match self {
            Self::File(path) => InstallConfig::parse(&file::read(path)?, &path.display().to_string())?,
            Self::Secret(name) => InstallConfig::of_secret(connection, name).await?,
        })
    }
}

/// The value of `--wait`, which is optional.
fn parse_wait(text: &str) -> Result<WaitLimit, String> {
    if text.is_empty() {
        Ok(WaitLimit::Unlimited)
    } else {
        parse_duration(text).map(WaitLimit::AtMost)
    }
}

/// The value of `--ttl`: a duration with a unit, or 0.
fn parse_ttl(text: &str) -> Result<Ttl, String> {
    if text == "0" {
        return Ok(Ttl::Never);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "write a unit, as in {text}h or {text}s; 0 means until it is released"
        ));
    }
    let ttl = parse_duration(text)?;
    if ttl < Duration::from_secs(1) {
        return Err("a lease lasts at least 1 s; 0 means until it is released".to_owned());
    }
    Ok(Ttl::For(ttl))
}

/// The value of `--hive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HiveArgument {
    /// As found: by its `HiveConfig`, its controllers, and the pool's finalizer and conditions
    #[default]
    Auto,
    /// Hive runs the pool
    Yes,
    /// Hive does not run the pool
    No,
}

impl From<HiveArgument> for HiveMode {
    fn from(argument: HiveArgument) -> Self {
        match argument {
            HiveArgument::Auto => Self::Auto,
            HiveArgument::Yes => Self::Runs,
            HiveArgument::No => Self::Absent,
        }
    }
}

/// Shows a wait on stderr.
struct Waiting<'t>(&'t Terminal);

impl Progress for Waiting<'_> {
    fn waiting(&self, why: &str) {
        self.0.note(&format!("waiting: {why}"));
    }

    fn pausing(&self, is_pausing: bool) {
        if is_pausing {
            self.0.spin("waiting for a free customization");
        } else {
            self.0.stop_spinning();
        }
    }
}

/// Keeps the API server's error as the last of the chain, from which the hint is read.
fn reported(error: LeaseError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        LeaseError::Api(cause) => cause.into(),
        LeaseError::InDoubt { source, .. } | LeaseError::Unfinished { source, .. } => {
            anyhow::Error::new(*source).context(message)
        }
    }
}

/// What could not be checked, and why.
fn not_checked(question: &str, why: &Error) -> String {
    let hint = why.hint().map_or(String::new(), |hint| format!("; {hint}"));
    format!("{why}: could not check {question}{hint}")
}

/// A reference by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Name {
    pub(crate) name: String,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PoolName"))]
pub(crate) struct PoolDocumentName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl From<&PoolName> for PoolDocumentName {
    fn from(PoolName { namespace, name }: &PoolName) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }
}

/// Why there is no lease, or why a lease was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// No entry is free.
    Exhausted,
    /// No entry became free in time.
    Timeout,
    /// Another `ClusterDeployment` holds it, or the same one by another lease.
    NotHolder,
    /// The pool has no inventory.
    NoSuchEntry,
    /// The lease would not last, or would be of another entry than the one that the cluster uses; or a cluster still
    /// uses the entry.
    Blocked,
}

impl Reason {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Timeout => "timeout",
            Self::NotHolder => "not-holder",
            Self::NoSuchEntry => "no-such-entry",
            Self::Blocked => "blocked",
        }
    }
}

fn refusal(reason: Option<Reason>, message: Option<&str>) -> Option<String> {
    Some(format!("{}: {}", reason?.as_str(), message?))
}

/// Prints a refusal to stderr: the reason is in the document too.
fn verdict(refusal: Option<String>, terminal: &Terminal) -> Verdict {
    match refusal {
        Some(refusal) => {
            terminal.note(&refusal);
            Verdict::Negative
        }
        None => Verdict::Met,
    }
}

fn resource_name(Name { name }: &Name) -> String {
    format!("clusterdeploymentcustomization.hive.openshift.io/{name}")
}

#[cfg(test)]
mod tests;
