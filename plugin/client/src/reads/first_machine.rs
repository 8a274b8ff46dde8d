//! Reads what exists only on the Node of the first Machine: addresses, volumes on its disk, and Pods that can run only there.

use std::time::Instant;

use k8s_openapi::api::core::v1::{
    self, ConfigMap, NodeSelectorTerm, PersistentVolume, Pod, PodSpec, VolumeNodeAffinity,
};
use kcp_api::{Machine, Object as _};
use kcp_control_plane::{
    snapshot::{Failure, Reading},
    verbs::machine::first::{FirstMachine, Holdings, LocalVolume, PinnedPod, first_machine},
};
use kube::api::ListParams;

use crate::{
    Error,
    reader::Reader,
    reads::{
        self,
        secret::Secrets,
        workload::{KUBE_SYSTEM, WorkloadCluster},
    },
};

/// The label with which Kubernetes marks each Node with its host name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Reads what exists only on the Machine, until `end` at the latest. `None` if it is not the first Machine of a control plane that is
/// initialized.
pub async fn read_first_machine(
    reader: &Reader<'_>,
    name: &str,
    end: Instant,
) -> Result<Option<FirstMachine>, Error> {
    let namespace = &reader.connection.namespace;
    let limit = reads::limit_per_control_plane(end.saturating_duration_since(Instant::now()));
    let machine = reader.connection.get(&reader.machine_resource, namespace, name);
    let machine: Machine = match machine.await {
        // The command later reports that the Machine does not exist, with a hint.
        Err(Error::NotFound { .. }) => return Ok(None),
        machine => machine?,
    };
    let Some(control_plane) = machine.control_plane() else {
        return Ok(None);
    };
    let observed = reads::read_from_management(reader, namespace, control_plane, limit).await?;
    let control_plane = &observed.control_plane;
    let first = first_machine(&observed.machines).filter(|first| first.name() == name);
    let (Some(machine), Some(cluster), true) =
        (first, control_plane.cluster(), control_plane.status.initialized)
    else {
        return Ok(None);
    };
    let secrets = Secrets {
        management: reader.connection,
        namespace,
        cluster,
        end,
    };
    let holdings = match machine.node() {
        Some(node) => match Box::pin(read(&secrets, node)).await {
            Ok(holdings) => Reading::Read(holdings),
            Err(failure) => Reading::Failed(failure),
        },
        None => Reading::NotYet,
    };
    let cluster = observed.cluster.value();
    let endpoint = cluster.and_then(|cluster| cluster.spec.control_plane_endpoint.as_ref());
    Ok(Some(FirstMachine {
        name: name.to_owned(),
        node: machine.node().map(str::to_owned),
        endpoint: endpoint.map(|endpoint| endpoint.host.clone()),
        holdings,
    }))
}

async fn read(secrets: &Secrets<'_>, node: &str) -> Result<Holdings, Failure> {
    let cluster = WorkloadCluster::open(secrets).await?;
    let objects = &cluster.objects;
    let everything = ListParams::default();
    let own = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let (nodes, volumes, pods, config) = tokio::join!(
        Box::pin(objects.list(None, &everything, |object: v1::Node| {
            (object.metadata.name.as_deref() == Some(node)).then_some(object)
        })),
        Box::pin(objects.list(None, &everything, Some::<PersistentVolume>)),
        Box::pin(objects.list(None, &own, Some::<Pod>)),
        Box::pin(objects.get::<ConfigMap>(KUBE_SYSTEM, "kubeadm-config")),
    );
    let failures = &cluster.failures;
    let describe = |kind: &'static str| move |error| failures.describe(kind, &error);
    let nodes = nodes.map_err(describe("Node"))?;
    let volumes = volumes.map_err(describe("PersistentVolume"))?;
    let pods = pods.map_err(describe("Pod"))?;
    let config = config.map_err(describe("ConfigMap/kubeadm-config"))?;
    let addresses = nodes
        .into_iter()
        .filter_map(|node| node.status?.addresses)
        .flatten();
    let mut volumes: Vec<LocalVolume> = volumes
        .iter()
        .filter_map(|volume| local_volume(volume, node))
        .collect();
    volumes.sort();
    let mut pods: Vec<PinnedPod> = pods.iter().filter_map(|pod| pinned_pod(pod, node)).collect();
    pods.sort();
    Ok(Holdings {
        addresses: addresses
            .map(|address| address.address)
            .chain([node.to_owned()])
            .collect(),
        volumes,
        pods,
        has_kubeadm_config: config.is_some(),
    })
}

/// Returns the volume if its data is only on the Node, or if it is a hostPath volume without node affinity, whose data may be on
/// the Node.
fn local_volume(volume: &PersistentVolume, node: &str) -> Option<LocalVolume> {
    let spec = volume.spec.as_ref()?;
    let affinity = spec.node_affinity.as_ref().and_then(required_terms);
    let is_only_here = affinity.is_some_and(|terms| requires_node(terms, node));
    let is_host_path = spec.host_path.is_some() && affinity.is_none();
    if !is_only_here && !is_host_path {
        return None;
    }
    Some(LocalVolume {
        name: volume.metadata.name.clone().unwrap_or_default(),
        claim: spec.claim_ref.as_ref().map(|claim| {
            format!(
                "{}/{}",
                claim.namespace.as_deref().unwrap_or_default(),
                claim.name.as_deref().unwrap_or_default()
            )
        }),
        is_only_here,
    })
}

fn required_terms(affinity: &VolumeNodeAffinity) -> Option<&[NodeSelectorTerm]> {
    affinity
        .required
        .as_ref()
        .map(|required| required.node_selector_terms.as_slice())
}

/// Whether each of the alternative terms names this Node and no other.
fn requires_node(terms: &[NodeSelectorTerm], node: &str) -> bool {
    let names = |term: &NodeSelectorTerm| {
        let by_label = term
            .match_expressions
            .iter()
            .flatten()
            .filter(|requirement| requirement.key == HOSTNAME);
        let by_field = term
            .match_fields
            .iter()
            .flatten()
            .filter(|requirement| requirement.key == "metadata.name");
        by_label.chain(by_field).any(|requirement| {
            requirement.operator == "In" && requirement.values.as_deref() == Some(&[node.to_owned()])
        })
    };
    !terms.is_empty() && terms.iter().all(names)
}

/// Returns the Pod if it can run on this Node only. Does not return static Pods, Pods of a `DaemonSet`, and Pods that have ended.
fn pinned_pod(pod: &Pod, node: &str) -> Option<PinnedPod> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let is_of_node = owners
        .into_iter()
        .any(|owner| matches!(owner.kind.as_str(), "Node" | "DaemonSet"));
    let annotations = pod.metadata.annotations.as_ref();
    let is_mirror = annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
    let has_ended = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
    if is_of_node || is_mirror || has_ended {
        return None;
    }
    Some(PinnedPod {
        by: pinned_by(pod.spec.as_ref()?, node)?.to_owned(),
        name: format!(
            "{}/{}",
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default()
        ),
    })
}

fn pinned_by(spec: &PodSpec, node: &str) -> Option<&'static str> {
    let selector = spec.node_selector.as_ref();
    if selector
        .and_then(|labels| labels.get(HOSTNAME))
        .is_some_and(|name| name == node)
    {
        return Some("nodeSelector kubernetes.io/hostname");
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|rule| rule.required_during_scheduling_ignored_during_execution.as_ref());
    required
        .is_some_and(|required| requires_node(&required.node_selector_terms, node))
        .then_some("nodeAffinity")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::{local_volume, pinned_pod};

    fn on(node: &str) -> Value {
        json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]})
    }

    #[test]
    fn a_volume_is_local_if_its_data_is_on_the_node() {
        let path = json!({"path": "/data"});
        for (spec, expected) in [
            (
                json!({"local": path, "nodeAffinity": {"required": on("n1")}}),
                Some(true),
            ),
            (
                json!({"local": path, "nodeAffinity": {"required": on("n2")}}),
                None,
            ),
            (json!({"hostPath": path}), Some(false)),
            (
                json!({"hostPath": path, "nodeAffinity": {"required": on("n2")}}),
                None,
            ),
            (
                json!({"hostPath": path, "nodeAffinity": {"required": on("n1")}}),
                Some(true),
            ),
            (json!({"csi": {"driver": "d", "volumeHandle": "h"}}), None),
        ] {
            let volume = from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).expect("a volume");
            let found = local_volume(&volume, "n1").map(|volume| volume.is_only_here);
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn only_pods_that_cannot_run_elsewhere_are_pinned() {
        let affinity = |node: &str| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": on(node)}});
        let owned = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u"}]);
        for (metadata, spec, expected) in [
            (
                json!({}),
                json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}}),
                Some("nodeSelector kubernetes.io/hostname"),
            ),
            (
                json!({}),
                json!({"affinity": affinity("n1")}),
                Some("nodeAffinity"),
            ),
            (json!({}), json!({"affinity": affinity("n2")}), None),
            (json!({}), json!({"nodeSelector": {"pool": "a"}}), None),
            (
                json!({"ownerReferences": owned("DaemonSet")}),
                json!({"affinity": affinity("n1")}),
                None,
            ),
            (
                json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
                json!({"affinity": affinity("n1")}),
                None,
            ),
        ] {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = from_value(json!({"metadata": metadata, "spec": spec})).expect("a Pod");
            let found = pinned_pod(&pod, "n1").map(|pod| pod.by);
            assert_eq!(found.as_deref(), expected, "{metadata} {spec}");
        }
    }
}
