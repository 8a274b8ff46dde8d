//! `kubectl kcp generate anchor`: prints the part of a `KubeadmControlPlane` with which a new Machine runs kcp-webhook as a static
//! Pod from its first boot on.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use kcp_client::reads::{
    self,
    anchor::{InstalledAnchor, read_anchor},
};
use kcp_rules::{
    anchor::{StaticPod, text},
    registration::{NAMESPACE, TLS_SECRET},
};

use crate::{arguments::parse_timeout, session::Session, verdict::Verdict};

#[derive(Debug, Args)]
#[command(
    after_help = "The command reads the DaemonSet kcp-webhook-anchor, and prints what the anchor writes to each node: the manifest of \
        the static Pod, and the files that it needs. The certificate and its key are not printed. The files refer to a \
        Secret, which must exist in the namespace of the control plane. Append the items of each list to the list in your \
        manifest; a patch would replace your list.

Examples:
  kubectl kcp generate anchor
  kubectl kcp generate anchor --secret edge-webhook-tls"
)]
pub struct AnchorArguments {
    /// Namespace of the DaemonSet
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    pub anchor_namespace: String,

    /// Secret with key tls.pem in the namespace of the control plane
    #[arg(long, value_name = "NAME", default_value = TLS_SECRET)]
    pub secret: String,

    /// Time limit for reading, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub(super) async fn run(arguments: &AnchorArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let installed = read_anchor(&connection, &arguments.anchor_namespace, limit).await?;
    let printed = files(&installed, arguments);
    session
        .terminal
        .print(&printed)
        .context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

fn files(installed: &InstalledAnchor, arguments: &AnchorArguments) -> String {
    let AnchorArguments {
        anchor_namespace,
        secret,
        ..
    } = arguments;
    let host_files = StaticPod::of_anchor(anchor_namespace, &installed.image, &installed.arguments);
    let control_plane = host_files.control_plane(installed.configuration.as_deref(), secret);
    format!(
        "# Add these fields to the KubeadmControlPlane; append their list items to its lists. Secret {secret} must exist in the\n\
         # namespace of the control plane: copy Secret {anchor_namespace}/kcp-webhook-tls, and copy it again after each renewal.\n"
    ) + &text(&control_plane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_of_the_installed_anchor() {
        let installed = InstalledAnchor {
            image: "registry.example.com/kcp-webhook:0.1.0".to_owned(),
            arguments: vec!["anchor".to_owned(), "--port=12443".to_owned()],
            configuration: None,
        };
        let arguments = AnchorArguments {
            anchor_namespace: "kcp-webhook-system".to_owned(),
            secret: "edge-webhook-tls".to_owned(),
            timeout: Duration::from_secs(1),
        };
        insta::assert_snapshot!(files(&installed, &arguments));
    }
}
