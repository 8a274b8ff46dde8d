//! The alerts and the dashboard of `manifests/monitoring`: the metrics that they query exist. `make monitoring` tests when an
//! alert fires.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{products, wait};

use crate::shared::with_management_cluster;

/// The beginnings of the names of kcp-webhook's metrics.
const PREFIXES: [&str; 3] = ["kcp_webhook_", "controller_runtime_webhook_", "certwatcher_"];

/// The suffixes that a sample has and its family does not.
const SAMPLE_SUFFIXES: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

/// Files with queries, and files that list metrics for a reader.
const FILES: [&str; 3] = [
    "manifests/monitoring/prometheusrule.yaml",
    "manifests/monitoring/dashboard.json",
    "docs/src/reference/metrics.md",
];

/// Metrics of objects and events that this cluster may not have. A server announces a family only with a sample.
const WITHOUT_SAMPLE: [&str; 6] = [
    "kcp_webhook_canary_timestamp_seconds",
    "kcp_webhook_disabled_since_timestamp_seconds",
    "kcp_webhook_unregistered_version",
    "kcp_webhook_denial_events",
    "kcp_webhook_pool_entries",
    "kcp_webhook_etcd_snapshot_timestamp_seconds",
];

#[test]
fn every_metric_that_is_queried_or_documented_exists() {
    with_management_cluster(async |management| exist(management).await.unwrap());
}

async fn exist(management: &ManagementCluster) -> Result<()> {
    let mut served = families(&management.admission().metrics().await?);
    served.extend(WITHOUT_SAMPLE.map(str::to_owned));
    for file in FILES {
        let text = fs::read_to_string(products::workspace().join(file)).context(file)?;
        let named: BTreeSet<&str> = names(&text).map(family).collect();
        ensure!(named.len() > 8, "{file} names only {named:?}");
        let missing: Vec<_> = named.into_iter().filter(|name| !served.contains(*name)).collect();
        ensure!(
            missing.is_empty(),
            "{file} names {missing:?}, which /metrics does not have"
        );
    }
    let documented = fs::read_to_string(products::workspace().join(FILES[2]))?;
    let documented: BTreeSet<&str> = names(&documented).map(family).collect();
    let undocumented: Vec<_> = served
        .iter()
        .filter(|name| !documented.contains(name.as_str()))
        .collect();
    ensure!(
        undocumented.is_empty(),
        "{} does not list {undocumented:?}",
        FILES[2]
    );
    Ok(())
}

#[test]
fn the_metrics_say_that_the_webhooks_are_registered_and_the_caches_are_confirmed() {
    with_management_cluster(async |management| registered(management).await.unwrap());
}

async fn registered(management: &ManagementCluster) -> Result<()> {
    wait::until("both webhooks count as registered", || async {
        let metrics = management.admission().metrics().await?;
        for sample in [
            "kcp_webhook_registered{webhook=\"/mutate\"} 1",
            "kcp_webhook_registered{webhook=\"/validate\"} 1",
            concat!(
                "kcp_webhook_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
        ] {
            ensure!(metrics.lines().any(|line| line == sample), "no {sample}");
        }
        for kind in ["kubeadmcontrolplanes", "clusters", "clusterpools"] {
            let name = format!("kcp_webhook_cache_confirmed_timestamp_seconds{{kind=\"{kind}\"}} ");
            let confirmed = metrics.lines().find_map(|line| line.strip_prefix(&name));
            let confirmed: i64 = confirmed.with_context(|| format!("no {name}"))?.parse()?;
            let age = jiff::Timestamp::now().as_second() - confirmed;
            ensure!((0..600).contains(&age), "{kind} was confirmed {age} s ago");
        }
        Ok(())
    })
    .await
}

/// The metric families that a server announces.
fn families(metrics: &str) -> BTreeSet<String> {
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// The names of metrics in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
}

fn family(name: &str) -> &str {
    SAMPLE_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}
