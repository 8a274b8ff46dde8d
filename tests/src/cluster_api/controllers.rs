//! Which namespaces Cluster API's controllers reconcile.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::sync::Mutex;

use super::{Managers, refusals};
use crate::api_server::ApiServer;
use crate::assets::Assets;
use crate::run::Run;

/// What one set of controllers looks after.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// One namespace, as each test has.
    Namespace(&'a str),
    /// Everything, as in a user's cluster and in the demo. Excludes any other scope.
    All,
}

impl Scope<'_> {
    /// As Cluster API's flag `--namespace` has it.
    fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::All => "",
        }
    }
}

/// The sets of controllers that run now.
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

    /// Starts a set and waits until it reconciles.
    pub(crate) async fn start(&self, scope: Scope<'_>) -> Result<()> {
        let namespace = scope.namespace();
        let mut managers = Managers::reconciling(&self.run, &self.assets, &self.api, namespace)?;
        managers.start().await?;
        self.sets.lock().await.insert(namespace.to_owned(), managers);
        Ok(())
    }

    /// Ends a set. Fails when its logs tell that a webhook refused a write.
    pub(crate) async fn stop(&self, scope: Scope<'_>) -> Result<()> {
        let Some(mut managers) = self.sets.lock().await.remove(scope.namespace()) else {
            bail!("no controllers run for {scope:?}")
        };
        managers.stop().await?;
        for log in managers.logs() {
            refusals::none_in(&log)?;
        }
        Ok(())
    }

    /// Restarts the set that looks after `namespace`.
    ///
    /// Cluster API connects to a workload cluster as soon as its infrastructure is there, which is before
    /// its first API server is, and tries again 30 s later. A restart forgets that it tried.
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
