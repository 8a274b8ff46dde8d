//! `kubectl kcp etcd defrag|compact|disarm|move-leader` on real etcd members, through the real port-forward.

#![expect(
    clippy::print_stderr,
    reason = "the test reports the longest pause of a client"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::api::DeleteParams;
use serde_json::Value;

use crate::acknowledged_writes::AcknowledgedWrites;
use crate::shared::with_controllers;

const NAME: &str = "edge";

/// The interval between two writes of the client during a defragmentation.
const PERIOD: Duration = Duration::from_millis(50);

const MEBIBYTE: usize = 1 << 20;

/// The database size at which members raise NOSPACE in the test of that alarm.
const QUOTA: u64 = 48 << 20;

#[test]
#[ignore = "takes minutes: make test-long"]
fn members_are_defragmented_under_writes() {
    with_controllers("etcd-defrag", defragmented);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_full_etcd_is_brought_back() {
    with_controllers("etcd-no-space", brought_back);
}

async fn etcd(
    management: &ManagementCluster,
    namespace: &str,
    verb: &str,
    more: &[&str],
) -> Result<CommandOutput> {
    let fixed = ["kcp", "etcd", verb, NAME, "-n", namespace, "--timeout=60s"];
    management.kubectl().run(fixed.iter().chain(more)).await
}

async fn succeed(
    management: &ManagementCluster,
    namespace: &str,
    verb: &str,
    more: &[&str],
) -> Result<Value> {
    let ended = etcd(
        management,
        namespace,
        verb,
        &[&["--yes", "-o", "json"], more].concat(),
    )
    .await?;
    ensure!(ended.code == 0, "{ended}");
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// Runs a command that must be refused, for this reason.
async fn refused(
    management: &ManagementCluster,
    namespace: &str,
    verb: &str,
    why: &str,
) -> Result<CommandOutput> {
    let ended = etcd(management, namespace, verb, &["--yes"]).await?;
    ensure!(ended.code == 1 && ended.stdout.contains(why), "{why}: {ended}");
    Ok(ended)
}

/// Writes values of one MiB to the same key, so that only the last of them is in use after a compaction.
async fn write_revisions(workload: &WorkloadCluster, count: usize) -> Result<()> {
    let (etcd, value) = (workload.etcd().await?, "v".repeat(MEBIBYTE));
    for _ in 0..count {
        etcd.put("maintenance/revisions", &value).await?;
    }
    Ok(())
}

async fn defragmented(management: &ManagementCluster) -> Result<()> {
    const NAMESPACE: &str = "etcd-defrag";
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    leadership_moves(management, &workload, NAMESPACE).await?;
    no_write_is_lost(management, &workload, NAMESPACE).await?;
    a_killed_member_ends_it(management, &cluster, &workload, NAMESPACE).await?;
    is_refused_during_changes(management, &cluster, &workload, NAMESPACE).await?;
    cluster.delete().await
}

async fn leadership_moves(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    namespace: &str,
) -> Result<()> {
    let before = workload.leader().await?;
    let unconfirmed = etcd(management, namespace, "move-leader", &[]).await?;
    ensure!(
        unconfirmed.code == 2 && unconfirmed.stderr.contains("hint: confirm with --yes"),
        "{unconfirmed}"
    );
    let planned = etcd(management, namespace, "move-leader", &["--dry-run"]).await?;
    ensure!(
        planned.code == 0 && planned.stdout.contains(&format!("would move from {before} to ")),
        "{planned}"
    );
    ensure!(
        workload.leader().await? == before,
        "a dry run has moved the leadership"
    );
    let moved = succeed(management, namespace, "move-leader", &[]).await?;
    let to = moved.get("to").and_then(Value::as_str).context("no leader")?;
    ensure!(to != before && workload.leader().await? == to, "{moved}");
    let back = succeed(management, namespace, "move-leader", &["--member", &before]).await?;
    ensure!(workload.leader().await? == before, "{back}");
    let again = etcd(
        management,
        namespace,
        "move-leader",
        &["--yes", "--member", &before],
    )
    .await?;
    ensure!(
        again.code == 0
            && again.stdout
                == format!(
                    "kubeadmcontrolplane/edge: etcd unchanged: member {before} is already the leader\n"
                ),
        "{again}"
    );
    let events = management
        .kubectl()
        .succeed(["get", "events.events.k8s.io", "-n", namespace, "-o", "json"])
        .await?;
    let events: Value = serde_json::from_str(&events.stdout)?;
    let reasons = events
        .pointer("/items")
        .and_then(Value::as_array)
        .context("no list")?;
    let recorded = reasons.iter().filter(|event| {
        event
            .get("reason")
            .is_some_and(|reason| reason == "EtcdLeaderMoved")
    });
    ensure!(recorded.count() == 2, "each move has an Event: {reasons:?}");
    Ok(())
}

async fn no_write_is_lost(
    management: &ManagementCluster,
    workload: &Arc<WorkloadCluster>,
    namespace: &str,
) -> Result<()> {
    write_revisions(workload, 64).await?;
    let future = etcd(
        management,
        namespace,
        "compact",
        &["--yes", "--revision=999999999"],
    )
    .await?;
    ensure!(
        future.code == 1 && future.stdout.contains("revision 999999999 is in the future"),
        "{future}"
    );
    // As kube-apiserver does in each round; its first one begins after five minutes.
    workload.etcd().await?.put("compact_rev_key", "0").await?;
    let compacted = succeed(management, namespace, "compact", &[]).await?;
    ensure!(
        compacted.get("wasCompact") == Some(&Value::Bool(false)),
        "{compacted}"
    );
    let again = succeed(management, namespace, "compact", &[]).await?;
    ensure!(again.get("wasCompact") == Some(&Value::Bool(true)), "{again}");

    let leader = workload.leader().await?;
    let writes = AcknowledgedWrites::begin_every(PERIOD, workload.clone());
    let done = succeed(management, namespace, "defrag", &[]).await?;
    let summary = writes.end().await?;
    eprintln!(
        "defragmentation of three members: {} writes acknowledged, none lost; the longest pause was {:?}",
        summary.acknowledged, summary.longest_pause
    );
    let members = done
        .get("members")
        .and_then(Value::as_array)
        .context("no members")?;
    let last = members.last().and_then(|member| member.get("name"));
    ensure!(
        members.len() == 3 && last.and_then(Value::as_str) == Some(&leader),
        "the leader {leader} is last: {done}"
    );
    for member in members {
        let size = |field: &str| member.get(field).and_then(Value::as_u64).unwrap_or_default();
        ensure!(
            size("dbSizeBefore") > size("dbSizeAfter") + 48 * MEBIBYTE as u64,
            "{member}"
        );
    }
    Ok(())
}

/// Whether a member is writing a new database.
fn is_rewriting(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // The file is gone if the member has just finished.
        let is_begun = entry.metadata().is_ok_and(|metadata| metadata.len() > 0);
        if is_begun && entry.file_name().to_string_lossy().starts_with("db.tmp.") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Freezes the first member that writes a new database, and returns its name.
async fn frozen_while_rewriting(workload: &WorkloadCluster, machines: &[String]) -> Result<String> {
    for machine in machines {
        let folder = workload.database_folder(machine);
        if !is_rewriting(&folder)? {
            continue;
        }
        workload.inflict(Fault::Freeze, machine).await?;
        if is_rewriting(&folder)? {
            return Ok(machine.clone());
        }
        workload.inflict(Fault::Thaw, machine).await?;
    }
    bail!("no member writes a new database")
}

async fn a_killed_member_ends_it(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &Arc<WorkloadCluster>,
    namespace: &str,
) -> Result<()> {
    let machines = cluster.machines().await?;
    // So much data that a member can be stopped while it copies.
    let (client, value) = (workload.etcd().await?, "v".repeat(MEBIBYTE));
    for number in 0..192 {
        client.put(&format!("maintenance/{number}"), &value).await?;
    }
    let writes = AcknowledgedWrites::begin_every(PERIOD, workload.clone());
    let (killed, ended) = wait::until("a member is killed in the middle", || async {
        let running = etcd(management, namespace, "defrag", &["--yes"]);
        let killed = async {
            let machine =
                wait::until_within("a member writes a new database", Duration::from_secs(60), || {
                    frozen_while_rewriting(workload, &machines)
                });
            let machine = machine.await?;
            workload.inflict(Fault::Kill, &machine).await?;
            anyhow::Ok(machine)
        };
        let (ended, killed) = tokio::join!(running, killed);
        Ok((killed?, ended?))
    })
    .await?;
    ensure!(
        ended.code == 2
            && ended.stderr.contains(&format!(
                "error: etcd member {killed} failed during its defragmentation (no data is lost; when the member is \
                 healthy, run the command again"
            )),
        "{ended}"
    );
    // The others have quorum.
    workload.etcd().await?.put("maintenance/after", "").await?;
    let refusal = refused(
        management,
        namespace,
        "defrag",
        "etcd has no quorum without member",
    )
    .await?;
    ensure!(
        refusal
            .stdout
            .contains(&format!("etcd member {killed} does not respond: ")),
        "{refusal}"
    );

    workload.inflict(Fault::Restart, &killed).await?;
    wait::until("the member is in step again", || async {
        let done = etcd(management, namespace, "defrag", &["--yes"]).await?;
        ensure!(done.code == 0 && done.stdout.contains(&killed), "{done}");
        Ok(())
    })
    .await?;
    writes.end().await?;
    ensure!(
        !is_rewriting(&workload.database_folder(&killed))?,
        "the half database is still there"
    );
    Ok(())
}

async fn is_refused_during_changes(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
    namespace: &str,
) -> Result<()> {
    let machines = cluster.machines().await?;
    let first = machines.first().context("no Machine")?;
    workload.inflict(Fault::HoldPromotions, first).await?;
    resources::machines(management.client(), namespace)
        .delete(first, &DeleteParams::default())
        .await?;
    wait::until(
        "a defragmentation is refused while the Machine goes or another comes",
        || async {
            let ended = etcd(management, namespace, "defrag", &["--yes"]).await?;
            ensure!(ended.code == 1, "{ended}");
            ensure!(ended.stdout.contains(" is starting"), "{ended}");
            Ok(())
        },
    )
    .await?;
    workload.inflict(Fault::Promote, first).await?;
    cluster.settled(3).await?;
    wait::until("the members can be defragmented again", || async {
        let planned = etcd(management, namespace, "defrag", &["--dry-run"]).await?;
        ensure!(planned.code == 0 && !planned.stdout.contains(first), "{planned}");
        Ok(())
    })
    .await
}

async fn brought_back(management: &ManagementCluster) -> Result<()> {
    const NAMESPACE: &str = "etcd-no-space";
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    workload.set_etcd_quota(QUOTA);
    for machine in cluster.machines().await? {
        workload.inflict(Fault::Kill, &machine).await?;
        workload.inflict(Fault::Restart, &machine).await?;
        wait::until("the member follows a leader", || async {
            workload.etcd_of(&machine).await?.has_leader().await
        })
        .await?;
    }
    let none = succeed(management, NAMESPACE, "disarm", &[]).await?;
    ensure!(none.pointer("/members/0").is_none(), "{none}");

    wait::until("a write is rejected", || async {
        match write_revisions(&workload, 2).await {
            Err(error) if format!("{error:#}").contains("database space exceeded") => Ok(()),
            _ => bail!("etcd has space"),
        }
    })
    .await?;
    let full = refused(management, NAMESPACE, "disarm", ", and its quota is 48 MiB").await?;
    // How much of the file is in use depends on how etcd batched the writes, and with it whether a compaction comes first.
    ensure!(
        full.stderr
            .contains("kubectl kcp etcd defrag edge -n etcd-no-space"),
        "{full}"
    );
    // kube-apiserver cannot write the key of its next round.
    let key = workload.etcd().await?.put("compact_rev_key", "0").await;
    ensure!(key.is_err(), "etcd has space");
    succeed(management, NAMESPACE, "compact", &["--keep-revisions=0"]).await?;
    // The member that compacts commits its deletions before it responds, or soon after a repeated request. The others count the
    // deleted revisions as in use until their next write, and a full etcd accepts none: the advice may still begin with a compaction.
    wait::until("a member is compacted", || async {
        let mut sizes = Vec::new();
        for machine in cluster.machines().await? {
            let status = workload.etcd_of(&machine).await?.status().await?;
            sizes.push(status.size_in_use.parse::<usize>()?);
        }
        ensure!(sizes.iter().any(|size| *size < 8 * MEBIBYTE), "{sizes:?}");
        Ok(())
    })
    .await?;
    let why = " MiB on disk, and its quota is 48 MiB";
    let fragmented = refused(management, NAMESPACE, "disarm", why).await?;
    let hint = "return the space to the file system: kubectl kcp etcd defrag edge -n etcd-no-space";
    ensure!(fragmented.stderr.contains(hint), "{fragmented}");
    // A member that compacts during its defragmentation needs another one to return the space.
    let disarmed = wait::until("the alarm is disarmed", || async {
        succeed(management, NAMESPACE, "defrag", &[]).await?;
        succeed(management, NAMESPACE, "disarm", &[]).await
    })
    .await?;
    ensure!(disarmed.pointer("/members/0").is_some(), "{disarmed}");
    ensure!(
        workload.etcd().await?.alarms().await?.is_empty(),
        "an alarm is raised"
    );
    write_revisions(&workload, 1).await?;
    by_one_command(management, &workload, NAMESPACE).await?;
    cluster.delete().await
}

/// Fills etcd again, and brings it back by one command, as people run it on a schedule.
async fn by_one_command(
    management: &ManagementCluster,
    workload: &WorkloadCluster,
    namespace: &str,
) -> Result<()> {
    const STEPS: [&str; 3] = ["--compact", "--keep-revisions=0", "--disarm"];
    wait::until("a write is rejected again", || async {
        match write_revisions(workload, 2).await {
            Err(error) if format!("{error:#}").contains("database space exceeded") => Ok(()),
            _ => bail!("etcd has space"),
        }
    })
    .await?;
    let raised = workload.etcd().await?.alarms().await?;
    let unconfirmed = etcd(management, namespace, "defrag", &STEPS).await?;
    let goals = [
        "cannot delete etcd's revisions up to ",
        ", then defragment etcd members ",
        ", then disarm the alarm NOSPACE of etcd members ",
        ", and of any other member that raises it in the meantime",
    ];
    ensure!(
        unconfirmed.code == 2 && goals.iter().all(|goal| unconfirmed.stderr.contains(goal)),
        "{unconfirmed}"
    );
    let planned = etcd(
        management,
        namespace,
        "defrag",
        &[&["--dry-run"], &STEPS[..]].concat(),
    )
    .await?;
    let announced = [
        " would be deleted; ",
        " would be defragmented: ",
        " would be disarmed",
    ];
    ensure!(
        planned.code == 0 && announced.iter().all(|step| planned.stdout.contains(step)),
        "{planned}"
    );
    // Meanwhile, another member may raise the alarm, too.
    let left = workload.etcd().await?.alarms().await?;
    ensure!(
        raised.iter().all(|alarm| left.contains(alarm)),
        "a dry run has changed the alarms"
    );
    let done = succeed(management, namespace, "defrag", &STEPS).await?;
    let items = done.get("items").and_then(Value::as_array).context("no items")?;
    let mut verbs: Vec<&str> = items
        .iter()
        .filter_map(|item| item.get("verb").and_then(Value::as_str))
        .collect();
    // A member that was still compacting is defragmented twice.
    verbs.dedup();
    ensure!(verbs == ["compact", "defrag", "disarm"], "{done}");
    ensure!(
        items
            .last()
            .is_some_and(|item| item.pointer("/members/0").is_some()),
        "no alarm was disarmed: {done}"
    );
    ensure!(
        workload.etcd().await?.alarms().await?.is_empty(),
        "an alarm is raised"
    );
    write_revisions(workload, 1).await?;
    let again = succeed(
        management,
        namespace,
        "defrag",
        &["--disarm", "--when=size > 1Ti"],
    )
    .await?;
    ensure!(
        again.pointer("/items/0/members") == Some(&Value::Array(Vec::new()))
            && again.pointer("/items/1/members") == Some(&Value::Array(Vec::new())),
        "{again}"
    );
    let without_alarm = etcd(management, namespace, "defrag", &["--disarm"]).await?;
    ensure!(
        without_alarm.code == 2
            && without_alarm
                .stderr
                .contains(", then disarm the alarm NOSPACE of any etcd member of control plane "),
        "{without_alarm}"
    );
    let events = management
        .kubectl()
        .succeed(["get", "events.events.k8s.io", "-n", namespace, "-o", "json"])
        .await?;
    for reason in ["EtcdCompacted", "EtcdDefragmented", "EtcdAlarmDisarmed"] {
        // The first ones are of the separate commands.
        ensure!(
            events
                .stdout
                .matches(&format!("\"reason\": \"{reason}\""))
                .count()
                >= 2,
            "{reason}: {}",
            events.stdout
        );
    }
    Ok(())
}
