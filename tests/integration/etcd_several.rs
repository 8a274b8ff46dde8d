//! `kubectl kcp etcd defrag --when` on several control planes with real etcd members: only databases that match are rewritten,
//! and a control plane that is refused does not stop the next one.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use crate::shared::with_controllers;

const NAMESPACE: &str = "etcd-several";

/// The control plane with three members.
const NAME: &str = "edge";

/// The control plane with one member, which comes first.
const ALONE: &str = "alone";

const LABEL: &str = "etcd-several=yes";

const MEBIBYTE: usize = 1 << 20;

#[test]
#[ignore = "takes minutes: make test-long"]
fn databases_that_match_are_defragmented() {
    with_controllers(NAMESPACE, matching);
}

async fn defrag(management: &ManagementCluster, more: &[&str]) -> Result<CommandOutput> {
    // Other tests have control planes in this management cluster, too.
    let fixed = [
        "kcp",
        "etcd",
        "defrag",
        "-A",
        "-l",
        LABEL,
        "--yes",
        "--timeout=60s",
    ];
    management.kubectl().run(fixed.iter().chain(more)).await
}

/// Makes most of each database unused.
async fn fragment(management: &ManagementCluster, name: &str, machines: &[String]) -> Result<()> {
    let workload = management.machines().cluster(NAMESPACE, name).await?;
    let (etcd, value) = (workload.etcd().await?, "v".repeat(MEBIBYTE));
    for _ in 0..64 {
        etcd.put("several/revisions", &value).await?;
    }
    let compacted = [
        "kcp",
        "etcd",
        "compact",
        name,
        "-n",
        NAMESPACE,
        "--yes",
        "--keep-revisions=0",
    ];
    management.kubectl().succeed(compacted).await?;
    wait::until("each member counts its deleted revisions", || async {
        etcd.put("several/after", "").await?;
        for machine in machines {
            let status = workload.etcd_of(machine).await?.status().await?;
            let in_use: usize = status.size_in_use.parse()?;
            ensure!(in_use < 16 * MEBIBYTE, "{machine}: {in_use}");
        }
        Ok(())
    })
    .await
}

async fn matching(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    let alone = Cluster::create(management.client(), NAMESPACE, ALONE, 1, "v1.34.2").await?;
    cluster.settled(3).await?;
    alone.settled(1).await?;
    let label = [
        "label",
        "kubeadmcontrolplanes",
        NAME,
        ALONE,
        "-n",
        NAMESPACE,
        LABEL,
    ];
    management.kubectl().succeed(label).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let machines = cluster.machines().await?;
    fragment(management, NAME, &machines).await?;
    fragment(management, ALONE, &alone.machines().await?).await?;

    let unchanged = defrag(management, &["--when", "size > 1Ti"]).await?;
    ensure!(
        unchanged.code == 0
            && unchanged.stdout
                == "kubeadmcontrolplane/alone: etcd unchanged: no member matches the condition\n\
                    kubeadmcontrolplane/edge: etcd unchanged: no member matches the condition\n",
        "{unchanged}"
    );
    let wrong = defrag(management, &["--when", "free > 1Gi"]).await?;
    ensure!(
        wrong.code == 2
            && wrong
                .stderr
                .contains("cannot read 'free > 1Gi'; expected comparisons joined with && and ||"),
        "{wrong}"
    );

    // Its database no longer matches.
    let leader = workload.leader().await?;
    workload.etcd_of(&leader).await?.defragment().await?;
    let when = ["--when", "inUse < 50 && size > 40Mi", "-o", "json"];
    let done = defrag(management, &when).await?;
    ensure!(done.code == 1, "{done}");
    let list: Value = serde_json::from_str(&done.stdout)?;
    let text = |pointer: &str| list.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    ensure!(
        text("/items/0/metadata/name") == ALONE
            && text("/items/0/kind") == "ChangeRefused"
            && text("/items/0/reasons/0").starts_with("etcd has no quorum without member "),
        "{done}"
    );
    let members = list.pointer("/items/1/members").and_then(Value::as_array);
    let mut names: Vec<&str> = members
        .context("no members")?
        .iter()
        .filter_map(|member| member.get("name").and_then(Value::as_str))
        .collect();
    names.sort_unstable();
    let mut expected: Vec<&str> = machines
        .iter()
        .map(String::as_str)
        .filter(|machine| *machine != leader)
        .collect();
    expected.sort_unstable();
    ensure!(names == expected, "only {expected:?} match: {done}");

    let rest = defrag(
        management,
        &["--when", "inUse < 50 && size > 40Mi", "--allow-pause"],
    )
    .await?;
    ensure!(
        rest.code == 0
            && rest.stdout.starts_with("kubeadmcontrolplane/alone: etcd member ")
            && rest
                .stdout
                .ends_with("kubeadmcontrolplane/edge: etcd unchanged: no member matches the condition\n"),
        "{rest}"
    );
    alone.delete().await?;
    cluster.delete().await
}
