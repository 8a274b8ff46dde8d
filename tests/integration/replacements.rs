//! `kubectl kcp machine replace` under real controllers with real etcd members: several changes at the same time, and
//! an etcd that cannot be queried.

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::workload_access::{AccessFault, WorkloadAccess};
use kcp_tests::{resources, wait};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::shared::with_controllers;

const NAMESPACE: &str = "replacements";
const NAME: &str = "edge";

const ANNOUNCED: &str = "kubectl-kcp.dev/machine-replacement";
const WITHDRAWN: &str = "kubectl-kcp.dev/replacement-withdrawn";

#[test]
#[ignore = "takes minutes: make test-long"]
fn replacements_exclude_each_other_and_need_etcd() {
    with_controllers(NAMESPACE, replaced);
}

async fn replaced(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    one_of_two_at_once_is_refused(management, &cluster).await?;
    a_replacement_needs_every_permission(management, &cluster).await?;
    an_abandoned_replacement_is_withdrawn(management, &cluster).await?;
    a_paused_machine_blocks_changes(management, &cluster).await?;
    a_member_whose_machine_lost_its_label_stays(management, &cluster).await?;
    an_unreachable_etcd_is_an_objection(management, &cluster).await?;
    cluster.delete().await
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let arguments = ["kcp"].iter().chain(arguments).chain(&place);
    management.kubectl().run(arguments).await
}

/// The metadata of all Machines.
async fn machines(management: &ManagementCluster) -> Result<Vec<Value>> {
    let machines = resources::machines(management.client(), NAMESPACE);
    let listed = machines.list(&ListParams::default()).await?;
    let metadata = listed
        .items
        .iter()
        .map(|machine| serde_json::to_value(&machine.metadata));
    Ok(metadata.collect::<Result<_, _>>()?)
}

async fn one_of_two_at_once_is_refused(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let before = cluster.machines().await?;
    let [first, second, _] = before.as_slice() else {
        bail!("the Machines are {before:?}");
    };
    let one = ["machine", "replace", first, "--yes"];
    let other = ["machine", "replace", second, "--yes"];
    let (one, other) = tokio::join!(kcp(management, &one), kcp(management, &other));
    let (one, other) = (one?, other?);
    let (done, refused) = if one.code == 0 { (one, other) } else { (other, one) };
    ensure!(done.code == 0 && refused.code == 1, "{done}\n{refused}");
    ensure!(
        [
            "is being replaced: ",
            "is being deleted",
            "finishes none of the deletions"
        ]
        .iter()
        .any(|why| refused.stdout.contains(why)),
        "{refused}"
    );
    let all = machines(management).await?;
    let deleting = all
        .iter()
        .filter(|machine| machine.get("deletionTimestamp").is_some());
    let remaining = before.iter().filter(|name| {
        let name = json!(name);
        all.iter().any(|machine| machine.get("name") == Some(&name))
    });
    ensure!(deleting.count() <= 1 && remaining.count() >= 2, "{all:?}");
    for change in [
        &["scale", NAME, "--replicas", "5", "--force"][..],
        &["rollout", "start", NAME, "--force"],
        &["upgrade", NAME, "--to", "v1.34.3", "--force", "--yes"],
    ] {
        // Until the other members have elected a leader, the refusal names their quorum.
        let refused = wait::until("the refusal names the replacement", || async {
            let refused = kcp(management, change).await?;
            ensure!(
                refused.code == 1 && refused.stdout.contains("is being replaced: "),
                "{refused}"
            );
            Ok(refused)
        })
        .await?;
        // No preview and no prompt precede the refusal, and --force would not help.
        ensure!(
            !refused.stdout.contains("Plan:") && !refused.stderr.contains("--force"),
            "{refused}"
        );
    }
    cluster.settled(3).await?;
    let scaled = kcp(
        management,
        &["scale", NAME, "--replicas", "5", "--dry-run=server"],
    )
    .await?;
    ensure!(scaled.code == 0, "{scaled}");
    a_finished_replacement_blocks_nothing(management, cluster).await
}

/// While Machines are missing for another reason, the annotation of a finished replacement is still there.
async fn a_finished_replacement_blocks_nothing(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    for (replicas, number) in [("5", 5), ("3", 3)] {
        let scaled = kcp(management, &["scale", NAME, "--replicas", replicas, "--yes"]).await?;
        ensure!(scaled.code == 0, "{scaled}");
        let back = ["scale", NAME, "--replicas", "1", "--dry-run=server"];
        let answer = kcp(management, &back).await?;
        ensure!(!answer.stdout.contains("is being replaced"), "{answer}");
        cluster.settled(number).await?;
    }
    Ok(())
}

/// Announces the replacement of a Machine as a command does that ends before the deletion.
async fn announce(management: &ManagementCluster, machine: &Value, age: i64) -> Result<()> {
    let time = Timestamp::now() - SignedDuration::from_secs(age);
    let time = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let value = json!({"machine": machine.get("name"), "uid": machine.get("uid"), "time": time}).to_string();
    let annotation = format!("{ANNOUNCED}={value}");
    let annotate = [
        "annotate",
        "kubeadmcontrolplane",
        NAME,
        "-n",
        NAMESPACE,
        "--overwrite",
        &annotation,
    ];
    management.kubectl().succeed(annotate).await.map(drop)
}

/// A user who cannot delete the Machine leaves no announcement, and a dry run needs the permission to announce.
async fn a_replacement_needs_every_permission(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let kubectl = management.kubectl();
    for (user, verbs) in [("patches", "get,list,patch"), ("deletes", "get,list,delete")] {
        let name = format!("{NAMESPACE}-{user}");
        let verbs = format!("--verb={verbs}");
        kubectl
            .succeed(["create", "clusterrole", &name, &verbs, "--resource=*.*"])
            .await?;
        let (role, user) = (format!("--clusterrole={name}"), format!("--user={user}"));
        kubectl
            .succeed(["create", "clusterrolebinding", &name, &role, &user])
            .await?;
    }
    let before = cluster.machines().await?;
    let [first, second, _] = before.as_slice() else {
        bail!("the Machines are {before:?}");
    };
    let failed = kcp(
        management,
        &["machine", "replace", first, "--yes", "--as", "patches"],
    )
    .await?;
    ensure!(
        failed.code == 2 && failed.stderr.contains("cannot delete machines"),
        "{failed}"
    );
    let other = kcp(management, &["machine", "replace", second, "--dry-run=server"]).await?;
    ensure!(other.code == 0, "{other}");
    let dry = ["machine", "replace", first, "--as", "deletes", "--dry-run=server"];
    let dry = kcp(management, &dry).await?;
    ensure!(
        dry.code == 2 && dry.stderr.contains("cannot patch kubeadmcontrolplanes"),
        "{dry}"
    );
    ensure!(cluster.machines().await? == before, "a Machine was deleted");
    Ok(())
}

/// The Machine that a rollout replaces first.
async fn oldest(management: &ManagementCluster) -> Result<String> {
    let created = |machine: &Value| {
        machine
            .get("creationTimestamp")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let all = machines(management).await?;
    let oldest = all.iter().min_by_key(|machine| created(machine));
    let name = oldest.and_then(|machine| machine.get("name")?.as_str());
    name.map(str::to_owned).context("no Machine")
}

async fn a_paused_machine_blocks_changes(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let before = cluster.machines().await?;
    let oldest = oldest(management).await?;
    ensure!(before.contains(&oldest), "{oldest} is not in {before:?}");
    let annotate = |value: &'static str| ["annotate", "machine", &oldest, "-n", NAMESPACE, value];
    let kubectl = management.kubectl();
    kubectl.succeed(annotate("cluster.x-k8s.io/paused=")).await?;
    let why = format!("Machine {oldest} is paused: no controller provisions, updates or deletes it");
    let scale = kcp(
        management,
        &["scale", NAME, "--replicas", "1", "--dry-run=server"],
    )
    .await?;
    ensure!(scale.code == 1 && scale.stdout.contains(&why), "{scale}");
    let rollout = kcp(management, &["rollout", "start", NAME, "--dry-run=server"]).await?;
    let later = format!("the change starts, but stops later: {why}");
    ensure!(rollout.code == 0 && rollout.stderr.contains(&later), "{rollout}");
    let status = kcp(management, &["status", NAME]).await?;
    ensure!(
        status
            .stdout
            .contains("is paused: no controller provisions, updates or deletes it"),
        "{status}"
    );
    kubectl.succeed(annotate("cluster.x-k8s.io/paused-")).await?;
    wait::until("the Machine is no longer paused", || async {
        let scale = kcp(
            management,
            &["scale", NAME, "--replicas", "1", "--dry-run=server"],
        )
        .await?;
        ensure!(scale.code == 0, "{scale}");
        Ok(())
    })
    .await
}

/// While the Cluster is paused, so that Cluster API does not remove the member.
async fn a_member_whose_machine_lost_its_label_stays(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let before = cluster.machines().await?;
    let machine = before.first().context("no Machine")?;
    let kubectl = management.kubectl();
    let pause = |paused: bool| {
        let patch = json!({"spec": {"paused": paused}}).to_string();
        ["patch", "cluster", NAME, "-n", NAMESPACE, "--type=merge", "-p"]
            .map(str::to_owned)
            .into_iter()
            .chain([patch])
    };
    let label = |label: &'static str| ["label", "machine", machine, "-n", NAMESPACE, label];
    kubectl.succeed(pause(true)).await?;
    kubectl.succeed(label("cluster.x-k8s.io/control-plane-")).await?;
    let status = kcp(management, &["status", NAME, "-o", "json"]).await?;
    let advice = "if the Machine exists, restore its labels";
    ensure!(status.stdout.contains(advice), "{status}");
    let refused = kcp(management, &["machine", "replace", machine]).await?;
    let restore = format!("kubectl label machine {machine} -n {NAMESPACE} cluster.x-k8s.io/control-plane=");
    ensure!(
        refused.code == 1 && refused.stdout.contains(&restore),
        "{refused}"
    );
    kubectl.succeed(label("cluster.x-k8s.io/control-plane=")).await?;
    kubectl.succeed(pause(false)).await?;
    cluster.settled(3).await
}

async fn an_abandoned_replacement_is_withdrawn(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let all = machines(management).await?;
    let [abandoned, other, _] = all.as_slice() else {
        bail!("the Machines are {all:?}");
    };
    let name = |machine: &Value| machine.get("name").and_then(Value::as_str).map(str::to_owned);
    let (abandoned_name, other_name) = name(abandoned).zip(name(other)).context("no names")?;
    announce(management, abandoned, 30).await?;
    let refused = kcp(management, &["machine", "replace", &other_name]).await?;
    let why = format!("Machine {abandoned_name} is being replaced: the Machine is about to be deleted\n");
    ensure!(refused.code == 1 && refused.stdout.contains(&why), "{refused}");
    let refused = kcp(management, &["upgrade", NAME, "--to", "v1.34.3"]).await?;
    ensure!(
        refused.code == 1
            && refused.stdout.contains(&why)
            && !refused.stdout.contains("Plan:")
            && !refused.stderr.contains("--force"),
        "{refused}"
    );

    announce(management, abandoned, 180).await?;
    let replaced = kcp(
        management,
        &["machine", "replace", &other_name, "--yes", "--wait=10m"],
    )
    .await?;
    ensure!(replaced.code == 0, "{replaced}");
    let all = machines(management).await?;
    let now = all
        .iter()
        .find(|machine| name(machine).as_ref() == Some(&abandoned_name));
    let now = now.context("the abandoned Machine is gone")?;
    ensure!(
        now.get("annotations")
            .is_some_and(|annotations| annotations.get(WITHDRAWN).is_some()),
        "{now}"
    );
    cluster.settled(3).await
}

async fn an_unreachable_etcd_is_an_objection(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let before = cluster.machines().await?;
    let [live, dead, _] = before.as_slice() else {
        bail!("the Machines are {before:?}");
    };
    let access = WorkloadAccess::read(management.run(), management.client(), NAMESPACE, NAME).await?;
    access.inflict(AccessFault::Nowhere).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    workload.inflict(Fault::Kill, dead).await?;
    for arguments in [
        &["machine", "replace", live][..],
        &["machine", "replace", live, "--force"],
    ] {
        let refused = kcp(management, arguments).await?;
        ensure!(
            refused.code == 1
                && refused
                    .stdout
                    .contains("unknown whether etcd keeps its quorum without the Machine: ")
                && refused.stderr.contains("--without-etcd"),
            "{refused}"
        );
    }
    ensure!(cluster.machines().await? == before, "a Machine was deleted");
    workload.inflict(Fault::Restart, dead).await?;
    access.inflict(AccessFault::Restore).await?;
    wait::until("etcd can be queried again", || async {
        let dry = kcp(management, &["machine", "replace", live, "--dry-run=server"]).await?;
        ensure!(dry.code == 0, "{dry}");
        Ok(())
    })
    .await
}
