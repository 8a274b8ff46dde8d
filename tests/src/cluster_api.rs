//! The real Cluster API: its definitions, its webhooks and its three managers.
//!
//! On real machines, the managers can run as in a user's cluster, see [`install_deployments`]. Otherwise they are processes on this
//! host, in two roles. One set, [`Managers::for_admission`], serves admission and conversion webhooks for all tests and reconciles
//! nothing. Each test namespace has another set that reconciles it, see [`Controllers`]. Only this set is restarted when a workload
//! cluster comes up, so other tests are not affected, and its logs are about one test only.

mod controllers;
mod definitions;
mod deployments;
mod managers;
mod refusals;
mod unscheduled;
mod webhooks;

use anyhow::Result;
use kube::Client;

pub use self::controllers::Controllers;
pub(crate) use self::controllers::Scope;
pub use self::deployments::install_deployments;
pub use self::managers::Managers;
pub(crate) use self::managers::NAMESPACE;
pub(crate) use self::unscheduled::name_version;
use crate::api_server::ApiServer;
use crate::assets::Assets;

/// The label that `clusterctl init` puts on everything it installs. `clusterctl move` ignores objects whose definitions
/// lack it.
pub(crate) const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";

/// The managers' flag that enables the feature gates of all fields of control planes.
pub const FEATURE_GATES: &str =
    "--feature-gates=ClusterTopology=true,KubeadmBootstrapFormatIgnition=true,MachineTaintPropagation=true";

/// The managers' flag for the limit of one reconcile per second and object, which is on by default and off in most tests. With it,
/// managers of a single namespace fail: `failed to cast Cluster informer to SharedIndexInformer`.
pub const RATE_LIMIT: &str = "--feature-gates=ReconcilerRateLimiting=true";

/// One of Cluster API's three parts.
struct Provider {
    /// The name of its processes and logs.
    name: &'static str,
    program: &'static str,
    /// The service account as which it writes in a real installation.
    user: &'static str,
    /// The path in Cluster API's module and in the assets.
    folder: &'static str,
    /// The value of the label `cluster.x-k8s.io/provider`.
    label: &'static str,
    /// The prefix that its kustomization puts before each name. The API server calls mutating webhooks in the order of
    /// their configurations' names, so tests must use the real names.
    name_prefix: &'static str,
    /// Flags of this manager only.
    flags: &'static [&'static str],
}

const PROVIDERS: [Provider; 3] = [
    Provider {
        name: "core",
        program: "capi-core",
        user: "system:serviceaccount:capi-system:capi-manager",
        folder: "core",
        label: "cluster-api",
        name_prefix: "capi-",
        // The gate of lifecycle hooks, also of those that are annotations.
        flags: &["--feature-gates=RuntimeSDK=true"],
    },
    Provider {
        name: "bootstrap",
        program: "capi-bootstrap",
        user: "system:serviceaccount:capi-kubeadm-bootstrap-system:capi-kubeadm-bootstrap-manager",
        folder: "bootstrap/kubeadm",
        label: "bootstrap-kubeadm",
        name_prefix: "capi-kubeadm-bootstrap-",
        flags: &[],
    },
    Provider {
        name: "control-plane",
        program: "capi-control-plane",
        user: "system:serviceaccount:capi-kubeadm-control-plane-system:capi-kubeadm-control-plane-manager",
        folder: "controlplane/kubeadm",
        label: "control-plane-kubeadm",
        name_prefix: "capi-kubeadm-control-plane-",
        // By default a call to a dead etcd member takes 15 s.
        flags: &[
            "--etcd-call-timeout-duration=3s",
            "--etcd-dial-timeout-duration=2s",
        ],
    },
];

/// Installs the definitions. `managers` convert their objects.
pub async fn install_definitions(client: &Client, assets: &Assets, managers: &Managers) -> Result<()> {
    definitions::install(client, assets, |provider, path| {
        managers.client_config(provider, path)
    })
    .await
}

/// Installs the definitions with these plurals as they are generated. Each has one version only, so no webhook needs to
/// convert its objects.
pub async fn install_unconverted(client: &Client, assets: &Assets, plurals: &[&str]) -> Result<()> {
    definitions::install_unconverted(client, assets, plurals).await
}

/// Registers the webhooks that `managers` serve.
pub async fn install_webhooks(api: &ApiServer, assets: &Assets, managers: &Managers) -> Result<()> {
    webhooks::install(api.client(), assets, |provider, path| {
        managers.client_config(provider, path)
    })
    .await
}

impl Provider {
    /// The name that its kustomization gives to an object.
    fn name_of(&self, object: &str) -> String {
        format!("{}{object}", self.name_prefix)
    }

    fn namespace(&self) -> String {
        self.name_of("system")
    }
}
