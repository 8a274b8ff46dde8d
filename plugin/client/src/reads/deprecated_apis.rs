//! Reads which deprecated APIs the clients of a workload cluster use, from the metrics of each API server.

use std::time::Instant;

use futures_util::future::join_all;
use kcp_api::Machine;
use kcp_control_plane::{
    release_changes::{Removals, UsedApis, removals, requested_apis},
    snapshot::Snapshot,
};

use crate::{
    Connection,
    reads::{
        secret::Secrets,
        time_limits,
        workload::{KUBE_SYSTEM, WorkloadCluster, get_text},
    },
    workload::{ComponentServer, PortForward},
};

/// The port of an API server, unless `localAPIEndpoint` sets another one.
const PORT: u16 = 6443;

/// The metrics of an API server with many resources have about ten mebibytes.
const MAX_METRICS_MEBIBYTES: usize = 32;

/// Asks each API server, until `end` at the latest. An API server knows only the requests that it has served since its start. If
/// an upgrade to `version` removes no API, asks no API server.
pub async fn read_used_apis(
    management: &Connection,
    observed: &Snapshot,
    version: &str,
    end: Instant,
) -> UsedApis {
    let control_plane = &observed.control_plane;
    if removals(control_plane.spec.version(), version, None) == Removals::default() {
        return UsedApis::default();
    }
    let cluster = match Secrets::of_control_plane(management, control_plane, end) {
        Ok(secrets) => WorkloadCluster::open(&secrets).await,
        Err(failure) => Err(failure),
    };
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(failure) => return UsedApis::unread(failure.text()),
    };
    let nodes = observed.machines.iter().filter_map(Machine::node);
    let reads = join_all(nodes.map(|node| metrics(&cluster, node, end))).await;
    if reads.is_empty() {
        return UsedApis::unread("no Machine has a node".to_owned());
    }
    let mut used = UsedApis::default();
    for read in reads {
        match read {
            Ok(metrics) => used.requested.extend(requested_apis(&metrics)),
            Err(why) => used.unread.push(why),
        }
    }
    used
}

async fn metrics(cluster: &WorkloadCluster, node: &str, end: Instant) -> Result<String, String> {
    let pod = format!("kube-apiserver-{node}");
    let server = ComponentServer {
        forward: PortForward::new(cluster.server.client.clone(), KUBE_SYSTEM, &pod, PORT),
        port: PORT,
        tls: &cluster.server.component_tls,
        limit: time_limits::remaining(end),
        max_mebibytes: MAX_METRICS_MEBIBYTES,
    };
    let metrics = get_text(&server, "/metrics", "text/plain").await;
    metrics.map_err(|why| format!("{pod}: {why}"))
}
