use std::path::PathBuf;

use clap::{Args, Subcommand};
use kcp_rules::syntax::parse_version;

use crate::{arguments::parse_control_plane, output::OutputArguments};

/// Check and prepare the handover of controllers from kube-controller-manager to cloud-controller-manager (KEP-2436).
#[derive(Debug, Args)]
pub struct LeaderMigrationArguments {
    #[command(subcommand)]
    pub command: LeaderMigrationCommand,
}

/// The commands of `leader-migration`.
#[derive(Debug, Subcommand)]
pub enum LeaderMigrationCommand {
    /// Show which controller manager runs each controller before and after an upgrade
    Check(CheckArguments),
    /// Write a configuration that protects an upgrade, and the change that installs it
    Generate(GenerateArguments),
    /// Write the permissions that both controller managers need for the migration lock
    Rbac(RbacArguments),
}

const CHECK_HELP: &str = "Exit code 1 means that the upgrade would stop a controller, run it twice, or stop a controller \
manager.

The file of --ccm can contain a Pod, Deployment or DaemonSet, and the ConfigMap with its leader migration configuration:
  kubectl -n kube-system get daemonset/NAME configmap/NAME -o yaml >ccm.yaml

Examples:
  kubectl kcp leader-migration check edge --to v1.36.0
  kubectl kcp leader-migration check edge --to v1.36.0 --ccm ccm.yaml
  kubectl kcp leader-migration check -f new.yaml --old old.yaml --ccm ccm.yaml";

/// Show which controller manager runs each controller before and after an upgrade.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub struct CheckArguments {
    /// Control plane to check, as NAME or kcp/NAME; not with --old
    #[arg(value_parser = parse_control_plane, required_unless_present = "old", conflicts_with = "old")]
    pub name: Option<String>,

    /// Kubernetes version after the upgrade [default: the version of the manifest or of the control plane]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub to: Option<u64>,

    /// Manifest of the control plane after the upgrade; - means stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Manifest of the control plane before the upgrade, to check without a cluster
    #[arg(long, value_name = "FILE", requires = "file")]
    pub old: Option<PathBuf>,

    /// Manifest of the cloud-controller-manager after the upgrade [default: the static Pod in the control plane's files]
    #[arg(long, value_name = "FILE")]
    pub ccm: Option<PathBuf>,

    /// Manifest of the cloud-controller-manager before the upgrade
    #[arg(long, value_name = "FILE")]
    pub old_ccm: Option<PathBuf>,

    /// Kubernetes version of the libraries of --ccm [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "ccm")]
    pub ccm_version: Option<u64>,

    /// Kubernetes version of the libraries of --old-ccm [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "old_ccm")]
    pub old_ccm_version: Option<u64>,

    /// The Cluster has no Pod network, so kubeadm does not set --allocate-node-cidrs
    #[arg(long)]
    pub no_pod_network: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

const GENERATE_HELP: &str =
    "The output is YAML: the configuration for both controller managers, and, with --filename, a \
merge patch of the KubeadmControlPlane before the upgrade.

Examples:
  kubectl kcp leader-migration generate --from v1.35.4 --to v1.36.0 --node-ipam
  kubectl kcp leader-migration generate --from v1.30.2 --to v1.31.0 -f control-plane.yaml";

/// Write a configuration that protects an upgrade, and the change that installs it.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_HELP)]
pub struct GenerateArguments {
    /// Kubernetes version before the upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub from: u64,

    /// Kubernetes version after the upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub to: u64,

    /// Migrate Node IPAM, too
    #[arg(long)]
    pub node_ipam: bool,

    /// Name of the Lease that is the migration lock
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    /// Manifest of the control plane, whose flags, volumes and files the patch keeps; - means stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Write the permissions that both controller managers need for the migration lock.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp leader-migration rbac
  kubectl kcp leader-migration rbac --leader-name ipam-migration --ccm-service-account kube-system/cloud-controller-manager")]
pub struct RbacArguments {
    /// Name of the Lease that is the migration lock
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    /// User of cloud-controller-manager
    #[arg(long, value_name = "USER", default_value = "system:cloud-controller-manager")]
    pub ccm_user: String,

    /// Service account of cloud-controller-manager, instead of a user
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_service_account, conflicts_with = "ccm_user")]
    pub ccm_service_account: Option<(String, String)>,
}

/// The migration lock of the default configuration.
const DEFAULT_LEADER_NAME: &str = "cloud-provider-extraction-migration";

fn parse_service_account(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/NAME, such as kube-system/cloud-controller-manager".to_owned()),
    }
}

/// The minor version of a Kubernetes version such as `v1.36.0` or `1.36`.
fn parse_minor(text: &str) -> Result<u64, String> {
    let dots = text.bytes().filter(|byte| *byte == b'.').count();
    let full = if dots == 1 {
        format!("{text}.0")
    } else {
        text.to_owned()
    };
    match parse_version(&full) {
        Ok(version) if version.major == 1 => Ok(version.minor),
        _ => Err("expected a Kubernetes 1.x version, such as v1.36.0".to_owned()),
    }
}

fn parse_lease(text: &str) -> Result<String, String> {
    const IN_USE: [&str; 3] = [
        "kube-controller-manager",
        "cloud-controller-manager",
        "kube-scheduler",
    ];
    if IN_USE.contains(&text) {
        return Err("this Lease belongs to a component".to_owned());
    }
    if !kcp_rules::syntax::is_dns1123_subdomain(text.as_bytes()) {
        return Err("expected a valid Lease name: lower-case letters, digits, - and .".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{parse_lease, parse_minor};

    #[test]
    fn versions_and_names_are_parsed() {
        for (text, expected) in [
            ("v1.36.0", Some(36)),
            ("1.35", Some(35)),
            ("v2.0.0", None),
            ("x", None),
        ] {
            assert_eq!(parse_minor(text).ok(), expected, "{text}");
        }
        assert!(parse_lease("ipam-migration").is_ok());
        assert!(parse_lease("kube-scheduler").is_err());
        assert!(parse_lease("Bad_Name").is_err());
    }
}
