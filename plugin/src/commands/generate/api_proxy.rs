//! `kubectl kcp generate api-proxy`: prints the fields with which a new Machine runs a proxy in front of all API servers. Its
//! kubelet uses the proxy instead of a load balancer.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use kcp_client::reads::{self, api_servers::read_api_servers};
use kcp_rules::{
    anchor::text,
    api_proxy::{ApiProxy, HEALTH_PORT, IMAGE, PORT, check_count},
};
use serde_json::{Value, json};

use crate::{
    arguments::{parse_image, parse_timeout},
    session::Session,
    verdict::Verdict,
};

#[derive(Debug, Args)]
#[command(
    after_help = "With these fields, the kubelet of each new Machine connects to HAProxy on its own node, and HAProxy connects \
        to an API server that is ready. With --api-server, name the load balancer: a rollout replaces the current API servers, \
        so a Machine that is created later would find none of them. Install manifests/api-proxy in the workload cluster: it \
        replaces the load balancer in HAProxy's list with the API servers. Append the items of each list to the list in your \
        manifest; a patch would replace your list.

Examples:
  kubectl kcp generate api-proxy --api-server 10.0.0.10:6443
  kubectl kcp generate api-proxy --kind KubeadmConfigTemplate --kubeconfig edge.kubeconfig"
)]
pub struct ApiProxyArguments {
    /// Kind of the object for which the fields are printed
    #[arg(long, value_name = "KIND", value_enum, default_value_t = OwnerKind::KubeadmControlPlane)]
    pub kind: OwnerKind,

    /// API servers, instead of those of the cluster that the kubeconfig selects
    #[arg(long = "api-server", value_name = "IP:PORT,...", value_delimiter = ',')]
    pub api_servers: Vec<SocketAddr>,

    #[command(flatten)]
    pub proxy: ProxyArguments,

    /// Time limit for reading, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

/// The kinds that configure kubeadm on new Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum OwnerKind {
    /// The Machines of a control plane
    KubeadmControlPlane,
    /// The Machines of a MachineDeployment
    KubeadmConfigTemplate,
}

/// Options of the proxy.
#[derive(Debug, Args)]
pub struct ProxyArguments {
    /// Image with HAProxy 2.2 or newer
    #[arg(long = "proxy-image", value_name = "IMAGE", value_parser = parse_image, default_value = IMAGE)]
    pub image: String,

    /// Port of the proxy on 127.0.0.1
    #[arg(long = "proxy-port", value_name = "PORT", default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Port on 127.0.0.1 at which the kubelet probes the proxy
    #[arg(long = "proxy-health-port", value_name = "PORT", default_value_t = HEALTH_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub health_port: u16,
}

impl ProxyArguments {
    /// Fails if both ports are the same.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.port != self.health_port,
            "--proxy-port and --proxy-health-port are both {}; use two ports",
            self.port
        );
        Ok(())
    }

    pub fn proxy(&self) -> ApiProxy {
        ApiProxy {
            image: self.image.clone(),
            port: self.port,
            health_port: self.health_port,
        }
    }
}

pub(super) async fn run(arguments: &ApiProxyArguments, session: &Session) -> anyhow::Result<Verdict> {
    arguments.proxy.check()?;
    let servers = if arguments.api_servers.is_empty() {
        let end = Instant::now() + arguments.timeout;
        let connection = session.connect_within(arguments.timeout).await?;
        let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
        read_api_servers(&connection, limit).await?
    } else {
        check_count(arguments.api_servers.iter().copied().collect()).context("--api-server")?
    };
    session
        .terminal
        .print(&files(&servers, arguments))
        .context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

fn files(servers: &BTreeSet<SocketAddr>, arguments: &ApiProxyArguments) -> String {
    let config = arguments.proxy.proxy().kubeadm_config(servers);
    let (kind, fields) = match arguments.kind {
        OwnerKind::KubeadmControlPlane => (
            "KubeadmControlPlane",
            json!({"spec": {"kubeadmConfigSpec": config}}),
        ),
        OwnerKind::KubeadmConfigTemplate => (
            "KubeadmConfigTemplate",
            json!({"spec": {"template": {"spec": without_init(config)}}}),
        ),
    };
    format!("# Add these fields to the {kind}; append their list items to its lists.\n") + &text(&fields)
}

/// Removes the fields for `kubeadm init`. Only a control plane initializes a cluster.
fn without_init(mut config: Value) -> Value {
    if let Some(fields) = config.as_object_mut() {
        fields.remove("initConfiguration");
    }
    config
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        command::{Arguments, Command},
        commands::generate::{GenerateArguments, GenerateCommand},
    };

    fn printed(arguments: &[&str]) -> String {
        let words = ["kubectl-kcp", "generate", "api-proxy"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(words).unwrap();
        let Command::Generate(GenerateArguments {
            command: GenerateCommand::ApiProxy(arguments),
        }) = parsed.command
        else {
            panic!("another command");
        };
        let servers = arguments.api_servers.iter().copied().collect();
        files(&servers, &arguments)
    }

    #[test]
    fn the_files_of_a_control_plane() {
        insta::assert_snapshot!(printed(&["--api-server", "10.0.0.2:6443,10.0.0.1:6443"]));
    }

    #[test]
    fn the_files_of_workers() {
        let printed = printed(&[
            "--kind",
            "KubeadmConfigTemplate",
            "--api-server",
            "[fd00::1]:6443",
            "--proxy-image",
            "registry.example.com/haproxy:3.2",
            "--proxy-port",
            "8445",
        ]);
        assert!(
            printed.starts_with("# Add these fields to the KubeadmConfigTemplate;"),
            "{printed}"
        );
        for expected in [
            "server api-0 [fd00::1]:6443",
            "image: registry.example.com/haproxy:3.2",
            "https://127.0.0.1:8445",
        ] {
            assert!(printed.contains(expected), "no '{expected}' in {printed}");
        }
        assert!(!printed.contains("initConfiguration"), "{printed}");
    }
}
