//! `kubectl kcp audit` on a workload cluster with a real etcd and API server: the findings of a healthy cluster, and
//! each fault that the audit knows. `machine replace` of the first Machine runs on the same cluster. Static Pods are objects without
//! containers here, so a fault of one is another object. `real_machines::full::resiliency` produces faults of real ones.

pub(crate) mod faults;
mod first_machine;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use crate::shared::with_controllers;

const NAMESPACE: &str = "audit";

const NAME: &str = "edge";

const VERSION: &str = "v1.34.2";

/// What the audit finds on a healthy cluster of stand-in machines:
///
/// - The endpoint is a loopback address, because all machines share one host. No static Pod serves it.
/// - The static Pods of kube-controller-manager are objects without flags.
const HEALTHY: &[(&str, &str)] = &[WITHOUT_FLAGS, ("endpoint-external", "FAIL")];

const WITHOUT_FLAGS: (&str, &str) = ("component-flags-differ", "UNKNOWN");

/// What it finds on the same cluster without the management cluster, besides:
///
/// - The Nodes' own certificates and etcd cannot be read, because no Secret has the CAs.
/// - Nodes of a plain cluster may have joined with an older kubeadm.
const PLAIN: &[(&str, &str)] = &[
    WITHOUT_FLAGS,
    ("certificates-expire-while-off", "UNKNOWN"),
    ("endpoint-external", "FAIL"),
    ("etcd-alarms-raised", "UNKNOWN"),
    ("kubelets-use-endpoint", "UNKNOWN"),
];

#[test]
#[ignore = "takes minutes: make test-long"]
fn each_fault_that_the_audit_knows_is_found() {
    with_controllers(NAMESPACE, async |management| {
        let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, VERSION).await?;
        cluster.settled(3).await?;
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        let audit = Audit::new(management, NAMESPACE, NAME, HEALTHY);
        audit.finds("a healthy cluster", &[]).await?;
        let plain = Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?;
        finds_in_a_plain_cluster(&plain).await?;
        audit.prints_each_format().await?;
        let mut machines = cluster.machines().await?;
        machines.sort();
        faults::are_found(&audit, &workload, &machines).await?;
        first_machine::replaces_the_first_machine(management, &cluster, &workload).await?;
        cluster.delete().await
    });
}

/// The audit of one workload cluster.
pub(crate) struct Audit<'m> {
    management: &'m ManagementCluster,
    namespace: &'static str,
    name: &'static str,
    /// The checks that do not pass on the healthy cluster.
    healthy: &'static [(&'static str, &'static str)],
}

/// The result of each check, and its evidence on one line.
pub(crate) type Results = BTreeMap<String, (String, String)>;

impl<'m> Audit<'m> {
    pub(crate) const fn new(
        management: &'m ManagementCluster,
        namespace: &'static str,
        name: &'static str,
        healthy: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            management,
            namespace,
            name,
            healthy,
        }
    }

    async fn run(&self, more: &[&str]) -> Result<(i32, Results)> {
        let words = [
            "kcp",
            "audit",
            self.name,
            "-n",
            self.namespace,
            "-o",
            "json",
            "--timeout=2m",
        ];
        let ended = self.management.kubectl().run(words.iter().chain(more)).await?;
        let results = results(&ended.stdout).with_context(|| format!("{ended}"))?;
        Ok((ended.code, results))
    }

    /// Waits until exactly these checks do not pass besides those of the healthy cluster, each with this result and this evidence.
    pub(crate) async fn finds(&self, what: &str, expected: &[(&str, &str, &str)]) -> Result<()> {
        self.finds_with(what, &[], expected).await
    }

    /// [`Self::finds`], with more arguments.
    pub(crate) async fn finds_with(
        &self,
        what: &str,
        more: &[&str],
        expected: &[(&str, &str, &str)],
    ) -> Result<()> {
        wait::until(&format!("the audit finds {what}"), || async {
            let (code, results) = self.run(more).await?;
            is_exactly(&results, self.healthy, expected)?;
            ensure!(code == 1, "exit code {code}");
            Ok(())
        })
        .await
    }

    async fn prints_each_format(&self) -> Result<()> {
        let words = ["kcp", "audit", "cluster/edge", "-n", NAMESPACE, "--timeout=2m"];
        let table = self.management.kubectl().run(words).await?;
        ensure!(
            table.code == 1
                && table.stdout.contains("FAIL")
                && table.stdout.contains("endpoint-external: serve"),
            "{table}"
        );
        let names = self
            .management
            .kubectl()
            .run(words.iter().chain(&["-o", "name"]))
            .await?;
        ensure!(
            names.code == 1 && names.stdout == "check/component-flags-differ\ncheck/endpoint-external\n",
            "{names}"
        );
        let missing = ["kcp", "audit", "nowhere", "-n", NAMESPACE];
        let missing = self.management.kubectl().run(missing).await?;
        ensure!(missing.code == 2 && missing.stdout.is_empty(), "{missing}");
        Ok(())
    }
}

/// The audit with the kubeconfig of the workload cluster.
async fn finds_in_a_plain_cluster(kubectl: &Kubectl) -> Result<()> {
    wait::until(
        "the audit of a plain cluster finds what it cannot read",
        || async {
            let ended = kubectl
                .run(["kcp", "audit", "--this-cluster", "-o", "json", "--timeout=2m"])
                .await?;
            let results = results(&ended.stdout).with_context(|| format!("{ended}"))?;
            is_exactly(&results, PLAIN, &[])?;
            ensure!(ended.code == 1, "{ended}");
            Ok(())
        },
    )
    .await?;
    // Nothing listens on port 1.
    let dead = kubectl
        .run(["kcp", "audit", "--this-cluster", "--server=https://127.0.0.1:1"])
        .await?;
    let error = "error: cannot reach the API server at https://127.0.0.1:1";
    ensure!(
        dead.code == 2 && dead.stdout.is_empty() && dead.stderr.starts_with(error),
        "{dead}"
    );
    Ok(())
}

fn results(stdout: &str) -> Result<Results> {
    let document: Value = serde_json::from_str(stdout)?;
    let checks = document
        .get("checks")
        .and_then(Value::as_array)
        .context("no checks")?;
    let text = |check: &Value, key: &str| check.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut results = Results::new();
    for check in checks {
        let evidence = check
            .get("evidence")
            .and_then(Value::as_array)
            .context("no evidence")?;
        let lines: Vec<&str> = evidence.iter().filter_map(Value::as_str).collect();
        let id = text(check, "id").context("no id")?;
        results.insert(
            id,
            (text(check, "outcome").context("no outcome")?, lines.join("; ")),
        );
    }
    ensure!(results.len() > 20, "only {} checks", results.len());
    Ok(results)
}

/// Checks that exactly the known and the expected checks do not pass.
fn is_exactly(results: &Results, known: &[(&str, &str)], expected: &[(&str, &str, &str)]) -> Result<()> {
    let known = known.iter().map(|(id, outcome)| (*id, *outcome, ""));
    let mut wanted: BTreeMap<&str, (&str, &str)> =
        known.map(|(id, outcome, text)| (id, (outcome, text))).collect();
    wanted.extend(
        expected
            .iter()
            .map(|(id, outcome, text)| (*id, (*outcome, *text))),
    );
    for (id, (outcome, evidence)) in results {
        let (wanted, text) = wanted.remove(id.as_str()).unwrap_or(("PASS", ""));
        ensure!(
            outcome == wanted && evidence.contains(text),
            "{id}: {outcome} instead of {wanted} with {text:?}: {evidence}"
        );
    }
    ensure!(wanted.is_empty(), "no such checks: {wanted:?}");
    Ok(())
}
