//! `kubeadmConfigSpec`, group `bootstrap.cluster.x-k8s.io`, reduced to the fields that rules read.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use super::{
    Text, Verbatim,
    machine_setup::{DiskSetup, File, Ignition, User},
    machine_template::Taint,
};

/// A [`KubeadmConfigSpec`] with its JSON text, so that comparisons include the fields that are not decoded.
pub type KubeadmConfig<'a> = Verbatim<'a, KubeadmConfigSpec<'a>>;

/// The configuration of kubeadm, `spec.kubeadmConfigSpec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmConfigSpec<'a> {
    /// Settings for the whole cluster.
    #[serde(borrow)]
    pub cluster_configuration: Option<ClusterConfiguration<'a>>,
    /// Settings for the first Machine.
    pub init_configuration: Option<InitConfiguration<'a>>,
    /// Settings for all other Machines.
    pub join_configuration: Option<JoinConfiguration<'a>>,
    /// Files to write before kubeadm runs.
    pub files: Option<Vec<File<'a>>>,
    /// Users to add before kubeadm runs.
    pub users: Option<Vec<User<'a>>>,
    /// Disks to partition and format before kubeadm runs.
    pub disk_setup: Option<DiskSetup<'a>>,
    /// Commands that cloud-init runs early during boot. Rules check only whether there are any.
    pub boot_commands: Option<Vec<Present>>,
    /// `cloud-config` or `ignition`.
    pub format: Option<Text<'a>>,
    /// Additions to the generated Ignition configuration.
    pub ignition: Option<Ignition>,
}

/// A value that does not matter: rules check only whether it is set.
pub type Present = IgnoredAny;

/// kubeadm's `ClusterConfiguration`, reduced to the fields that rules read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterConfiguration<'a> {
    /// The stable address of the control plane.
    #[serde(borrow)]
    pub control_plane_endpoint: Option<Text<'a>>,
    /// The directory of the certificates on each Machine.
    pub certificates_dir: Option<Text<'a>>,
    /// The validity of the cluster's CAs in days.
    pub ca_certificate_validity_period_days: Option<i64>,
    /// The validity of the certificates that the CAs sign, in days.
    pub certificate_validity_period_days: Option<i64>,
    /// The algorithm of new keys, such as `ECDSA-P384`.
    pub encryption_algorithm: Option<Text<'a>>,
    /// Subnets and DNS domain. Only v1beta1 has this field.
    pub networking: Option<Networking<'a>>,
    /// Only v1beta1 has this field. Cluster API sets it from `spec.version`.
    pub kubernetes_version: Option<Text<'a>>,
    /// Only v1beta1 has this field. Cluster API sets it to the name of the Cluster.
    pub cluster_name: Option<Text<'a>>,
    /// The settings of stacked etcd, or the address of an external etcd.
    pub etcd: Option<Etcd<'a>>,
    pub dns: Option<Dns<'a>>,
    /// The feature gates of kubeadm.
    pub feature_gates: Option<BTreeMap<String, Value>>,
    /// The settings of the API server.
    pub api_server: Option<Component<'a>>,
    /// The settings of the controller manager.
    pub controller_manager: Option<Component<'a>>,
    /// The settings of the scheduler.
    pub scheduler: Option<Component<'a>>,
}

/// The image of `CoreDNS`, `clusterConfiguration.dns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Dns<'a> {
    /// The image tag, from which Cluster API reads the version.
    #[serde(borrow)]
    pub image_tag: Option<Text<'a>>,
}

/// The settings of a component on each control plane Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Component<'a> {
    #[serde(borrow)]
    pub extra_args: Option<ExtraArgs<'a>>,
    /// Additional volumes of the component's Pod.
    pub extra_volumes: Option<Vec<HostPathMount<'a>>>,
}

/// A path of the host that a component's Pod mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostPathMount<'a> {
    #[serde(borrow)]
    pub host_path: Option<Text<'a>>,
    /// The path where the component's Pod mounts the host path.
    pub mount_path: Option<Text<'a>>,
}

/// The networking section of `ClusterConfiguration` in v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Networking<'a> {
    /// The address range of Services.
    #[serde(borrow)]
    pub service_subnet: Option<Text<'a>>,
    /// The address range of Pods.
    pub pod_subnet: Option<Text<'a>>,
    /// The DNS domain of the cluster.
    pub dns_domain: Option<Text<'a>>,
}

/// Stacked or external etcd; at most one may be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Etcd<'a> {
    /// Stacked etcd: a member on each control plane Machine.
    #[serde(borrow)]
    pub local: Option<LocalEtcd<'a>>,
    pub external: Option<ExternalEtcd<'a>>,
}

/// Settings of stacked etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalEtcd<'a> {
    /// The image tag of etcd.
    #[serde(borrow)]
    pub image_tag: Option<Text<'a>>,
    /// The folder with the data; empty or absent for kubeadm's default.
    pub data_dir: Option<Text<'a>>,
    pub extra_args: Option<ExtraArgs<'a>>,
}

/// An etcd cluster that Cluster API does not manage.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalEtcd<'a> {
    /// The client URLs of the members of the external etcd.
    #[serde(borrow)]
    pub endpoints: Option<Vec<Text<'a>>>,
    /// The files with which kube-apiserver connects to the external etcd. kubeadm mounts their folders.
    pub ca_file: Option<Text<'a>>,
    pub cert_file: Option<Text<'a>>,
    pub key_file: Option<Text<'a>>,
}

/// kubeadm's `InitConfiguration`, reduced to the fields that rules read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InitConfiguration<'a> {
    #[serde(borrow)]
    pub node_registration: Option<NodeRegistration<'a>>,
    /// Patches of the static Pods. Rules check only whether there are any.
    pub patches: Option<Present>,
    /// The timeouts of kubeadm. Only v1beta2 has this field.
    pub timeouts: Option<Timeouts>,
}

/// kubeadm's `JoinConfiguration`, reduced to the fields that rules read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JoinConfiguration<'a> {
    #[serde(borrow)]
    pub node_registration: Option<NodeRegistration<'a>>,
    /// Patches of the static Pods. Rules check only whether there are any.
    pub patches: Option<Present>,
    /// The timeouts of kubeadm. Only v1beta2 has this field.
    pub timeouts: Option<Timeouts>,
    /// How kubeadm finds the cluster and authenticates to it.
    pub discovery: Option<Discovery>,
}

/// The registration of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeRegistration<'a> {
    /// Additional flags of the kubelet.
    #[serde(borrow)]
    pub kubelet_extra_args: Option<ExtraArgs<'a>>,
    /// The taints with which the kubelet registers its Node.
    pub taints: Option<Vec<Taint<'a>>>,
}

/// Timeouts of kubeadm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// How long kubeadm waits for a control plane component to become healthy, in seconds.
    pub control_plane_component_health_check_seconds: Option<i64>,
}

/// How kubeadm finds the cluster and authenticates to it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Discovery {
    pub file: Option<FileDiscovery>,
}

/// Discovery of the cluster by a kubeconfig file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileDiscovery {
    pub kube_config: Option<DiscoveryKubeConfig>,
}

/// The kubeconfig file that Cluster API generates for joining Machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryKubeConfig {
    pub user: Option<DiscoveryUser>,
}

/// The credentials of the joining Machine. At most one of the two fields may be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryUser {
    /// An auth provider. Rules check only whether it is set.
    pub auth_provider: Option<Present>,
    /// A program that provides the credentials. Rules check only whether it is set.
    pub exec: Option<Present>,
}

/// The flags of a component, `extraArgs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraArgs<'a> {
    /// The flags in the order of the manifest.
    pub flags: Vec<Flag<'a>>,
    /// Whether the flags are a map, in which no flag can repeat, as in v1beta1. In v1beta2, they are a list.
    pub is_map: bool,
}

/// A command-line flag of a component.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Flag<'a> {
    /// The name of the flag without the leading dashes.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The value of the flag, which may be secret.
    pub value: Option<Text<'a>>,
}

/// Omits the name and the value, because they may be secret.
impl fmt::Debug for Flag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flag")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ExtraArgs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExtraArgsVisitor;

        impl<'de> Visitor<'de> for ExtraArgsVisitor {
            type Value = ExtraArgs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names and values, or a map")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut flags = Vec::new();
                while let Some(flag) = list.next_element()? {
                    flags.push(flag);
                }
                Ok(ExtraArgs { flags, is_map: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut flags = Vec::new();
                // Accept a value of another type here, because the error would show the name of the flag.
                while let Some((name, value)) = map.next_entry::<_, &RawValue>()? {
                    flags.push(Flag {
                        name: Some(name),
                        value: serde_json::from_str(value.get()).ok(),
                    });
                }
                Ok(ExtraArgs { flags, is_map: true })
            }
        }

        deserializer.deserialize_any(ExtraArgsVisitor)
    }
}

impl<'a> KubeadmConfigSpec<'a> {
    /// Whether kubeadm patches the static Pods.
    pub fn has_patches(&self) -> bool {
        let init = self.init_configuration.as_ref();
        let join = self.join_configuration.as_ref();
        init.is_some_and(|init| init.patches.is_some()) || join.is_some_and(|join| join.patches.is_some())
    }

    /// Whether the control plane uses an external etcd.
    pub fn has_external_etcd(&self) -> bool {
        self.etcd().is_some_and(|etcd| etcd.external.is_some())
    }

    /// The settings of etcd, `clusterConfiguration.etcd`.
    pub fn etcd(&self) -> Option<&Etcd<'a>> {
        self.cluster_configuration.as_ref()?.etcd.as_ref()
    }
}
