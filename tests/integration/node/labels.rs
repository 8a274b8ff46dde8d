//! Labels of Nodes: what is written, what is refused, and that nothing is lost when several commands write at once.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{BareCluster, HOSTILE};
use crate::shared::with_run;

#[test]
fn labels_are_replaced_and_refused() {
    with_run(async |run| {
        let cluster = BareCluster::start(run, "node-labels", &[]).await.unwrap();
        changed(&cluster).await.unwrap();
    });
}

async fn changed(cluster: &BareCluster) -> Result<()> {
    let hostname = "kubernetes.io/hostname";
    cluster
        .create_node(
            "w1",
            &json!({hostname: "w1", "rack": "r1", "old": "1"}),
            &json!({}),
        )
        .await?;
    let of_machine = json!({
        "cluster.x-k8s.io/machine": "edge-1",
        "cluster.x-k8s.io/cluster-namespace": "fleet",
        "cluster.x-k8s.io/labels-from-machine": "node-role.kubernetes.io/gateway",
    });
    let labels = json!({hostname: "w2", "node-role.kubernetes.io/gateway": "", "old": "1"});
    cluster.create_node("w2", &labels, &of_machine).await?;

    removals_are_confirmed(cluster).await?;
    one_refusal_prevents_every_write(cluster).await?;
    protected_labels_stay(cluster).await?;
    concurrent_writes_are_whole(cluster).await?;
    hostile_values_are_errors_of_usage(cluster).await
}

async fn labels(cluster: &BareCluster, node: &str) -> Result<BTreeMap<String, String>> {
    Ok(cluster
        .nodes()
        .get(node)
        .await?
        .metadata
        .labels
        .unwrap_or_default())
}

async fn has(cluster: &BareCluster, node: &str, expected: &[(&str, &str)]) -> Result<()> {
    let found = labels(cluster, node).await?;
    let expected = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ensure!(found == expected.collect(), "{node} has {found:?}");
    Ok(())
}

const W1: [(&str, &str); 3] = [("kubernetes.io/hostname", "w1"), ("old", "1"), ("rack", "r1")];

async fn removals_are_confirmed(cluster: &BareCluster) -> Result<()> {
    let set = ["labels", "set", "w1", "rack=r2", "pool=a"];
    let unconfirmed = cluster.node(&set).await?;
    ensure!(
        unconfirmed.code == 2
            && unconfirmed.stderr.contains("this removes from node/w1: old\n")
            && unconfirmed.stderr.contains("hint: confirm with --yes"),
        "{unconfirmed}"
    );
    for dry_run in ["--dry-run=client", "--dry-run=server"] {
        let dry = cluster.node(&[&set[..], &[dry_run]].concat()).await?;
        let changes = "  - old: \"1\"\n  + pool: \"a\"\n  - rack: \"r1\"\n  + rack: \"r2\"\n";
        ensure!(
            dry.code == 0
                && dry.stdout.starts_with("node/w1 labels changed (")
                && dry.stdout.ends_with(changes),
            "{dry}"
        );
    }
    has(cluster, "w1", &W1).await?;
    let done = cluster
        .node(&[&set[..], &["--yes", "-o", "json"]].concat())
        .await?;
    let document: Value = serde_json::from_str(&done.stdout).with_context(|| format!("{done}"))?;
    let changes = json!([
        {"key": "old", "before": "1", "after": null},
        {"key": "pool", "before": null, "after": "a"},
        {"key": "rack", "before": "r1", "after": "r2"},
    ]);
    ensure!(
        done.code == 0 && document.pointer("/items/0/changes") == Some(&changes),
        "{done}"
    );
    has(
        cluster,
        "w1",
        &[("kubernetes.io/hostname", "w1"), ("pool", "a"), ("rack", "r2")],
    )
    .await?;
    let again = cluster.node(&[&set[..], &["--yes"]].concat()).await?;
    ensure!(
        again.code == 0 && again.stdout == "node/w1 labels unchanged\n",
        "{again}"
    );
    Ok(())
}

async fn one_refusal_prevents_every_write(cluster: &BareCluster) -> Result<()> {
    let before = (labels(cluster, "w1").await?, labels(cluster, "w2").await?);
    for (label, place) in [
        (
            "node-role.kubernetes.io/gateway=x",
            "metadata.labels of Machine fleet/edge-1",
        ),
        (
            "node-restriction.kubernetes.io/zone=a",
            "metadata.labels of Machine fleet/edge-1",
        ),
        ("kubernetes.io/hostname=other", "hostname-override"),
    ] {
        let refused = cluster
            .node(&["labels", "set", "w1", "w2", "team=x", label, "--yes"])
            .await?;
        ensure!(
            refused.code == 1 && refused.stdout.contains(place) && !refused.stdout.contains("labels changed"),
            "{refused}"
        );
    }
    let after = (labels(cluster, "w1").await?, labels(cluster, "w2").await?);
    ensure!(after == before, "{after:?}");
    let missing = cluster
        .node(&["labels", "set", "w1", "nobody", "team=x", "--yes"])
        .await?;
    ensure!(
        missing.code == 2 && missing.stderr.contains("cannot get nodes \"nobody\": not found"),
        "{missing}"
    );
    ensure!(labels(cluster, "w1").await? == before.0);
    Ok(())
}

async fn protected_labels_stay(cluster: &BareCluster) -> Result<()> {
    // The user names the first label, and the others are of kubernetes.io or from the Machine.
    let set = cluster
        .node(&["labels", "set", "-l", "old=1", "zone=z1", "--yes"])
        .await?;
    ensure!(set.code == 0, "{set}");
    has(
        cluster,
        "w2",
        &[
            ("kubernetes.io/hostname", "w2"),
            ("node-role.kubernetes.io/gateway", ""),
            ("zone", "z1"),
        ],
    )
    .await?;
    let role = "node-role.kubernetes.io/worker";
    for (word, is_there) in [(format!("{role}="), true), (format!("{role}-"), false)] {
        let words = ["labels", "set", "w1", "pool=a", &word, "--yes"];
        let set = cluster.node(&words).await?;
        ensure!(
            set.code == 0 && labels(cluster, "w1").await?.contains_key(role) == is_there,
            "{set}"
        );
    }
    Ok(())
}

/// Each command reads the Node and writes only the version that it read, so some of them meet a conflict and decide again: the
/// last one leaves exactly its own labels.
async fn concurrent_writes_are_whole(cluster: &BareCluster) -> Result<()> {
    let commands = (0..8).map(|number| async move {
        let (label, more) = (format!("key-{number}=v"), format!("more-{number}=v"));
        cluster
            .node(&["labels", "set", "w1", &label, &more, "--yes"])
            .await
    });
    for ended in join_all(commands).await {
        let ended = ended?;
        ensure!(ended.code == 0, "{ended}");
    }
    let found = labels(cluster, "w1").await?;
    let is_whole = (0..8).any(|number| {
        let own = [format!("key-{number}"), format!("more-{number}")];
        let free = found.keys().filter(|key| !key.contains("kubernetes.io/"));
        free.eq(own.iter())
    });
    ensure!(is_whole, "{found:?}");
    Ok(())
}

async fn hostile_values_are_errors_of_usage(cluster: &BareCluster) -> Result<()> {
    let before = labels(cluster, "w1").await?;
    for hostile in HOSTILE {
        for word in [
            hostile.to_owned(),
            format!("a={hostile}"),
            format!("a{hostile}=b"),
            format!("{hostile}-"),
        ] {
            let refused = cluster.node(&["labels", "set", "w1", &word, "--yes"]).await?;
            ensure!(refused.code == 2, "{refused}");
        }
    }
    ensure!(labels(cluster, "w1").await? == before);
    Ok(())
}
