//! The management cluster: everything that a user of Cluster API and of ours has, on this machine.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};

use crate::admission::Admission;
use crate::api_server::{ApiServer, Etcd};
use crate::assets::Assets;
use crate::cluster_api::{self, Controllers, Managers, Scope};
use crate::kubectl::Kubectl;
use crate::machines::{self, Machines};
use crate::run::Run;
use crate::{hive, manifests, products};

/// A management cluster that runs. Dropping it ends it.
pub struct ManagementCluster {
    run: Arc<Run>,
    assets: Assets,
    etcd: Etcd,
    api: Arc<ApiServer>,
    kubectl: Kubectl,
    controllers: Arc<Controllers>,
    machines: Machines,
    _admission: Admission,
    _managers: Managers,
}

impl ManagementCluster {
    /// Brings everything up. Controllers are started for each namespace that wants them, see
    /// [`Self::start_controllers`].
    pub async fn start(run: &Arc<Run>) -> Result<Self> {
        // Before anything runs: a stale program is a mistake that should cost no time.
        let webhook = products::under_test("kcp-webhook")?;
        products::under_test("kubectl-kcp")?;
        let assets = Assets::locate()?;
        let etcd = Etcd::start(run, &assets)?;
        let api = Arc::new(ApiServer::start(run, &assets, &etcd, "management").await?);
        let client = api.client();
        let managers = Managers::for_admission(run, &assets, &api, &[])?;
        let managers = with_cluster_api(&api, &assets, managers).await?;

        let kubectl = Kubectl::new(run, &assets, api.kubeconfig())?;
        let admission = Admission::start(run, &api, &kubectl, &webhook).await?;
        let controllers = Arc::new(Controllers::new(run, &assets, &api));
        let machines = Machines::start(run, &assets, client, &controllers)?;
        Ok(Self {
            run: run.clone(),
            assets,
            etcd,
            api,
            kubectl,
            controllers,
            machines,
            _admission: admission,
            _managers: managers,
        })
    }

    /// A client with all permissions.
    pub fn client(&self) -> &Client {
        self.api.client()
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The stand-in machines.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The run that this belongs to.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Starts Cluster API's controllers for a namespace or for all.
    pub async fn start_controllers(&self, scope: Scope<'_>) -> Result<()> {
        self.controllers.start(scope).await
    }

    /// Ends Cluster API's controllers for a namespace or for all.
    pub async fn stop_controllers(&self, scope: Scope<'_>) {
        self.controllers.stop(scope).await;
    }

    /// Creates a namespace. It stays until the run ends: no kube-controller-manager would empty it.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        create_namespace(self.client(), name).await
    }

    /// Another API server on the same etcd with nothing installed, for a test that changes what all share.
    pub async fn another_api_server(&self, name: &str) -> Result<ApiServer> {
        ApiServer::start(&self.run, &self.assets, &self.etcd, name).await
    }

    /// Another API server with all definitions, and Cluster API's webhooks with more flags. Ours are not there.
    pub async fn another_with_cluster_api(
        &self,
        name: &str,
        flags: &[&str],
    ) -> Result<(ApiServer, Managers)> {
        let api = self.another_api_server(name).await?;
        let managers = Managers::for_admission(&self.run, &self.assets, &api, flags)?;
        let managers = with_cluster_api(&api, &self.assets, managers).await?;
        Ok((api, managers))
    }
}

/// Installs Cluster API's definitions and webhooks, and starts the managers that answer for them.
async fn with_cluster_api(api: &ApiServer, assets: &Assets, mut managers: Managers) -> Result<Managers> {
    let client = api.client();
    create_namespace(client, cluster_api::NAMESPACE).await?;
    cluster_api::install_definitions(client, assets, &managers).await?;
    machines::definitions::install(client).await?;
    hive::install_definitions(client).await?;
    manifests::definitions_served(client).await?;
    managers.start().await?;
    cluster_api::install_webhooks(api, assets, &managers).await?;
    Ok(managers)
}

async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace {
        metadata,
        ..Namespace::default()
    };
    match Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
    {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("creating namespace {name}")),
    }
}
