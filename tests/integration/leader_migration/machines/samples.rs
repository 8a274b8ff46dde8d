//! What the controller managers run, read at `/healthz` of each process all the while, and what `status` says at that time.

#![expect(clippy::print_stdout, reason = "the samples are part of the result")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::ControllerManager;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{NAME, NODE_IPAM};

/// Reads all the while what runs Node IPAM.
pub(super) struct Samples<'s> {
    pub(super) management: &'s ManagementCluster,
    pub(super) cluster: &'s Cluster,
    pub(super) workload: &'s WorkloadCluster,
    pub(super) namespace: &'static str,
    /// The process of the cloud-controller-manager, while it runs, and a name that no other process has.
    pub(super) cloud: Mutex<Option<(&'static str, ControllerManager)>>,
    /// How many samples of each step had each number of owners and verdict.
    counts: RefCell<Counts>,
}

#[derive(Default)]
struct Counts {
    step: &'static str,
    samples: BTreeMap<String, u32>,
    /// The reasons for the verdict `unknown`.
    unknown: BTreeMap<String, u32>,
}

/// What `status` says about Node IPAM.
struct Status {
    verdict: String,
    reason: String,
    output: String,
}

impl<'s> Samples<'s> {
    pub(super) fn new(
        management: &'s ManagementCluster,
        cluster: &'s Cluster,
        workload: &'s WorkloadCluster,
        namespace: &'static str,
    ) -> Self {
        Self {
            management,
            cluster,
            workload,
            namespace,
            cloud: Mutex::default(),
            counts: RefCell::default(),
        }
    }

    /// Names the step whose samples follow.
    pub(super) fn step(&self, step: &'static str) {
        self.counts.borrow_mut().step = step;
    }

    /// Samples until a sample shows two owners, or until `status` contradicts what runs.
    pub(super) async fn taken(&self) -> Result<Infallible> {
        loop {
            self.sample().await?;
        }
    }

    /// Prints the number of samples.
    pub(super) fn report(&self) {
        let counts = self.counts.borrow();
        let all: u32 = counts.samples.values().sum();
        println!(
            "{all} samples, never two owners; status at each: {:#?}",
            counts.samples
        );
        println!(
            "reasons for unknown, each about a Machine that is going: {:#?}",
            counts.unknown
        );
    }

    async fn sample(&self) -> Result<()> {
        let step = self.counts.borrow().step;
        let before = self.owners().await;
        let status = self.status().await?;
        let after = self.owners().await;
        for owners in [&before, &after] {
            ensure!(
                owners.len() < 2,
                "{step}: {owners:?} run Node IPAM at the same time"
            );
        }
        let Status {
            verdict,
            reason,
            output,
        } = status;
        ensure!(verdict != "runs-twice", "{step}: {before:?}, {after:?}: {output}");
        if before == after && verdict == "unknown" {
            self.is_about_a_machine_that_is_going(&reason)
                .await
                .with_context(|| format!("{step}: {before:?}: {output}"))?;
            let mut counts = self.counts.borrow_mut();
            *counts.unknown.entry(format!("{step}: {reason}")).or_default() += 1;
        }
        let outcome = if before == after {
            let agrees = match before.len() {
                0 => matches!(verdict.as_str(), "orphaned" | "stale" | "unknown"),
                _ => matches!(verdict.as_str(), "protected" | "nothing-to-migrate" | "unknown"),
            };
            ensure!(
                agrees,
                "{step}: {before:?} run Node IPAM, but status says {verdict}: {output}"
            );
            before.len().to_string()
        } else {
            "changing".to_owned()
        };
        let key = format!("{step}: {outcome}: {verdict}");
        let mut counts = self.counts.borrow_mut();
        *counts.samples.entry(key).or_default() += 1;
        Ok(())
    }

    /// Succeeds if a reason for the verdict `unknown` names the Pod of a Machine that is being deleted. Its
    /// kube-controller-manager ends before its Pod, and while it has a Pod, it may still run.
    async fn is_about_a_machine_that_is_going(&self, reason: &str) -> Result<()> {
        let mut words = reason.split([' ', ':']);
        let machine = words.find_map(|word| word.strip_prefix("kube-controller-manager-"));
        let machine = machine.with_context(|| format!("no Machine is the reason: {reason}"))?;
        let machines = self.cluster.machines().await?;
        ensure!(
            !machines.iter().any(|name| name == machine),
            "{machine} is not being deleted, but status is unknown"
        );
        Ok(())
    }

    /// The Machines and the cloud-controller-manager whose process lists Node IPAM at `/healthz`. One that does not respond runs nothing.
    async fn owners(&self) -> BTreeSet<String> {
        let mut owners = BTreeSet::new();
        for machine in self.workload.machines_with_controller_managers().await {
            let controllers = self.workload.controllers_of(&machine).await;
            if controllers.is_ok_and(|controllers| controllers.contains(NODE_IPAM)) {
                owners.insert(machine);
            }
        }
        if let Some((name, cloud)) = self.cloud.lock().await.as_ref()
            && let Ok(controllers) = cloud.controllers().await
            && controllers.contains(NODE_IPAM)
        {
            owners.insert((*name).to_owned());
        }
        owners
    }

    async fn status(&self) -> Result<Status> {
        let arguments = [
            "kcp",
            "leader-migration",
            "status",
            NAME,
            "-n",
            self.namespace,
            "--timeout=60s",
            "-o",
            "json",
        ];
        let ended = self.management.kubectl().run(arguments).await?;
        let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        let controllers = document.get("controllers").and_then(Value::as_array);
        let mut controllers = controllers.into_iter().flatten();
        let node_ipam = controllers.find(|controller| controller.get("name") == Some(&json!(NODE_IPAM)));
        let text = |field: &str| {
            let text = node_ipam.and_then(|controller| controller.get(field)?.as_str());
            text.map(str::to_owned).with_context(|| ended.to_string())
        };
        Ok(Status {
            verdict: text("verdict")?,
            reason: text("reason")?,
            output: ended.stdout.clone(),
        })
    }
}
