//! The arguments of `leader-migration start`, `upgrade`, `finish` and `rollback`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kcp_client::parse_namespace;
use kcp_control_plane::{duration::parse_duration, leader_migration::permissions::Identity};
use kcp_rules::leader_migration::Component;

use crate::{
    arguments::{parse_control_plane, parse_timeout},
    change::{
        arguments::{ReviewArguments, WriteArguments},
        confirmation::ConfirmArguments,
    },
    commands::leader_migration::parse::{
        DEFAULT_LEADER_NAME, parse_lease, parse_minor, parse_service_account,
    },
};

/// The arguments that all steps have.
#[derive(Debug, Args)]
pub struct StepArguments {
    /// Control plane to change, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Wait until the rollout is complete and the step has taken effect, at most this long [default without a value: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "1h", conflicts_with_all = ["dry_run", "output"])]
    pub wait: Option<Duration>,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// Namespace of the Pods of cloud-controller-manager in the workload cluster
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", value_parser = parse_namespace)]
    pub ccm_namespace: String,

    /// Time limit for the reads in the workload cluster, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "20s")]
    pub timeout: Duration,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
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

/// The static Pod of cloud-controller-manager that a step installs.
#[derive(Debug, Args)]
pub struct CloudManifestArguments {
    /// Manifest of the Pod of cloud-controller-manager, to install as a static Pod in the same update
    #[arg(long, value_name = "FILE")]
    pub ccm_manifest: Option<PathBuf>,

    /// Version of the Kubernetes libraries in the image of --ccm-manifest [default: from the tag of its image]
    #[arg(long, value_name = "VERSION", value_parser = parse_minor, requires = "ccm_manifest")]
    pub ccm_version: Option<u64>,
}

const START_HELP: &str = "The command installs the configuration of `leader-migration generate` on the control plane, \
in one update, which replaces every control-plane Machine. Run the command again after the rollout: exit code 0 then \
means that every kube-controller-manager uses leader migration and that one of them holds the Lease. Do not upgrade \
until then: a kube-controller-manager without leader migration would run its controllers a second time.

A dry run shows the fields that change; with -o yaml, the output is the control plane after the change.

Examples:
  kubectl kcp leader-migration start edge --to v1.36.0 --node-ipam --dry-run=server
  kubectl kcp leader-migration start edge --to v1.36.0 --node-ipam --leader-name ipam-migration --yes --wait";

/// Enable leader migration on every kube-controller-manager before an upgrade, and check that each one uses it.
#[derive(Debug, Args)]
#[command(after_help = START_HELP)]
pub struct StartArguments {
    /// Kubernetes version after the upgrade
    #[arg(long, value_name = "VERSION", value_parser = parse_minor)]
    pub to: u64,

    /// Also migrate Node IPAM
    #[arg(long)]
    pub node_ipam: bool,

    /// Name of the Lease that is the migration lock
    #[arg(long, value_name = "NAME", default_value = DEFAULT_LEADER_NAME, value_parser = parse_lease)]
    pub leader_name: String,

    #[command(flatten)]
    pub step: StepArguments,
}

const UPGRADE_HELP: &str = "In one update, the command changes the version, disables the migrated controllers in \
kube-controller-manager, and removes leader migration from it, because kube-controller-manager 1.36 and later \
versions exit if leader migration is enabled. With --ccm-manifest, the same update installs a static Pod of \
cloud-controller-manager. Without --ccm-manifest, cloud-controller-manager must already run, for example as a \
DaemonSet.

The command refuses the upgrade if any kube-controller-manager does not use leader migration, if a permission for the \
Lease is missing, if the workers are too old for the version, or if a controller would run twice or not at all.

Run the command again after the rollout: exit code 0 then means that every Machine has the version. Until the first \
new Machine has joined, `leader-migration rollback` returns to the old version.

Examples:
  kubectl kcp leader-migration upgrade edge --to v1.36.0 --ccm-manifest ccm.yaml --dry-run=server
  kubectl kcp leader-migration upgrade edge --to v1.36.0 --ccm-service-account kube-system/ccm --yes --wait";

/// Upgrade a control plane, and hand the migrated controllers over to cloud-controller-manager.
#[derive(Debug, Args)]
#[command(after_help = UPGRADE_HELP)]
pub struct UpgradeArguments {
    /// New Kubernetes version, such as v1.36.0
    #[arg(long, value_name = "VERSION")]
    pub to: String,

    #[command(flatten)]
    pub manifest: CloudManifestArguments,

    #[command(flatten)]
    pub cloud: CloudIdentity,

    #[command(flatten)]
    pub step: StepArguments,
}

const FINISH_HELP: &str = "The command removes the configuration from the control plane, which replaces every \
control-plane Machine once more. It refuses to do so until every Machine has the new version, no kube-controller-manager \
uses leader migration, and cloud-controller-manager runs the migrated controllers.

Run the command again after the rollout, or use --wait: once no controller manager uses leader migration, the command \
deletes the migration Lease, unless a process renews it.

cloud-controller-manager must no longer use the configuration. If it is a static Pod, pass its manifest without \
--enable-leader-migration to --ccm-manifest. If it is a DaemonSet, remove that flag from the DaemonSet first.

Examples:
  kubectl kcp leader-migration finish edge --dry-run=server
  kubectl kcp leader-migration finish edge --ccm-manifest ccm-without-migration.yaml --yes --wait";

/// Remove the leader migration configuration after the upgrade.
#[derive(Debug, Args)]
#[command(after_help = FINISH_HELP)]
pub struct FinishArguments {
    #[command(flatten)]
    pub manifest: CloudManifestArguments,

    #[command(flatten)]
    pub step: StepArguments,
}

const ROLLBACK_HELP: &str = "After `start`, the command removes leader migration from the control plane. After \
`upgrade`, it restores the old version and leader migration. It refuses to do so after a Machine with the new version \
has joined, because Kubernetes does not support downgrades. An annotation of the control plane records the fields \
that the step changed, and the command restores exactly these fields.

Examples:
  kubectl kcp leader-migration rollback edge --dry-run=server
  kubectl kcp leader-migration rollback edge --yes --wait";

/// Reverse the last step, unless a Machine with the new version has joined.
#[derive(Debug, Args)]
#[command(after_help = ROLLBACK_HELP)]
pub struct RollbackArguments {
    #[command(flatten)]
    pub step: StepArguments,
}

impl CloudIdentity {
    pub(super) fn identity(&self) -> Identity {
        match &self.ccm_service_account {
            Some((namespace, name)) => Identity::ServiceAccount {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            None => Identity::User(self.ccm_user.clone()),
        }
    }
}

/// The user that kube-controller-manager authenticates as.
pub(super) fn kube_identity() -> Identity {
    Identity::User(format!("system:{}", Component::Kube))
}
