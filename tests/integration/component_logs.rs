//! `kubectl kcp logs` through a real API server of a workload cluster. kwok serves the logs of static Pods from files, with the code of
//! the kubelet. A test on real machines reads those of a real kubelet.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use http::Request;
use jiff::{Timestamp, ToSpan as _};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "component-logs";
const NAME: &str = "edge";

#[test]
#[ignore = "takes minutes: make test-long"]
fn logs_of_all_machines_are_merged_by_time() {
    with_controllers(NAMESPACE, are_merged);
}

async fn are_merged(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let machines = cluster.machines().await?;
    let [first, second, third] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let scene = Scene {
        management,
        folder: management.run().subfolder("component-logs")?,
    };
    scene
        .log(
            &workload,
            first,
            &[(1, "first begins"), (3, "first leads \u{1b}[2J")],
        )
        .await?;
    scene.log(&workload, second, &[(2, "second begins")]).await?;
    let line = |machine: &str, text: &str| format!("{machine}  {text}\n");
    let all = [
        line(first, "first begins"),
        line(second, "second begins"),
        line(first, "first leads \\u{1b}[2J"),
    ];

    let without_third = scene.logs(&[]).await?;
    ensure!(
        without_third.code == 2
            && without_third.stdout == all.concat()
            && without_third.stderr.contains(&format!(
                "cannot read the log of Machine {third}: Pod/etcd-{third}: "
            )),
        "{without_third}"
    );
    let one = scene.logs(&["--machine", second]).await?;
    ensure!(
        one.code == 0 && one.stdout == line(second, "second begins") && one.stderr.is_empty(),
        "{one}"
    );
    scene.log(&workload, third, &[]).await?;
    let last = scene.logs(&["--tail", "1"]).await?;
    ensure!(
        last.code == 0 && last.stdout == [&*all[1], &all[2]].concat(),
        "{last}"
    );
    // The lines are hours old.
    let recent = scene.logs(&["--since", "10m"]).await?;
    ensure!(recent.code == 0 && recent.stdout.is_empty(), "{recent}");
    let previous = scene.logs(&["--machine", first, "--previous"]).await?;
    ensure!(
        previous.code == 0 && previous.stdout == line(first, "before"),
        "{previous}"
    );
    let unknown = scene.logs(&["--machine", "no-such"]).await?;
    ensure!(
        unknown.code == 2
            && unknown
                .stderr
                .contains("the control plane has no Machine no-such; it has "),
        "{unknown}"
    );
    scene.are_followed(second, third).await?;

    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    access.inflict(AccessFault::Nowhere).await?;
    let unreachable = scene.logs(&[]).await?;
    ensure!(
        unreachable.code == 2
            && unreachable.stdout.is_empty()
            && unreachable.stderr.contains("cannot read the logs: ")
            && unreachable
                .stderr
                .contains("crictl logs $(crictl ps -a --name etcd --latest -q)"),
        "{unreachable}"
    );
    access.inflict(AccessFault::Restore).await?;
    cluster.delete().await
}

/// Makes kwok serve the log of a static Pod, and the log before it, from files. It learns about them with a watch.
pub(crate) async fn serve(
    workload: &WorkloadCluster,
    component: &str,
    node: &str,
    [file, previous]: [&Path; 2],
) -> Result<()> {
    let logs = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs",
        "metadata": {"name": format!("{component}-{node}")},
        "spec": {"logs": [{"containers": [component], "logsFile": file, "previousLogsFile": previous}]}});
    let request = Request::post("/apis/kwok.x-k8s.io/v1alpha1/namespaces/kube-system/logs")
        .header("content-type", "application/json")
        .body(logs.to_string().into_bytes())?;
    workload.client()?.request::<Value>(request).await?;
    Ok(())
}

struct Scene<'m> {
    management: &'m ManagementCluster,
    folder: PathBuf,
}

impl Scene<'_> {
    async fn logs(&self, flags: &[&str]) -> Result<CommandOutput> {
        let words = ["logs", NAME, "--component", "etcd"];
        let words: Vec<&str> = words.iter().chain(flags).copied().collect();
        self.management.kubectl().kcp(NAMESPACE, &words).await
    }

    fn file(&self, machine: &str) -> PathBuf {
        self.folder.join(format!("{machine}.log"))
    }

    /// Makes kwok serve the log of a Machine's etcd: lines with their seconds after noon.
    async fn log(&self, workload: &WorkloadCluster, machine: &str, lines: &[(u8, &str)]) -> Result<()> {
        let file = self.file(machine);
        let lines = lines
            .iter()
            .map(|(second, text)| format!("2026-01-01T12:00:{second:02}.5Z stderr F {text}\n"));
        fs::write(&file, lines.collect::<String>())?;
        let previous = self.folder.join("previous.log");
        fs::write(&previous, "2026-01-01T11:00:00.5Z stderr F before\n")?;
        serve(workload, "etcd", machine, [&file, &previous]).await?;
        wait::until("kwok serves the log", || async {
            let read = self.logs(&["--machine", machine]).await?;
            ensure!(read.code == 0, "{read}");
            Ok(())
        })
        .await
    }

    /// Each new line is printed once, whichever Machine wrote it.
    async fn are_followed(&self, second: &str, third: &str) -> Result<()> {
        let words = "kcp logs edge --component etcd --since 10m -f -n";
        let words = words.split(' ').chain([NAMESPACE]);
        let mut follow = self.management.kubectl().spawn(words)?;
        let now = Timestamp::now();
        for (machine, text, age) in [(second, "one", 3), (third, "two", 2), (second, "three", 1)] {
            let mut file = OpenOptions::new().append(true).open(self.file(machine))?;
            let time = now - age.seconds();
            file.write_all(format!("{time} stderr F {text}\n").as_bytes())?;
            let line = follow.line().await?;
            ensure!(line == format!("{machine}  {text}"), "{line}");
        }
        follow.kill().await
    }
}
