//! The other objects of a row.

use kcp_rules::testing::case::Base;
use kcp_rules::view::{self, View};
use serde_json::{Value, json};

/// The objects besides the object of the row.
#[derive(Debug, Default)]
pub(super) struct OtherObjects {
    /// Whether the row depends on other objects.
    pub(super) sees: bool,
    /// In the order of their creation.
    pub(super) objects: Vec<Value>,
    /// The namespace is being deleted.
    pub(super) terminating: bool,
    cluster: Option<String>,
}

impl OtherObjects {
    /// The row's object with the label of the row's Cluster.
    pub(super) fn labelled(&self, mut object: Value) -> Value {
        if let Some(cluster) = &self.cluster {
            object["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!(cluster);
        }
        object
    }
}

/// The name of a Cluster that the row does not name.
const CLUSTER: &str = "example";

/// The objects of a view.
pub(super) fn of(view: &View, namespace: &str, base: Base) -> OtherObjects {
    let mut other_objects = OtherObjects::default();
    let of_cluster_api = matches!(base, Base::ControlPlane(_));
    let mut add = |known: Option<Vec<Value>>| {
        other_objects.sees |= known.is_some();
        other_objects.objects.extend(known.into_iter().flatten());
    };
    add(view.machines.as_ref().map(|machines| {
        machines
            .iter()
            .enumerate()
            .map(|(number, it)| machine(number, it))
            .collect()
    }));
    add(view
        .worker_machines
        .as_ref()
        .map(|workers| workers.iter().map(|name| worker(name)).collect()));
    add(view.cluster.as_ref().map(|it| it.iter().map(cluster).collect()));
    add(view.control_planes.as_ref().map(|names| {
        names
            .iter()
            .map(|name| named(Base::ControlPlane("v1beta2"), name))
            .collect()
    }));
    add(view.pools.as_ref().map(|pools| pools.iter().map(pool).collect()));
    add(view.customizations.as_ref().map(|names| {
        names
            .iter()
            .map(|name| named(Base::Customization, name))
            .collect()
    }));
    add(view.cluster_deployments.as_ref().map(|deployments| {
        deployments
            .iter()
            .flat_map(|it| deployment(it, namespace))
            .collect()
    }));
    add(view
        .customization
        .as_ref()
        .map(|it| vec![customization(it.as_ref())]));
    add(view.migrations.as_ref().map(|migrations| {
        migrations
            .iter()
            .enumerate()
            .map(|(number, it)| kubeadm_config(number, it))
            .collect()
    }));
    other_objects.sees |= view.namespace_terminating.as_ref().is_some();
    other_objects.terminating = view.namespace_terminating == Some(true);
    let seen = view.cluster.as_ref().and_then(Option::as_ref);
    other_objects.cluster = (other_objects.sees && of_cluster_api)
        .then(|| seen.map_or(CLUSTER, |cluster| &cluster.name).to_owned());
    other_objects
}

fn named(base: Base, name: &str) -> Value {
    let mut object = base.object();
    object["metadata"]["name"] = json!(name);
    object
}

/// Sets a `deletionTimestamp`. The server sets the time itself.
fn deleting(mut object: Value, deleting: bool) -> Value {
    if deleting {
        object["metadata"]["deletionTimestamp"] = json!(kcp_rules::testing::case::NOW);
    }
    object
}

fn machine(number: usize, machine: &view::Machine) -> Value {
    let name = if machine.name.is_empty() {
        format!("machine-{number}")
    } else {
        machine.name.clone()
    };
    let mut object = worker(&name);
    object["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = json!("");
    if machine.has_controller {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "example",
            "uid": "0", "controller": true,
        }]);
    }
    if let Some(version) = &machine.version {
        object["spec"]["version"] = json!(version);
    }
    if machine.awaits_bootstrap_data {
        object["spec"]["bootstrap"] = json!({"configRef": {
            "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": name,
        }});
    }
    if machine.has_node {
        object["status"] = json!({"nodeRef": {"name": name}});
    }
    deleting(object, machine.is_deleting)
}

/// The `KubeadmConfig` of a Machine that migrates.
fn kubeadm_config(number: usize, migration: &view::Migration) -> Value {
    let mut object = json!({
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2",
        "kind": "KubeadmConfig",
        "metadata": {
            "name": format!("machine-{number}"), "namespace": "default",
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER, "cluster.x-k8s.io/control-plane": ""},
        },
        "spec": {"clusterConfiguration": {"controllerManager": {"extraArgs": [
            {"name": "enable-leader-migration", "value": "true"}]}}},
    });
    if let Some(names) = &migration.controllers {
        let path = "/etc/kubernetes/pki/leader.yaml";
        let leaders: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "component": "*"}))
            .collect();
        let content = json!({"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
            "leaderName": migration.leader_name, "controllerLeaders": leaders});
        object["spec"]["files"] = json!([{"path": path, "content": content.to_string()}]);
        let flags = &mut object["spec"]["clusterConfiguration"]["controllerManager"]["extraArgs"];
        if let Some(flags) = flags.as_array_mut() {
            flags.push(json!({"name": "leader-migration-config", "value": path}));
        }
    }
    object
}

fn worker(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
        },
        "spec": {
            "clusterName": CLUSTER,
            "bootstrap": {"dataSecretName": name},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "StandInMachine", "name": name,
            },
        },
    })
}

fn cluster(cluster: &view::Cluster) -> Value {
    let mut object = named(Base::Cluster, &cluster.name);
    if let Some(name) = &cluster.control_plane {
        object["spec"]["controlPlaneRef"]["name"] = json!(name);
    }
    if cluster.paused {
        object["spec"]["paused"] = json!(true);
    }
    deleting(object, cluster.is_deleting)
}

fn pool(pool: &view::Pool) -> Value {
    let mut object = named(Base::ClusterPool, &pool.name);
    object["spec"]["inventory"] = pool.inventory.iter().map(|name| json!({"name": name})).collect();
    deleting(object, pool.is_deleting)
}

/// The customization that a `ClusterDeployment` names in a row.
fn customization(customization: Option<&view::Customization>) -> Value {
    let reference = &Base::ClusterDeployment.object()["spec"]["clusterPoolRef"];
    let name = &reference["clusterDeploymentCustomization"]["name"];
    let mut object = named(Base::Customization, name.as_str().unwrap_or_default());
    if let Some(view::Customization { finalizers, status }) = customization {
        object["metadata"]["finalizers"] = json!(finalizers);
        object["status"] = json!(status);
    }
    object
}

/// A `ClusterDeployment` and the namespace with its name.
fn deployment(deployment: &view::ClusterDeployment, namespace: &str) -> Vec<Value> {
    let mut object = named(Base::ClusterDeployment, &deployment.name);
    object["metadata"]["namespace"] = json!(deployment.name);
    let reference = &mut object["spec"]["clusterPoolRef"];
    reference["poolName"] = json!(deployment.pool);
    match &deployment.customization {
        Some(name) => reference["clusterDeploymentCustomization"] = json!({"name": name}),
        None => {
            reference
                .as_object_mut()
                .map(|fields| fields.remove("clusterDeploymentCustomization"));
        }
    }
    if let Some(claim) = &deployment.claim {
        reference["claimName"] = json!(claim);
    }
    let home = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("{namespace}-{}", deployment.name)},
    });
    vec![home, deleting(object, deployment.is_deleting)]
}
