//! `status`, the list of a namespace and `plan` agree about the same control plane: which members vote, whether etcd has lost
//! quorum, and the verdict.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use super::output::{StatusResult, text};
use super::{NAME, NAMESPACE};

const VOTES: [&str; 3] = ["voters", "unhealthy", "starting"];

/// Waits until all three agree about a restart of the control plane.
pub(super) async fn agree(management: &ManagementCluster) -> Result<()> {
    wait::until("status, list and plan agree", || async {
        let result = StatusResult::take(management, &[]).await?;
        let others = Others::take(management, &["--restart"]).await?;
        others.agree_with(&result)
    })
    .await
}

/// The list of the namespace, and a plan.
pub(super) struct Others {
    listed: Value,
    plan: Value,
}

impl Others {
    pub(super) async fn take(management: &ManagementCluster, change: &[&str]) -> Result<Self> {
        let list = ["status", "-n", NAMESPACE, "-o", "json"];
        let list = document(management, &list).await?;
        let plan = [&["plan", NAME, "-n", NAMESPACE, "-o", "json"], change].concat();
        Ok(Self {
            listed: list.pointer("/items/0").cloned().context("an empty list")?,
            plan: document(management, &plan).await?,
        })
    }

    pub(super) fn agree_with(&self, result: &StatusResult) -> Result<()> {
        let Self { listed, plan } = self;
        let counted = votes(result.at("/votes"));
        let in_list = votes(listed.pointer("/votes").unwrap_or(&Value::Null));
        ensure!(in_list == counted, "{listed:#} instead of {counted:?}");
        // The list reads neither Secrets nor the endpoint's certificate, so it may know less, but never something else.
        let verdict = text(listed, "verdict");
        ensure!(
            verdict == result.verdict() || verdict == "Unknown" && counted.is_none(),
            "{listed:#}"
        );
        let is_lost = plan.pointer("/noPlan/reason") == Some(&Value::from("quorumLost"));
        let findings = result.findings();
        let mut findings = findings.iter();
        let is_reported = findings.any(|finding| finding.starts_with("fail etcd-no-quorum "));
        ensure!(is_lost == is_reported, "{plan:#}");
        let planned = if is_lost {
            plan.pointer("/noPlan/votes").or_else(|| plan.pointer("/noPlan"))
        } else {
            plan.pointer("/steps/0/etcd/before")
        };
        match (planned.and_then(votes), counted) {
            // A plan without steps counts no votes.
            (None, _) => Ok(()),
            // Without a response from any member, status counts no votes, and the plan says that it assumes them.
            (Some(_), None) => {
                ensure!(is_lost || text(plan, "etcd") == "assumed", "{plan:#}");
                Ok(())
            }
            (planned, counted) => {
                ensure!(planned == counted, "{plan:#} instead of {counted:?}");
                Ok(())
            }
        }
    }

    /// What is wrong according to the list or the plan.
    pub(super) fn alarms(&self) -> Vec<String> {
        let findings = self.listed.pointer("/findings").and_then(Value::as_array);
        let findings = findings.into_iter().flatten();
        let in_list = findings
            .filter(|finding| text(finding, "severity") != "info")
            .map(|finding| format!("the list reports {finding}"));
        let no_plan = self.plan.get("noPlan").map(|why| format!("no plan: {why}"));
        in_list.chain(no_plan).collect()
    }
}

fn votes(of: &Value) -> Option<[u64; 3]> {
    let [voters, unhealthy, starting] = VOTES.map(|key| of.get(key).and_then(Value::as_u64));
    Some([voters?, unhealthy?, starting?])
}

async fn document(management: &ManagementCluster, arguments: &[&str]) -> Result<Value> {
    let ended = management.kubectl().run(["kcp"].iter().chain(arguments)).await?;
    serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())
}
