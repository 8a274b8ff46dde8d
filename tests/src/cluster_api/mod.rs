//! Cluster API itself: its definitions, its webhooks and its three managers, all real.
//!
//! Its managers run in two roles. One set, [`Managers::for_admission`], answers admission and conversion
//! for everybody and reconciles nothing. Another set reconciles, one per namespace, see [`Controllers`]: only
//! that one is restarted when a workload cluster comes up, which no other test notices, and its logs are about
//! one test alone.

mod controllers;
mod definitions;
mod managers;
mod refusals;
mod webhooks;

use anyhow::Result;
use kube::Client;

pub use self::controllers::Controllers;
pub(crate) use self::controllers::Scope;
pub use self::managers::Managers;
pub(crate) use self::managers::NAMESPACE;
use crate::api_server::ApiServer;
use crate::assets::Assets;

/// What `clusterctl init` puts on all that it installs; `clusterctl move` moves objects of no other definitions.
pub(crate) const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";

/// The managers' flag that opens the gates without which some fields of control planes may not be set.
pub const FEATURE_GATES: &str =
    "--feature-gates=ClusterTopology=true,KubeadmBootstrapFormatIgnition=true,MachineTaintPropagation=true";

/// One of Cluster API's three parts, called a provider there.
struct Provider {
    /// Names processes and logs.
    name: &'static str,
    program: &'static str,
    /// Below Cluster API's module, and in the assets.
    folder: &'static str,
    /// The value of the label `cluster.x-k8s.io/provider`.
    label: &'static str,
    /// What its kustomization puts before each name. The order in which an API server calls mutating webhooks
    /// is that of their configurations' names, so these must be the real ones.
    name_prefix: &'static str,
    /// Flags that this manager alone has.
    flags: &'static [&'static str],
}

const PROVIDERS: [Provider; 3] = [
    Provider {
        name: "core",
        program: "capi-core",
        folder: "core",
        label: "cluster-api",
        name_prefix: "capi-",
        flags: &[],
    },
    Provider {
        name: "bootstrap",
        program: "capi-bootstrap",
        folder: "bootstrap/kubeadm",
        label: "bootstrap-kubeadm",
        name_prefix: "capi-kubeadm-bootstrap-",
        flags: &[],
    },
    Provider {
        name: "control-plane",
        program: "capi-control-plane",
        folder: "controlplane/kubeadm",
        label: "control-plane-kubeadm",
        name_prefix: "capi-kubeadm-control-plane-",
        // Half of the pool of etcd addresses is always dead; the defaults wait 15 s for one.
        flags: &[
            "--etcd-call-timeout-duration=3s",
            "--etcd-dial-timeout-duration=2s",
        ],
    },
];

/// Installs the definitions, with conversion by `managers`.
pub async fn install_definitions(client: &Client, assets: &Assets, managers: &Managers) -> Result<()> {
    definitions::install(client, assets, managers).await
}

/// Creates definitions as they are generated, each by its plural, in the one version that is stored: nobody is needed
/// to convert.
pub async fn install_unconverted(client: &Client, assets: &Assets, plurals: &[&str]) -> Result<()> {
    definitions::install_unconverted(client, assets, plurals).await
}

/// Registers the webhooks that `managers` serve.
pub async fn install_webhooks(api: &ApiServer, assets: &Assets, managers: &Managers) -> Result<()> {
    webhooks::install(api.client(), assets, managers).await
}
