//! The management cluster: everything that a user of Cluster API and of our programs has, on this machine.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;

use crate::admission::Admission;
use crate::api_server::{ApiServer, Etcd, NO_ENVIRONMENT};
use crate::assets::Assets;
use crate::cluster_api::{self, Controllers, Scope};
use crate::cluster_api_alone::ClusterApiAlone;
use crate::controller_manager::ControllerManagers;
use crate::kubectl::Kubectl;
use crate::machines::Machines;
use crate::machines::real::Site;
use crate::process::Process;
use crate::products;
use crate::run::Run;

/// A running management cluster. Dropping it ends it.
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
    /// Starts everything except Cluster API's controllers.
    pub async fn start(run: &Arc<Run>, assets: Assets) -> Result<Self> {
        Self::start_with(run, assets, "", None).await
    }

    /// Starts another one, whose files and logs begin with `name`.
    pub async fn start_beside(run: &Arc<Run>, assets: Assets, name: &str) -> Result<Self> {
        Self::start_with(run, assets, &format!("{name}-"), None).await
    }

    /// Starts it in the network of a site, where the machines of its clusters are real.
    pub async fn start_at(site: &Arc<Site>) -> Result<Self> {
        // Several sites of one run may have one each.
        let prefix = format!("{}-", site.name());
        Self::start_with(site.run(), Assets::locate()?, &prefix, Some(site)).await
    }

    async fn start_with(
        run: &Arc<Run>,
        assets: Assets,
        prefix: &str,
        site: Option<&Arc<Site>>,
    ) -> Result<Self> {
        // Fail early: nothing else should start for a program that is out of date.
        products::under_test("kcp-webhook")?;
        products::under_test("kubectl-kcp")?;
        let etcd = Etcd::start(run, &assets, &format!("{prefix}etcd"))?;
        let name = format!("{prefix}management");
        let cluster = ClusterApiAlone::start(run, &assets, &etcd, &name, &[]).await?;
        let admission = cluster.install_ours().await?;
        let controllers = Arc::new(Controllers::new(run, &assets, cluster.api()));
        let machines = Machines::start(run, &assets, cluster.client(), &controllers, site)?;
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

    /// kubectl with all permissions.
    pub const fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    pub const fn machines(&self) -> &Machines {
        &self.machines
    }

    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    pub fn api(&self) -> &ApiServer {
        self.cluster.api()
    }

    /// The minor version of Cluster API, on which the decisions of its controllers depend.
    pub fn cluster_api_minor(&self) -> Result<u32> {
        self.assets.cluster_api_minor()
    }

    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Creates a namespace and calls `live` while Cluster API's controllers reconcile the namespace. Also fails when a
    /// webhook refused one of their writes, because our webhooks must never block them.
    pub async fn with_controllers<T>(
        &self,
        namespace: &str,
        live: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        self.with_controllers_refused(namespace, None, live).await
    }

    /// [`Self::with_controllers`] in which webhooks refuse writes of the controllers with the text `expected`.
    pub async fn with_controllers_refused<T>(
        &self,
        namespace: &str,
        expected: Option<&str>,
        live: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        self.create_namespace(namespace).await?;
        let scope = Scope::Namespace(namespace);
        self.controllers.start(scope, &[]).await?;
        let lived = live().await;
        let unrefused = self.controllers.stop(scope, expected).await;
        // A refused write is the likely cause of any other failure.
        unrefused.and(lived)
    }

    /// Calls `live` while the kubeadm control plane controller of a namespace of [`Self::with_controllers`] is stopped
    /// with SIGSTOP.
    pub async fn without_control_plane_controller<T>(
        &self,
        namespace: &str,
        live: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        self.controllers.freeze_control_plane(namespace, true).await?;
        let lived = live().await;
        self.controllers.freeze_control_plane(namespace, false).await?;
        lived
    }

    /// Restarts the controllers of a namespace of [`Self::with_controllers`].
    pub async fn restart_controllers(&self, namespace: &str) -> Result<()> {
        self.controllers.reconnect(namespace).await
    }

    /// Starts Cluster API's controllers for all namespaces, as in a user's cluster. The managers get `flags`. Cannot be combined
    /// with [`Self::with_controllers`].
    pub async fn start_controllers(&self, flags: &[&str]) -> Result<()> {
        self.controllers.start(Scope::All, flags).await
    }

    /// Ends the controllers of [`Self::start_controllers`], and fails when a webhook refused one of their writes without the text
    /// `expected`.
    pub async fn stop_controllers(&self, expected: Option<&str>) -> Result<()> {
        self.controllers.stop(Scope::All, expected).await
    }

    /// Creates a namespace. It remains until the run ends, because no kube-controller-manager would empty it.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        self.cluster.create_namespace(name).await
    }

    /// Starts an API server on the same etcd with nothing installed, for a test that changes what other tests use.
    pub async fn another_api_server(&self, name: &str) -> Result<ApiServer> {
        self.another_with_flags(name, &[]).await
    }

    /// The same with more flags.
    pub async fn another_with_flags(&self, name: &str, flags: &[&str]) -> Result<ApiServer> {
        ApiServer::start_with(&self.run, &self.assets, &self.etcd, name, flags).await
    }

    /// The same with some of Cluster API's definitions, by plural, and without its managers: see
    /// [`cluster_api::install_unconverted`].
    pub async fn another_with_definitions(&self, name: &str, plurals: &[&str]) -> Result<ApiServer> {
        let api = self.another_api_server(name).await?;
        cluster_api::install_unconverted(api.client(), &self.assets, plurals).await?;
        Ok(api)
    }

    /// Starts an API server on the same etcd with Cluster API installed and nothing of ours, see
    /// [`ClusterApiAlone::another`].
    pub async fn another_without_ours(&self, name: &str) -> Result<ClusterApiAlone> {
        self.another_without_ours_with_flags(name, &[]).await
    }

    /// The same with more flags of the API server.
    pub async fn another_without_ours_with_flags(
        &self,
        name: &str,
        flags: &[&str],
    ) -> Result<ClusterApiAlone> {
        self.cluster.another(&self.assets, &self.etcd, name, flags).await
    }

    /// The same with managers of its own, which read from this API server and get `flags`.
    pub async fn another_with_managers(&self, name: &str, flags: &[&str]) -> Result<ClusterApiAlone> {
        ClusterApiAlone::start(&self.run, &self.assets, &self.etcd, name, flags).await
    }

    /// Controller managers for an API server. `name` names their files and logs.
    pub fn controller_managers(&self, api: &ApiServer, name: &str) -> Result<ControllerManagers> {
        ControllerManagers::beside(&self.run, &self.assets, api, name)
    }

    /// Type-checks the `ValidatingAdmissionPolicy`s of an API server and writes the result to their status, until the
    /// process is dropped.
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
