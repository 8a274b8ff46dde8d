use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use kcp_client::{parse_namespace, reads::leader_migration::WorkloadKind};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_object_name, parse_timeout},
    commands::leader_migration::parse::{
        DEFAULT_LEADER_NAME, parse_full_version, parse_lease, parse_minor, parse_service_account,
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
    /// Show which controller manager runs each controller now, under which lock, and what proves it
    Status(StatusArguments),
    /// Print the patch and the permissions for a step of a migration, unless the step would harm the cluster
    Generate(GenerateArguments),
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
    /// Control plane to check, as NAME, kcp/NAME or cluster/NAME; not with --old
    #[arg(value_parser = parse_control_plane, required_unless_present = "old", conflicts_with = "old")]
    pub name: Option<ControlPlaneName>,

    /// Kubernetes version after the upgrade [default: the version of the manifest or of the control plane]
    #[arg(long, value_name = "VERSION", value_parser = parse_full_version)]
    pub to: Option<String>,

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

    /// Assume that neither the Cluster nor the control plane sets a Pod subnet: kubeadm then does not set --allocate-node-cidrs
    #[arg(long)]
    pub no_pod_network: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

const GENERATE_HELP: &str = "The steps of a migration:
  start     enables leader migration on kube-controller-manager, before the upgrade
  upgrade   changes the version, disables the migrated controllers in kube-controller-manager, and removes leader
            migration from it; with --ccm-manifest, it also installs a static Pod of cloud-controller-manager
  finish    removes the configuration, once cloud-controller-manager runs the migrated controllers
  rollback  reverses start or upgrade; possible until a Machine with the new version has joined

The command changes nothing. Apply its output with kubectl: the Role and the RoleBinding in the workload cluster with \
`kubectl apply -f -`, and the JSON patch in the management cluster with `kubectl patch --type=json`. Each part starts \
with the command that applies it. The patch contains the uid and the resourceVersion of the control plane, so the API \
server rejects it if the control plane has changed since the command judged it. If you pass a \
manifest without these two fields, the API server applies the patch even after such a change.

Exit code 1 means that the step would harm the cluster, or that it is unknown whether it would; then the command prints \
the reasons on stderr, and nothing else. It makes the same checks as `leader-migration check`, and asks the controller \
managers that run, like `leader-migration status`. With --filename, it needs no cluster, but cannot ask them.

Examples:
  kubectl kcp leader-migration generate edge --step start --to v1.36.0 --node-ipam
  kubectl kcp leader-migration generate edge --step upgrade --to v1.36.0 --ccm-manifest ccm.yaml -o rbac
  kubectl kcp leader-migration generate edge --step upgrade --to v1.36.0 -o patch --output-file upgrade.yaml
  kubectl kcp leader-migration generate edge --step rollback -o patch
  kubectl kcp leader-migration generate -f edge.yaml --step start --to v1.36.0 --node-ipam -o configuration";

/// Print the patch and the permissions for a step of a migration, unless the step would harm the cluster.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_HELP)]
pub struct GenerateArguments {
    /// Control plane to change, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane, required_unless_present = "file", conflicts_with = "file")]
    pub name: Option<ControlPlaneName>,

    /// Step of the migration
    #[arg(long, value_name = "STEP", value_enum)]
    pub step: StepName,

    /// Kubernetes version after the upgrade, for the steps start and upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_full_version,
          required_if_eq_any([("step", "start"), ("step", "upgrade")]))]
    pub to: Option<String>,

    /// Also migrate Node IPAM, from the step start on
    #[arg(long)]
    pub node_ipam: bool,

    /// Name of the Lease that is the migration lock, for the step start
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    /// Manifest of the Pod of cloud-controller-manager, to install as a static Pod with the step upgrade or finish
    #[arg(long, value_name = "FILE")]
    pub ccm_manifest: Option<PathBuf>,

    /// Version of the Kubernetes libraries in the image of --ccm-manifest [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "ccm_manifest")]
    pub ccm_version: Option<u64>,

    #[command(flatten)]
    pub cloud: CloudIdentity,

    /// Namespace of the Pods of cloud-controller-manager in the workload cluster
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = parse_namespace)]
    pub ccm_namespace: String,

    /// Manifest of the control plane, with which `--step start` needs no cluster; - means stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Print only this part [default: the permissions, if the step needs some, and the patch]
    #[arg(short = 'o', long = "output", value_name = "PART", value_enum)]
    pub part: Option<Part>,

    /// Create this file with mode 0600; - means stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub output_file: PathBuf,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,
}

/// A step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StepName {
    Start,
    Upgrade,
    Finish,
    Rollback,
}

/// A part of the output of `generate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The JSON patch of the control plane
    Patch,
    /// The permissions for the migration Lease
    Rbac,
    /// The leader migration configuration, for cloud-controller-manager
    Configuration,
}

/// The user that cloud-controller-manager authenticates as.
#[derive(Debug, Args)]
pub struct CloudIdentity {
    /// User of cloud-controller-manager
    #[arg(long, value_name = "USER", default_value = "system:cloud-controller-manager")]
    pub ccm_user: String,

    /// Service account of cloud-controller-manager, instead of a user
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_service_account, conflicts_with = "ccm_user")]
    pub ccm_service_account: Option<(String, String)>,
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
    #[arg(value_parser = parse_control_plane)]
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
