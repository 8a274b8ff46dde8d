//! The valid objects that cases modify.

use serde_json::{Value, json};

/// The valid object that a case modifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A `KubeadmControlPlane` in this API version.
    ControlPlane(&'static str),
    /// A `KubeadmControlPlaneTemplate` in this API version.
    Template(&'static str),
    /// A `Cluster` of Cluster API.
    Cluster,
    ClusterPool,
    Customization,
    ClusterDeployment,
}

/// A control plane in each API version.
pub const CONTROL_PLANES: &[Base] = &[Base::ControlPlane(V1BETA2), Base::ControlPlane(V1BETA1)];
/// A control plane template in each API version.
pub const TEMPLATES: &[Base] = &[Base::Template(V1BETA2), Base::Template(V1BETA1)];

/// The previous API version of Cluster API.
pub const V1BETA1: &str = "v1beta1";
/// The current API version of Cluster API.
pub const V1BETA2: &str = "v1beta2";

impl Base {
    /// The API version without the group.
    pub const fn version(self) -> &'static str {
        match self {
            Self::ControlPlane(version) | Self::Template(version) => version,
            Self::Cluster => V1BETA2,
            Self::ClusterPool | Self::Customization | Self::ClusterDeployment => "v1",
        }
    }

    /// The valid object as JSON, with all defaults set.
    pub fn object(self) -> Value {
        match self {
            Self::ControlPlane(V1BETA1) => json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1",
                "kind": "KubeadmControlPlane",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "replicas": 3,
                    "version": "v1.34.2",
                    "machineTemplate": {"infrastructureRef": {
                        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
                        "kind": "StandInMachineTemplate",
                        "name": "example"
                    }},
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}},
                        "initConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}},
                        "joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}
                    },
                    "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
                }
            }),
            Self::ControlPlane(_) => json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
                "kind": "KubeadmControlPlane",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "replicas": 3,
                    "version": "v1.34.2",
                    "machineTemplate": {"spec": {"infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io",
                        "kind": "StandInMachineTemplate",
                        "name": "example"
                    }}},
                    "kubeadmConfigSpec": {
                        "clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}},
                        "initConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}},
                        "joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "IfNotPresent"}}
                    },
                    "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
                }
            }),
            Self::Template(version) => json!({
                "apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
                "kind": "KubeadmControlPlaneTemplate",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {"template": {"spec": {
                    "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}}
                }}}
            }),
            Self::Cluster => json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "Cluster",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {"controlPlaneRef": {
                    "apiGroup": "controlplane.cluster.x-k8s.io",
                    "kind": "KubeadmControlPlane",
                    "name": "example"
                }}
            }),
            Self::ClusterPool => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterPool",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {
                    "platform": {"vsphere": {
                        "certificatesSecretRef": {"name": "certificates"},
                        "credentialsSecretRef": {"name": "credentials"}
                    }},
                    "baseDomain": "example.com",
                    "imageSetRef": {"name": "release"},
                    "size": 0,
                    "inventory": [{"name": "foo"}]
                }
            }),
            Self::Customization => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeploymentCustomization",
                "metadata": {"name": "example", "namespace": "default"},
                "spec": {}
            }),
            Self::ClusterDeployment => json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterDeployment",
                "metadata": {"name": "example-1", "namespace": "example-1"},
                "spec": {
                    "baseDomain": "example.com",
                    "clusterName": "foo",
                    "platform": {"vsphere": {
                        "certificatesSecretRef": {"name": "certificates"},
                        "credentialsSecretRef": {"name": "credentials"}
                    }},
                    "clusterPoolRef": {
                        "namespace": "default",
                        "poolName": "example",
                        "clusterDeploymentCustomization": {"name": "foo"}
                    }
                }
            }),
        }
    }
}
