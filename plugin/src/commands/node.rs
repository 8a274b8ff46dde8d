//! `kubectl kcp node`: works on the Nodes of the cluster that the kubeconfig selects.
//!
//! - [`labels`]: replaces the labels of Nodes
//! - [`join_script`]: a script with which a host joins the cluster
//! - [`remove`]: drains and deletes a Node
//! - [`shell`]: shell scripts from templates; [`etcd_files`]: the files for etcd

mod etcd_files;
mod join_script;
mod labels;
mod remove;
pub(super) mod shell;

use clap::{Args, Subcommand};
pub use join_script::JoinScriptArguments;
pub use labels::LabelsCommand;
pub use remove::RemoveArguments;

use crate::{session::Session, verdict::Verdict};

/// Join hosts to the cluster that the kubeconfig selects, and remove or label its Nodes.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "join-script|remove|labels")]
pub struct NodeArguments {
    #[command(subcommand)]
    pub command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Print a script that joins a host to the cluster with a new bootstrap token
    JoinScript(JoinScriptArguments),
    /// Drain a Node, delete it, and print a script that removes Kubernetes from its host
    Remove(RemoveArguments),
    /// Replace the labels of Nodes
    #[command(subcommand, subcommand_value_name = "set")]
    Labels(LabelsCommand),
}

pub async fn run(arguments: NodeArguments, session: &Session) -> anyhow::Result<Verdict> {
    match arguments.command {
        NodeCommand::JoinScript(arguments) => join_script::run(&arguments, session).await,
        NodeCommand::Remove(arguments) => remove::run(&arguments, session).await,
        NodeCommand::Labels(LabelsCommand::Set(arguments)) => labels::run(&arguments, session).await,
    }
}
