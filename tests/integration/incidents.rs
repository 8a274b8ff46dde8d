//! Incidents that a person on call meets, one after another on one control plane under the real controllers. For each, `why` names
//! the cause, and the commands that it prints lead to health. The seconds of both are printed.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "incidents";
const NAME: &str = "edge";

#[test]
#[ignore = "takes minutes: make test-long"]
fn each_remedy_leads_to_health() {
    with_controllers(NAMESPACE, each_is_remedied);
}

async fn each_is_remedied(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let duty = Duty {
        workload: management.machines().cluster(NAMESPACE, NAME).await?,
        management,
        cluster,
        incidents: RefCell::default(),
    };
    duty.is_well().await?;
    for (incident, fault, check) in [
        ("a member is killed", Fault::Kill, "etcd-members-unresponsive"),
        (
            "a member cannot reach the others",
            Fault::CutOff,
            "etcd-no-leader",
        ),
        (
            "a member has lost its data",
            Fault::Wipe,
            "etcd-members-unresponsive",
        ),
        ("a member is full", Fault::NoSpace, "etcd-alarms"),
    ] {
        let [_, second, _] = duty.machines().await.context(incident)?;
        duty.workload.inflict(fault, &second).await?;
        duty.remedied(incident, check).await?;
    }
    duty.a_frozen_member().await.context("a_frozen_member")?;
    duty.a_lost_quorum().await.context("a_lost_quorum")?;
    duty.a_health_check_that_cannot_act()
        .await
        .context("a_health_check_that_cannot_act")?;
    duty.two_deletions().await.context("two_deletions")?;
    duty.a_forgotten_pause().await.context("a_forgotten_pause")?;
    duty.a_learner_that_is_not_promoted()
        .await
        .context("a_learner_that_is_not_promoted")?;
    duty.print();
    duty.cluster.delete().await
}

struct Duty<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
    workload: Arc<WorkloadCluster>,
    /// What happened, the seconds to the cause, the remedy, and the seconds to health.
    incidents: RefCell<Vec<(String, f64, String, f64)>>,
}

impl Duty<'_> {
    /// Three Machines are there to stay, and nothing is wrong.
    async fn is_well(&self) -> Result<()> {
        wait::until("status is healthy", || async {
            self.machines().await?;
            self.cluster.is_settled(3).await?;
            let status = self.kcp(&["status", NAME]).await?;
            ensure!(status.code == 0, "{status}");
            Ok(())
        })
        .await
    }

    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        self.management.kubectl().kcp(NAMESPACE, arguments).await
    }

    async fn machines(&self) -> Result<[String; 3]> {
        let machines = self.cluster.machines().await?;
        machines
            .try_into()
            .map_err(|machines| anyhow::anyhow!("the Machines are {machines:?}"))
    }

    /// Waits until `why` says that a person must act because of this check. Returns the hint and the seconds.
    async fn cause(&self, check: &str) -> Result<(String, f64)> {
        let began = Instant::now();
        let hint = wait::until(&format!("why names {check}"), || async {
            let why = self.kcp(&["why", NAME, "-o", "json"]).await?;
            let document: Value = serde_json::from_str(&why.stdout).with_context(|| why.to_string())?;
            let cause = document.pointer("/cause").context("no cause")?;
            ensure!(
                why.code == 1 && cause.get("check") == Some(&json!(check)),
                "{check} expected: {why}"
            );
            let hint = cause.get("hint").and_then(Value::as_str);
            Ok(hint.unwrap_or_default().to_owned())
        })
        .await?;
        Ok((hint, began.elapsed().as_secs_f64()))
    }

    /// The cause is named, and the printed commands that change something lead to health.
    async fn remedied(&self, incident: &str, check: &str) -> Result<()> {
        let (hint, seconds) = self.cause(check).await.with_context(|| incident.to_owned())?;
        let commands = remedies::repairs(&hint);
        ensure!(!commands.is_empty(), "{incident}: no command in {hint:?}");
        let began = Instant::now();
        for command in &commands {
            self.runs(command).await.with_context(|| incident.to_owned())?;
        }
        self.is_well().await.with_context(|| incident.to_owned())?;
        let healthy = began.elapsed().as_secs_f64();
        let remedy = commands.join("; ");
        self.incidents
            .borrow_mut()
            .push((incident.to_owned(), seconds, remedy, healthy));
        Ok(())
    }

    /// Runs a printed command as a script does, which confirms it with `--yes`.
    async fn runs(&self, command: &str) -> Result<()> {
        let asks = [
            "machine re",
            "etcd compact",
            "etcd defrag",
            "etcd disarm",
            "etcd remove-member",
        ];
        let yes = if asks
            .iter()
            .any(|verb| command.contains(&format!("kubectl kcp {verb}")))
        {
            " --yes"
        } else {
            ""
        };
        let file = self.management.kubectl().scratch_file("incidents.db");
        let file = file.display().to_string();
        let ended = self
            .management
            .kubectl()
            .script("sh", ["-c", &format!("{}{yes}", command.replace("FILE", &file))])
            .await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(())
    }

    /// Records an incident whose remedy is work on a host.
    async fn repaired_by_hand(
        &self,
        incident: &str,
        seconds: f64,
        remedy: &str,
        repair: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        repair().await?;
        self.is_well().await.with_context(|| incident.to_owned())?;
        let healthy = began.elapsed().as_secs_f64();
        self.incidents
            .borrow_mut()
            .push((incident.to_owned(), seconds, remedy.to_owned(), healthy));
        Ok(())
    }

    async fn a_frozen_member(&self) -> Result<()> {
        let [_, second, _] = self.machines().await?;
        self.workload.inflict(Fault::Freeze, &second).await?;
        let (hint, seconds) = self.cause("etcd-members-unresponsive").await?;
        ensure!(
            hint.contains("stop etcd's container")
                && hint.contains(&format!("kubectl kcp machine replace {second} ")),
            "{hint}"
        );
        let repair = async || self.workload.inflict(Fault::Thaw, &second).await;
        self.repaired_by_hand("a member is frozen", seconds, "on its host", repair)
            .await
    }

    /// One of two lost members comes back, and the Machine of the other is replaced.
    async fn a_lost_quorum(&self) -> Result<()> {
        let [_, second, third] = self.machines().await?;
        self.workload.inflict(Fault::Kill, &second).await?;
        self.workload.inflict(Fault::Kill, &third).await?;
        let (hint, seconds) = self.cause("etcd-no-quorum").await?;
        ensure!(
            hint.contains("start the stopped members on their hosts")
                && hint.contains(&second)
                && hint.contains(&third),
            "{hint}"
        );
        let began = Instant::now();
        self.workload.inflict(Fault::Restart, &third).await?;
        self.remedied("one of two lost members is back", "etcd-members-unresponsive")
            .await?;
        let healthy = began.elapsed().as_secs_f64();
        let lost = (
            "two members are killed".to_owned(),
            seconds,
            "on a host".to_owned(),
            healthy,
        );
        self.incidents.borrow_mut().push(lost);
        Ok(())
    }

    async fn a_health_check_that_cannot_act(&self) -> Result<()> {
        self.cluster
            .check_health_with(&json!({"nodeStartupTimeoutSeconds": 600}))
            .await?;
        let kubectl = self.management.kubectl();
        let never = r#"{"spec":{"remediation":{"triggerIf":{"unhealthyLessThanOrEqualTo":0}}}}"#;
        kubectl
            .succeed([
                "patch",
                "machinehealthcheck",
                NAME,
                "-n",
                NAMESPACE,
                "--type=merge",
                "-p",
                never,
            ])
            .await?;
        wait::until("the health check observes that it cannot act", || async {
            let observed = "jsonpath={.status.observedGeneration}";
            let read = kubectl
                .succeed(["get", "machinehealthcheck", NAME, "-n", NAMESPACE, "-o", observed])
                .await?;
            ensure!(read.stdout.trim() == "2", "{read}");
            Ok(())
        })
        .await?;
        let [_, second, _] = self.machines().await?;
        self.workload.inflict(Fault::Kill, &second).await?;
        self.remedied("the health check cannot act", "etcd-members-unresponsive")
            .await?;
        kubectl
            .succeed(["delete", "machinehealthcheck", NAME, "-n", NAMESPACE])
            .await
            .map(drop)
    }

    async fn two_deletions(&self) -> Result<()> {
        let [first, second, _] = self.machines().await?;
        self.management
            .kubectl()
            .succeed([
                "delete",
                "machine",
                &first,
                &second,
                "-n",
                NAMESPACE,
                "--wait=false",
            ])
            .await?;
        self.remedied("two Machines are deleted", "machine-deletions-deadlocked")
            .await
    }

    async fn a_forgotten_pause(&self) -> Result<()> {
        let paused = self.kcp(&["rollout", "pause", NAME]).await?;
        ensure!(paused.code == 0, "{paused}");
        let change = json!({"spec": {"machineTemplate": {"metadata": {"labels": {"tier": "control"}}}}});
        self.cluster.patch(&change).await?;
        self.remedied("a pause is forgotten", "paused").await
    }

    /// Until a joining Machine takes longer than usual, `why` names the learner, and no person has to act.
    async fn a_learner_that_is_not_promoted(&self) -> Result<()> {
        let [first, second, _] = self.machines().await?;
        self.workload.inflict(Fault::HoldPromotions, &first).await?;
        let began = Instant::now();
        self.runs(&format!("kubectl kcp machine replace {second} -n {NAMESPACE}"))
            .await?;
        wait::until("why names the learner", || async {
            let why = self.kcp(&["why", NAME]).await?;
            ensure!(why.code == 0 && why.stdout.contains("learner"), "{why}");
            Ok(())
        })
        .await?;
        let seconds = began.elapsed().as_secs_f64();
        let repair = async || self.workload.inflict(Fault::Promote, &first).await;
        self.repaired_by_hand(
            "a learner is not promoted",
            seconds,
            "none until it takes longer",
            repair,
        )
        .await
    }

    #[expect(clippy::print_stderr, reason = "the table of all incidents is for people")]
    fn print(&self) {
        eprintln!("\n{:<34} {:>7} {:>8}  REMEDY", "INCIDENT", "CAUSE", "HEALTHY");
        for (incident, cause, remedy, healthy) in self.incidents.borrow().iter() {
            eprintln!("{incident:<34} {cause:>6.1}s {healthy:>7.1}s  {remedy}");
        }
    }
}
