//! Many control planes with the status that Cluster API's controllers would write, but without the controllers.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use http::Request;
use http::request::Builder;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::resources::{BOOTSTRAP_GROUP, CLUSTER_GROUP, CONTROL_PLANE_GROUP, INFRASTRUCTURE_GROUP};
use crate::wait;

/// Concurrent writes. The API server's default allows 200.
const AT_ONCE: usize = 64;

const VERSION: &str = "v1.34.1";

/// Conditions of a Machine of a healthy control plane.
const MACHINE_CONDITIONS: [&str; 12] = [
    "Available",
    "Ready",
    "UpToDate",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "NodeReady",
    "NodeHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
];

/// Conditions of a healthy control plane, true and false.
const CONTROL_PLANE_CONDITIONS: [(&str, bool); 12] = [
    ("Available", true),
    ("Initialized", true),
    ("CertificatesAvailable", true),
    ("EtcdClusterHealthy", true),
    ("ControlPlaneComponentsHealthy", true),
    ("MachinesReady", true),
    ("MachinesUpToDate", true),
    ("RollingOut", false),
    ("ScalingUp", false),
    ("ScalingDown", false),
    ("Remediating", false),
    ("Paused", false),
];

#[derive(Debug, Clone)]
pub struct Fleet {
    /// The numbers of the control planes, each with a Cluster and a `MachineHealthCheck`.
    pub control_planes: Range<usize>,
    /// Machines per control plane.
    pub machines_of_each: usize,
}

impl Fleet {
    /// Writes all objects to one namespace, which must exist.
    pub async fn create(&self, client: &Client, namespace: &str) -> Result<()> {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut creating = JoinSet::new();
        for number in self.control_planes.clone() {
            for (object, status) in self.one(&format!("edge-{number:05}")) {
                let (client, places) = (client.clone(), places.clone());
                let namespace = namespace.to_owned();
                creating.spawn(async move {
                    let _place = places.acquire().await?;
                    create(&client, &namespace, &object, status).await
                });
            }
        }
        while let Some(created) = creating.join_next().await {
            created??;
        }
        Ok(())
    }

    /// The objects of one control plane, each with its status.
    fn one(&self, name: &str) -> Vec<(Value, Value)> {
        let mut objects = vec![
            cluster(name),
            control_plane(name, self.machines_of_each),
            health_check(name),
        ];
        objects.extend((0..self.machines_of_each).map(|number| machine(name, number)));
        objects
    }
}

fn condition(kind: &str, holds: bool) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" }, "reason": kind,
        "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-08-21T10:00:00Z",
    })
}

fn labels(cluster: &str) -> Value {
    json!({"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/control-plane": ""})
}

fn cluster(name: &str) -> (Value, Value) {
    let object = json!({
        "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"), "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "controlPlaneEndpoint": {"host": format!("{name}.example.com"), "port": 6443},
            "controlPlaneRef": {"apiGroup": CONTROL_PLANE_GROUP, "kind": "KubeadmControlPlane", "name": name},
            "infrastructureRef": {"apiGroup": INFRASTRUCTURE_GROUP, "kind": "StandInCluster", "name": name},
        },
    });
    let status = json!({
        "phase": "Provisioned", "observedGeneration": 1,
        "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
        "conditions": [condition("Available", true), condition("InfrastructureReady", true)],
    });
    (object, status)
}

fn control_plane(name: &str, machines: usize) -> (Value, Value) {
    let arguments =
        json!([{"name": "audit-log-maxage", "value": "30"}, {"name": "profiling", "value": "false"}]);
    let registration = json!({"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}"}});
    let object = json!({
        "apiVersion": format!("{CONTROL_PLANE_GROUP}/v1beta2"), "kind": "KubeadmControlPlane",
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": name}},
        "spec": {
            "replicas": machines, "version": VERSION,
            "machineTemplate": {"spec": {"infrastructureRef": {
                "apiGroup": INFRASTRUCTURE_GROUP, "kind": "StandInMachineTemplate", "name": name}}},
            "kubeadmConfigSpec": {
                "clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"], "extraArgs": arguments}},
                "initConfiguration": registration, "joinConfiguration": registration,
                "files": [{"path": "/etc/motd", "content": "This machine is looked after.\n".repeat(16)}],
            },
        },
    });
    let conditions = CONTROL_PLANE_CONDITIONS.map(|(kind, holds)| condition(kind, holds));
    let status = json!({
        "observedGeneration": 1, "initialization": {"controlPlaneInitialized": true}, "version": VERSION,
        "versions": [{"version": VERSION, "replicas": machines}],
        "replicas": machines, "readyReplicas": machines, "availableReplicas": machines,
        "upToDateReplicas": machines, "conditions": conditions,
    });
    (object, status)
}

fn machine(cluster: &str, number: usize) -> (Value, Value) {
    let name = format!("{cluster}-{number}");
    let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    let object = json!({
        "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"), "kind": "Machine",
        "metadata": {
            "name": name, "labels": labels(cluster), "finalizers": ["machine.cluster.x-k8s.io"],
            "annotations": {"pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": ""},
            "ownerReferences": [{
                "apiVersion": format!("{CONTROL_PLANE_GROUP}/v1beta2"), "kind": "KubeadmControlPlane",
                "name": cluster, "uid": "00000000-0000-0000-0000-000000000000", "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "clusterName": cluster, "version": VERSION, "failureDomain": format!("fd{number}"),
            "providerID": format!("stand-in://{name}"),
            "bootstrap": {"dataSecretName": name, "configRef": reference(BOOTSTRAP_GROUP, "KubeadmConfig")},
            "infrastructureRef": reference(INFRASTRUCTURE_GROUP, "StandInMachine"),
        },
    });
    let status = json!({
        "phase": "Running", "observedGeneration": 1, "nodeRef": {"name": name},
        "initialization": {"infrastructureProvisioned": true, "bootstrapDataSecretCreated": true},
        "certificatesExpiryDate": "2036-08-21T10:00:00Z",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": VERSION, "machineID": "",
            "operatingSystem": "linux", "osImage": "stand-in", "systemUUID": "",
        },
        "conditions": MACHINE_CONDITIONS.map(|kind| condition(kind, true)),
    });
    (object, status)
}

fn health_check(cluster: &str) -> (Value, Value) {
    let object = json!({
        "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"), "kind": "MachineHealthCheck", "metadata": {"name": cluster},
        "spec": {
            "clusterName": cluster, "selector": {"matchLabels": labels(cluster)},
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}]},
        },
    });
    (
        object,
        json!({"conditions": [condition("RemediationAllowed", true)]}),
    )
}

async fn create(client: &Client, namespace: &str, object: &Value, status: Value) -> Result<()> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let collection = format!(
        "/apis/{}/namespaces/{namespace}/{}s",
        text("/apiVersion"),
        kind.to_lowercase()
    );
    // A busy etcd makes the API server answer 504, whether or not it stored the object.
    wait::until(&format!("the {kind} {name} is created"), async || {
        match send(client, Request::post(&collection), "application/json", object).await {
            Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other,
        }?;
        let patch = Request::patch(format!("{collection}/{name}/status"));
        let body = json!({"status": status});
        Ok(send(client, patch, "application/merge-patch+json", &body).await?)
    })
    .await
}

async fn send(client: &Client, request: Builder, content_type: &str, body: &Value) -> Result<(), Error> {
    let request = request
        .header("content-type", content_type)
        .body(body.to_string().into_bytes())
        .map_err(Error::HttpError)?;
    client.request::<Value>(request).await?;
    Ok(())
}
