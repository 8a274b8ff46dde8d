//! `kubectl kcp exporter`: serves the health of control planes, and the state of pools, as metrics for Prometheus.
//!
//! - [`rounds`]: reads the control planes and pools, again and again
//! - [`metrics`]: what `status` and `why` know about one control plane, as metrics; [`pools`]: what `pool status` knows about a pool
//! - [`published`]: serves the metrics

mod metrics;
mod pools;
mod published;
mod rounds;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;

use crate::{arguments::parse_timeout, session::Session, signal::EndSignal, verdict::Verdict};
use published::{Published, serve};
use rounds::Rounds;

/// Serve the health of control planes as metrics for Prometheus, until a signal ends the command.
#[derive(Debug, Args)]
#[command(
    after_help = "The command serves /metrics, /livez and /readyz. It reads in rounds. In each round, it lists the control planes and \
    their objects in the management cluster. Then it reads the workload cluster and etcd of each control plane. The metrics say what \
    `status` and `why` would say. With --pools, they also say what `pool status` would say.

Examples:
  kubectl kcp exporter -A
  kubectl kcp exporter -A --pools
  kubectl kcp exporter -A --interval 30s --port 9090"
)]
pub struct ExporterArguments {
    /// Serve the control planes of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Serve the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Also serve the pools of Hive (ClusterPools): their entries, leases and queues
    #[arg(long)]
    pools: bool,

    /// IP address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,

    /// Port for /metrics, /livez and /readyz, without TLS. 0 picks a free port
    #[arg(long, value_name = "PORT", default_value_t = 8083)]
    port: u16,

    /// Time from the start of one round of reads to that of the next, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "1m")]
    interval: Duration,

    /// Time limit for the reads of each control plane, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    timeout: Duration,
}

pub async fn run(arguments: ExporterArguments, session: &Session) -> anyhow::Result<Verdict> {
    let mut end = EndSignal::listen().context("cannot receive signals")?;
    let address = (arguments.bind_address, arguments.port);
    let socket = TcpListener::bind(address).await;
    let socket = socket.with_context(|| format!("cannot listen on {} port {}", address.0, address.1))?;
    let address = socket
        .local_addr()
        .context("cannot read the address of the port")?;
    let connection = session.connect_within(arguments.timeout).await?;
    let line = format!("Serving metrics at http://{address}/metrics");
    let written = session.terminal.print_line(&line);
    written.context("cannot write to stdout")?;
    let published = Arc::new(Published::default());
    let rounds = Rounds::new(&connection, &arguments, &published);
    tokio::select! {
        () = end.wait() => {}
        () = serve(socket, published.clone()) => {}
        () = Box::pin(rounds.run(&session.terminal)) => {}
        () = Box::pin(rounds.read_slow()) => {}
        () = Box::pin(rounds.run_pools(&session.terminal)) => {}
    }
    Ok(Verdict::Met)
}
