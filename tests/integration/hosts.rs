//! A pool named `hosts` in its own namespace of the management cluster, used through the real kubectl.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use crate::objects::{report, written};
use crate::plugin::create_pool;

/// The pool. Its inventory has the customizations `host-0`, `host-1` and so on.
pub(crate) struct Hosts {
    pub(crate) kubectl: Kubectl,
    pub(crate) namespace: &'static str,
}

impl Hosts {
    pub(crate) async fn create(management: &ManagementCluster, namespace: &'static str, size: usize) -> Self {
        create_pool(management, namespace, "hosts", size).await.unwrap();
        Self {
            kubectl: management.kubectl().clone(),
            namespace,
        }
    }

    /// Runs `kubectl kcp pool …` in the namespace.
    pub(crate) async fn run(&self, arguments: &[&str]) -> CommandOutput {
        let command = ["kcp", "pool", "-n", self.namespace];
        self.kubectl.run(command.iter().chain(arguments)).await.unwrap()
    }

    /// An object from the API server, if it exists.
    pub(crate) async fn object(&self, kind: &str, name: &str, namespace: &str) -> Option<Value> {
        let get = [
            "get",
            kind,
            name,
            "-n",
            namespace,
            "-o",
            "json",
            "--ignore-not-found",
        ];
        let got = self.kubectl.succeed(get).await.unwrap();
        (!got.stdout.trim().is_empty()).then(|| serde_json::from_str(&got.stdout).unwrap())
    }

    /// Patches an object with a merge patch.
    pub(crate) async fn patch(&self, object: &str, namespace: &str, patch: &Value) {
        let patch = patch.to_string();
        let patch = ["patch", object, "-n", namespace, "--type=merge", "-p", &patch];
        self.kubectl.succeed(patch).await.unwrap();
    }

    /// Deletes the pool, which a finalizer keeps until [`Self::end_deletion`].
    pub(crate) async fn delete_pool(&self) {
        let held = json!({"metadata": {"finalizers": ["hive.openshift.io/clusters"]}});
        self.patch("clusterpool/hosts", self.namespace, &held).await;
        let delete = [
            "delete",
            "clusterpool/hosts",
            "-n",
            self.namespace,
            "--wait=false",
        ];
        self.kubectl.succeed(delete).await.unwrap();
    }

    /// Ends the deletion of the pool.
    pub(crate) async fn end_deletion(&self) {
        let none = json!({"metadata": {"finalizers": null}});
        self.patch("clusterpool/hosts", self.namespace, &none).await;
    }

    /// Creates a cluster with a customization and finalizers, in a namespace of the cluster's name.
    pub(crate) async fn cluster(&self, name: &str, entry: &str, finalizers: &[&str]) {
        self.annotated_cluster(name, entry, finalizers, &json!({})).await;
    }

    /// Creates a cluster with a customization that another cluster uses. Our webhook would deny it.
    pub(crate) async fn second_cluster(&self, name: &str, entry: &str) {
        let end = Timestamp::now() + SignedDuration::from_hours(1);
        let overridden = format!("customization-held-by-another={end:.0}");
        let annotations = json!({"kubectl-kcp.dev/override-rules": overridden});
        self.annotated_cluster(name, entry, &[], &annotations).await;
    }

    async fn annotated_cluster(&self, name: &str, entry: &str, finalizers: &[&str], annotations: &Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let deployment = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {
                "name": name, "namespace": name, "finalizers": finalizers, "annotations": annotations,
            },
            "spec": {
                "baseDomain": "example.com", "clusterName": name, "platform": {},
                "clusterPoolRef": {"namespace": self.namespace, "poolName": "hosts",
                    "clusterDeploymentCustomization": {"name": entry}},
            },
        });
        written(&self.kubectl, "apply", &[namespace, deployment], &[])
            .await
            .unwrap();
    }

    pub(crate) async fn make(&self, objects: &[Value], namespace: &str) {
        written(&self.kubectl, "create", objects, &["-n", namespace])
            .await
            .unwrap();
    }

    /// Leases an entry for a cluster, without a limit.
    pub(crate) async fn leases(&self, cluster: &str) {
        let leased = self
            .run(&["lease", "hosts", "--cluster-deployment", cluster])
            .await;
        assert_eq!(leased.code, 0, "{leased}");
    }

    /// The fields of the lease's record in a customization's status.
    pub(crate) async fn record_of(&self, entry: &str) -> Option<BTreeMap<String, String>> {
        let entry = self
            .object("clusterdeploymentcustomization", entry, self.namespace)
            .await?;
        let conditions = entry.pointer("/status/conditions")?.as_array()?.clone();
        let record = conditions
            .iter()
            .find(|condition| condition["type"] == "kubectl-kcp.dev/Lease")?;
        let fields = record["message"].as_str()?.split(' ').skip(1);
        let fields = fields.filter_map(|field| field.split_once('='));
        Some(
            fields
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// Changes fields of that record.
    pub(crate) async fn rewrite_record(&self, entry: &str, changes: &[(&str, &str)]) {
        const KIND: &str = "clusterdeploymentcustomization";
        let object = self.object(KIND, entry, self.namespace).await.unwrap();
        let mut conditions = object
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .unwrap()
            .clone();
        let record = conditions
            .iter_mut()
            .find(|condition| condition["type"] == "kubectl-kcp.dev/Lease");
        let record = record.unwrap();
        let message = record["message"].as_str().unwrap();
        let field = |field: &str| {
            let change = changes
                .iter()
                .find(|(name, _)| field.starts_with(&format!("{name}=")));
            change.map_or_else(|| field.to_owned(), |(name, value)| format!("{name}={value}"))
        };
        let message: Vec<String> = message.split(' ').map(field).collect();
        record["message"] = message.join(" ").into();
        let status = json!({ "conditions": conditions });
        report(&self.kubectl, self.namespace, [KIND, entry], &status)
            .await
            .unwrap();
    }

    /// The holder in a customization's status.
    pub(crate) async fn holder_of(&self, entry: &str) -> Option<String> {
        let entry = self
            .object("clusterdeploymentcustomization", entry, self.namespace)
            .await?;
        let holder = entry.pointer("/status/clusterDeploymentRef/name")?;
        Some(holder.as_str()?.to_owned())
    }
}
