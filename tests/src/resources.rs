//! The kinds that the tests read and write.

use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};

/// Cluster API's core group.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// The group of `KubeadmControlPlane`.
pub const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
/// The group of `KubeadmConfig`.
pub const BOOTSTRAP_GROUP: &str = "bootstrap.cluster.x-k8s.io";
/// The group of the stand-in machines.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn objects(client: &Client, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, resource)
}

pub fn clusters(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(CLUSTER_GROUP, "v1beta2", "Cluster", "clusters"),
    )
}

pub fn cluster_classes(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(CLUSTER_GROUP, "v1beta2", "ClusterClass", "clusterclasses"),
    )
}

/// The registrations of runtime extensions.
pub fn extension_configs(client: &Client) -> Api<DynamicObject> {
    let resource = resource(
        "runtime.cluster.x-k8s.io",
        "v1beta2",
        "ExtensionConfig",
        "extensionconfigs",
    );
    Api::all_with(client.clone(), &resource)
}

pub fn machines(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(CLUSTER_GROUP, "v1beta2", "Machine", "machines"),
    )
}

pub fn machine_deployments(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(
            CLUSTER_GROUP,
            "v1beta2",
            "MachineDeployment",
            "machinedeployments",
        ),
    )
}

pub fn machine_drain_rules(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(CLUSTER_GROUP, "v1beta2", "MachineDrainRule", "machinedrainrules"),
    )
}

pub fn machine_health_checks(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(
            CLUSTER_GROUP,
            "v1beta2",
            "MachineHealthCheck",
            "machinehealthchecks",
        ),
    )
}

pub fn control_planes(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(
            CONTROL_PLANE_GROUP,
            "v1beta2",
            "KubeadmControlPlane",
            "kubeadmcontrolplanes",
        ),
    )
}

pub fn control_plane_templates(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(
            CONTROL_PLANE_GROUP,
            version,
            "KubeadmControlPlaneTemplate",
            "kubeadmcontrolplanetemplates",
        ),
    )
}

pub fn kubeadm_config_templates(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(
        client,
        namespace,
        &resource(
            BOOTSTRAP_GROUP,
            "v1beta2",
            "KubeadmConfigTemplate",
            "kubeadmconfigtemplates",
        ),
    )
}

pub fn stand_in_clusters() -> ApiResource {
    resource(
        INFRASTRUCTURE_GROUP,
        "v1beta1",
        "StandInCluster",
        "standinclusters",
    )
}

pub fn stand_in_cluster_templates() -> ApiResource {
    resource(
        INFRASTRUCTURE_GROUP,
        "v1beta1",
        "StandInClusterTemplate",
        "standinclustertemplates",
    )
}

pub fn stand_in_machines() -> ApiResource {
    resource(
        INFRASTRUCTURE_GROUP,
        "v1beta1",
        "StandInMachine",
        "standinmachines",
    )
}

pub fn stand_in_machine_templates() -> ApiResource {
    resource(
        INFRASTRUCTURE_GROUP,
        "v1beta1",
        "StandInMachineTemplate",
        "standinmachinetemplates",
    )
}

/// kwok's `PortForward`.
pub fn port_forwards() -> ApiResource {
    resource("kwok.x-k8s.io", "v1alpha1", "PortForward", "portforwards")
}
