//! Stand-in machines: an infrastructure provider of Cluster API whose machines are local processes.
//!
//! It implements the contract of Cluster API for `StandInCluster` and `StandInMachine`. A machine that boots starts a
//! real etcd member and writes the Node and the static pods that a kubelet would write. The first machine of a cluster
//! also starts the workload cluster's API server and kwok. A machine whose spec has `controllerManager: true` starts a real
//! kube-controller-manager of its version as well. A machine whose spec has `etcd: 3.5.23` runs that version of etcd. A machine whose spec has `secondsBeforeBoot` boots this many
//! seconds after Cluster API has first seen its Machine.

mod api_server;
mod boot;
mod bootstrap_data;
mod controller_managers;
pub mod definitions;
mod etcd_route;
pub mod fault;
mod inflict;
mod kubelet;
mod kwok;
mod member;
mod node;
mod peer_network;
mod provider;
pub mod real;
mod static_pod;
mod teardown;
mod workload_cluster;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub use self::controller_managers::MachineFlags;
use self::provider::Provider;
use self::real::{Fleet, Site};
pub use self::workload_cluster::WorkloadCluster;
use crate::assets::Assets;
pub use crate::audit::PodCidrWrite;
use crate::cluster_api::Controllers;
use crate::run::Run;

pub(crate) type Clusters = Arc<Mutex<HashMap<(String, String), Arc<WorkloadCluster>>>>;

/// The running provider. Dropping it stops the provider, but not the machines.
pub struct Machines {
    clusters: Clusters,
    fleet: Option<Arc<Fleet>>,
    task: JoinHandle<()>,
}

impl Machines {
    /// Starts to reconcile all stand-in objects that `client` can read. At a site, their machines are real.
    pub fn start(
        run: &Arc<Run>,
        assets: &Assets,
        client: &Client,
        controllers: &Arc<Controllers>,
        site: Option<&Arc<Site>>,
    ) -> Result<Self> {
        let clusters = Clusters::default();
        let fleet = site.map(|site| Arc::new(Fleet::new(site)));
        let provider = Provider::new(run, assets, client, controllers, &clusters, fleet.clone())?;
        Ok(Self {
            clusters,
            fleet,
            task: tokio::spawn(Arc::new(provider).run()),
        })
    }

    pub(crate) fn clusters(&self) -> Clusters {
        self.clusters.clone()
    }

    /// The real machines of a site.
    pub fn fleet(&self) -> Result<&Arc<Fleet>> {
        self.fleet.as_ref().context("these machines are stand-ins")
    }

    /// The workload cluster of a `Cluster` on stand-ins.
    pub async fn cluster(&self, namespace: &str, name: &str) -> Result<Arc<WorkloadCluster>> {
        let clusters = self.clusters.lock().await;
        let cluster = clusters.get(&(namespace.to_owned(), name.to_owned()));
        cluster
            .cloned()
            .with_context(|| format!("no workload cluster {namespace}/{name}"))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.task.abort();
    }
}
