//! A workload cluster from its owner's view: created by applying objects, changed by patching them.

mod topology;
mod workers;

pub use topology::ClassSettings;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::{Value, json};

use crate::machines::real;
use crate::resources::{self, CLUSTER_GROUP, CONTROL_PLANE_GROUP, INFRASTRUCTURE_GROUP};
use crate::wait;

/// The shortest valid control plane, for a cluster named `edge`. The demo shows its defaults.
pub const SHORTEST_CONTROL_PLANE: &str = "\
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata:
  name: edge
spec:
  version: 1.34.2
  machineTemplate:
    spec:
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: StandInMachineTemplate
        name: edge
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer:
        certSANs: [127.0.0.1]
";

/// The label of control plane Machines.
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// More than `SAME_RECONCILIATION` in `plugin/model/src/join_times.rs`, so that the plugin measures each join. Times in
/// objects are in whole seconds.
const SECONDS_BEFORE_BOOT: u32 = 3;

#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    name: String,
    /// The spec of its machines, see `machines`.
    machine: Value,
    /// The `kubeadmConfigSpec` of its control plane.
    kubeadm: Value,
}

impl Cluster {
    fn new(client: &Client, namespace: &str, name: &str, machine: Value, kubeadm: Value) -> Self {
        Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            machine,
            kubeadm,
        }
    }

    /// Creates a cluster with a control plane on stand-in machines.
    pub async fn create(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
    ) -> Result<Self> {
        Self::new(client, namespace, name, json!({}), on_stand_ins())
            .with_control_plane(replicas, version)
            .await
    }

    /// Creates a cluster whose stand-in machines boot so late that the objects show how long each one takes to join. A real
    /// machine takes minutes, but a stand-in can join in the second in which Cluster API first sees its Machine.
    pub async fn create_with_measurable_joins(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
    ) -> Result<Self> {
        let machine = json!({"secondsBeforeBoot": SECONDS_BEFORE_BOOT});
        Self::new(client, namespace, name, machine, on_stand_ins())
            .with_control_plane(replicas, version)
            .await
    }

    /// Creates a cluster whose stand-in machines run this version of etcd.
    pub async fn create_with_etcd(
        client: &Client,
        namespace: &str,
        name: &str,
        version: &str,
        etcd: &str,
    ) -> Result<Self> {
        Self::new(client, namespace, name, json!({"etcd": etcd}), on_stand_ins())
            .with_control_plane(1, version)
            .await
    }

    /// Creates another template of machines, with this spec of them.
    pub async fn add_machine_template(&self, name: &str, machine: &Value) -> Result<()> {
        let resource = resources::stand_in_machine_templates();
        let templates = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        create(&templates, machine_template(name, machine)).await
    }

    /// Creates all objects of a cluster except for the `KubeadmControlPlane` to which it refers.
    pub async fn create_without_control_plane(client: &Client, namespace: &str, name: &str) -> Result<Self> {
        let cluster = Self::new(client, namespace, name, json!({}), on_stand_ins());
        cluster.create_infrastructure().await?;
        Ok(cluster)
    }

    /// Creates a cluster whose control plane machines run a real kube-controller-manager of their version. `component` is the
    /// `controllerManager` of the control plane.
    pub async fn create_with_controller_managers(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
        component: &Value,
    ) -> Result<Self> {
        let cluster = Self::new(
            client,
            namespace,
            name,
            json!({"controllerManager": true}),
            on_stand_ins(),
        );
        cluster.create_infrastructure().await?;
        let mut control_plane = cluster.control_plane(replicas, version);
        let configuration = control_plane.pointer_mut("/spec/kubeadmConfigSpec/clusterConfiguration");
        if let Some(configuration) = configuration.and_then(Value::as_object_mut) {
            configuration.insert("controllerManager".to_owned(), component.clone());
        }
        create(&cluster.control_planes(), control_plane).await?;
        Ok(cluster)
    }

    /// Creates a cluster with a control plane on real machines.
    pub async fn create_on_real_machines(
        client: &Client,
        namespace: &str,
        name: &str,
        replicas: u32,
        version: &str,
    ) -> Result<Self> {
        let kubeadm = real::kubeadm_config(&format!("stand-in:///{namespace}"));
        Self::new(client, namespace, name, json!({}), kubeadm)
            .with_control_plane(replicas, version)
            .await
    }

    /// Creates a cluster with a control plane on real machines whose `kubeadmConfigSpec` is changed before.
    pub async fn create_on_real_machines_with(
        client: &Client,
        (namespace, name): (&str, &str),
        version: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        let mut kubeadm = real::kubeadm_config(&format!("stand-in:///{namespace}"));
        change(&mut kubeadm);
        Self::new(client, namespace, name, json!({}), kubeadm)
            .with_control_plane(1, version)
            .await
    }

    async fn with_control_plane(self, replicas: u32, version: &str) -> Result<Self> {
        self.create_infrastructure().await?;
        create(&self.control_planes(), self.control_plane(replicas, version)).await?;
        Ok(self)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    async fn create_infrastructure(&self) -> Result<()> {
        let Self {
            client, namespace, ..
        } = self;
        let infrastructure =
            |resource: ApiResource| Api::namespaced_with(client.clone(), namespace, &resource);
        create(
            &infrastructure(resources::stand_in_clusters()),
            self.stand_in_cluster(),
        )
        .await?;
        create(
            &infrastructure(resources::stand_in_machine_templates()),
            machine_template(&self.name, &self.machine),
        )
        .await?;
        create(&resources::clusters(client, namespace), self.cluster()).await
    }

    pub async fn get(&self) -> Result<Value> {
        let object = self
            .control_planes()
            .get(&self.control_plane_name().await?)
            .await
            .context("reading the KubeadmControlPlane")?;
        Ok(serde_json::to_value(object)?)
    }

    /// The control plane of a `ClusterClass` has a generated name.
    async fn control_plane_name(&self) -> Result<String> {
        let cluster = resources::clusters(&self.client, &self.namespace)
            .get(&self.name)
            .await
            .context("reading the Cluster")?;
        let name = cluster
            .data
            .pointer("/spec/controlPlaneRef/name")
            .and_then(Value::as_str);
        Ok(name.context("the Cluster has no control plane yet")?.to_owned())
    }

    /// Patches the control plane with a merge patch.
    pub async fn patch(&self, patch: &Value) -> Result<()> {
        let control_planes = self.control_planes();
        let patched = control_planes
            .patch(
                &self.control_plane_name().await?,
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        patched.context("patching the KubeadmControlPlane")?;
        Ok(())
    }

    /// Sets the times of all writes of the control plane's spec to `minutes` ago, and those of its status to twice as long ago, so
    /// that a test need not wait: the plugin knows from `managedFields` since when a change is not processed.
    pub async fn backdate_writes(&self, minutes: i64) -> Result<()> {
        let object = self.get().await?;
        let entries = object.pointer("/metadata/managedFields");
        let mut entries = entries.cloned().context("no managedFields")?;
        for entry in entries.as_array_mut().into_iter().flatten() {
            // The API server ignores a change of nothing but times.
            if let Some(manager) = entry.get_mut("manager") {
                *manager = json!("earlier");
            }
            let is_of_status = entry.get("subresource") == Some(&json!("status"));
            let minutes = if is_of_status { 2 * minutes } else { minutes };
            if let Some(time) = entry.get_mut("time") {
                let past_time = Timestamp::now() - SignedDuration::from_mins(minutes);
                *time = json!(past_time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            }
        }
        self.patch(&json!({"metadata": {"managedFields": entries}})).await
    }

    /// Pauses or resumes the Cluster.
    pub async fn pause(&self, paused: bool) -> Result<()> {
        let patch = json!({"spec": {"paused": paused}});
        let patched = resources::clusters(&self.client, &self.namespace)
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.context("pausing the Cluster").map(drop)
    }

    /// Waits until the control plane has a condition with this status.
    pub async fn has_condition(&self, kind: &str, status: &str) -> Result<()> {
        wait::until(&format!("condition {kind} is {status}"), || async {
            let control_plane = self.get().await?;
            let conditions = control_plane
                .pointer("/status/conditions")
                .and_then(Value::as_array);
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|condition| condition.get("type").is_some_and(|it| it == kind));
            ensure!(
                found.and_then(|condition| condition.get("status")) == Some(&json!(status)),
                "it is {found:?}"
            );
            Ok(())
        })
        .await
    }

    /// Names of the control plane's Machines that are not being deleted, oldest first.
    pub async fn machines(&self) -> Result<Vec<String>> {
        let mut machines = self.all_machines().await?;
        machines.retain(|machine| machine.metadata.deletion_timestamp.is_none());
        machines.sort_by_key(|machine| machine.metadata.creation_timestamp.clone());
        Ok(machines
            .into_iter()
            .filter_map(|machine| machine.metadata.name)
            .collect())
    }

    /// Names of the control plane's Machines that have a node, whether they are being deleted or not.
    pub async fn with_nodes(&self) -> Result<Vec<String>> {
        let mut machines = self.all_machines().await?;
        machines.retain(|machine| machine.data.pointer("/status/nodeRef/name").is_some());
        Ok(machines
            .into_iter()
            .filter_map(|machine| machine.metadata.name)
            .collect())
    }

    /// Waits until [`Self::is_settled`].
    pub async fn settled(&self, replicas: usize) -> Result<()> {
        let what = format!(
            "{}/{} is settled with {replicas} machines",
            self.namespace, self.name
        );
        wait::until(&what, || async { self.is_settled(replicas).await }).await
    }

    /// Succeeds if the status of the control plane matches its spec and no change is in progress.
    pub async fn is_settled(&self, replicas: usize) -> Result<()> {
        let object = self.get().await?;
        settled(&object, replicas)?;
        let machines = self.all_machines().await?;
        ensure!(
            machines.len() == replicas,
            "there are {} Machines",
            machines.len()
        );
        Ok(())
    }

    /// Creates a `MachineHealthCheck` for the control plane. Without one Cluster API remediates no Machine.
    pub async fn check_health(&self) -> Result<()> {
        let ready_is = |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": 5});
        self.check_health_with(&json!({"unhealthyNodeConditions": [ready_is("False"), ready_is("Unknown")]}))
            .await
    }

    /// [`Self::check_health`] with other `checks`.
    pub async fn check_health_with(&self, checks: &Value) -> Result<()> {
        let check = json!({
            "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"),
            "kind": "MachineHealthCheck",
            "metadata": {"name": self.name},
            "spec": {
                "clusterName": self.name,
                "selector": {"matchLabels": {CONTROL_PLANE_LABEL: ""}},
                "checks": checks,
            },
        });
        create(
            &resources::machine_health_checks(&self.client, &self.namespace),
            check,
        )
        .await
    }

    /// Deletes the cluster and waits until Cluster API has deleted all its objects.
    pub async fn delete(self) -> Result<()> {
        let clusters = resources::clusters(&self.client, &self.namespace);
        clusters
            .delete(&self.name, &DeleteParams::default())
            .await
            .context("deleting the Cluster")?;
        wait::until(&format!("{}/{} is gone", self.namespace, self.name), || async {
            match clusters.get(&self.name).await {
                Err(Error::Api(status)) if status.is_not_found() => Ok(()),
                Ok(_) => anyhow::bail!("{} Machines are left", self.all_machines().await?.len()),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    async fn all_machines(&self) -> Result<Vec<DynamicObject>> {
        let of_cluster = format!(
            "cluster.x-k8s.io/cluster-name={},{CONTROL_PLANE_LABEL}",
            self.name
        );
        let machines = resources::machines(&self.client, &self.namespace);
        Ok(machines
            .list(&ListParams::default().labels(&of_cluster))
            .await
            .context("listing Machines")?
            .items)
    }

    fn control_planes(&self) -> Api<DynamicObject> {
        resources::control_planes(&self.client, &self.namespace)
    }

    fn stand_in_cluster(&self) -> Value {
        json!({
            "apiVersion": format!("{INFRASTRUCTURE_GROUP}/v1beta1"),
            "kind": "StandInCluster",
            "metadata": {"name": self.name},
            "spec": {},
        })
    }

    fn control_plane(&self, replicas: u32, version: &str) -> Value {
        let template =
            json!({"apiGroup": INFRASTRUCTURE_GROUP, "kind": "StandInMachineTemplate", "name": self.name});
        json!({
            "apiVersion": format!("{CONTROL_PLANE_GROUP}/v1beta2"),
            "kind": "KubeadmControlPlane",
            "metadata": {"name": self.name},
            "spec": {
                "replicas": replicas,
                "version": version,
                "machineTemplate": {"spec": {"infrastructureRef": template}},
                "kubeadmConfigSpec": self.kubeadm,
            },
        })
    }

    fn cluster(&self) -> Value {
        json!({
            "apiVersion": format!("{CLUSTER_GROUP}/v1beta2"),
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "spec": {
                "clusterNetwork": {
                    "pods": {"cidrBlocks": ["10.244.0.0/16"]},
                    "services": {"cidrBlocks": ["10.96.0.0/24"]},
                },
                "controlPlaneRef": {
                    "apiGroup": CONTROL_PLANE_GROUP, "kind": "KubeadmControlPlane", "name": self.name,
                },
                "infrastructureRef": {
                    "apiGroup": INFRASTRUCTURE_GROUP, "kind": "StandInCluster", "name": self.name,
                },
            },
        })
    }
}

fn machine_template(name: &str, machine: &Value) -> Value {
    json!({
        "apiVersion": format!("{INFRASTRUCTURE_GROUP}/v1beta1"),
        "kind": "StandInMachineTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": machine}},
    })
}

/// Clients reach the only API server of stand-ins at the loopback address.
fn on_stand_ins() -> Value {
    json!({"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}})
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let kind = object
        .types
        .as_ref()
        .map(|types| types.kind.clone())
        .unwrap_or_default();
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("creating the {kind}"))?;
    Ok(())
}

/// Succeeds if the control plane's status matches its spec and reports no problem.
fn settled(control_plane: &Value, replicas: usize) -> Result<()> {
    let lookup = |pointer: &str| control_plane.pointer(pointer);
    ensure!(
        lookup("/status/observedGeneration") == lookup("/metadata/generation"),
        "its status is not up to date"
    );
    for field in [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "upToDateReplicas",
    ] {
        let number = lookup(&format!("/status/{field}")).unwrap_or(&Value::Null);
        ensure!(*number == json!(replicas), "status.{field} is {number}");
    }
    let conditions = lookup("/status/conditions").and_then(Value::as_array);
    for (kind, wanted) in [
        ("RollingOut", "False"),
        ("EtcdClusterHealthy", "True"),
        ("ControlPlaneComponentsHealthy", "True"),
    ] {
        let of_kind = |condition: &&Value| condition.get("type").is_some_and(|value| value == kind);
        let condition = conditions.and_then(|conditions| conditions.iter().find(of_kind));
        let condition = condition.with_context(|| format!("the object has no condition {kind}"))?;
        ensure!(
            condition.get("status").is_some_and(|status| status == wanted),
            "{condition}"
        );
    }
    Ok(())
}
