//! Reads the facts about one control plane from all sources at the same time. The control plane itself is
//! read first, because it names the Cluster, and the names of the Secrets begin with the Cluster's name. etcd
//! is queried as soon as the nodes and Machines are known.

use std::time::Instant;

use kcp_api::{Machine, Object as _, kind::KUBEADM_CONTROL_PLANE, names::label};
use tokio::sync::oneshot;

use crate::reads::{
    Excluded, MachineByNode, WorkloadTarget, failure, limit_per_control_plane, management::read_related,
    read_workload_and_etcd, time_limits::remaining, workers::read_workers,
};
use crate::{Error, reader::Reader, reads::planned::Reads};
use kcp_control_plane::snapshot::{Reading, Snapshot};

/// Reads a control plane and all related facts, and stops reading at `end`.
pub async fn observe(
    reader: &Reader<'_>,
    namespace: &str,
    name: &str,
    excluded: Excluded,
    end: Instant,
) -> Result<Snapshot, Error> {
    let reads = Reads {
        reader,
        namespace,
        limit: limit_per_control_plane(remaining(end)),
    };
    let (object, control_plane) = reads.read_control_plane(name).await?;
    let target = WorkloadTarget::new(&control_plane);
    let own = control_plane.clone();
    let lease = reads.read_controller_lease(&own);
    let machine_leases = reads.read_machine_leases();
    let failed_writes = reads.read_failed_writes(&own);
    let workers = async {
        // Without a managed topology, read no workers: only the topology controller makes a control plane wait for workers.
        own.metadata.label(label::TOPOLOGY_OWNED)?;
        Some(Box::new(read_workers(reader, &own, reads.limit).await))
    };
    let (machines_known, machines) = oneshot::channel();
    // Sending fails only if etcd is not queried.
    let publish = |machines: &[Machine]| drop(machines_known.send(by_node(machines)));
    // The sender is dropped if the Machines cannot be read.
    let machines = async { machines.await.unwrap_or_default() };
    let workload_and_etcd = async {
        match &target {
            Some(target) => read_workload_and_etcd(reader.connection, target, machines, excluded, end).await,
            None => (Reading::NotYet, Reading::NotYet, Reading::NotYet),
        }
    };
    let (
        snapshot,
        (workload, endpoint_certificate, etcd),
        controller_lease,
        machine_leases,
        failed_writes,
        workers,
    ) = tokio::join!(
        Box::pin(read_related(&reads, object, control_plane, publish)),
        Box::pin(workload_and_etcd),
        Box::pin(lease),
        Box::pin(machine_leases),
        Box::pin(failed_writes),
        Box::pin(workers)
    );
    Ok(Snapshot {
        controller_lease,
        machine_leases: Box::new(machine_leases),
        failed_writes,
        workers,
        workload,
        endpoint_certificate,
        etcd,
        ..snapshot
    })
}

pub(super) fn by_node(machines: &[Machine]) -> MachineByNode {
    machines
        .iter()
        .filter_map(|machine| Some((machine.node()?.to_owned(), machine.name().to_owned())))
        .collect()
}

/// Returns the snapshot of a control plane that was in a list, but could not be read afterwards. All its
/// other sources count as failed.
pub fn unread_snapshot(mut listed: Snapshot, error: &Error) -> Snapshot {
    let name = &listed.control_plane.name();
    let failure = failure::from_error(
        failure::object_name(KUBEADM_CONTROL_PLANE.kind, Some(name)),
        error,
    );
    // If the control plane could not be decoded in the list, `failed_reads` already has its failure.
    listed.failed_reads.retain(|known| known.object != failure.object);
    listed.failed_reads.push(failure.clone());
    Snapshot {
        workload: Reading::Failed(failure.clone()),
        endpoint_certificate: Reading::Failed(failure.clone()),
        etcd: Reading::Failed(failure),
        ..listed
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::{Duration, Instant},
    };

    use http::Method;
    use serde_json::json;
    use tokio::sync::Notify;

    use super::{Excluded, Snapshot, label, observe};
    use crate::{
        Connection,
        reader::Reader,
        testing::{
            example::{answer, groups},
            failure,
        },
    };

    /// Reads from a server that lists Machines only after this Secret was requested this number of times.
    async fn observed_after(secret: &'static str, times: usize) -> Snapshot {
        let (asked, is_asked) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        let connection = Connection::canned_async(move |_, path| {
            if path.ends_with(secret) && asked.fetch_add(1, Ordering::Relaxed) + 1 == times {
                is_asked.notify_one();
            }
            let waits = path.ends_with("/machines").then(|| is_asked.clone());
            let answer = if path == "/apis" {
                (200, groups())
            } else {
                answer(path)
            };
            async move {
                if let Some(is_asked) = waits {
                    is_asked.notified().await;
                }
                answer
            }
        });
        let reader = Reader::discover(&connection).await.expect("groups");
        let end = Instant::now() + Duration::from_secs(3);
        observe(&reader, "d", "c1-cp", Excluded::default(), end)
            .await
            .expect("it is read")
    }

    #[test]
    fn the_workload_cluster_and_etcd_wait_for_no_machines() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            // The first request asks whether the Secret exists, the second reads it.
            for secret in ["/secrets/c1-kubeconfig", "/secrets/c1-etcd"] {
                let observed = observed_after(secret, 2).await;
                assert_eq!(observed.failed_reads, [], "{secret}");
                assert_eq!(observed.machines.len(), 3, "{secret}");
                let failure = observed.workload.failure().expect("there is no kubeconfig in it");
                assert_eq!(failure.object, "Secret/c1-kubeconfig");
            }
        });
    }

    #[test]
    fn only_a_topology_needs_the_workers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        for is_owned in [true, false] {
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = asked.clone();
            let respond = move |_: &Method, path: &str| {
                if path.ends_with("/machinedeployments") || path.ends_with("/machinepools") {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                match path {
                    "/apis" => (200, groups()),
                    path if path.ends_with("/machinepools") => {
                        failure(403, "Forbidden", "machinepools is forbidden")
                    }
                    path if path.ends_with("/machinedeployments") => {
                        let owner = json!({"metadata": {"name": "md-0"}, "spec": {
                            "clusterName": "c1", "template": {"spec": {"version": "v1.33.6"}}}});
                        (200, json!({"items": [owner]}))
                    }
                    path if path.ends_with("/kubeadmcontrolplanes/c1-cp") && is_owned => {
                        let (status, mut control_plane) = answer(path);
                        control_plane["metadata"]["labels"][label::TOPOLOGY_OWNED] = json!("");
                        (status, control_plane)
                    }
                    path => answer(path),
                }
            };
            let end = Instant::now() + Duration::from_secs(3);
            let observed = runtime.block_on(async {
                let connection = Connection::canned(respond);
                let reader = Reader::discover(&connection).await.expect("groups");
                observe(&reader, "d", "c1-cp", Excluded::default(), end).await
            });
            let workers = observed.expect("it is read").workers;
            let read = workers.map(|workers| (workers.workers.len(), workers.read_failures.len()));
            let expected = if is_owned { (2, Some((1, 1))) } else { (0, None) };
            assert_eq!((asked.load(Ordering::Relaxed), read), expected);
        }
    }
}
