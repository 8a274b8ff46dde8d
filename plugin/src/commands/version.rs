//! `kubectl kcp version`: shows the versions of the plugin and of the programs that it works with, and warns about combinations
//! that are not supported.
//!
//! - [`component`]: what is known about each program
//! - [`read`]: reads the versions
//! - [`skew`]: decides which combinations to warn about
//! - [`report`]: prints them

mod component;
mod read;
mod report;
mod skew;

use anyhow::anyhow;
use clap::Args;
use kcp_client::Connection;

use crate::{
    output::{OutputArguments, print},
    session::Session,
    verdict::Verdict,
};
use component::Component;
pub(in crate::commands) use report::Versions;

/// Arguments of `version`.
#[derive(Debug, Args)]
#[command(
    after_help = "The version of a program is the tag of its image. The command looks for each Deployment under the name and in \
the namespace of the usual installation. If a Deployment of Cluster API is not there, the command finds it by the label \
cluster.x-k8s.io/provider.

Exit code 2 means that something could not be read; stderr says what and why. A warning does not change the exit code.

Examples:
  kubectl kcp version
  kubectl kcp version --client -o json"
)]
pub struct VersionArguments {
    /// Show only the version of the plugin, without a cluster
    #[arg(long)]
    pub client: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

pub async fn run(arguments: VersionArguments, session: &Session) -> anyhow::Result<Verdict> {
    let mut components = vec![Component::plugin()];
    if !arguments.client {
        components.extend(read::read(session).await);
    }
    let versions = Versions::new(components);
    let terminal = &session.terminal;
    print(&versions, &arguments.output, terminal)?;
    for warning in &versions.warnings {
        terminal.warning(warning);
    }
    let mut verdict = Verdict::Met;
    for failure in versions.failures() {
        terminal.error(&anyhow!(failure), None);
        verdict = Verdict::Undecided;
    }
    Ok(verdict)
}

/// Reads what `version` prints.
pub(in crate::commands) async fn read_versions(connection: &Connection) -> Versions {
    let mut components = vec![Component::plugin()];
    components.extend(read::read_connected(connection).await);
    Versions::new(components)
}
