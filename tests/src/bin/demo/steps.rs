//! The steps. Each prints what it shows and why, and then runs a command as a person would.

use anyhow::{Result, ensure};
use kcp_tests::machines::fault::Fault;
use kcp_tests::manifests;
use kcp_tests::wait::until;
use serde_json::Value;

use crate::command::{denied, ended_with, run, title};
use crate::setup::{Demo, NAME, sample};

/// The pool of `samples/good/clusterpool.yaml`.
const POOL: &str = "sample-pool";

const NAMESPACE: &str = "default";

/// The exit code of `kubectl kcp status` for an unhealthy control plane.
const UNHEALTHY: i32 = 1;

pub(crate) async fn show(demo: &Demo) -> Result<()> {
    defaulting(demo)?;

    title(
        "The webhook denies a dangerous manifest. The message has the field, its value, the remedy and the rule.",
    );
    let bad = sample("bad/max-surge-zero-with-one.yaml");
    denied(
        demo.kubectl(),
        "max-surge-zero-below-three",
        &["apply", "-f", &bad],
    )
    .await?;

    title("It also reviews kubectl scale: an even number of etcd members tolerates no more failures.");
    denied(
        demo.kubectl(),
        "replicas-even",
        &["scale", "kubeadmcontrolplane", NAME, "--replicas=2"],
    )
    .await?;
    denied(
        demo.kubectl(),
        "replicas-even",
        &["scale", "kubeadmcontrolplane", NAME, "--replicas=4"],
    )
    .await?;

    title(
        "kubectl kcp status shows whether the control plane is healthy. Scripts use -o json and the exit code.",
    );
    run(demo.kubectl(), &["kcp", "status", NAME]).await?;

    title("Scale from one Machine to three, and wait while Cluster API creates them.");
    run(
        demo.kubectl(),
        &["kcp", "scale", NAME, "--replicas", "3", "--wait"],
    )
    .await?;

    title("Replace every Machine, one after the other. etcd never loses its quorum.");
    run(demo.kubectl(), &["kcp", "rollout", "start", NAME, "--yes"]).await?;
    run(demo.kubectl(), &["kcp", "rollout", "status", NAME]).await?;

    title("An etcd member dies. status asks each member, and shows what is still allowed.");
    member_lost(demo).await?;

    title("Two clusters lease a customization of one pool at the same time. They never get the same one.");
    race(demo).await?;

    title("Release a customization. Others can lease it again.");
    run(
        demo.kubectl(),
        &["kcp", "pool", "release", POOL, "--cluster-deployment", "paris"],
    )
    .await?;

    title("Check manifests in a pipeline, without a cluster. Exit code 1 means that a rule denies one.");
    denied(
        demo.kubectl(),
        "replicas-even",
        &["kcp", "lint", "-f", &sample("bad/replicas-even.yaml")],
    )
    .await
}

/// Shows the defaults of the manifest that the setup applied.
fn defaulting(demo: &Demo) -> Result<()> {
    title("The webhook completes a short manifest. These fields were missing or different:");
    let file = demo.control_plane();
    println!("$ kubectl apply -f {}", file.display());
    let written = manifests::read(file)?.pop().unwrap_or_default();
    let differences = differences("spec", written.get("spec"), demo.applied.get("spec"));
    ensure!(!differences.is_empty(), "nothing was defaulted");
    for difference in differences {
        println!("  {difference}");
    }
    Ok(())
}

/// The scalars that differ, one per line.
fn differences(path: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    match (before, after) {
        (_, Some(Value::Object(fields))) => fields
            .iter()
            .flat_map(|(name, after)| {
                let before = before.and_then(|before| before.get(name));
                differences(&format!("{path}.{name}"), before, Some(after))
            })
            .collect(),
        (Some(before), Some(after)) if before == after => Vec::new(),
        (Some(before), Some(after)) => vec![format!("~ {path}: {before} -> {after}")],
        (None, Some(after)) => vec![format!("+ {path}: {after}")],
        (_, None) => Vec::new(),
    }
}

async fn member_lost(demo: &Demo) -> Result<()> {
    let machine = demo.machine().await?;
    let cluster = demo.management().machines().cluster(NAMESPACE, NAME).await?;
    println!("(kills the etcd member of {machine})");
    cluster.inflict(Fault::Kill, &machine).await?;
    let status = ["kcp", "status", NAME];
    ended_with(demo.kubectl(), UNHEALTHY, &status).await?;

    println!("\n(starts it again)");
    cluster.inflict(Fault::Restart, &machine).await?;
    let list = ["kcp", "status"];
    until("status is healthy again", || async {
        let ended = demo.kubectl().run(list).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(())
    })
    .await?;
    run(demo.kubectl(), &list).await
}

async fn race(demo: &Demo) -> Result<()> {
    let lease = |cluster: &'static str| {
        [
            "kcp",
            "pool",
            "lease",
            POOL,
            "--cluster-deployment",
            cluster,
            "-o",
            "name",
        ]
    };
    let (paris, rome) = tokio::join!(
        demo.kubectl().run(lease("paris")),
        demo.kubectl().run(lease("rome"))
    );
    let (paris, rome) = (paris?, rome?);
    for ended in [&paris, &rome] {
        println!("$ {} &", ended.command);
    }
    for ended in [&paris, &rome] {
        print!("{}{}", ended.stdout, ended.stderr);
        ensure!(ended.code == 0, "no lease: {ended}");
    }
    ensure!(
        paris.stdout != rome.stdout,
        "both leased the same customization: {paris}"
    );
    Ok(())
}
