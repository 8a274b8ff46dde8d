//! etcd and an API server with Hive's definitions, where tests can read every version of every object.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::command::Plugin;
use super::history::History;
use crate::api_server::{ApiServer, Etcd};
use crate::assets::Assets;
use crate::run::Run;
use crate::{hive, manifests};

const NAME: &str = "pools";

/// etcd compacts nothing, and Leases are stored as JSON, like custom resources.
const FLAGS: [&str; 2] = [
    "--etcd-compaction-interval=0",
    "--storage-media-type=application/json",
];

/// An API server for pools only.
pub struct PoolServer {
    api: RwLock<ApiServer>,
    client: Client,
    plugin: Plugin,
    history: History,
    _etcd: Etcd,
}

impl PoolServer {
    /// Starts the server. A run can have one only.
    pub async fn start(run: &Arc<Run>) -> Result<Self> {
        let assets = Assets::locate()?;
        let etcd = Etcd::start(run, &assets, "pools-etcd")?;
        let api = ApiServer::start_with(run, &assets, &etcd, NAME, &FLAGS).await?;
        let history = History::watch(&etcd, NAME).await?;
        hive::install_definitions(api.client()).await?;
        manifests::definitions_served(api.client()).await?;
        Ok(Self {
            client: api.client().clone(),
            plugin: Plugin::new(&api, run.id())?,
            api: RwLock::new(api),
            history,
            _etcd: etcd,
        })
    }

    /// A client with all permissions.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// The API server. It is not restarted while this guard is alive.
    pub async fn serving(&self) -> RwLockReadGuard<'_, ApiServer> {
        self.api.read().await
    }

    /// Kills the API server and starts it again when no guard is alive.
    pub async fn restart(&self) -> Result<()> {
        let mut api = self.api.write().await;
        api.kill().await?;
        api.start_again().await
    }
}
