//! Arguments of `kubectl kcp node remove`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    arguments::{parse_node, parse_timeout},
    change::{arguments::FIELD_MANAGER, confirmation::ConfirmArguments},
    commands::node::etcd_files::EtcdFiles,
    output::OutputArguments,
};

#[derive(Debug, Args)]
#[command(
    after_help = "The command prints a script that removes Kubernetes from the host; run it there as root afterwards. If \
        the drain fails or times out, the Node stays cordoned, and nothing else has changed except for the evicted pods.

Examples:
  kubectl kcp node remove worker-7 --yes --output-file teardown.sh
  kubectl kcp node remove worker-7 --dry-run
  kubectl kcp node remove control-plane-2 --etcd-ca ca.crt --etcd-certificate client.crt --etcd-key client.key"
)]
pub struct RemoveArguments {
    /// Node, as NAME or node/NAME; if the Node no longer exists, its etcd member, as NAME or ID
    #[arg(value_name = "NODE", value_parser = parse_node)]
    pub node: String,

    /// Also evict pods that no controller recreates, and pods whose emptyDir volumes contain data
    #[arg(long)]
    pub force: bool,

    /// Only check, and show what would prevent or delay the removal
    #[arg(long, value_name = "WHERE", value_parser = ["client"], num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub dry_run: Option<String>,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// How long to wait until all pods have left the Node
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10m")]
    pub timeout: Duration,

    #[command(flatten)]
    pub etcd: EtcdFiles,

    /// Create this file with the script for the host, instead of printing the script
    #[arg(long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// The output format. If it is set, messages go to stderr.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    pub field_manager: String,
}
