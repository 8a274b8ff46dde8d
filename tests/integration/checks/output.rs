//! One result of `kubectl kcp status -o json`.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::Value;

use super::{ANSWER, NAME, NAMESPACE};
use crate::schema;

/// The document, which matches its schema, and the exit code.
#[derive(Debug)]
pub(super) struct StatusResult {
    pub(super) exit_code: i32,
    document: Value,
}

impl StatusResult {
    /// Runs `status`, which must print nothing on stderr.
    pub(super) async fn take(management: &ManagementCluster, arguments: &[&str]) -> Result<Self> {
        let began = Instant::now();
        let ended = status(management, &[arguments, &["-o", "json"]].concat()).await?;
        let took = began.elapsed();
        ensure!(took <= ANSWER, "it took {took:?}: {ended}");
        let document = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        schema::holds("controlplanestatus.json", &document).with_context(|| ended.to_string())?;
        Ok(Self {
            exit_code: ended.code,
            document,
        })
    }

    pub(super) fn at(&self, pointer: &str) -> &Value {
        self.document.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(super) fn verdict(&self) -> &str {
        self.at("/verdict").as_str().unwrap_or_default()
    }

    /// Whether the preflight allows an action now.
    pub(super) fn allowed(&self, action: &str) -> Option<bool> {
        self.at(&format!("/preflight/{action}/allowed")).as_bool()
    }

    /// Whether the preflight allows the remediation of a Machine.
    pub(super) fn may_be_remediated(&self, machine: &str) -> Option<bool> {
        let mut remediation = self.at("/preflight/remediation").as_array().into_iter().flatten();
        let of_machine = remediation.find(|entry| text(entry, "machine") == machine)?;
        of_machine.get("allowed")?.as_bool()
    }

    /// Why the remediation of a Machine would never end.
    pub(super) fn never_ends(&self, machine: &str) -> Option<&str> {
        let mut remediation = self.at("/preflight/remediation").as_array().into_iter().flatten();
        let of_machine = remediation.find(|entry| text(entry, "machine") == machine)?;
        of_machine.pointer("/neverEnds/message")?.as_str()
    }

    /// The messages of one check's findings.
    pub(super) fn messages(&self, id: &str) -> Vec<&str> {
        let findings = self.at("/findings").as_array().into_iter().flatten();
        let of_check = findings.filter(|finding| text(finding, "id") == id);
        of_check.map(|finding| text(finding, "message")).collect()
    }

    /// `severity id object` of each finding, in order.
    pub(super) fn findings(&self) -> Vec<String> {
        let findings = self.at("/findings").as_array().into_iter().flatten();
        findings
            .map(|finding| {
                let [severity, id, object] = ["severity", "id", "object"].map(|key| text(finding, key));
                format!("{severity} {id} {object}")
            })
            .collect()
    }
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Runs `status`, which must print nothing on stderr.
pub(super) async fn status(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let command = ["kcp", "status", NAME, "-n", NAMESPACE];
    let ended = management.kubectl().run(command.iter().chain(arguments)).await?;
    ensure!(ended.stderr.is_empty(), "{ended}");
    Ok(ended)
}
