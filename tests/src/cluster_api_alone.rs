//! An API server with Cluster API's definitions and webhooks and Hive's definitions, but nothing of ours.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};

use crate::admission::Admission;
use crate::api_server::{ApiServer, Etcd};
use crate::assets::Assets;
use crate::cluster_api::{self, Managers};
use crate::kubectl::Kubectl;
use crate::machines::definitions;
use crate::run::Run;
use crate::{hive, manifests};

/// A management cluster without controllers and without our rules.
pub struct ClusterApiAlone {
    run: Arc<Run>,
    api: Arc<ApiServer>,
    kubectl: Kubectl,
    managers: Arc<Managers>,
}

impl ClusterApiAlone {
    /// Starts an API server and installs Cluster API, whose managers get `flags`. `name` separates its objects from
    /// those of others on the same etcd.
    pub async fn start(
        run: &Arc<Run>,
        assets: &Assets,
        etcd: &Etcd,
        name: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let api = Arc::new(ApiServer::start(run, assets, etcd, name).await?);
        create_namespace(api.client(), cluster_api::NAMESPACE).await?;
        let mut managers = Managers::for_admission(run, assets, &api, flags)?;
        install_definitions(&api, assets, &managers).await?;
        managers.start().await?;
        cluster_api::name_version(api.client(), &assets.cluster_api_version()?).await?;
        Self::with(run, assets, api, Arc::new(managers)).await
    }

    /// Starts another API server with more flags on the same etcd. The same managers convert and admit its objects. What the managers
    /// read themselves, such as the control plane behind a Scale, they read from the first API server.
    pub(crate) async fn another(
        &self,
        assets: &Assets,
        etcd: &Etcd,
        name: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let api = Arc::new(ApiServer::start_with(&self.run, assets, etcd, name, flags).await?);
        install_definitions(&api, assets, &self.managers).await?;
        Self::with(&self.run, assets, api, self.managers.clone()).await
    }

    async fn with(
        run: &Arc<Run>,
        assets: &Assets,
        api: Arc<ApiServer>,
        managers: Arc<Managers>,
    ) -> Result<Self> {
        cluster_api::install_webhooks(&api, assets, &managers).await?;
        let kubectl = Kubectl::new(run, assets, api.kubeconfig())?;
        Ok(Self {
            run: run.clone(),
            api,
            kubectl,
            managers,
        })
    }

    pub async fn install_ours(&self) -> Result<Admission> {
        Admission::start(&self.run, &self.api, &self.kubectl).await
    }

    pub fn client(&self) -> &Client {
        self.api.client()
    }

    pub const fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Creates a namespace. It remains until the run ends, because no kube-controller-manager would empty it.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        create_namespace(self.client(), name).await
    }

    pub const fn api(&self) -> &Arc<ApiServer> {
        &self.api
    }
}

async fn install_definitions(api: &ApiServer, assets: &Assets, managers: &Managers) -> Result<()> {
    let client = api.client();
    cluster_api::install_definitions(client, assets, managers).await?;
    definitions::install(client).await?;
    hive::install_definitions(client).await?;
    manifests::definitions_served(client).await
}

pub async fn create_namespace(client: &Client, name: &str) -> Result<()> {
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
