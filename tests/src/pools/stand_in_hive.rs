//! A stand-in for Hive's controllers that serves the ClusterClaims of one pool. It sends the writes of Hive, in their order,
//! with the resourceVersion that it read before (openshift/hive c02e517: `clusterpool_controller.go`,
//! `clusterclaim_controller.go`). Its clusters are installed and run at once.

#![expect(clippy::indexing_slicing, reason = "an absent field of a JSON value is null")]

pub mod recording;
pub mod replay;

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};

use self::recording::{Names, Recording};
use super::pool::{HIVE, while_initializing};

/// What each cluster's admin kubeconfig contains.
pub const KUBECONFIG: &str = "kind: Config\n";

/// The time between two rounds. Hive watches instead.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);

pub struct StandInHive {
    recording: Recording,
    client: Client,
    /// The namespace of the pool.
    namespace: String,
    pool: String,
    /// How many unclaimed clusters to keep.
    size: usize,
    /// How many clusters were created so far, which is also the number in the next cluster's name.
    created: usize,
}

impl StandInHive {
    pub fn new(client: &Client, namespace: &str, pool: &str, size: usize) -> Result<Self> {
        Ok(Self {
            recording: Recording::read()?,
            client: client.clone(),
            namespace: namespace.to_owned(),
            pool: pool.to_owned(),
            size,
            created: 0,
        })
    }

    /// Serves the pool until the work ends.
    pub async fn serve_while<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let serve = async {
            loop {
                self.round(Timestamp::now()).await?;
                tokio::time::sleep(BETWEEN_ROUNDS).await;
            }
        };
        tokio::select! {
            failed = serve => failed,
            done = work => Ok(done),
        }
    }

    /// Serves the pool at this time until it has nothing more to do, and returns the claims that remain.
    pub async fn settle(&mut self, now: Timestamp) -> Result<Vec<Value>> {
        for _ in 0..100 {
            let before = (self.claims().await?, self.clusters().await?);
            self.round(now).await?;
            if before == (self.claims().await?, self.clusters().await?) {
                return Ok(before.0);
            }
        }
        anyhow::bail!("the stand-in for Hive never settles")
    }

    /// One reconcile of everything.
    pub async fn round(&mut self, now: Timestamp) -> Result<()> {
        for claim in self.claims().await? {
            self.reconcile_claim(claim, now).await?;
        }
        self.assign(now).await?;
        for cluster in self.clusters().await? {
            if cluster["metadata"]["annotations"]["hive.openshift.io/remove-cluster-from-pool"].is_string() {
                self.delete(&self.cluster_path(&cluster)).await?;
            }
        }
        let clusters = self.clusters().await?;
        let unclaimed = clusters.iter().filter(|cluster| claim_of(cluster).is_none());
        for _ in unclaimed.count()..self.size {
            self.create_cluster().await?;
        }
        Ok(())
    }

    async fn reconcile_claim(&self, mut claim: Value, now: Timestamp) -> Result<()> {
        let path = self.claim_path(&claim);
        if claim["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
            return self.write("initialize-claim", &claim, &claim, now).await;
        }
        let cluster = claim["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
        let cluster = self.get_cluster(&cluster).await?;
        if claim["metadata"]["deletionTimestamp"].is_string() {
            let own = cluster.filter(|cluster| claim_of(cluster) == claim["metadata"]["name"].as_str());
            if let Some(own) = own {
                return self.write("mark-for-removal", &own, &claim, now).await;
            }
            return self.write("remove-claim-finalizer", &claim, &claim, now).await;
        }
        if claim["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            return self.write("add-claim-finalizer", &claim, &claim, now).await;
        }
        if claim["spec"]["namespace"].as_str().is_none_or(str::is_empty) {
            return Ok(());
        }
        // The lifetime that Hive uses is in the status.
        if claim["status"]["lifetime"] != claim["spec"]["lifetime"] {
            claim["status"]["lifetime"] = claim["spec"]["lifetime"].clone();
            return self.put(&format!("{path}/status"), &claim).await;
        }
        if has_ended(&claim, now)? {
            return self.delete(&path).await;
        }
        let report = match cluster {
            None => "report-cluster-deleted",
            Some(cluster) if claim_of(&cluster) == claim["metadata"]["name"].as_str() => {
                self.allow_subjects(&claim).await?;
                "report-claimed"
            }
            Some(_) => return Ok(()),
        };
        self.write(report, &claim, &claim, now).await
    }

    /// Allows the subjects of the claim to use its cluster, with the role that Hive creates.
    async fn allow_subjects(&self, claim: &Value) -> Result<()> {
        const NAME: &str = "hive-claim-owner";
        const GROUP: &str = "rbac.authorization.k8s.io";
        let (Some(subjects), Some(cluster)) = (
            claim["spec"]["subjects"].as_array(),
            claim["spec"]["namespace"].as_str(),
        ) else {
            return Ok(());
        };
        let role = json!({"metadata": {"name": NAME}, "rules": [
            {"apiGroups": ["hive.openshift.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["admin"], "verbs": ["get"]},
        ]});
        let binding = json!({
            "metadata": {"name": NAME}, "subjects": subjects,
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": NAME},
        });
        for (collection, object) in [("roles", role), ("rolebindings", binding)] {
            let path = format!("/apis/{GROUP}/v1/namespaces/{cluster}/{collection}");
            self.send(Method::POST, &path, Some(&object)).await?;
        }
        Ok(())
    }

    /// Assigns running clusters to claims, the oldest claim first: first the claim, then the cluster.
    async fn assign(&self, now: Timestamp) -> Result<()> {
        let mut claims = self.claims().await?;
        claims.retain(|claim| claim["metadata"]["deletionTimestamp"].is_null());
        claims.sort_by_key(|claim| {
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("creationTimestamp"), text("name"))
        });
        let clusters = self.clusters().await?;
        let is_free = |cluster: &&Value| {
            let is_assigned = claims
                .iter()
                .any(|claim| claim["spec"]["namespace"] == cluster["metadata"]["name"]);
            claim_of(cluster).is_none() && !is_assigned && cluster["metadata"]["deletionTimestamp"].is_null()
        };
        let mut free = clusters.iter().filter(is_free);
        for claim in &claims {
            let Some(assigned) = claim["spec"]["namespace"]
                .as_str()
                .filter(|name| !name.is_empty())
            else {
                if let Some(cluster) = free.next() {
                    let mut assigned = claim.clone();
                    assigned["spec"]["namespace"] = cluster["metadata"]["name"].clone();
                    self.write("assign-claim", claim, &assigned, now).await?;
                }
                continue;
            };
            if let Some(cluster) = self.get_cluster(assigned).await?
                && claim_of(&cluster).is_none()
            {
                self.write("assign-cluster", &cluster, claim, now).await?;
            }
        }
        Ok(())
    }

    async fn create_cluster(&mut self) -> Result<()> {
        let name = format!("{}-{}", self.namespace, self.created);
        self.created += 1;
        let namespace = json!({"metadata": {"name": name}});
        self.send(Method::POST, "/api/v1/namespaces", Some(&namespace))
            .await?;
        let secret = json!({"metadata": {"name": "admin"}, "stringData": {"kubeconfig": KUBECONFIG}});
        self.send(
            Method::POST,
            &format!("/api/v1/namespaces/{name}/secrets"),
            Some(&secret),
        )
        .await?;
        let cluster = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": {"name": name},
            "spec": {
                "baseDomain": "example.com", "clusterName": name, "platform": {}, "installed": true,
                "clusterMetadata": {
                    "adminKubeconfigSecretRef": {"name": "admin"}, "clusterID": name, "infraID": name,
                },
                "clusterPoolRef": {"namespace": self.namespace, "poolName": self.pool},
            },
        });
        let created = self
            .send(
                Method::POST,
                &format!("{HIVE}/namespaces/{name}/clusterdeployments"),
                Some(&cluster),
            )
            .await?;
        if let Some(mut created) = created {
            created["status"] = json!({"powerState": "Running", "conditions": []});
            self.put(&format!("{}/status", self.cluster_path(&created)), &created)
                .await?;
        }
        Ok(())
    }

    /// The claims of the pool.
    async fn claims(&self) -> Result<Vec<Value>> {
        let path = format!("{HIVE}/namespaces/{}/clusterclaims", self.namespace);
        let mut claims = self.list(&path).await?;
        claims.retain(|claim| claim["spec"]["clusterPoolName"] == self.pool.as_str());
        Ok(claims)
    }

    /// The clusters of the pool.
    async fn clusters(&self) -> Result<Vec<Value>> {
        let mut clusters = self.list(&format!("{HIVE}/clusterdeployments")).await?;
        clusters.retain(|cluster| {
            let reference = &cluster["spec"]["clusterPoolRef"];
            reference["namespace"] == self.namespace.as_str() && reference["poolName"] == self.pool.as_str()
        });
        Ok(clusters)
    }

    async fn get_cluster(&self, name: &str) -> Result<Option<Value>> {
        if name.is_empty() {
            return Ok(None);
        }
        let path = format!("{HIVE}/namespaces/{name}/clusterdeployments/{name}");
        self.send(Method::GET, &path, None).await
    }

    fn claim_path(&self, claim: &Value) -> String {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        format!("{HIVE}/namespaces/{}/clusterclaims/{name}", self.namespace)
    }

    #[expect(clippy::unused_self, reason = "beside claim_path")]
    fn cluster_path(&self, cluster: &Value) -> String {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        format!("{HIVE}/namespaces/{name}/clusterdeployments/{name}")
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.send(Method::GET, path, None).await?.context("no list")?;
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        for item in &mut items {
            // Items of a list may omit these.
            item["apiVersion"] = "hive.openshift.io/v1".into();
        }
        Ok(items)
    }

    /// Sends a recorded write of an object, with the names of the claim and of the cluster that is assigned to it.
    async fn write(&self, name: &str, object: &Value, claim: &Value, now: Timestamp) -> Result<()> {
        let text = |pointer: &str| {
            let text = claim.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let names = Names::from([
            ("namespace", self.namespace.clone()),
            ("claim", text("/metadata/name")),
            ("cluster", text("/spec/namespace")),
        ]);
        let write = self.recording.write(name)?;
        match write.applied(object, &names, now)? {
            Some(changed) => self.put(&write.path(&names)?, &changed).await,
            None => Ok(()),
        }
    }

    /// Replaces an object, unless it has changed since it was read. The next round then tries again.
    async fn put(&self, path: &str, object: &Value) -> Result<()> {
        self.send(Method::PUT, path, Some(object)).await.map(drop)
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    /// Returns `None` if the object does not exist, or if it has changed.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Option<Value>> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let answer = while_initializing(async || {
            let request = Request::builder().method(method.clone()).uri(path);
            let request = request.header("content-type", "application/json");
            let request = request.body(body.clone()).map_err(kube::Error::HttpError)?;
            self.client.request::<Value>(request).await
        });
        match answer.await {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{method} {path}")),
        }
    }
}

fn claim_of(cluster: &Value) -> Option<&str> {
    let claim = cluster["spec"]["clusterPoolRef"]["claimName"].as_str();
    claim.filter(|claim| !claim.is_empty())
}

/// Whether the lifetime has passed since the assignment.
fn has_ended(claim: &Value, now: Timestamp) -> Result<bool> {
    let conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
    let mut assigned =
        conditions.filter(|condition| condition["type"] == "Pending" && condition["status"] == "False");
    let (Some(assigned), Some(lifetime)) = (assigned.next(), claim["status"]["lifetime"].as_str()) else {
        return Ok(false);
    };
    let assigned: Timestamp = assigned["lastTransitionTime"]
        .as_str()
        .unwrap_or_default()
        .parse()?;
    let lifetime: SignedDuration = lifetime.parse()?;
    Ok(now.duration_since(assigned) >= lifetime)
}
