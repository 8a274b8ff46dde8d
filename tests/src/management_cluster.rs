//! The management cluster: everything that a user of Cluster API and of ours has, on this machine.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;

use crate::admission::Admission;
use crate::api_server::{ApiServer, Etcd, NO_ENVIRONMENT};
use crate::assets::Assets;
use crate::cluster_api::{self, Controllers, Scope};
use crate::cluster_api_alone::ClusterApiAlone;
use crate::kubectl::Kubectl;
use crate::machines::Machines;
use crate::process::Process;
use crate::products;
use crate::run::Run;

/// A management cluster that runs. Dropping it ends it.
pub struct ManagementCluster {
    run: Arc<Run>,
    assets: Assets,
    etcd: Etcd,
    cluster: ClusterApiAlone,
    controllers: Arc<Controllers>,
    machines: Machines,
    admission: Admission,
}

impl ManagementCluster {
    /// Brings everything up but Cluster API's controllers.
    pub async fn start(run: &Arc<Run>) -> Result<Self> {
        // Before anything runs: a stale program is a mistake that should cost no time.
        products::under_test("kcp-webhook")?;
        products::under_test("kubectl-kcp")?;
        let assets = Assets::locate()?;
        let etcd = Etcd::start(run, &assets, "etcd")?;
        let cluster = ClusterApiAlone::start(run, &assets, &etcd, "management", &[]).await?;
        let admission = cluster.install_ours().await?;
        let controllers = Arc::new(Controllers::new(run, &assets, cluster.api()));
        let machines = Machines::start(run, &assets, cluster.client(), &controllers)?;
        Ok(Self {
            run: run.clone(),
            assets,
            etcd,
            cluster,
            controllers,
            machines,
            admission,
        })
    }

    /// A client with all permissions.
    pub fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// kubectl as the administrator.
    pub const fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    /// The stand-in machines.
    pub const fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Our webhook server.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The API server.
    pub fn api(&self) -> &ApiServer {
        self.cluster.api()
    }

    /// The run that this belongs to.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Creates a namespace and does something in it with Cluster API's controllers at work there. Fails as well when
    /// a webhook refused one of their writes: ours must never stand in their way.
    pub async fn with_controllers<T>(
        &self,
        namespace: &str,
        live: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        self.create_namespace(namespace).await?;
        let scope = Scope::Namespace(namespace);
        self.controllers.start(scope).await?;
        let lived = live().await;
        let unrefused = self.controllers.stop(scope).await;
        // What was refused is most likely why the rest failed.
        unrefused.and(lived)
    }

    /// Starts Cluster API's controllers for all namespaces, as in a user's cluster. Excludes
    /// [`Self::with_controllers`].
    pub async fn start_controllers(&self) -> Result<()> {
        self.controllers.start(Scope::All).await
    }

    /// Ends what [`Self::start_controllers`] started, and fails when a webhook refused one of their writes.
    pub async fn stop_controllers(&self) -> Result<()> {
        self.controllers.stop(Scope::All).await
    }

    /// Creates a namespace. It stays until the run ends: no kube-controller-manager would empty it.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        self.cluster.create_namespace(name).await
    }

    /// Another API server on the same etcd with nothing installed, for a test that changes what all share.
    pub async fn another_api_server(&self, name: &str) -> Result<ApiServer> {
        ApiServer::start(&self.run, &self.assets, &self.etcd, name).await
    }

    /// The same with some of Cluster API's definitions, by plural, and nothing that runs: see
    /// [`cluster_api::install_unconverted`].
    pub async fn another_with_definitions(&self, name: &str, plurals: &[&str]) -> Result<ApiServer> {
        let api = self.another_api_server(name).await?;
        cluster_api::install_unconverted(api.client(), &self.assets, plurals).await?;
        Ok(api)
    }

    /// Another API server on the same etcd with Cluster API installed and nothing of ours, see
    /// [`ClusterApiAlone::another`].
    pub async fn another_without_ours(&self, name: &str) -> Result<ClusterApiAlone> {
        self.cluster.another(&self.assets, &self.etcd, name).await
    }

    /// The same with managers of its own, which look up what they look up in it, and get more flags.
    pub async fn another_with_managers(&self, name: &str, flags: &[&str]) -> Result<ClusterApiAlone> {
        ClusterApiAlone::start(&self.run, &self.assets, &self.etcd, name, flags).await
    }

    /// Type-checks the `ValidatingAdmissionPolicy`s of an API server and writes what it finds into their status, as long as
    /// it is not dropped.
    pub fn type_check_policies(&self, api: &ApiServer) -> Result<Process> {
        let log = format!("{}-policy-status", api.name());
        let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
        Process::start(
            &self.run,
            &log,
            &self.assets.program("policy-status"),
            [kubeconfig],
            NO_ENVIRONMENT,
        )
    }
}
