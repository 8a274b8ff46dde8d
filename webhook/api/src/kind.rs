//! The kinds that kubectl-kcp reads and writes.

use kube::core::{ApiResource, GroupVersionKind};

use crate::names::group;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    /// The name of the kind in manifests, such as `KubeadmControlPlane`.
    pub kind: &'static str,
    /// The name of the kind in URLs, such as `kubeadmcontrolplanes`.
    pub plural: &'static str,
    /// The API versions that this project supports, preferred first. If a cluster serves none of these versions,
    /// clients use the server's preferred version and decode objects as if they had the first version in this list.
    pub versions: &'static [&'static str],
    /// The product that a user installs if a cluster does not serve the kind.
    pub product: &'static str,
}

impl Kind {
    pub fn api_resource(&self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }

    /// Chooses the API version in which to read the kind. `served` lists the server's versions, its preferred
    /// version first. `None` if `served` is empty.
    pub fn choose<'s>(&self, served: &[&'s str]) -> Option<&'s str> {
        self.versions
            .iter()
            .find_map(|known| served.iter().find(|version| *version == known))
            .or_else(|| served.first())
            .copied()
    }
}

const CLUSTER_API_VERSIONS: &[&str] = &["v1beta2", "v1beta1"];

const fn cluster_api(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: group::CLUSTER,
        kind,
        plural,
        versions: CLUSTER_API_VERSIONS,
        product: "Cluster API",
    }
}

const fn hive(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: group::HIVE,
        kind,
        plural,
        versions: &["v1"],
        product: "Hive or at least its CRDs (manifests/dev/crds)",
    }
}

const fn kubernetes(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        kind,
        plural,
        versions: &["v1"],
        product: "Kubernetes",
    }
}

pub const CLUSTER: Kind = cluster_api("Cluster", "clusters");
pub const CLUSTER_CLASS: Kind = cluster_api("ClusterClass", "clusterclasses");
pub const MACHINE: Kind = cluster_api("Machine", "machines");
pub const MACHINE_DEPLOYMENT: Kind = cluster_api("MachineDeployment", "machinedeployments");
pub const MACHINE_DRAIN_RULE: Kind = cluster_api("MachineDrainRule", "machinedrainrules");
pub const MACHINE_HEALTH_CHECK: Kind = cluster_api("MachineHealthCheck", "machinehealthchecks");
pub const MACHINE_POOL: Kind = cluster_api("MachinePool", "machinepools");

pub const EXTENSION_CONFIG: Kind = Kind {
    group: group::RUNTIME,
    versions: &["v1beta2", "v1alpha1"],
    ..cluster_api("ExtensionConfig", "extensionconfigs")
};

pub const KUBEADM_CONFIG: Kind = Kind {
    group: group::BOOTSTRAP,
    product: "Cluster API's kubeadm bootstrap provider",
    ..cluster_api("KubeadmConfig", "kubeadmconfigs")
};

pub const KUBEADM_CONFIG_TEMPLATE: Kind = Kind {
    kind: "KubeadmConfigTemplate",
    plural: "kubeadmconfigtemplates",
    ..KUBEADM_CONFIG
};

pub const KUBEADM_CONTROL_PLANE: Kind = Kind {
    group: group::CONTROL_PLANE,
    product: "Cluster API's kubeadm control plane provider",
    ..cluster_api("KubeadmControlPlane", "kubeadmcontrolplanes")
};

pub const KUBEADM_CONTROL_PLANE_TEMPLATE: Kind = Kind {
    kind: "KubeadmControlPlaneTemplate",
    plural: "kubeadmcontrolplanetemplates",
    ..KUBEADM_CONTROL_PLANE
};

pub const CLUSTER_CLAIM: Kind = hive("ClusterClaim", "clusterclaims");
pub const CLUSTER_DEPLOYMENT: Kind = hive("ClusterDeployment", "clusterdeployments");
pub const CLUSTER_DEPLOYMENT_CUSTOMIZATION: Kind = hive(
    "ClusterDeploymentCustomization",
    "clusterdeploymentcustomizations",
);
pub const CLUSTER_POOL: Kind = hive("ClusterPool", "clusterpools");

pub const CONFIG_MAP: Kind = kubernetes("", "ConfigMap", "configmaps");
pub const DAEMON_SET: Kind = kubernetes("apps", "DaemonSet", "daemonsets");
pub const DEPLOYMENT: Kind = kubernetes("apps", "Deployment", "deployments");
pub const ENDPOINT_SLICE: Kind = kubernetes("discovery.k8s.io", "EndpointSlice", "endpointslices");
pub const EVENT: Kind = kubernetes("events.k8s.io", "Event", "events");
pub const LEASE: Kind = kubernetes("coordination.k8s.io", "Lease", "leases");
pub const NAMESPACE: Kind = kubernetes("", "Namespace", "namespaces");
pub const NODE: Kind = kubernetes("", "Node", "nodes");
pub const POD: Kind = kubernetes("", "Pod", "pods");
pub const SECRET: Kind = kubernetes("", "Secret", "secrets");
/// The kind of a request that asks the API server which user it authenticated.
pub const SELF_SUBJECT_REVIEW: Kind =
    kubernetes("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews");

const ADMISSION_REGISTRATION: &str = "admissionregistration.k8s.io";
pub const MUTATING_WEBHOOK_CONFIGURATION: Kind = kubernetes(
    ADMISSION_REGISTRATION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
pub const VALIDATING_WEBHOOK_CONFIGURATION: Kind = kubernetes(
    ADMISSION_REGISTRATION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

#[cfg(test)]
mod tests {
    use super::KUBEADM_CONTROL_PLANE;

    #[test]
    fn chooses_the_best_version_that_is_served() {
        for (served, chosen) in [
            (&["v1beta1", "v1beta2"][..], Some("v1beta2")),
            (&["v1beta1"], Some("v1beta1")),
            (&["v1beta1", "v1alpha4"], Some("v1beta1")),
            (&["v1", "v1beta3"], Some("v1")),
            (&[], None),
        ] {
            assert_eq!(KUBEADM_CONTROL_PLANE.choose(served), chosen, "{served:?}");
        }
    }
}
