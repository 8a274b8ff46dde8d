//! The audit log of an API server: writes to Leases and to the objects that our webhooks review, with the webhooks' annotations;
//! and in workload clusters, writes of Nodes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Logs metadata of writes to the kinds that our webhooks review and to Leases, and nothing else.
const RULES: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - group: controlplane.cluster.x-k8s.io
  - group: hive.openshift.io
  - group: coordination.k8s.io
- level: None
";

/// Logs writes of Nodes with their content, but not of their status, and nothing else.
pub(crate) const NODES: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [create, update, patch]
  resources:
  - group: \"\"
    resources: [nodes]
- level: None
";

/// A write that set `spec.podCIDR` of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCidrWrite {
    pub node: String,
    pub pod_cidr: String,
    /// The name of the user who wrote it.
    pub user: String,
    /// The program that wrote it: the start of the User-Agent.
    pub program: String,
    /// When the API server received it.
    pub at: Timestamp,
}

pub(crate) struct AuditLog {
    log: PathBuf,
    rules: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: ObjectRef,
    #[serde(default)]
    request_object: Value,
    #[serde(default)]
    response_status: ResponseStatus,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    annotations: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

impl AuditLog {
    /// Writes the audit policy to a folder, which will contain the log too.
    pub(crate) fn prepare(folder: &Path) -> Result<Self> {
        let log = Self::in_folder(folder);
        log.write_rules(RULES)?;
        Ok(log)
    }

    /// The log in a folder, which may not exist yet.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            log: folder.join("audit.log"),
            rules: folder.join("audit-policy.yaml"),
        }
    }

    /// Writes the audit policy.
    pub(crate) fn write_rules(&self, rules: &str) -> Result<()> {
        fs::write(&self.rules, rules).with_context(|| format!("writing {}", self.rules.display()))
    }

    /// The kube-apiserver flags for this log. The API server writes an event before it answers the request.
    pub(crate) fn arguments(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.rules.display()),
            format!("--audit-log-path={}", self.log.display()),
            "--audit-log-mode=blocking-strict".to_owned(),
        ]
    }

    /// The audit annotations of each such write, oldest first.
    pub(crate) fn annotations(
        &self,
        verb: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Map<String, Value>>> {
        let is_asked_for = |event: &Event| {
            let object = &event.object_ref;
            (
                event.verb.as_str(),
                object.namespace.as_str(),
                object.name.as_str(),
            ) == (verb, namespace, name)
        };
        let events = self.events()?.into_iter();
        Ok(events
            .filter(is_asked_for)
            .map(|event| event.annotations)
            .collect())
    }

    /// When the API server received each dry run of a write of an object that it refused, oldest first.
    pub(crate) fn refused_dry_runs(&self, namespace: &str, name: &str) -> Result<Vec<Timestamp>> {
        let events = self.events()?.into_iter().filter(|event| {
            let object = &event.object_ref;
            let is_of_object = (object.namespace.as_str(), object.name.as_str()) == (namespace, name);
            is_of_object && event.request_uri.contains("dryRun=All") && event.response_status.code >= 400
        });
        let times = events.map(|event| event.request_received_timestamp.parse());
        times
            .collect::<Result<_, _>>()
            .context("reading the time of a dry run")
    }

    /// The number of status writes of a resource, including refused ones.
    pub(crate) fn status_writes(&self, namespace: &str, resource: &str) -> Result<usize> {
        let is_counted = |event: &Event| {
            let object = &event.object_ref;
            (
                object.namespace.as_str(),
                object.resource.as_str(),
                object.subresource.as_str(),
            ) == (namespace, resource, "status")
        };
        Ok(self.events()?.iter().filter(|event| is_counted(event)).count())
    }

    /// The User-Agent of each write of a resource, including refused ones.
    pub(crate) fn user_agents(&self, namespace: &str, resource: &str) -> Result<Vec<String>> {
        let is_of_resource = |event: &Event| {
            (
                event.object_ref.namespace.as_str(),
                event.object_ref.resource.as_str(),
            ) == (namespace, resource)
        };
        let events = self.events()?.into_iter().filter(is_of_resource);
        Ok(events.map(|event| event.user_agent).collect())
    }

    /// Each successful write of `podCIDR` of a Node, oldest first.
    pub(crate) fn pod_cidr_writes(&self) -> Result<Vec<PodCidrWrite>> {
        let mut writes = Vec::new();
        for event in self.events()? {
            let pod_cidr = event
                .request_object
                .pointer("/spec/podCIDR")
                .and_then(Value::as_str);
            let Some(pod_cidr) = pod_cidr.filter(|_| event.response_status.code < 300) else {
                continue;
            };
            let program = event.user_agent.split('/').next().unwrap_or_default();
            let time = event.request_received_timestamp.parse();
            writes.push(PodCidrWrite {
                node: event.object_ref.name,
                pod_cidr: pod_cidr.to_owned(),
                user: event.user.username,
                program: program.to_owned(),
                at: time.context("reading the time of a write")?,
            });
        }
        Ok(writes)
    }

    fn events(&self) -> Result<Vec<Event>> {
        let text =
            fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        // The API server may be writing the last line.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines
            .map(|line| serde_json::from_str(line).with_context(|| format!("reading {line}")))
            .collect()
    }
}
