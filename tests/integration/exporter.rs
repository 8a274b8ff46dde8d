//! `kubectl kcp exporter` of real control planes, as a user with the shipped roles: what it serves while they are healthy, while
//! members are dead or an API server hangs, and after that. `make monitoring` tests the alerts on these metrics.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubeconfig::plain_client;
use kcp_tests::kubectl::RunningCommand;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};
use kcp_tests::{manifests, products, wait};
use kube::Client;
use serde_json::Value;

use crate::objects::written;
use crate::shared::with_controllers;

const NAMESPACE: &str = "exporter";
const VERSION: &str = "v1.34.2";

/// A user with the shipped roles only.
const USER: &str = "exporter-user";

#[test]
#[ignore = "takes minutes: make test-long"]
fn the_exporter_shows_faults_and_their_ends() {
    with_controllers(NAMESPACE, faults_are_shown);
}

async fn faults_are_shown(management: &ManagementCluster) -> Result<()> {
    bind_roles(management).await?;
    let edge = Cluster::create(management.client(), NAMESPACE, "edge", 3, VERSION).await?;
    let rim = Cluster::create(management.client(), NAMESPACE, "rim", 1, VERSION).await?;
    edge.settled(3).await?;
    rim.settled(1).await?;
    edge.check_health().await?;
    rim.check_health().await?;
    let exporter = Exporter::start(management).await?;
    exporter
        .serves(
            "health",
            &[
                "kcp_exporter_control_planes 2.0",
                "kcp_exporter_list_success 1.0",
                // Both are settled, so a round needs only the lists.
                "kcp_exporter_complete_reads 0.0",
                "kcp_control_plane_verdict{edge,verdict=\"Healthy\"} 1.0",
                "kcp_control_plane_verdict{rim,verdict=\"Healthy\"} 1.0",
                "kcp_control_plane_next_actor_info{edge,state=\"nothingToDo\",actor=\"\",check=\"\"} 1.0",
                "kcp_control_plane_machines_desired{edge} 3.0",
                "kcp_control_plane_machines_ready{edge} 3.0",
                "kcp_control_plane_machines_up_to_date{edge} 3.0",
                "kcp_control_plane_source_read{edge,source=\"management\"} 1.0",
                "kcp_control_plane_source_read{edge,source=\"workload\"} 1.0",
                "kcp_control_plane_source_read{edge,source=\"etcd\"} 1.0",
                "kcp_etcd_voters{edge} 3.0",
                "kcp_etcd_voters_healthy{edge} 3.0",
                "kcp_etcd_quorum_margin{edge} 1.0",
                "kcp_etcd_quorum_margin{rim} 0.0",
            ],
            &[
                "kcp_control_plane_problems",
                "kcp_etcd_snapshot_timestamp_seconds",
            ],
        )
        .await?;
    exporter.serves_every_member(&edge.machines().await?).await?;

    members_are_killed(management, &exporter, &edge).await?;
    ensure!(exporter.command.terminate().await? == 0, "SIGTERM ends it with 0");

    an_api_server_hangs(management, rim).await?;
    edge.delete().await
}

async fn members_are_killed(
    management: &ManagementCluster,
    exporter: &Exporter,
    edge: &Cluster,
) -> Result<()> {
    let workload = management.machines().cluster(NAMESPACE, "edge").await?;
    let machines = edge.machines().await?;
    let [_, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    // Otherwise Cluster API repairs the faults before the test observes them.
    edge.pause(true).await?;
    workload.inflict(Fault::Kill, second).await?;
    exporter
        .serves(
            "a dead member",
            &[
                "kcp_etcd_voters_healthy{edge} 2.0",
                "kcp_etcd_quorum_margin{edge} 0.0",
                "kcp_control_plane_verdict{edge,verdict=\"Degraded\"} 1.0",
                "kcp_control_plane_verdict{edge,verdict=\"Healthy\"} 0.0",
                "kcp_control_plane_problems{edge,check=\"etcd-voters-unhealthy\",outcome=\"fail\"} 1.0",
                "kcp_control_plane_problems{edge,check=\"paused\",outcome=\"warn\"} 1.0",
                "kcp_control_plane_verdict{rim,verdict=\"Healthy\"} 1.0",
                // Only the other one still needs no more than the lists.
                "kcp_exporter_complete_reads 1.0",
            ],
            &[],
        )
        .await?;
    workload.inflict(Fault::Kill, third).await?;
    exporter
        .serves(
            "the loss of the quorum",
            &[
                "kcp_control_plane_problems{edge,check=\"etcd-no-quorum\",outcome=\"fail\"} 1.0",
                "kcp_control_plane_verdict{edge,verdict=\"Blocked\"} 1.0",
                "kcp_control_plane_source_read{edge,source=\"management\"} 1.0",
                // Without etcd, the API server forwards no connection to the member that is left.
                "kcp_control_plane_source_read{edge,source=\"etcd\"} 0.0",
                "kcp_control_plane_verdict{rim,verdict=\"Healthy\"} 1.0",
            ],
            &["kcp_etcd_quorum_margin{edge", "kcp_etcd_voters{edge"],
        )
        .await?;
    workload.inflict(Fault::Restart, third).await?;
    workload.inflict(Fault::Restart, second).await?;
    // Without a quorum, the API server could not store that the Pods are ready again.
    for machine in [second, third] {
        workload.inflict(Fault::PodReady, machine).await?;
    }
    edge.pause(false).await?;
    exporter
        .serves(
            "health again",
            &[
                "kcp_etcd_quorum_margin{edge} 1.0",
                "kcp_control_plane_verdict{edge,verdict=\"Healthy\"} 1.0",
                "kcp_exporter_complete_reads 0.0",
            ],
            &["kcp_control_plane_problems"],
        )
        .await
}

/// What is unknown has no sample. A control plane that does not exist has none either.
async fn an_api_server_hangs(management: &ManagementCluster, rim: Cluster) -> Result<()> {
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, "rim").await?;
    access.inflict(AccessFault::Hang).await?;
    let exporter = Exporter::start(management).await?;
    exporter
        .serves(
            "an API server that hangs",
            &[
                "kcp_control_plane_source_read{rim,source=\"management\"} 1.0",
                "kcp_control_plane_source_read{rim,source=\"workload\"} 0.0",
                "kcp_control_plane_source_read{rim,source=\"etcd\"} 0.0",
                "kcp_control_plane_verdict{rim,verdict=\"Unknown\"} 1.0",
                "kcp_control_plane_verdict{edge,verdict=\"Healthy\"} 1.0",
                "kcp_etcd_quorum_margin{edge} 1.0",
            ],
            &["kcp_etcd_quorum_margin{rim", "kcp_etcd_database_size_bytes{rim"],
        )
        .await?;
    access.inflict(AccessFault::Restore).await?;
    exporter
        .serves(
            "the API server responds",
            &[
                "kcp_control_plane_verdict{rim,verdict=\"Healthy\"} 1.0",
                "kcp_etcd_quorum_margin{rim} 0.0",
            ],
            &[],
        )
        .await?;
    rim.delete().await?;
    exporter
        .serves(
            "a control plane was deleted",
            &[
                "kcp_exporter_control_planes 1.0",
                "kcp_etcd_quorum_margin{edge} 1.0",
            ],
            &["rim"],
        )
        .await?;
    ensure!(exporter.command.terminate().await? == 0, "SIGTERM ends it with 0");
    Ok(())
}

/// Gives the user the shipped roles of the exporter, the one for Secrets only in the namespace.
async fn bind_roles(management: &ManagementCluster) -> Result<()> {
    let kubectl = management.kubectl();
    let shipped = manifests::read(&products::workspace().join("manifests/exporter/rbac.yaml"))?;
    let is_role = |object: &Value| object.get("kind").and_then(Value::as_str) == Some("ClusterRole");
    let roles: Vec<Value> = shipped.into_iter().filter(is_role).collect();
    ensure!(roles.len() == 3, "{roles:#?}");
    written(kubectl, "apply", &roles, &[]).await?;
    let user = format!("--user={USER}");
    let all = [
        "create",
        "clusterrolebinding",
        USER,
        "--clusterrole=kcp-exporter",
        &user,
    ];
    kubectl.succeed(all).await?;
    let of_namespace = [
        "create",
        "rolebinding",
        USER,
        "--clusterrole=kcp-exporter-secrets",
        &user,
        "-n",
        NAMESPACE,
    ];
    kubectl.succeed(of_namespace).await.map(drop)
}

struct Exporter {
    command: RunningCommand,
    client: Client,
}

impl Exporter {
    async fn start(management: &ManagementCluster) -> Result<Self> {
        let words = "kcp exporter --bind-address 127.0.0.1 --port 0 --interval 1s --as";
        let words = words.split(' ').chain([USER, "-n", NAMESPACE]);
        let mut command = management.kubectl().spawn(words)?;
        let line = command.line().await?;
        let url = line
            .strip_prefix("Serving metrics at ")
            .and_then(|url| url.strip_suffix("/metrics"))
            .with_context(|| line.clone())?;
        let client = plain_client(url)?;
        Ok(Self { command, client })
    }

    async fn metrics(&self) -> Result<String> {
        let metrics = Request::get("/metrics").body(Vec::new())?;
        let text = self.client.request_text(metrics).await.context("GET /metrics")?;
        ensure!(text.ends_with("# EOF\n"), "the text is cut off: {text}");
        Ok(text)
    }

    /// Waits until all of these samples are served, and none that begins with one of the others. In both, the name of a control
    /// plane stands for its labels.
    async fn serves(&self, what: &str, samples: &[&str], absent: &[&str]) -> Result<()> {
        let with_labels = |sample: &&str| {
            let labels = |name: &str| format!("namespace=\"{NAMESPACE}\",control_plane=\"{name}\"");
            sample
                .replace("{edge", &format!("{{{}", labels("edge")))
                .replace("{rim", &format!("{{{}", labels("rim")))
        };
        let samples: Vec<String> = samples.iter().map(with_labels).collect();
        let absent: Vec<String> = absent.iter().map(with_labels).collect();
        wait::until(what, || async {
            let text = self.metrics().await?;
            let served: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            let missing: Vec<_> = samples
                .iter()
                .filter(|sample| !served.contains(sample.as_str()))
                .collect();
            let present: Vec<_> = served
                .iter()
                .filter(|line| absent.iter().any(|absent| line.contains(absent.as_str())))
                .collect();
            let problems: Vec<_> = served.iter().filter(|line| line.contains("_problems")).collect();
            ensure!(
                missing.is_empty() && present.is_empty(),
                "missing: {missing:#?}, and should be absent: {present:#?}; {problems:#?}"
            );
            Ok(())
        })
        .await
    }

    /// The metrics of each member, and the times.
    async fn serves_every_member(&self, members: &[String]) -> Result<()> {
        let text = self.metrics().await?;
        let value = |start: &str| -> Result<f64> {
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with(start) && line.contains("control_plane=\"edge\""));
            let line = line.with_context(|| format!("no {start}"))?;
            Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
        };
        // A stand-in machine may write without fsync.
        ensure!(value("kcp_etcd_wal_fsync_p99_seconds")? > 0.0, "{text}");
        for name in [
            "kcp_etcd_leader_changes",
            "kcp_etcd_database_size_bytes",
            "kcp_etcd_database_quota_bytes",
        ] {
            let label = format!("{name}{{namespace=\"{NAMESPACE}\",control_plane=\"edge\",member=\"");
            let count = text.lines().filter(|line| line.starts_with(&label)).count();
            ensure!(count == members.len(), "{count} of {members:?} have {name}");
            ensure!(value(name)? > 0.0, "{name} is 0");
        }
        let now = jiff::Timestamp::now().as_second();
        let hour = 3600.0;
        let progress = value("kcp_control_plane_last_progress_timestamp_seconds")?;
        let age = f64::from(i32::try_from(now)?) - progress;
        ensure!((-60.0..hour).contains(&age), "the last progress was {age} s ago");
        for certificate in ["ca", "etcd", "proxy", "kubeconfig"] {
            let label = format!("certificate=\"{certificate}\"");
            let line = text.lines().find(|line| line.contains(&label));
            ensure!(line.is_some(), "no expiry of {certificate}");
        }
        Ok(())
    }
}
