//! The objects that kubeadm and a kubelet write to the workload cluster for a machine.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::etcd::CLIENT_PORT;
use crate::resources;

/// The components whose static pods run on a control plane machine.
const COMPONENTS: [&str; 4] = ["etcd", "kube-apiserver", CONTROLLER_MANAGER, "kube-scheduler"];

pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

pub(super) const NAMESPACE: &str = "kube-system";

/// The port of a kube-apiserver on a real machine.
const API_SERVER_PORT: u16 = 6443;

/// The key of the label and of the taint of control plane Nodes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

pub(super) struct NodeDescription<'a> {
    pub(super) name: &'a str,
    pub(super) provider_id: &'a str,
    /// The Kubernetes version, with `v`.
    pub(super) version: &'a str,
}

pub(super) struct ControlPlaneNode<'a> {
    pub(super) node: NodeDescription<'a>,
    pub(super) address: Ipv4Addr,
    /// The local port of the cluster's API server.
    pub(super) api_port: u16,
    /// The flags of kube-controller-manager that its pod shows.
    pub(super) controller_manager_flags: Vec<String>,
}

/// kubeadm's configuration, which Cluster API changes and which a machine that joins reads.
pub(super) async fn cluster_configuration(client: &Client) -> Result<String> {
    let config: ConfigMap = Api::namespaced(client.clone(), NAMESPACE)
        .get("kubeadm-config")
        .await
        .context("reading the ConfigMap kubeadm-config")?;
    let data = config
        .data
        .and_then(|mut data| data.remove("ClusterConfiguration"));
    data.context("the ConfigMap kubeadm-config has no ClusterConfiguration")
}

/// Stores kubeadm's configuration, which Cluster API reads and changes.
pub(super) async fn create_kubeadm_config(client: &Client, cluster_configuration: &str) -> Result<()> {
    let config = json!({
        "metadata": {"name": "kubeadm-config"},
        "data": {"ClusterConfiguration": cluster_configuration},
    });
    ensure_exists::<ConfigMap>(&Api::namespaced(client.clone(), NAMESPACE), config).await
}

pub(super) async fn create_worker(client: &Client, node: &NodeDescription<'_>) -> Result<()> {
    ensure_exists::<Node>(&Api::all(client.clone()), node_object(node, &[], &json!([]))).await
}

/// Creates the Node of a control plane machine, its mirror pods, and the port forwards to the processes behind them.
pub(super) async fn create_control_plane(client: &Client, machine: &ControlPlaneNode<'_>) -> Result<()> {
    let node = &machine.node;
    let roles = [
        CONTROL_PLANE,
        "node.kubernetes.io/exclude-from-external-load-balancers",
    ];
    let taints = json!([{"key": CONTROL_PLANE, "effect": "NoSchedule"}]);
    ensure_exists::<Node>(&Api::all(client.clone()), node_object(node, &roles, &taints)).await?;
    let forwards = forwards(client);
    let pod = |component: &str| format!("{component}-{}", node.name);
    let etcd = forward(&pod("etcd"), CLIENT_PORT, machine.address, CLIENT_PORT);
    let api = forward(
        &pod("kube-apiserver"),
        API_SERVER_PORT,
        Ipv4Addr::LOCALHOST,
        machine.api_port,
    );
    ensure_exists(&forwards, etcd).await?;
    ensure_exists(&forwards, api).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for component in COMPONENTS {
        let flags = match component {
            CONTROLLER_MANAGER => machine.controller_manager_flags.clone(),
            _ => flags_of_kubeadm(component, machine),
        };
        ensure_exists(&pods, mirror_pod(node, component, &flags)).await?;
    }
    Ok(())
}

/// Some of the flags that kubeadm writes into the manifests of a component.
fn flags_of_kubeadm(component: &str, machine: &ControlPlaneNode<'_>) -> Vec<String> {
    let ControlPlaneNode { node, address, .. } = machine;
    match component {
        "etcd" => vec![
            format!("--name={}", node.name),
            format!("--initial-cluster={}=https://{address}:2380", node.name),
            format!("--listen-client-urls=https://127.0.0.1:{CLIENT_PORT}"),
        ],
        "kube-apiserver" => vec![
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--etcd-servers=https://127.0.0.1:{CLIENT_PORT}"),
        ],
        _ => vec!["--leader-elect=true".to_owned()],
    }
}

/// A port forward from a port of a pod to a local one.
pub(super) fn forward(pod: &str, port: u16, address: Ipv4Addr, target: u16) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "PortForward",
        "metadata": {"name": pod, "namespace": NAMESPACE},
        "spec": {"forwards": [{"ports": [port], "target": {"address": address.to_string(), "port": target}}]},
    })
}

/// Deletes the mirror pods of a machine. Cluster API deletes the Node.
pub(super) async fn delete(client: &Client, machine: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let forwards = forwards(client);
    for component in COMPONENTS {
        let name = format!("{component}-{machine}");
        // Without this, the deletion of a pod that is bound to a Node waits for a kubelet.
        absent(
            pods.delete(&name, &DeleteParams::default().grace_period(0))
                .await
                .map(drop),
        )?;
        absent(forwards.delete(&name, &DeleteParams::default()).await.map(drop))?;
    }
    Ok(())
}

pub(super) fn forwards(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &resources::port_forwards())
}

fn node_object(node: &NodeDescription<'_>, roles: &[&str], taints: &Value) -> Value {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname", node.name),
        ("kubernetes.io/os", "linux"),
    ]);
    labels.extend(roles.iter().map(|role| (*role, "")));
    json!({
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"providerID": node.provider_id, "taints": taints},
        "status": {
            "addresses": [
                // The API server forwards ports through this address, where kwok listens for all machines.
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": node.name},
            ],
            "nodeInfo": {
                "kubeletVersion": node.version,
                "operatingSystem": "linux",
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "machineID": "", "osImage": "", "systemUUID": "",
            },
        },
    })
}

fn mirror_pod(node: &NodeDescription<'_>, component: &str, flags: &[String]) -> Value {
    let image = format!("registry.k8s.io/{component}:{}", node.version);
    let mut container = json!({"name": component, "image": image});
    if let (false, Some(container)) = (flags.is_empty(), container.as_object_mut()) {
        let program = std::iter::once(component);
        let command: Vec<&str> = program.chain(flags.iter().map(String::as_str)).collect();
        container.insert("command".to_owned(), json!(command));
    }
    json!({
        "metadata": {
            "name": format!("{component}-{}", node.name),
            "namespace": NAMESPACE,
            "labels": {"component": component, "tier": "control-plane"},
            "annotations": {
                "kubernetes.io/config.mirror": node.name,
                "kubernetes.io/config.source": "file",
                "kubernetes.io/config.hash": node.name,
            },
        },
        "spec": {
            "nodeName": node.name,
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
            "containers": [container],
        },
    })
}

/// Creates an object unless it exists, because a boot can be retried.
pub(super) async fn ensure_exists<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let created = api
        .create(&PostParams::default(), &serde_json::from_value(object.clone())?)
        .await;
    match created {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error)
            .with_context(|| format!("creating {}", object.pointer("/metadata/name").unwrap_or(&object))),
    }
}

fn absent(deleted: kube::Result<()>) -> Result<()> {
    match deleted {
        Err(Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.context("deleting a machine's objects"),
    }
}
