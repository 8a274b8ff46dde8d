//! `kubectl kcp pool`: leases, releases and repairs the customizations of cluster pools. One file for each verb.
//!
//! This file contains what the verbs share: arguments, progress, error messages and exit codes. The crate `kcp-pool`
//! reads, decides and writes.

mod cordon;
mod exec;
mod lease;
mod release;
mod renew;
mod repair;
mod status;

use std::{convert::Infallible, path::PathBuf, str::FromStr, time::Duration};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use kcp_client::{Connection, Error};
use kcp_pool::{
    acquire::{
        claim::ClaimError,
        wait::{Progress, WaitLimit},
    },
    hive::HiveMode,
    install_config::InstallConfig,
    lease::{LeaseError, Ttl},
    objects::PoolName,
};
use serde::Serialize;

use crate::{arguments::parse_duration, file, session::Session, terminal::Terminal, verdict::Verdict};
use cordon::{CordonArguments, UncordonArguments};
pub use exec::EXIT_OWN_FAILURE;
use exec::ExecArguments;
use lease::LeaseArguments;
use release::ReleaseArguments;
use renew::RenewArguments;
use repair::RepairArguments;
use status::PoolStatusArguments;

/// Lease and release the inventory entries of a Hive ClusterPool.
#[derive(Debug, Args)]
pub struct PoolArguments {
    #[command(subcommand)]
    pub command: PoolCommand,
}

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Lease a free entry from the inventory of a Hive ClusterPool, for one cluster
    ///
    /// An entry is a ClusterDeploymentCustomization, such as one host. A second request for the same cluster returns the
    /// same entry and the same lease id. By default, a lease
    /// ends after 24h; stderr says when. Exits with 1 if no customization is free: stderr and -o json say why.
    Lease(LeaseArguments),
    /// Extend a lease or a claim
    ///
    /// Exits with 1 if the lease has ended and the entry has been freed, or if Hive has deleted the claim. The command leases
    /// no other entry instead.
    Renew(RenewArguments),
    /// Release the leases or the claim of a cluster
    ///
    /// Exits with 0 if the cluster holds nothing. Exits with 1 while a cluster deployment uses the
    /// customization, or if you are not allowed to list cluster deployments, because the command then cannot
    /// check this. The command does not change the leases of other clusters. If the pool asks for cleaning, a released
    /// customization is free only after `pool exec --clean` has cleaned it.
    Release(ReleaseArguments),
    /// Exclude a customization from new leases; Hive ignores the exclusion
    Cordon(CordonArguments),
    /// Allow new leases of a cordoned customization
    Uncordon(UncordonArguments),
    /// List problems of leases; --yes repairs them
    ///
    /// The command never frees a customization while a cluster deployment uses it. After the cluster deployment has
    /// been deleted, the customization stays reserved until the grace period and its lease have both ended. With
    /// --recreate, the command creates the cluster deployment again instead. In pools that Hive manages, the command also
    /// reports unclaimed clusters that are older than a Secret of their pool, but deletes none. Exits with 1 while any problem
    /// remains.
    Repair(RepairArguments),
    /// Show the entries of pools, their holders, and problems
    ///
    /// Exits with 1 if an entry is missing, broken, shared or leaked, if the inventory has fewer entries than the pool's
    /// size or was dropped by the server, if Hive cannot create clusters, or if a cluster is broken or was created from an old
    /// Secret.
    Status(PoolStatusArguments),
    /// Run a command while holding a lease or a claim
    ///
    /// While your command runs, `pool exec` renews the lease or claim. When your command ends, `pool exec` releases the lease,
    /// or deletes the claim and with it the cluster. The environment of your command contains `KCP_NAMESPACE`,
    /// `KCP_POOL`, `KCP_CUSTOMIZATION`, `KCP_CLUSTER_DEPLOYMENT` and `KCP_LEASE_ID`. For a lease with
    /// --install-config, it also contains `KCP_INSTALL_CONFIG`, the path of the patched install-config. For a claim, it also
    /// contains `KCP_CLUSTER_CLAIM`, and `KCP_KUBECONFIG`, the path of the cluster's kubeconfig. Exits with your command's
    /// own exit code. Exits with 75 if no customization or cluster was free in time. Exits with 125 if the lease could
    /// not be acquired, or was lost (`pool exec` then ends your command). Exits with 126 or 127 if your command cannot
    /// be run or does not exist.
    ///
    /// With --clean, `pool exec` leases nothing, but runs your command for each customization that must be cleaned before its next
    /// lease; `KCP_CLUSTER_DEPLOYMENT` is the last holder. If your command exits with 0, the customization is free. Exits with 0 if
    /// each run of your command cleaned its customization. Exits with 1 if one did not, or if you are not allowed to list the
    /// cluster deployments that may use a customization.
    Exec(ExecArguments),
}

pub async fn run(arguments: PoolArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        PoolCommand::Repair(arguments) => Box::pin(repair::run(arguments, session)).await,
        PoolCommand::Status(arguments) => Box::pin(status::run(arguments, session)).await,
        PoolCommand::Lease(arguments) => Box::pin(lease::run(arguments, session)).await,
        PoolCommand::Exec(arguments) => Box::pin(exec::run(arguments, session)).await,
        PoolCommand::Release(arguments) => Box::pin(release::run(arguments, session)).await,
        PoolCommand::Renew(arguments) => Box::pin(renew::run(arguments, session)).await,
        PoolCommand::Cordon(arguments) => {
            Box::pin(cordon::run(arguments.change, Some(arguments.reason), session)).await
        }
        PoolCommand::Uncordon(arguments) => Box::pin(cordon::run(arguments.change, None, session)).await,
    }
}

/// The value of `--install-config`: where to read the install-config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallConfigSource {
    /// A file, or `-` for stdin.
    File(PathBuf),
    /// The name of a Secret in the pool's namespace.
    Secret(String),
}

impl FromStr for InstallConfigSource {
    type Err = Infallible;

    /// Parses `secret/NAME` as a Secret, and anything else as a file. `./secret/NAME` is a file of that name.
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
            Self::Secret(name) => InstallConfig::from_secret(connection, name).await?,
        })
    }
}

/// Parses the value of `--wait`, which is optional: a duration, or no limit without a value.
fn parse_wait(text: &str) -> Result<WaitLimit, String> {
    if text.is_empty() {
        Ok(WaitLimit::Unlimited)
    } else {
        parse_duration(text).map(WaitLimit::AtMost)
    }
}

/// Parses the value of `--ttl`: a duration with a unit, or 0 for a lease that never ends.
fn parse_ttl(text: &str) -> Result<Ttl, String> {
    if text == "0" {
        return Ok(Ttl::Never);
    }
    let ttl = parse_duration(text)?;
    if ttl < Duration::from_secs(1) {
        return Err("a lease must last at least 1 s; 0 means until the lease is released".to_owned());
    }
    Ok(Ttl::For(ttl))
}

/// The value of `--hive`: whether Hive manages the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HiveArgument {
    /// Decide from Hive's `HiveConfig`, Hive's controllers, and the pool's finalizer and conditions
    #[default]
    Auto,
    /// Hive manages the pool
    Yes,
    /// Hive does not manage the pool
    No,
}

impl From<HiveArgument> for HiveMode {
    fn from(argument: HiveArgument) -> Self {
        match argument {
            HiveArgument::Auto => Self::Auto,
            HiveArgument::Yes => Self::Manages,
            HiveArgument::No => Self::Absent,
        }
    }
}

/// Shows on stderr what a command waits for.
struct WaitProgress<'t>(&'t Terminal);

impl Progress for WaitProgress<'_> {
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

    fn queued(&self, place: &str) {
        self.0.spin(place);
    }
}

/// Converts a lease error into an error chain that ends with the API server's error, because hints belong to
/// the last error.
fn reported(error: LeaseError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        LeaseError::Api(cause) => cause.into(),
        LeaseError::InDoubt { source, .. } | LeaseError::ClusterNotCreated { source, .. } => {
            anyhow::Error::new(*source).context(message)
        }
    }
}

/// Converts a claim error into an error that says what happened to the claim.
fn claim_failed(error: ClaimError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        ClaimError::Api(cause) => cause.into(),
        ClaimError::NoCluster { source, .. } => anyhow::Error::new(*source).context(message),
    }
}

/// The warning that the answer to `question` is unknown, with the reason and a hint.
fn not_checked(question: &str, why: &Error) -> String {
    let hint = why.hint().map_or(String::new(), |hint| format!("; {hint}"));
    format!("could not check {question}: {why}{hint}")
}

/// A reference to an object by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Name {
    pub(crate) name: String,
}

/// A reference to a pool by namespace and name.
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

/// Why there is no lease, or why a lease was not released, as JSON documents name the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// No entry of the inventory is free.
    Exhausted,
    /// No entry of the inventory became free in time.
    Timeout,
    /// The holder already has a lease or a claim, but `--new` requests a new one.
    Held,
    /// Another `ClusterDeployment` holds the entry, or the same `ClusterDeployment` has another lease on it.
    NotHolder,
    /// The pool has no inventory, or the inventory has no such entry.
    NoSuchEntry,
    /// Hive would revoke the lease, the holder's cluster uses another entry, or a cluster still uses the entry.
    Blocked,
}

impl Reason {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Timeout => "timeout",
            Self::Held => "held",
            Self::NotHolder => "not-holder",
            Self::NoSuchEntry => "no-such-entry",
            Self::Blocked => "blocked",
        }
    }
}

/// How long a claim lasts. A claim must have an end: otherwise, a killed script would leave its cluster behind for ever.
fn claim_ttl(ttl: Ttl) -> anyhow::Result<Duration> {
    match ttl {
        Ttl::For(ttl) => Ok(ttl),
        Ttl::Never => bail!("a claim must have an end; set --ttl to a duration, such as 24h"),
    }
}

fn refusal(reason: Option<Reason>, message: Option<&str>) -> Option<String> {
    Some(format!("{}: {}", reason?.as_str(), message?))
}

/// If the request was refused, prints the reason to stderr. Returns the verdict. The JSON document contains the same
/// reason.
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
