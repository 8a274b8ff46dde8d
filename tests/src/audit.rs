//! The audit log of an API server: writes to the objects that our webhooks review, with the webhooks' annotations.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Logs metadata of writes to the kinds that our webhooks review, and nothing else.
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
- level: None
";

pub(crate) struct AuditLog {
    log: PathBuf,
    rules: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: ObjectRef,
    #[serde(default)]
    annotations: Map<String, Value>,
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
        let rules = folder.join("audit-policy.yaml");
        fs::write(&rules, RULES).with_context(|| format!("writing {}", rules.display()))?;
        Ok(Self {
            log: folder.join("audit.log"),
            rules,
        })
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
