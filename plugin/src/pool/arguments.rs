//! Arguments of `kubectl kcp pool`.

use std::{ffi::OsString, time::Duration};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    pool::{
        install_config::InstallConfigSource,
        lease::{generated_name, patience::WaitLimit},
        plan::PoolPlanArguments,
        release::held::Held,
        repair::RepairArguments,
        status::PoolStatusArguments,
    },
};

/// Lease and release the customizations of a cluster pool.
#[derive(Debug, Args)]
pub struct PoolArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// What to do with a pool.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Lease a free customization of the pool's inventory for a cluster
    ///
    /// Leasing again for the same cluster gives the same customization. Exits with 1 when none is free: the reason is
    /// on stderr, and in -o json.
    Lease(LeaseArguments),
    /// Give back what a cluster has leased
    ///
    /// Exits with 0 when it has nothing, and with 1 while its cluster deployment needs what it was made with. What
    /// others have is not touched.
    Release(ReleaseArguments),
    /// Find what has leaked, and mend it with --yes
    ///
    /// A customization is never freed while a cluster deployment of its holder's name exists. It is freed when its lease
    /// has ended, or when its holder's cluster deployment was seen once and is gone; with --recreate that one is made anew
    /// instead. Exits with 1 while anything is wrong.
    Repair(RepairArguments),
    /// Show what pools have, who has it, and what is wrong with it
    ///
    /// Exits with 1 when an entry is missing, broken, shared or leaked, or the inventory is smaller than the pool's size.
    Status(PoolStatusArguments),
    /// Say what a change of a pool would make stale or delete; changes nothing
    ///
    /// The file is taken for all of the pool, as `kubectl replace` takes it. Exits with 1 when a cluster becomes stale or is
    /// deleted.
    Plan(PoolPlanArguments),
    /// Run a command while a lease is held
    ///
    /// The lease is renewed as long as the command runs, and given back when it ends. The command finds
    /// `KCP_NAMESPACE`, `KCP_POOL`, `KCP_CUSTOMIZATION` and `KCP_CLUSTER_DEPLOYMENT` in its environment, and with
    /// --install-config `KCP_INSTALL_CONFIG`, a file. Exits with the command's own code; with 125 when there is no lease, or it is lost,
    /// which ends the command; with 126 or 127 when the command cannot be run or is not there.
    Exec(ExecArguments),
}

/// Arguments of `pool lease`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("lessee").required(true))]
pub struct LeaseArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    /// Whose lease it is.
    #[command(flatten)]
    pub lessee: Lessee,

    /// How long the lease lasts unless it is taken again [default: until it is released]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub ttl: Option<Duration>,

    /// Wait until a customization is free, for so long at most where a duration is given
    #[arg(long, value_name = "DURATION", value_parser = WaitLimit::parse)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wait: Option<WaitLimit>,

    /// Patch this install-config with the customization: a file, - for stdin, or secret/NAME, key install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME")]
    pub install_config: Option<InstallConfigSource>,

    /// Make the cluster as well, where no Hive does: its namespace, install-config, customization and `ClusterDeployment`
    #[arg(long, requires = "install_config", conflicts_with = "wait")]
    pub create: bool,

    /// Ask Hive for a cluster of the pool, by a `ClusterClaim` of that name, and wait until there is one
    #[arg(long, conflicts_with_all = ["ttl", "install_config", "create"])]
    pub claim: bool,

    /// Keep the claim that got no cluster in time
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

/// Whose lease it is.
#[derive(Clone, Debug, Args)]
pub struct Lessee {
    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name, group = "lessee")]
    pub cluster_deployment: Option<String>,

    /// The same, with a name of its own that begins with this
    #[arg(long, value_name = "PREFIX", value_parser = generated_name::parse_prefix, group = "lessee")]
    pub generate_name: Option<String>,
}

impl Lessee {
    /// The name; none where neither was given.
    pub(super) fn name(&self) -> Option<String> {
        let generated = || Some(generated_name::generate(self.generate_name.as_deref()?));
        self.cluster_deployment.clone().or_else(generated)
    }
}

/// Arguments of `pool release`.
#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// Name of the cluster pool, or cdc/NAME of one customization
    #[arg(value_name = "POOL|cdc/NAME")]
    pub held: Held,

    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub cluster_deployment: String,

    /// Give it back although the cluster still needs what it was made with
    #[arg(long)]
    pub force: bool,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ReleaseOutput>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// Arguments of `pool exec`.
#[derive(Debug, Args)]
pub struct ExecArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    /// Whose lease it is; by default a name of its own.
    #[command(flatten)]
    pub lessee: Lessee,

    /// How long the lease lasts when it is not renewed: when this program is killed
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, default_value = "1m")]
    pub ttl: Duration,

    /// Wait until a customization is free, for so long at most where a duration is given
    #[arg(long, value_name = "DURATION", value_parser = WaitLimit::parse)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wait: Option<WaitLimit>,

    /// Patch this install-config with the customization: a file, - for stdin, or secret/NAME, key install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME")]
    pub install_config: Option<InstallConfigSource>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// The shortest lease that can be renewed in time: three renewals, and time for the command to end.
const MIN_TTL: Duration = Duration::from_secs(3);

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl < MIN_TTL {
        return Err(format!(
            "a lease that is renewed lasts {} s at least",
            MIN_TTL.as_secs()
        ));
    }
    Ok(ttl)
}

/// Output formats of `pool lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseOutput {
    /// A JSON document: `PoolLease`
    Json,
    /// The same in YAML
    Yaml,
    /// Shell variables, a line each: `KCP_NAMESPACE`, `KCP_POOL`, `KCP_CUSTOMIZATION`, `KCP_CLUSTER_DEPLOYMENT`
    Env,
    /// The leased customization as RESOURCE/NAME
    Name,
    /// The patched install-config; it may hold secrets
    InstallConfig,
}

/// Output formats of `pool release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReleaseOutput {
    /// A JSON document: `PoolRelease`
    Json,
    /// The same in YAML
    Yaml,
    /// The released customizations as RESOURCE/NAME
    Name,
}
