//! A cluster that Cluster API's topology controller creates from a `ClusterClass`.

use anyhow::{Context as _, Result};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::workers::worker_template;
use super::{Cluster, create, machine_template};
use crate::resources::{self, BOOTSTRAP_GROUP, CLUSTER_GROUP, CONTROL_PLANE_GROUP, INFRASTRUCTURE_GROUP};

/// How a `ClusterClass` differs from the shortest one.
pub struct ClassSettings {
    /// More fields of the `clusterConfiguration`.
    pub configuration: Value,
    /// The spec of the control plane's machines.
    pub machine: Value,
    /// The API version in which the topology controller writes the control plane.
    pub control_plane_version: &'static str,
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self {
            configuration: json!({}),
            machine: json!({}),
            control_plane_version: "v1beta2",
        }
    }
}

impl Cluster {
    /// Creates a `ClusterClass`, its templates, and a cluster of the class.
    pub async fn create_of_class(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
    ) -> Result<Self> {
        let shortest = ClassSettings::default();
        Self::create_of_class_with(client, namespace, name, replicas, version, &shortest).await
    }

    /// [`Self::create_of_class`] with another class.
    pub async fn create_of_class_with(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
        settings: &ClassSettings,
    ) -> Result<Self> {
        let machine = settings.machine.clone();
        let cluster = Self::new(client, namespace, name, machine, super::on_stand_ins());
        let api = |resource| Api::namespaced_with(client.clone(), namespace, &resource);
        create(
            &api(resources::stand_in_cluster_templates()),
            stand_in_cluster_template(name),
        )
        .await?;
        create(
            &api(resources::stand_in_machine_templates()),
            machine_template(&cluster.name, &cluster.machine),
        )
        .await?;
        create(
            &resources::kubeadm_config_templates(client, namespace),
            worker_template(name),
        )
        .await?;
        cluster.add_class(name, settings).await?;
        create(
            &resources::clusters(client, namespace),
            topology(name, replicas, version),
        )
        .await?;
        Ok(cluster)
    }

    /// Creates a class with a template of the control plane, both of this name. Its other templates are those of the cluster's class.
    pub async fn add_class(&self, name: &str, settings: &ClassSettings) -> Result<()> {
        let version = settings.control_plane_version;
        create(
            &resources::control_plane_templates(&self.client, &self.namespace, version),
            control_plane_template(name, version, &settings.configuration),
        )
        .await?;
        let mut class = class(&self.name);
        let own = json!({
            "metadata": {"name": name},
            "spec": {"controlPlane": {"templateRef": {
                "apiVersion": format!("{CONTROL_PLANE_GROUP}/{version}"), "name": name,
            }}},
        });
        json_patch::merge(&mut class, &own);
        create(&resources::cluster_classes(&self.client, &self.namespace), class).await
    }

    /// Patches the Cluster with a merge patch.
    pub async fn patch_cluster(&self, patch: &Value) -> Result<()> {
        resources::clusters(&self.client, &self.namespace)
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("patching the Cluster")?;
        Ok(())
    }

    /// Patches the topology with a merge patch. The topology controller then changes the control plane.
    pub async fn patch_topology(&self, patch: &Value) -> Result<()> {
        self.patch_cluster(&json!({"spec": {"topology": patch}})).await
    }

    /// Patches the `ClusterClass` with a merge patch.
    pub async fn patch_class(&self, patch: &Value) -> Result<()> {
        resources::cluster_classes(&self.client, &self.namespace)
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("patching the ClusterClass")?;
        Ok(())
    }

    /// Sets an annotation of the Cluster, or removes it if `value` is null.
    pub async fn annotate_cluster(&self, key: &str, value: &Value) -> Result<()> {
        self.patch_cluster(&json!({"metadata": {"annotations": {key: value}}}))
            .await
    }

    /// Pauses each `MachineDeployment` of the namespace, or resumes it.
    pub async fn pause_workers(&self, is_paused: bool) -> Result<()> {
        let deployments = resources::machine_deployments(&self.client, &self.namespace);
        let value = if is_paused { json!("") } else { Value::Null };
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
        let listed = deployments.list(&ListParams::default()).await;
        for deployment in listed.context("listing MachineDeployments")? {
            deployments
                .patch(
                    &deployment.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&patch),
                )
                .await
                .context("pausing a MachineDeployment")?;
        }
        Ok(())
    }

    /// The Cluster.
    pub async fn get_cluster(&self) -> Result<Value> {
        let cluster = resources::clusters(&self.client, &self.namespace)
            .get(&self.name)
            .await;
        Ok(serde_json::to_value(cluster.context("reading the Cluster")?)?)
    }
}

fn stand_in_cluster_template(name: &str) -> Value {
    json!({
        "apiVersion": format!("{INFRASTRUCTURE_GROUP}/v1beta1"),
        "kind": "StandInClusterTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {}}},
    })
}

fn control_plane_template(name: &str, version: &str, configuration: &Value) -> Value {
    let mut configuration = configuration.clone();
    if let Some(fields) = configuration.as_object_mut() {
        fields.insert("apiServer".to_owned(), json!({"certSANs": ["127.0.0.1"]}));
    }
    json!({
        "apiVersion": format!("{CONTROL_PLANE_GROUP}/{version}"),
        "kind": "KubeadmControlPlaneTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": configuration}}}},
    })
}

fn class(name: &str) -> Value {
    let template = |group: &str, version: &str, kind: &str| json!({"templateRef": {"apiVersion": format!("{group}/{version}"), "kind": kind, "name": name}});
    let mut control_plane = template(CONTROL_PLANE_GROUP, "v1beta2", "KubeadmControlPlaneTemplate");
    if let Some(fields) = control_plane.as_object_mut() {
        let machines = template(INFRASTRUCTURE_GROUP, "v1beta1", "StandInMachineTemplate");
        fields.insert("machineInfrastructure".to_owned(), machines);
    }
    json!({
        "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"),
        "kind": "ClusterClass",
        "metadata": {"name": name},
        "spec": {
            "infrastructure": template(INFRASTRUCTURE_GROUP, "v1beta1", "StandInClusterTemplate"),
            "controlPlane": control_plane,
            "workers": {"machineDeployments": [{
                "class": "worker",
                "bootstrap": template(BOOTSTRAP_GROUP, "v1beta2", "KubeadmConfigTemplate"),
                "infrastructure": template(INFRASTRUCTURE_GROUP, "v1beta1", "StandInMachineTemplate"),
            }]},
        },
    })
}

fn topology(name: &str, replicas: u32, version: &str) -> Value {
    json!({
        "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"),
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "clusterNetwork": {
                "pods": {"cidrBlocks": ["10.244.0.0/16"]},
                "services": {"cidrBlocks": ["10.96.0.0/24"]},
            },
            "topology": {
                "classRef": {"name": name},
                "version": version,
                "controlPlane": {"replicas": replicas},
            },
        },
    })
}
