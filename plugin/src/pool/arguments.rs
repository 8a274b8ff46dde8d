//! Arguments of `kubectl kcp pool`.

use clap::{Args, Subcommand, ValueEnum};

use super::repair::RepairArguments;
use crate::arguments::{parse_cluster_pool, parse_object_name};

/// Lease and release the customizations of a cluster pool.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "lease|release|repair")]
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
    /// has ended, or when its holder's cluster deployment was seen once and is gone. Exits with 1 while anything is wrong.
    Repair(RepairArguments),
}

/// Arguments of `pool lease`.
#[derive(Debug, Args)]
pub struct LeaseArguments {
    /// Whose customization, and whose.
    #[command(flatten)]
    pub lease: LeaseName,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<LeaseOutput>,
}

/// Arguments of `pool release`.
#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// Whose customization, and whose.
    #[command(flatten)]
    pub lease: LeaseName,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub output: Option<ReleaseOutput>,
}

/// What names a lease.
#[derive(Debug, Args)]
pub struct LeaseName {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    /// Name of the cluster deployment that holds the lease
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub cluster_deployment: String,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,
}

/// Output formats of `pool lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseOutput {
    /// A JSON document: `PoolLease`
    Json,
    /// The leased customization as RESOURCE/NAME
    Name,
}

/// Output formats of `pool release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReleaseOutput {
    /// A JSON document: `PoolRelease`
    Json,
    /// The released customizations as RESOURCE/NAME
    Name,
}
