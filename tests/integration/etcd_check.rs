//! `kubectl kcp etcd check` on real etcd members: equal members, one whose database was changed on disk, and one that is dead.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::Value;

use crate::rollouts::OLD;
use crate::shared::with_controllers;

const NAMESPACE: &str = "etcd-check";
const NAMESPACE_3_5: &str = "etcd-check-3-5";

/// A member of this version does not report its quota in its status.
const OLD_ETCD: &str = "3.5.35";

const NAME: &str = "edge";

/// A value, and one of equal length that replaces it in a database.
const RIGHT: &str = "the-value-that-all-members-have";
const WRONG: &str = "the-value-that-one-member-has!!";

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_member_with_other_data_is_named() {
    with_controllers(NAMESPACE, checked);
}

#[test]
#[ignore = "builds etcd 3.5 once: make test-long"]
fn the_quota_of_etcd_3_5_is_in_its_metrics() {
    with_controllers(NAMESPACE_3_5, async |management| {
        let client = management.client();
        let cluster = Cluster::create_with_etcd(client, NAMESPACE_3_5, NAME, OLD, OLD_ETCD).await?;
        cluster.settled(1).await?;
        let ended = check(management, NAMESPACE_3_5, &["-o", "json"]).await?;
        let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        let quota = document.pointer("/members/0/dbSizeQuota").and_then(Value::as_u64);
        ensure!(
            ended.code == 0
                && members_with(&ended, "keySpace", "Equal")?.len() == 1
                && members_with(&ended, "version", OLD_ETCD)?.len() == 1
                && quota.is_some_and(|quota| quota > 0),
            "{ended}"
        );
        cluster.delete().await
    });
}

async fn check(management: &ManagementCluster, namespace: &str, more: &[&str]) -> Result<CommandOutput> {
    let fixed = ["kcp", "etcd", "check", NAME, "-n", namespace, "--timeout=60s"];
    management.kubectl().run(fixed.iter().chain(more)).await
}

/// The members with a field of this value.
fn members_with(ended: &CommandOutput, field: &str, value: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
    let members = document.get("members").and_then(Value::as_array);
    let members = members.context("no members")?.iter();
    let matching = members.filter(|member| member.get(field).is_some_and(|found| found == value));
    let names = matching.filter_map(|member| Some(member.get("name")?.as_str()?.to_owned()));
    Ok(names.collect())
}

/// How many changes of the leader a member has counted.
fn leader_changes(ended: &CommandOutput, index: usize) -> Result<u64> {
    let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
    let changes = document.pointer(&format!("/members/{index}/metrics/leaderChanges"));
    changes.and_then(Value::as_u64).with_context(|| ended.to_string())
}

async fn checked(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let machines = cluster.machines().await?;
    workload.etcd().await?.put("check/value", RIGHT).await?;

    let equal = check(management, NAMESPACE, &["-o", "json"]).await?;
    ensure!(
        equal.code == 0 && members_with(&equal, "keySpace", "Equal")?.len() == 3,
        "{equal}"
    );
    let document: Value = serde_json::from_str(&equal.stdout)?;
    for index in 0..3 {
        let number = |field: &str| {
            document
                .pointer(&format!("/members/{index}/{field}"))
                .and_then(Value::as_f64)
        };
        for field in ["metrics/backendCommit/p99Milliseconds", "dbSizeQuota", "dbSize"] {
            ensure!(
                number(field).is_some_and(|number| number > 0.0),
                "{field}: {equal}"
            );
        }
    }
    // The members of the tests run with --unsafe-no-fsync. etcd still counts up to two fsyncs of a folder.
    let unmeasured = equal
        .stdout
        .matches("fsyncs of the write-ahead log, so the speed of its disk is unknown");
    ensure!(unmeasured.count() == 3, "{equal}");

    let sampled = check(management, NAMESPACE, &["--sample=1s", "-o", "json"]).await?;
    ensure!(
        sampled.code == 0 && members_with(&sampled, "keySpace", "Equal")?.len() == 3,
        "{sampled}"
    );
    // Each member has seen a leader before the sample, so a sample of all its time would count more than the total.
    let total = check(management, NAMESPACE, &["-o", "json"]).await?;
    for index in 0..3 {
        let before = leader_changes(&equal, index)?;
        let during = leader_changes(&sampled, index)?;
        let after = leader_changes(&total, index)?;
        ensure!(before > 0 && before + during <= after, "{equal}{sampled}{total}");
    }

    let leader = workload.leader().await?;
    let corrupt = machines
        .iter()
        .find(|machine| **machine != leader)
        .context("no follower")?;
    workload.inflict(Fault::Kill, corrupt).await?;
    let dead = check(management, NAMESPACE, &["-o", "json"]).await?;
    ensure!(
        dead.code == 1
            && members_with(&dead, "keySpace", "Equal")?.len() == 2
            && members_with(&dead, "keySpace", "Unknown")? == [corrupt.clone()],
        "{dead}"
    );

    let file = workload.database_folder(corrupt).join("db");
    let (bytes, count) = replaced(&fs::read(&file)?, RIGHT.as_bytes(), WRONG.as_bytes());
    ensure!(count > 0, "the database of {corrupt} does not contain the value");
    fs::write(&file, bytes)?;
    workload.inflict(Fault::Restart, corrupt).await?;
    let differs = wait::until("the changed member responds", || async {
        let differs = check(management, NAMESPACE, &["-o", "json"]).await?;
        ensure!(
            members_with(&differs, "keySpace", "Unknown")?.is_empty(),
            "{differs}"
        );
        Ok(differs)
    })
    .await?;
    ensure!(
        differs.code == 1 && members_with(&differs, "keySpace", "Differs")? == [corrupt.clone()],
        "{differs}"
    );
    let text = check(management, NAMESPACE, &[]).await?;
    let failure = format!("the data of etcd member {corrupt} differs from that of most members");
    ensure!(text.code == 1 && text.stdout.contains(&failure), "{text}");
    cluster.delete().await
}

/// Replaces a text in a file by one of equal length. Returns how often it occurs, too.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> (Vec<u8>, usize) {
    let windows = bytes.windows(from.len()).enumerate();
    let starts: Vec<usize> = windows
        .filter_map(|(start, part)| (part == from).then_some(start))
        .collect();
    let mut changed = bytes.to_vec();
    for start in &starts {
        for (place, byte) in changed.iter_mut().skip(*start).zip(to) {
            *place = *byte;
        }
    }
    (changed, starts.len())
}
