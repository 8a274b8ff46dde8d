//! States in which Cluster API's controllers wait forever: an infrastructure template that does not exist, and two deletions
//! at the same time, or of all Machines. The plugin names them, and the way out that it names works. The certificates are listed besides.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use serde_json::{Value, json};

use crate::remedies;
use crate::shared::with_controllers;

const NAMESPACE: &str = "dead-ends";
const NAME: &str = "edge";

const TEMPLATES: &str = "standinmachinetemplates.infrastructure.cluster.x-k8s.io";
/// The minor version of Cluster API since which it holds deletions that could cost etcd its quorum.
const HOLDS_DELETIONS: u32 = 13;

/// How often Cluster API tries to finish a deletion while the test watches. It waits half a minute between two tries.
const TRIES: usize = 2;

const HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup";

#[test]
fn the_way_out_of_each_dead_end_is_named() {
    with_controllers(NAMESPACE, are_named);
}

async fn are_named(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 3, "v1.34.2").await?;
    cluster.settled(3).await?;
    wait::until("the certificates are listed", || {
        certificates_are_listed(management, &cluster)
    })
    .await?;
    a_new_template_is_compared(management, &cluster).await?;
    a_missing_template_is_reported(management, &cluster).await?;
    if management.cluster_api_minor()? >= HOLDS_DELETIONS {
        two_deletions_block_each_other(management, &cluster).await?;
        all_deletions_are_held(management, &cluster).await?;
    } else {
        two_deletions_finish(management, &cluster).await?;
    }
    cluster.delete().await
}

async fn kcp(management: &ManagementCluster, arguments: &[&str]) -> Result<CommandOutput> {
    let place = ["-n", NAMESPACE];
    let arguments = ["kcp"].iter().chain(arguments).chain(&place);
    management.kubectl().run(arguments).await
}

async fn certificates_are_listed(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    // Cluster API records the expiry of a Machine's certificates a while after the Machine has joined.
    let listed = kcp(management, &["certificates", NAME, "-o", "json"]).await?;
    ensure!(listed.code == 0 && !listed.stdout.contains("PRIVATE"), "{listed}");
    let document: Value = serde_json::from_str(&listed.stdout)?;
    let certificates = document
        .pointer("/items/0/certificates")
        .and_then(Value::as_array)
        .context("no certificates")?;
    let text = |object: &Value, field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
    let of_secrets: Vec<_> = certificates
        .iter()
        .filter(|item| text(item, "purpose").as_deref() != Some("machine"))
        .map(|item| (text(item, "object"), text(item, "state"), text(item, "renewedBy")))
        .collect();
    let expected = |suffix: &str, state: &str, renewed_by: &str| {
        (
            Some(format!("Secret/{NAME}-{suffix}")),
            Some(state.to_owned()),
            Some(renewed_by.to_owned()),
        )
    };
    ensure!(
        of_secrets
            == [
                expected("ca", "valid", "person"),
                expected("etcd", "valid", "person"),
                expected("proxy", "valid", "person"),
                expected("sa", "noExpiry", "person"),
                expected("kubeconfig", "valid", "controller"),
            ],
        "{document:#}"
    );
    let machines = cluster.machines().await?;
    ensure!(certificates.len() == 5 + machines.len(), "{document:#}");
    let screen = kcp(management, &["certificates"]).await?;
    ensure!(
        screen.code == 0 && screen.stdout.contains("cluster CA"),
        "{screen}"
    );
    Ok(())
}

/// Writes a manifest of the control plane that refers to another infrastructure template, and the template if it is given.
async fn manifest(
    management: &ManagementCluster,
    cluster: &Cluster,
    template: &str,
    objects: &[Value],
) -> Result<String> {
    let mut spec = cluster.get().await?.get("spec").cloned().context("no spec")?;
    let reference = "/machineTemplate/spec/infrastructureRef/name";
    *spec.pointer_mut(reference).context("no reference")? = json!(template);
    let control_plane = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec,
    });
    let items: Vec<&Value> = std::iter::once(&control_plane).chain(objects).collect();
    let file = management.kubectl().scratch_file("dead-ends.json");
    std::fs::write(
        &file,
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    )?;
    Ok(file.display().to_string())
}

async fn template(management: &ManagementCluster) -> Result<Value> {
    let get = ["get", TEMPLATES, NAME, "-n", NAMESPACE, "-o", "json"];
    let read = management.kubectl().succeed(get).await?;
    let mut template: Value = serde_json::from_str(&read.stdout)?;
    let metadata = template.get_mut("metadata").context("no metadata")?;
    *metadata = json!({"name": NAME, "namespace": NAMESPACE});
    Ok(template)
}

async fn a_new_template_is_compared(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let path = manifest(management, cluster, "missing", &[]).await?;
    let planned = kcp(management, &["plan", NAME, "-f", &path]).await?;
    ensure!(
        planned.code == 1
            && planned
                .stdout
                .contains("StandInMachineTemplate missing does not exist"),
        "{planned}"
    );
    let current = template(management).await?;
    let new = json!({
        "apiVersion": current.get("apiVersion"), "kind": current.get("kind"),
        "metadata": {"name": "new", "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"size": "large"}}},
    });
    let path = manifest(management, cluster, "new", &[new]).await?;
    let planned = kcp(management, &["plan", NAME, "-f", &path]).await?;
    ensure!(
        planned.code == 0
            && planned
                .stdout
                .contains("StandInMachineTemplate/new spec.template.spec.size: "),
        "{planned}"
    );
    Ok(())
}

async fn reports(management: &ManagementCluster, check: &str) -> Result<CommandOutput> {
    wait::until(&format!("status reports {check}"), || async {
        let status = kcp(management, &["status", NAME]).await?;
        ensure!(
            status.code == 1 && status.stdout.contains(&format!("({check})")),
            "{status}"
        );
        Ok(status)
    })
    .await
}

async fn a_missing_template_is_reported(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let template = template(management).await?;
    let kubectl = management.kubectl();
    kubectl
        .succeed(["delete", TEMPLATES, NAME, "-n", NAMESPACE])
        .await?;
    reports(management, "infrastructure-template-missing").await?;
    let machines = cluster.machines().await?;
    let [first, ..] = machines.as_slice() else {
        bail!("no Machines");
    };
    for change in [
        &["plan", NAME, "--restart"][..],
        &["rollout", "start", NAME],
        &["scale", NAME, "--replicas", "5"],
        &["upgrade", NAME, "--to", "v1.34.3", "--yes"],
        &["machine", "replace", first],
        &["machine", "replace", first, "--force"],
    ] {
        wait::until(&format!("{change:?} names the template"), || async {
            let refused = kcp(management, change).await?;
            let text = "StandInMachineTemplate edge does not exist";
            ensure!(
                refused.code == 1 && refused.stdout.contains(text),
                "{change:?}: {refused}"
            );
            Ok(())
        })
        .await?;
    }
    ensure!(cluster.machines().await? == machines, "a Machine was changed");
    let file = kubectl.scratch_file("dead-ends-template.json");
    std::fs::write(&file, template.to_string())?;
    let path = file.display().to_string();
    kubectl.succeed(["apply", "-f", &path]).await?;
    wait::until("status is healthy with the template", || async {
        let status = kcp(management, &["status", NAME]).await?;
        ensure!(status.code == 0, "{status}");
        Ok(())
    })
    .await
}

/// Earlier releases finish one deletion after the other, and no command claims that they block each other.
async fn two_deletions_finish(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let machines = cluster.machines().await?;
    let [first, second, _] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    delete(management, &[first, second]).await?;
    let alarms = Mutex::new(Vec::new());
    wait::until("both Machines are replaced", || async {
        let status = kcp(management, &["status", NAME]).await?;
        if status.stdout.contains("machine-deletions-deadlocked") {
            alarms
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(status.stdout);
        }
        let left = cluster.with_nodes().await?;
        ensure!(!left.contains(first) && !left.contains(second), "{left:?}");
        Ok(())
    })
    .await?;
    cluster.settled(3).await?;
    let alarms = alarms.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(alarms.is_empty(), "a false alarm: {alarms:?}");
    Ok(())
}

async fn delete(management: &ManagementCluster, machines: &[&str]) -> Result<()> {
    let delete = [
        &["delete", "machine"],
        machines,
        &["-n", NAMESPACE, "--wait=false"],
    ]
    .concat();
    management.kubectl().succeed(delete).await.map(drop)
}

/// Cluster API holds the deletions of all Machines, so etcd goes on, and `plan` does not say that its data is deleted.
async fn all_deletions_are_held(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let machines = cluster.machines().await?;
    let names: Vec<&str> = machines.iter().map(String::as_str).collect();
    delete(management, &names).await?;
    let log = management
        .run()
        .logs()
        .join(format!("cluster-api-{NAMESPACE}-control-plane.log"));
    let held = "Cannot delete control plane Machine";
    let holds = || anyhow::Ok(std::fs::read_to_string(&log)?.matches(held).count());
    let before = holds()?;
    wait::until("Cluster API holds the deletions", || async {
        ensure!(holds()? > before, "{} does not say so", log.display());
        Ok(())
    })
    .await?;
    let message = "all control plane Machines are being deleted";
    for command in [&["plan", NAME][..], &["status", NAME], &["why", NAME]] {
        wait::until(&format!("{command:?} says so"), || async {
            let ended = kcp(management, command).await?;
            let words: Vec<&str> = ended.stdout.split_whitespace().collect();
            let text = words.join(" ");
            ensure!(
                ended.code == 1
                    && text.contains(message)
                    && text.contains("then create a new Cluster")
                    && !text.contains("deletes the cluster's data"),
                "{ended}"
            );
            Ok(())
        })
        .await?;
    }
    remedies::are_accepted(management, NAMESPACE, NAME).await?;
    let file = management.kubectl().scratch_file("dead-ends.snapshot");
    let path = file.display().to_string();
    wait::until("etcd is saved", || async {
        let save = kcp(management, &["etcd", "snapshot", NAME, "--output-file", &path]).await?;
        ensure!(save.code == 0 && file.exists(), "{save}");
        Ok(())
    })
    .await?;
    // Each of them is still there, after many more tries.
    let seen = holds()?;
    wait::until("Cluster API has tried again", || async {
        ensure!(holds()? >= seen + TRIES, "{} of {TRIES}", holds()? - seen);
        Ok(())
    })
    .await?;
    let mut left = cluster.with_nodes().await?;
    left.sort();
    let mut expected = machines.clone();
    expected.sort();
    ensure!(left == expected, "{left:?} of {expected:?}");
    Ok(())
}

async fn two_deletions_block_each_other(management: &ManagementCluster, cluster: &Cluster) -> Result<()> {
    let machines = cluster.machines().await?;
    let [first, second, _] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let kubectl = management.kubectl();
    delete(management, &[first, second]).await?;
    let status = reports(management, "machine-deletions-deadlocked").await?;
    let words: Vec<&str> = status.stdout.split_whitespace().collect();
    let hinted = machines.iter().find(|name| {
        let words = words.join(" ");
        words.contains(&format!("kubectl annotate machine {name} -n {NAMESPACE} {HOOK}-"))
    });
    let hinted = hinted.with_context(|| format!("no way out: {status}"))?;
    // What the hint says: first the etcd member, then the hook.
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    workload.inflict(Fault::Remove, hinted).await?;
    let hook = format!("{HOOK}-");
    kubectl
        .succeed(["annotate", "machine", hinted, "-n", NAMESPACE, &hook])
        .await?;
    cluster.settled(3).await
}
