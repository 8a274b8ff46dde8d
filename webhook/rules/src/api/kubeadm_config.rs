//! `kubeadmConfigSpec`, group `bootstrap.cluster.x-k8s.io`, as far as rules read it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    Text, Verbatim,
    machine_setup::{DiskSetup, File, Ignition, User},
};

/// A [`KubeadmConfigSpec`] with its text, so that a difference in a field that we do not read is a difference.
pub type KubeadmConfig<'a> = Verbatim<'a, KubeadmConfigSpec<'a>>;

/// `spec.kubeadmConfigSpec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmConfigSpec<'a> {
    /// For the whole cluster.
    #[serde(borrow)]
    pub cluster_configuration: Option<ClusterConfiguration<'a>>,
    /// For the first Machine.
    pub init_configuration: Option<InitConfiguration<'a>>,
    /// For every further Machine.
    pub join_configuration: Option<JoinConfiguration<'a>>,
    /// Written before kubeadm runs.
    pub files: Option<Vec<File<'a>>>,
    /// Added before kubeadm runs.
    pub users: Option<Vec<User<'a>>>,
    /// Partitioned and formatted before kubeadm runs.
    pub disk_setup: Option<DiskSetup<'a>>,
    /// Run early in the boot. Rules ask only whether there are any.
    pub boot_commands: Option<Vec<Present>>,
    /// `cloud-config` or `ignition`.
    pub format: Option<Text<'a>>,
    /// What is added to generated Ignition configuration.
    pub ignition: Option<Ignition>,
}

/// A value that is there; what it holds is not read.
pub type Present = IgnoredAny;

/// kubeadm's `ClusterConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterConfiguration<'a> {
    /// The stable address of the API servers.
    #[serde(borrow)]
    pub control_plane_endpoint: Option<Text<'a>>,
    /// Where certificates lie on each Machine.
    pub certificates_dir: Option<Text<'a>>,
    /// Days that the cluster's CAs are valid.
    pub ca_certificate_validity_period_days: Option<i64>,
    /// Days that the certificates they sign are valid.
    pub certificate_validity_period_days: Option<i64>,
    /// v1beta1 only.
    pub networking: Option<Networking<'a>>,
    /// v1beta1 only.
    pub kubernetes_version: Option<Text<'a>>,
    /// v1beta1 only.
    pub cluster_name: Option<Text<'a>>,
    /// Stacked or external.
    pub etcd: Option<Etcd<'a>>,
    /// `CoreDNS`.
    pub dns: Option<Dns<'a>>,
    /// The API server.
    pub api_server: Option<Component<'a>>,
    /// The controller manager.
    pub controller_manager: Option<Component<'a>>,
    /// The scheduler.
    pub scheduler: Option<Component<'a>>,
}

/// `CoreDNS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Dns<'a> {
    /// The tag of its image, which is its version.
    #[serde(borrow)]
    pub image_tag: Option<Text<'a>>,
}

/// A component that runs on each control plane Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Component<'a> {
    /// Flags.
    #[serde(borrow)]
    pub extra_args: Option<ExtraArgs<'a>>,
}

/// Networking of v1beta1's `ClusterConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Networking<'a> {
    /// Services' addresses.
    #[serde(borrow)]
    pub service_subnet: Option<Text<'a>>,
    /// Pods' addresses.
    pub pod_subnet: Option<Text<'a>>,
    /// The cluster's DNS domain.
    pub dns_domain: Option<Text<'a>>,
}

/// How etcd is run: at most one of the two.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Etcd<'a> {
    /// On the control plane Machines.
    #[serde(borrow)]
    pub local: Option<LocalEtcd<'a>>,
    /// Elsewhere.
    pub external: Option<ExternalEtcd<'a>>,
}

/// An etcd member on each control plane Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalEtcd<'a> {
    /// The tag of its image.
    #[serde(borrow)]
    pub image_tag: Option<Text<'a>>,
    /// Flags.
    pub extra_args: Option<ExtraArgs<'a>>,
}

/// An etcd cluster that somebody else runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalEtcd<'a> {
    /// Client URLs of its members.
    #[serde(borrow)]
    pub endpoints: Option<Vec<Text<'a>>>,
}

/// kubeadm's `InitConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InitConfiguration<'a> {
    /// How the Machine becomes a Node.
    #[serde(borrow)]
    pub node_registration: Option<NodeRegistration<'a>>,
    /// v1beta2 only.
    pub timeouts: Option<Timeouts>,
}

/// kubeadm's `JoinConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JoinConfiguration<'a> {
    /// How the Machine becomes a Node.
    #[serde(borrow)]
    pub node_registration: Option<NodeRegistration<'a>>,
    /// v1beta2 only.
    pub timeouts: Option<Timeouts>,
    /// How the Machine finds the cluster.
    pub discovery: Option<Discovery>,
}

/// How a Machine becomes a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeRegistration<'a> {
    /// Flags of the kubelet.
    #[serde(borrow)]
    pub kubelet_extra_args: Option<ExtraArgs<'a>>,
}

/// How long kubeadm waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timeouts {
    /// For a control plane component to be healthy.
    pub control_plane_component_health_check_seconds: Option<i64>,
}

/// How a Machine finds the cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Discovery {
    /// By a kubeconfig.
    pub file: Option<FileDiscovery>,
}

/// By a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileDiscovery {
    /// The kubeconfig to generate.
    pub kube_config: Option<DiscoveryKubeConfig>,
}

/// The kubeconfig to generate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryKubeConfig {
    /// Who joins.
    pub user: Option<DiscoveryUser>,
}

/// Who joins: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiscoveryUser {
    /// Rules ask only whether it is there.
    pub auth_provider: Option<Present>,
    /// Rules ask only whether it is there.
    pub exec: Option<Present>,
}

/// Flags of a component, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraArgs<'a> {
    /// In v1beta2, the names in order. Empty in v1beta1, whose map cannot repeat a name.
    pub names: Vec<Option<Text<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExtraArg<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ExtraArgs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ExtraArgsVisitor;

        impl<'de> Visitor<'de> for ExtraArgsVisitor {
            type Value = ExtraArgs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names and values, or a map")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut args: A) -> Result<Self::Value, A::Error> {
                let mut names = Vec::new();
                while let Some(arg) = args.next_element::<ExtraArg<'de>>()? {
                    names.push(arg.name);
                }
                Ok(ExtraArgs { names })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut args: A) -> Result<Self::Value, A::Error> {
                while args.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(ExtraArgs::default())
            }
        }

        deserializer.deserialize_any(ExtraArgsVisitor)
    }
}

impl<'a> KubeadmConfigSpec<'a> {
    /// Whether etcd is run elsewhere.
    pub fn has_external_etcd(&self) -> bool {
        self.etcd().is_some_and(|etcd| etcd.external.is_some())
    }

    /// How etcd is run, if said.
    pub fn etcd(&self) -> Option<&Etcd<'a>> {
        self.cluster_configuration.as_ref()?.etcd.as_ref()
    }
}
