//! One pool, its entries, and what its lessees were told.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::command::CommandOutput;
use super::fault::FaultPlan;
use super::invariant::{Leftover, Said, Saying, Violation, leftovers, violations};
use super::server::PoolServer;
use super::verb::{Effect, FIND, INSTALL_CONFIG, REPAIR, Verb};
use super::version::Versions;

/// The name of every pool, each in its own namespace.
pub const POOL: &str = "hosts";

/// The API path of the kinds that leases use.
pub(super) const HIVE: &str = "/apis/hive.openshift.io/v1";

/// A pool in a namespace of its own.
pub struct Pool<'s> {
    server: &'s PoolServer,
    namespace: String,
    inventory: Vec<String>,
    said: Mutex<Vec<Said>>,
}

/// The result of checking a pool's history.
#[derive(Debug)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    pub leftovers: Vec<Leftover>,
    /// The checked history.
    pub versions: Versions,
}

impl<'s> Pool<'s> {
    /// Creates a pool with this number of free entries. Nothing else may use the namespace.
    pub async fn create(server: &'s PoolServer, namespace: &str, entries: usize) -> Result<Self> {
        let _serving = server.serving().await;
        let client = server.client();
        let name = json!({"metadata": {"name": namespace}});
        create(client, "/api/v1/namespaces".to_owned(), &name).await?;
        let inventory: Vec<_> = (1..=entries).map(|number| format!("host-{number}")).collect();
        for name in &inventory {
            let patch = json!({"op": "replace", "path": "/metadata/name", "value": name});
            let entry = json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeploymentCustomization",
                "metadata": {"name": name}, "spec": {"installConfigPatches": [patch]},
            });
            create(client, customizations(namespace), &entry).await?;
        }
        let install_config = json!({
            "metadata": {"name": INSTALL_CONFIG},
            "stringData": {"install-config.yaml": "metadata: {name: replaced}\n"},
        });
        let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
        create(client, secrets, &install_config).await?;
        let names: Vec<_> = inventory.iter().map(|name| json!({"name": name})).collect();
        let pool = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": {"name": POOL},
            "spec": {
                "baseDomain": "example.com", "imageSetRef": {"name": "release"}, "platform": {"none": {}},
                "size": 0, "inventory": names,
            },
        });
        create(
            client,
            format!("{HIVE}/namespaces/{namespace}/clusterpools"),
            &pool,
        )
        .await?;
        Ok(Self {
            server,
            namespace: namespace.to_owned(),
            inventory,
            said: Mutex::default(),
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn server(&self) -> &'s PoolServer {
        self.server
    }

    /// Runs a command for a lessee, and records what the lessee is told.
    pub async fn run(&self, verb: &Verb, lessee: &str, plan: Option<FaultPlan>) -> Result<CommandOutput> {
        let arguments = verb.command(&self.namespace, POOL, lessee);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        if verb.effect == Effect::Releases {
            self.say(lessee, Saying::Releases).await?;
        }
        let ended = self.server.plugin().run(&arguments, plan).await?;
        if verb.effect == Effect::Leases && ended.code == Some(0) {
            self.say(lessee, Saying::Leased(ended.customization()?)).await?;
        }
        Ok(ended)
    }

    /// [`Self::run`] without a fault. The command must succeed.
    pub async fn succeed(&self, verb: &Verb, lessee: &str) -> Result<CommandOutput> {
        let ended = self.run(verb, lessee, None).await?;
        ensure!(ended.code == Some(0), "{ended}");
        Ok(ended)
    }

    /// Repairs what dead lessees left behind, and checks that nothing remains.
    pub async fn repair(&self) -> Result<()> {
        self.succeed(&REPAIR, "nobody").await?;
        self.succeed(&FIND, "nobody").await?;
        Ok(())
    }

    /// Records what a lessee was told now.
    pub async fn say(&self, lessee: &str, what: Saying) -> Result<()> {
        let said = Said {
            revision: self.server.history().revision().await?,
            lessee: lessee.to_owned(),
            what,
        };
        let mut log = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(said);
        Ok(())
    }

    /// Checks the history if only these lessees still live.
    pub async fn judge(self, living: &BTreeSet<String>) -> Result<Judgement> {
        let versions = self.server.history().take(&self.namespace).await?;
        ensure!(
            !versions.entries.is_empty(),
            "etcd has no history of {}",
            self.namespace
        );
        let said = self.said.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Judgement {
            violations: violations(&versions, &said),
            leftovers: leftovers(&versions, &self.inventory, living),
            versions,
        })
    }
}

impl Judgement {
    /// Fails with all violations and leftovers.
    pub fn nothing_wrong(&self) -> Result<()> {
        let Self {
            violations,
            leftovers,
            versions,
        } = self;
        ensure!(
            violations.is_empty() && leftovers.is_empty(),
            "violations: {violations:#?}\nleft over: {leftovers:#?}\nof {:#?}",
            versions.entries
        );
        Ok(())
    }
}

/// The API path of the customizations of a namespace.
pub(super) fn customizations(namespace: &str) -> String {
    format!("{HIVE}/namespaces/{namespace}/clusterdeploymentcustomizations")
}

pub(super) async fn create(client: &Client, collection: String, object: &Value) -> Result<()> {
    let request = Request::post(&collection).header("content-type", "application/json");
    let created = client
        .request::<Value>(request.body(serde_json::to_vec(object)?)?)
        .await;
    created.with_context(|| format!("creating an object in {collection}"))?;
    Ok(())
}
