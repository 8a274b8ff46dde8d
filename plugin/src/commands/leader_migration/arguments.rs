use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use kcp_client::{parse_namespace, reads::leader_migration::WorkloadKind};

use crate::{
    arguments::{
        ControlPlaneName, DryRun, parse_control_plane, parse_control_plane_of_cluster, parse_object_name,
        parse_timeout,
    },
    commands::leader_migration::{
        parse::{DEFAULT_LEADER_NAME, parse_lease, parse_minor},
        step_arguments::{
            CloudIdentity, FinishArguments, RollbackArguments, StartArguments, UpgradeArguments,
        },
    },
    output::OutputArguments,
};

/// Check and prepare the handover of controllers from kube-controller-manager to cloud-controller-manager (KEP-2436).
#[derive(Debug, Args)]
pub struct LeaderMigrationArguments {
    #[command(subcommand)]
    pub command: LeaderMigrationCommand,
}

#[derive(Debug, Subcommand)]
pub enum LeaderMigrationCommand {
    /// Show which controller manager runs each controller before and after an upgrade
    Check(CheckArguments),
    /// Generate the leader migration configuration for an upgrade, and the patch that installs it
    Generate(GenerateArguments),
    /// Show which controller manager runs each controller now, under which lock, and what proves it
    Status(StatusArguments),
    /// Check or grant the permissions that both controller managers need for the migration lock
    Rbac(RbacArguments),
    /// Enable leader migration on every kube-controller-manager before an upgrade, and check that each one uses it
    Start(StartArguments),
    /// Upgrade a control plane, and hand the migrated controllers over to cloud-controller-manager
    Upgrade(UpgradeArguments),
    /// Remove the leader migration configuration after the upgrade
    Finish(FinishArguments),
    /// Reverse the last step, unless a Machine with the new version has joined
    Rollback(RollbackArguments),
}

const CHECK_HELP: &str = "Exit code 1 means that the upgrade would stop a controller, run it twice, or stop a controller \
manager.

With --ccm deployment/NAME or --ccm daemonset/NAME, the command reads that object from the workload cluster, and the \
ConfigMap with its leader migration configuration. With --ccm FILE, the file contains a Pod, Deployment or DaemonSet, \
and that ConfigMap. To pass a file that is named deployment/NAME, write ./deployment/NAME.

Examples:
  kubectl kcp leader-migration check edge --to v1.36.0
  kubectl kcp leader-migration check edge --to v1.36.0 --ccm daemonset/cloud-controller-manager
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

    /// The cloud-controller-manager after the upgrade: a manifest, or an object of the workload cluster [default: the static Pod in spec.kubeadmConfigSpec.files]
    #[arg(long, value_name = "FILE|deployment/NAME|daemonset/NAME", value_parser = parse_cloud_source)]
    pub ccm: Option<CloudSource>,

    /// The cloud-controller-manager before the upgrade: a manifest, or an object of the workload cluster
    #[arg(long, value_name = "FILE|deployment/NAME|daemonset/NAME", value_parser = parse_cloud_source)]
    pub old_ccm: Option<CloudSource>,

    /// Namespace of deployment/NAME and daemonset/NAME in the workload cluster
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = parse_namespace)]
    pub ccm_namespace: String,

    /// Version of the Kubernetes libraries in the image of --ccm [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "ccm")]
    pub ccm_version: Option<u64>,

    /// Version of the Kubernetes libraries in the image of --old-ccm [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "old_ccm")]
    pub old_ccm_version: Option<u64>,

    /// Assume that the Cluster has no Pod network, so that kubeadm does not set --allocate-node-cidrs
    #[arg(long)]
    pub no_pod_network: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

const GENERATE_HELP: &str =
    "The output is YAML: the configuration for both controller managers, and, with --filename, a merge patch to apply to \
the KubeadmControlPlane before the upgrade.

Examples:
  kubectl kcp leader-migration generate --from v1.35.4 --to v1.36.0 --node-ipam
  kubectl kcp leader-migration generate --from v1.30.2 --to v1.31.0 -f control-plane.yaml";

/// Generate the leader migration configuration for an upgrade, and the patch that installs it.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_HELP)]
pub struct GenerateArguments {
    /// Kubernetes version before the upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub from: u64,

    /// Kubernetes version after the upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub to: u64,

    /// Also migrate Node IPAM
    #[arg(long)]
    pub node_ipam: bool,

    /// Name of the Lease that is the migration lock
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    /// Manifest of the control plane, whose flags, volumes and files the patch keeps; - means stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

const STATUS_HELP: &str = "A Lease alone proves nothing: its holder renews the Lease even while it runs none of the \
controllers. So this command asks each controller manager, through port-forwards, which controllers it runs \
(/healthz?verbose) and which settings it has (/configz). For /configz, the kubeconfig of the workload cluster must contain \
a client certificate, and its user needs the verb get on that path. Otherwise the command reads /flagz or the Pod's flags, \
and marks the settings as not verified.

Exit code 0 means that the verdict is protected or nothing to migrate. Exit code 1 means that it is unprotected, \
stale, orphaned or runs twice. Exit code 2 means that something could not be read.

Examples:
  kubectl kcp leader-migration status
  kubectl kcp leader-migration status edge -w
  kubectl kcp leader-migration status edge --ccm-namespace cloud-provider -o json";

/// Show which controller manager runs each controller now, under which lock, and what proves it.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArguments {
    /// Control plane to show, as NAME, kcp/NAME or cluster/NAME [default: the only one in the namespace]
    #[arg(value_parser = parse_control_plane_of_cluster)]
    pub name: Option<ControlPlaneName>,

    /// Namespace of the Pods of cloud-controller-manager in the workload cluster
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = parse_namespace)]
    pub ccm_namespace: String,

    /// Watch for changes: redraw on a terminal, otherwise print a line for each change
    #[arg(short, long)]
    pub watch: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,
}

const RBAC_HELP: &str = "Without NAME, the command prints the manifests of the Role and the RoleBinding. With NAME, \
it asks the API server of the workload cluster what the users of both controller managers may do with the migration \
Lease. In that case, exit code 1 means that a permission is missing.

--apply creates the Role and the RoleBinding leader-migration, or adds to them what is missing. It never changes the \
built-in roles of Kubernetes.

Examples:
  kubectl kcp leader-migration rbac
  kubectl kcp leader-migration rbac edge --leader-name ipam-migration
  kubectl kcp leader-migration rbac edge --ccm-service-account kube-system/cloud-controller-manager --apply";

/// Check or grant the permissions that both controller managers need for the migration lock.
#[derive(Debug, Args)]
#[command(after_help = RBAC_HELP)]
pub struct RbacArguments {
    /// Control plane whose workload cluster to check, as NAME or kcp/NAME; if omitted, the command prints the
    /// manifests
    #[arg(value_parser = parse_control_plane)]
    pub name: Option<String>,

    /// Grant the missing permissions in the workload cluster
    #[arg(long, requires = "name")]
    pub apply: bool,

    /// Check the change without writing it: only locally (client), or also on the server (server)
    #[arg(long, value_name = "WHERE", value_enum, requires = "apply")]
    pub dry_run: Option<DryRun>,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,

    /// Time limit for the reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,

    /// Name of the Lease that is the migration lock
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    #[command(flatten)]
    pub cloud: CloudIdentity,
}

/// The source of a cloud-controller-manager's manifest: a file, or an object of the workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudSource {
    File(PathBuf),
    Object { kind: WorkloadKind, name: String },
}

/// `deployment/NAME` and `daemonset/NAME`, also in kubectl's short forms, are objects. Everything else is a file.
fn parse_cloud_source(text: &str) -> Result<CloudSource, String> {
    let object = text.split_once('/').and_then(|(kind, name)| {
        let kind = match kind.to_ascii_lowercase().as_str() {
            "deployment" | "deployments" | "deploy" | "deployment.apps" => WorkloadKind::Deployment,
            "daemonset" | "daemonsets" | "ds" | "daemonset.apps" => WorkloadKind::DaemonSet,
            _ => return None,
        };
        Some((kind, name))
    });
    match object {
        Some((kind, name)) => parse_object_name(name).map(|name| CloudSource::Object { kind, name }),
        None => Ok(CloudSource::File(PathBuf::from(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::{CloudSource, PathBuf, WorkloadKind, parse_cloud_source};

    #[test]
    fn a_cloud_controller_manager_is_an_object_or_a_file() {
        let object = |kind, name: &str| CloudSource::Object {
            kind,
            name: name.to_owned(),
        };
        for (text, expected) in [
            ("deployment/ccm", Ok(object(WorkloadKind::Deployment, "ccm"))),
            ("ds/ccm", Ok(object(WorkloadKind::DaemonSet, "ccm"))),
            (
                "./deployment/ccm",
                Ok(CloudSource::File(PathBuf::from("./deployment/ccm"))),
            ),
            ("ccm.yaml", Ok(CloudSource::File(PathBuf::from("ccm.yaml")))),
            ("deployment/", Err(())),
        ] {
            assert_eq!(parse_cloud_source(text).map_err(drop), expected, "{text}");
        }
    }
}
