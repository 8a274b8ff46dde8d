//! The provider's control loop. It implements Cluster API's infrastructure contract for the stand-in objects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::boot::NewMachine;
use super::bootstrap_data::BootstrapData;
use super::real::Fleet;
use super::workload_cluster::LOOPBACK;
use super::{Clusters, WorkloadCluster};
use crate::assets::Assets;
use crate::cluster_api::Controllers;
use crate::resources;
use crate::run::{Log, Run};

/// Watches would need much more code than two small lists four times a second. The API server takes the lists from its watch
/// cache. If the cache is behind, the next pass does what this one missed.
const INTERVAL: Duration = Duration::from_millis(250);

const FINALIZER: &str = "infrastructure.cluster.x-k8s.io/stand-in";

pub(super) struct Provider {
    run: Arc<Run>,
    assets: Assets,
    client: Client,
    controllers: Arc<Controllers>,
    clusters: Clusters,
    /// Real machines instead of stand-ins.
    fleet: Option<Arc<Fleet>>,
    /// The uids of machines that were booted, and of those that are ending.
    booted: Mutex<HashSet<String>>,
    ending: Mutex<HashSet<String>>,
    log: Log,
}

impl Provider {
    pub(super) fn new(
        run: &Arc<Run>,
        assets: &Assets,
        client: &Client,
        controllers: &Arc<Controllers>,
        clusters: &Clusters,
        fleet: Option<Arc<Fleet>>,
    ) -> Result<Self> {
        Ok(Self {
            run: run.clone(),
            assets: assets.clone(),
            client: client.clone(),
            controllers: controllers.clone(),
            clusters: clusters.clone(),
            fleet,
            booted: Mutex::default(),
            ending: Mutex::default(),
            log: run.log("machines")?,
        })
    }

    /// Runs until it is aborted, which also aborts each boot. A later pass retries what failed.
    pub(super) async fn run(self: Arc<Self>) {
        let mut work = JoinSet::new();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.reconcile_clusters().await {
                self.log.line(format!("clusters: {error:#}"));
            }
            if let Err(error) = self.reconcile_machines(&mut work).await {
                self.log.line(format!("machines: {error:#}"));
            }
            while let Some(done) = work.try_join_next() {
                if let Err(error) = done {
                    self.log
                        .line(format!("a machine's task did not end well: {error}"));
                }
            }
        }
    }

    async fn reconcile_clusters(&self) -> Result<()> {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resources::stand_in_clusters());
        let objects = all
            .list(&ListParams::default().match_any())
            .await
            .context("listing StandInClusters")?;
        let mut keep = HashSet::new();
        for object in objects {
            let (namespace, name) = key(&object);
            // Cluster API sets the owner. The machines' label has its name.
            let Some(cluster) = owner(&object, "Cluster") else {
                continue;
            };
            keep.insert((namespace.clone(), cluster.clone()));
            if object.data.pointer("/status/initialization/provisioned") == Some(&json!(true)) {
                continue;
            }
            let (host, port) = match &self.fleet {
                Some(fleet) => fleet.endpoint(),
                None => (
                    LOOPBACK.to_string(),
                    self.workload_cluster(&namespace, &cluster).await?.api_port,
                ),
            };
            let endpoint = json!({"host": host, "port": port});
            let api = self.api(&namespace, &resources::stand_in_clusters());
            merge(&api, &name, &json!({"spec": {"controlPlaneEndpoint": endpoint}})).await?;
            merge_status(
                &api,
                &name,
                &json!({"status": {"initialization": {"provisioned": true}}}),
            )
            .await?;
            self.log.line(format!("{namespace}/{name}: provisioned"));
        }
        // Dropping the last reference ends the cluster's processes.
        self.clusters.lock().await.retain(|key, _| keep.contains(key));
        Ok(())
    }

    async fn workload_cluster(&self, namespace: &str, cluster: &str) -> Result<Arc<WorkloadCluster>> {
        let mut clusters = self.clusters.lock().await;
        let key = (namespace.to_owned(), cluster.to_owned());
        if let Some(known) = clusters.get(&key) {
            return Ok(known.clone());
        }
        let new = Arc::new(WorkloadCluster::new(&self.run, &self.assets, namespace, cluster)?);
        clusters.insert(key, new.clone());
        Ok(new)
    }

    async fn reconcile_machines(self: &Arc<Self>, work: &mut JoinSet<()>) -> Result<()> {
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resources::stand_in_machines());
        for object in all
            .list(&ListParams::default().match_any())
            .await
            .context("listing StandInMachines")?
        {
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let (namespace, name) = key(&object);
            if object.metadata.deletion_timestamp.is_some() {
                if self.ending.lock().await.insert(uid) {
                    let this = self.clone();
                    work.spawn(async move { this.end(&object).await });
                }
                continue;
            }
            if self.booted.lock().await.contains(&uid) {
                continue;
            }
            let Some(machine) = owner(&object, "Machine") else {
                continue;
            };
            let machine = resources::machines(&self.client, &namespace)
                .get(&machine)
                .await?;
            let secret = machine
                .data
                .pointer("/spec/bootstrap/dataSecretName")
                .and_then(Value::as_str);
            let Some(secret) = secret.map(str::to_owned) else {
                continue;
            };
            if !may_boot(&object, &machine) {
                continue;
            }
            let api = self.api(&namespace, &resources::stand_in_machines());
            merge(&api, &name, &json!({"metadata": {"finalizers": [FINALIZER]}})).await?;
            self.booted.lock().await.insert(uid);
            let this = self.clone();
            work.spawn(async move { this.boot(&object, &machine, &secret).await });
        }
        Ok(())
    }

    /// Boots a machine and reports the result. Cluster API copies an error to the Machine's conditions.
    async fn boot(&self, object: &DynamicObject, machine: &DynamicObject, secret: &str) {
        let (namespace, name) = key(object);
        self.log.line(format!("{namespace}/{name}: booting"));
        let booted = self.try_boot(object, machine, secret).await;
        let condition = match &booted {
            Ok(()) => {
                self.log.line(format!("{namespace}/{name}: booted"));
                ready_condition("True", "Booted", "")
            }
            Err(error) => {
                self.log
                    .line(format!("{namespace}/{name}: boot failed: {error:#}"));
                ready_condition("False", "BootFailed", &format!("{error:#}"))
            }
        };
        let api = self.api(&namespace, &resources::stand_in_machines());
        let status = json!({"status": {
            "conditions": [condition],
            "initialization": {"provisioned": booted.is_ok()},
        }});
        if let Err(error) = merge_status(&api, &name, &status).await {
            self.log.line(format!("{namespace}/{name}: {error:#}"));
        }
    }

    async fn try_boot(&self, object: &DynamicObject, machine: &DynamicObject, secret: &str) -> Result<()> {
        let (namespace, name) = key(object);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let data = secrets
            .get(secret)
            .await
            .context("reading the bootstrap data")?
            .data;
        let data = data
            .and_then(|mut data| data.remove("value"))
            .context("the bootstrap data is empty")?;
        let data = String::from_utf8(data.0).context("the bootstrap data is not text")?;
        let provider_id = format!("stand-in:///{namespace}/{name}");
        let address = match &self.fleet {
            Some(fleet) => fleet.boot(&name, &data).await?,
            None => self.boot_stand_in(object, machine, &provider_id, &data).await?,
        };
        let api = self.api(&namespace, &resources::stand_in_machines());
        merge(&api, &name, &json!({"spec": {"providerID": provider_id}})).await?;
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        merge_status(&api, &name, &json!({"status": {"addresses": addresses}})).await
    }

    async fn boot_stand_in(
        &self,
        object: &DynamicObject,
        machine: &DynamicObject,
        provider_id: &str,
        data: &str,
    ) -> Result<String> {
        let (namespace, name) = key(object);
        let cluster = self.cluster_of(object).await?;
        let data = BootstrapData::parse(data)?;
        let version = machine.data.pointer("/spec/version").and_then(Value::as_str);
        let etcd = object.data.pointer("/spec/etcd").and_then(Value::as_str);
        cluster.choose_etcd(&name, etcd)?;
        let machine = NewMachine {
            namespace: &namespace,
            name: &name,
            version: version.context("the Machine has no version")?,
            provider_id,
            has_controller_manager: object.data.pointer("/spec/controllerManager") == Some(&json!(true)),
        };
        let address = cluster.boot(&machine, &data, &self.controllers).await?;
        Ok(address.to_string())
    }

    async fn end(&self, object: &DynamicObject) {
        let (namespace, name) = key(object);
        let ended = match &self.fleet {
            Some(fleet) => fleet.end(&name).await,
            None => match self.cluster_of(object).await {
                Ok(cluster) => self.try_end(object, &cluster).await,
                // Its machines have ended.
                Err(_) => Ok(()),
            },
        };
        if let Err(error) = ended {
            self.log.line(format!("{namespace}/{name}: {error:#}"));
        }
        let api = self.api(&namespace, &resources::stand_in_machines());
        match merge(&api, &name, &json!({"metadata": {"finalizers": null}})).await {
            Ok(()) => self.log.line(format!("{namespace}/{name}: gone")),
            Err(error) => self
                .log
                .line(format!("{namespace}/{name}: removing the finalizer: {error:#}")),
        }
    }

    async fn try_end(&self, object: &DynamicObject, workload: &WorkloadCluster) -> Result<()> {
        let (namespace, name) = key(object);
        let cluster = resources::clusters(&self.client, &namespace)
            .get_metadata_opt(&cluster_name(object)?)
            .await
            .context("reading the Cluster")?;
        let is_deleted = cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
        workload.tear_down(&name, is_deleted, &self.log).await
    }

    async fn cluster_of(&self, machine: &DynamicObject) -> Result<Arc<WorkloadCluster>> {
        let (namespace, _) = key(machine);
        let cluster = cluster_name(machine)?;
        let clusters = self.clusters.lock().await;
        let found = clusters.get(&(namespace, cluster.clone()));
        found
            .cloned()
            .with_context(|| format!("no StandInCluster belongs to {cluster}"))
    }

    fn api(&self, namespace: &str, resource: &kube::core::ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }
}

/// Whether the machine may boot: at once, or `secondsBeforeBoot` after Cluster API has first seen its Machine. At that time,
/// Cluster API sets the condition `Deleting` to False.
fn may_boot(object: &DynamicObject, machine: &DynamicObject) -> bool {
    let seconds = object.data.pointer("/spec/secondsBeforeBoot");
    let Some(seconds) = seconds.and_then(Value::as_i64) else {
        return true;
    };
    let conditions = machine.data.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let deleting = conditions.find(|condition| condition.get("type") == Some(&json!("Deleting")));
    let since = deleting.and_then(|deleting| deleting.get("lastTransitionTime")?.as_str());
    let since = since.and_then(|since| since.parse::<Timestamp>().ok());
    since.is_some_and(|since| Timestamp::now().duration_since(since) >= SignedDuration::from_secs(seconds))
}

fn key(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

fn owner(object: &DynamicObject, kind: &str) -> Option<String> {
    let owners = object.metadata.owner_references.as_ref()?;
    Some(owners.iter().find(|owner| owner.kind == kind)?.name.clone())
}

fn cluster_name(machine: &DynamicObject) -> Result<String> {
    let labels = machine.metadata.labels.as_ref();
    let name = labels.and_then(|labels| labels.get("cluster.x-k8s.io/cluster-name"));
    name.cloned()
        .context("the StandInMachine has no label cluster.x-k8s.io/cluster-name")
}

fn ready_condition(status: &str, reason: &str, message: &str) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    })
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.with_context(|| format!("patching {name}")).map(drop)
}

async fn merge_status(api: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
    let patched = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched
        .with_context(|| format!("patching the status of {name}"))
        .map(drop)
}
