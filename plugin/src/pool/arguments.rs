//! Arguments of `kubectl kcp pool`.

use clap::{Args, Subcommand, ValueEnum};

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
    /// Exits with 0 when it has nothing. What others have is not touched.
    Release(ReleaseArguments),
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
    #[arg(value_parser = parse_pool)]
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

/// What a `ClusterPool` may be called before the slash. `cp` is Hive's short name.
const POOL_KINDS: &[&str] = &[
    "cp",
    "clusterpool",
    "clusterpools",
    "clusterpool.hive.openshift.io",
    "clusterpools.hive.openshift.io",
];

/// Parses `NAME` or `clusterpool/NAME`.
fn parse_pool(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None => parse_object_name(text),
        Some((kind, name)) if POOL_KINDS.contains(&kind.to_ascii_lowercase().as_str()) => {
            parse_object_name(name)
        }
        Some((kind, _)) => Err(format!(
            "{kind} is not a cluster pool: write NAME or clusterpool/NAME"
        )),
    }
}

/// A DNS subdomain (RFC 1123), as the API server asks of names. What it lets through is safe in a URL.
fn parse_object_name(text: &str) -> Result<String, String> {
    let alphanumeric =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        alphanumeric(bytes.first())
            && alphanumeric(bytes.last())
            && bytes.iter().all(|byte| alphanumeric(Some(byte)) || *byte == b'-')
    };
    if text.len() <= 253 && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(
            "a name has lower case letters, digits, '-' and '.', and begins and ends with a letter or digit"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::parse_pool;

    #[test]
    fn accepts_a_pool_with_or_without_its_kind() {
        for text in [
            "p-1",
            "cp/p-1",
            "clusterpool/p-1",
            "ClusterPool/p-1",
            "clusterpools.hive.openshift.io/p-1",
        ] {
            assert_eq!(parse_pool(text).as_deref(), Ok("p-1"), "{text}");
        }
    }

    #[test]
    fn rejects_other_kinds_and_impossible_names() {
        for text in [
            "cdc/p",
            "cp/",
            "",
            "a/b/c",
            "P",
            "..",
            "../p",
            "a..b",
            "-a",
            "a-",
            "..%2f",
            "a?b",
            "a\u{1b}[31m",
        ] {
            assert!(parse_pool(text).is_err(), "{text}");
        }
    }
}
