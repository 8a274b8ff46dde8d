//! The controllers of Cluster API, and which namespaces they reconcile.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::sync::Mutex;

use super::{Managers, refusals};
use crate::api_server::ApiServer;
use crate::assets::Assets;
use crate::run::Run;

/// The namespaces that one set of controllers reconciles.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// One namespace, for one test.
    Namespace(&'a str),
    /// All namespaces, as in a user's cluster and in the demo. No other set may run.
    All,
}

impl Scope<'_> {
    /// The value of Cluster API's flag `--namespace`.
    fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::All => "",
        }
    }
}

/// The running sets of controllers.
pub struct Controllers {
    run: Arc<Run>,
    assets: Assets,
    api: Arc<ApiServer>,
    sets: Mutex<HashMap<String, Managers>>,
}

impl Controllers {
    pub(crate) fn new(run: &Arc<Run>, assets: &Assets, api: &Arc<ApiServer>) -> Self {
        Self {
            run: run.clone(),
            assets: assets.clone(),
            api: api.clone(),
            sets: Mutex::default(),
        }
    }

    /// Starts a set, whose managers get `flags`, and waits until it is ready.
    pub(crate) async fn start(&self, scope: Scope<'_>, flags: &[&str]) -> Result<()> {
        let namespace = scope.namespace();
        let mut managers = Managers::reconciling(&self.run, &self.assets, &self.api, namespace, flags)?;
        managers.start().await?;
        self.sets.lock().await.insert(namespace.to_owned(), managers);
        Ok(())
    }

    /// Ends a set. Fails if its logs contain a write that a webhook refused, without the text `expected`.
    pub(crate) async fn stop(&self, scope: Scope<'_>, expected: Option<&str>) -> Result<()> {
        let Some(mut managers) = self.sets.lock().await.remove(scope.namespace()) else {
            bail!("no controllers run for {scope:?}")
        };
        managers.stop().await?;
        for log in managers.logs() {
            refusals::none_in(&log, expected)?;
        }
        Ok(())
    }

    /// Stops the kubeadm control plane manager of a namespace with SIGSTOP, or continues it.
    pub(crate) async fn freeze_control_plane(&self, namespace: &str, is_frozen: bool) -> Result<()> {
        let mut sets = self.sets.lock().await;
        let managers = sets.get_mut(namespace);
        let managers =
            managers.with_context(|| format!("no controllers look after namespace {namespace}"))?;
        let process = managers.control_plane()?;
        if is_frozen {
            process.freeze().await;
        } else {
            process.thaw().await;
        }
        Ok(())
    }

    /// Restarts the set that reconciles `namespace`.
    ///
    /// Cluster API connects to a workload cluster when its infrastructure is provisioned, which is before its first API
    /// server is up, and retries after 30 s. A restarted set connects at once.
    pub(crate) async fn reconnect(&self, namespace: &str) -> Result<()> {
        let mut sets = self.sets.lock().await;
        let scope = if sets.contains_key(namespace) {
            namespace
        } else {
            Scope::All.namespace()
        };
        let managers = sets.get_mut(scope);
        managers
            .with_context(|| format!("no controllers look after namespace {namespace}"))?
            .restart()
            .await
    }
}
