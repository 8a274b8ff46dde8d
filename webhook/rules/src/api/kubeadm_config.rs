//! `kubeadmConfigSpec`, group `bootstrap.cluster.x-k8s.io`, as far as rules read it.

use std::ops::Deref;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use serde_json::value::RawValue;

use super::Text;

/// A [`KubeadmConfigSpec`] with the text that it was decoded from: two are equal when their texts are, so that a
/// difference in a field that we do not read is a difference.
#[derive(Clone, Debug)]
pub struct KubeadmConfig<'a> {
    text: &'a str,
    spec: KubeadmConfigSpec<'a>,
}

impl PartialEq for KubeadmConfig<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<'a> Deref for KubeadmConfig<'a> {
    type Target = KubeadmConfigSpec<'a>;

    fn deref(&self) -> &KubeadmConfigSpec<'a> {
        &self.spec
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for KubeadmConfig<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'de RawValue>::deserialize(deserializer)?.get();
        let spec = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Self { text, spec })
    }
}

/// `spec.kubeadmConfigSpec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmConfigSpec<'a> {
    /// For the whole cluster.
    #[serde(borrow)]
    pub cluster_configuration: Option<ClusterConfiguration<'a>>,
    /// For the first Machine. Rules ask only whether it is there.
    pub init_configuration: Option<Present>,
    /// For every further Machine. Rules ask only whether it is there.
    pub join_configuration: Option<Present>,
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
    /// v1beta1 only.
    pub networking: Option<Networking<'a>>,
    /// v1beta1 only.
    pub kubernetes_version: Option<Text<'a>>,
    /// v1beta1 only.
    pub cluster_name: Option<Text<'a>>,
    /// Stacked or external.
    pub etcd: Option<Etcd<'a>>,
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
    /// On the control plane Machines. Rules ask only whether it is there.
    pub local: Option<Present>,
    /// Elsewhere.
    #[serde(borrow)]
    pub external: Option<ExternalEtcd<'a>>,
}

/// An etcd cluster that somebody else runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalEtcd<'a> {
    /// Client URLs of its members.
    #[serde(borrow)]
    pub endpoints: Option<Vec<Text<'a>>>,
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
