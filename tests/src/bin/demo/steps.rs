//! The steps. Each says what it shows and why one would care, then runs a command as a person would.

use anyhow::{Context as _, Result, ensure};
use kcp_tests::machines::fault::Fault;
use kcp_tests::manifests;
use kcp_tests::wait::until;
use serde_json::Value;

use crate::setup::{Demo, NAME, sample};

/// The pool of `samples/good/clusterpool.yaml`.
const POOL: &str = "sample-pool";

/// Where the control plane is.
const NAMESPACE: &str = "default";

/// Exit code of `kubectl kcp status`.
const UNHEALTHY: i32 = 1;

/// Shows all of them.
pub(crate) async fn show(demo: &Demo) -> Result<()> {
    defaulting(demo)?;

    title("A manifest that would hurt is denied, with the field, its value, the remedy and the rule's name.");
    let bad = sample("bad/max-surge-zero-with-one.yaml");
    denied(demo, "max-surge-zero-below-three", &["apply", "-f", &bad]).await?;

    title("kubectl scale is judged as well: an even number of etcd members survives no more failures.");
    denied(
        demo,
        "replicas-even",
        &["scale", "kubeadmcontrolplane", NAME, "--replicas=2"],
    )
    .await?;
    denied(
        demo,
        "replicas-even",
        &["scale", "kubeadmcontrolplane", NAME, "--replicas=4"],
    )
    .await?;

    title("One look says whether the control plane is healthy; scripts read -o json and the exit code.");
    run(demo, &["kcp", "status", NAME]).await?;

    title("From one Machine to three, followed to its end while Cluster API makes them.");
    run(demo, &["kcp", "scale", NAME, "--replicas", "3", "--wait"]).await?;

    title("Every Machine is replaced, one after the other, and etcd never loses its quorum.");
    run(demo, &["kcp", "rollout", "start", NAME]).await?;
    run(demo, &["kcp", "rollout", "status", NAME, "--watch"]).await?;

    title("A member of etcd dies. Each member is asked by itself, and what may still be done is told.");
    member_lost(demo).await?;

    title(
        "Two clusters want a customization of the same pool at the same moment: they never get the same one.",
    );
    race(demo).await?;

    title("A customization that is given back can be leased again.");
    run(
        demo,
        &["kcp", "pool", "release", POOL, "--cluster-deployment", "paris"],
    )
    .await?;

    title("The same rules without a cluster, for a pipeline: a denial ends it with exit code 1.");
    denied(
        demo,
        "replicas-even",
        &["kcp", "lint", "-f", &sample("bad/replicas-even.yaml")],
    )
    .await
}

/// What became of the manifest that the set-up applied.
fn defaulting(demo: &Demo) -> Result<()> {
    title("A short manifest is completed, safely: the fields that were not in it, or not like this.");
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

/// The scalars that differ, one a line.
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
    println!("(the etcd member of {machine}, a stand-in, is killed)");
    cluster.inflict(Fault::Kill, &machine).await?;
    let status = ["kcp", "status", NAME];
    ended_with(demo, UNHEALTHY, &status).await?;

    println!("\n(it runs again)");
    cluster.inflict(Fault::Restart, &machine).await?;
    let deep = ["kcp", "status", "--deep"];
    until("status is healthy again", || async {
        let ended = demo.kubectl().run(deep).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(())
    })
    .await?;
    run(demo, &deep).await
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
    ensure!(paris.stdout != rome.stdout, "both got the same: {paris}");
    Ok(())
}

/// A command that must succeed, shown as it goes on.
async fn run(demo: &Demo, arguments: &[&str]) -> Result<()> {
    ended_with(demo, 0, arguments).await
}

/// A command that must end with this exit code, shown as it goes on.
async fn ended_with(demo: &Demo, code: i32, arguments: &[&str]) -> Result<()> {
    println!("$ kubectl {}", arguments.join(" "));
    let ended = demo.kubectl().show(arguments).await.context("running kubectl")?;
    ensure!(
        ended.code == code,
        "{} ended with exit code {} instead of {code}",
        ended.command,
        ended.code
    );
    Ok(())
}

/// A command that must be refused by a rule of ours.
async fn denied(demo: &Demo, rule: &str, arguments: &[&str]) -> Result<()> {
    println!("$ kubectl {}", arguments.join(" "));
    let ended = demo.kubectl().run(arguments).await.context("running kubectl")?;
    print!("{}{}", ended.stdout, ended.stderr);
    ensure!(
        ended.code == 1,
        "{} ended with exit code {} instead of 1",
        ended.command,
        ended.code
    );
    let named = [&ended.stdout, &ended.stderr]
        .iter()
        .any(|text| text.contains(&format!("({rule})")));
    ensure!(named, "{} was not refused by the rule {rule}", ended.command);
    Ok(())
}

fn title(text: &str) {
    println!("\n# {text}");
}
