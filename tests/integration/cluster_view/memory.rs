//! The memory of a server that watches many objects.

use std::sync::Arc;

use anyhow::Result;
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::reviews::{control_plane, customization, pool};
use super::server::{Server, bind_shipped_role};
use super::{create, furnished};
use crate::shared::with_management_cluster;

const CONTROL_PLANES: usize = 1000;
const POOLS: usize = 500;
const CUSTOMIZATIONS_OF_EACH: usize = 10;

/// Concurrent writes. The API server's default allows 200.
const AT_ONCE: usize = 64;

/// The limits in KiB, without API access and with all objects watched.
const BLIND_KIB: u64 = 8 * 1024;
const SIGHTED_KIB: u64 = 16 * 1024;

#[derive(Debug)]
struct Figures {
    blind: u64,
    sighted: u64,
}

#[test]
fn a_large_cluster_takes_little_memory() {
    with_management_cluster(async |management| {
        let figures = measure(management).await.unwrap();
        println!("resident anonymous memory in KiB: {figures:?}");
        assert!(
            figures.blind <= BLIND_KIB && figures.sighted <= SIGHTED_KIB,
            "{figures:?}"
        );
    });
}

async fn measure(management: &ManagementCluster) -> Result<Figures> {
    let (api, _) = furnished(management, "fleet-in-memory").await?;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut creating = JoinSet::new();
    for object in fleet() {
        let (client, places) = (api.client().clone(), places.clone());
        creating.spawn(async move {
            let _place = places.acquire().await?;
            create(&client, &object).await
        });
    }
    while let Some(created) = creating.join_next().await {
        created??;
    }

    bind_shipped_role(&api).await?;
    let blind = Server::start_blind(management, &api).await?;
    let sighted = Server::start(management, &api).await?;
    let customizations = POOLS * CUSTOMIZATIONS_OF_EACH + 1;
    sighted
        .has_caches(&[
            &format!("kubeadmcontrolplanes synced, {} objects", CONTROL_PLANES + 1),
            "clusters synced, 0 objects",
            &format!("clusterpools synced, {} objects", POOLS + 1),
            &format!("clusterdeploymentcustomizations synced, {customizations} objects"),
            "clusterdeployments synced, 0 objects",
        ])
        .await?;
    Ok(Figures {
        blind: blind.resident_anonymous_kib()?,
        sighted: sighted.resident_anonymous_kib()?,
    })
}

fn fleet() -> Vec<Value> {
    let control_planes = (0..CONTROL_PLANES).map(|number| control_plane(&format!("edge-{number}")));
    let pools = (0..POOLS).map(|number| {
        let mut pool = pool(&format!("pool-{number}"), "");
        pool["spec"]["inventory"] = inventory(number).map(|name| json!({"name": name})).collect();
        pool
    });
    let customizations = (0..POOLS).flat_map(inventory).map(|name| customization(&name));
    control_planes.chain(pools).chain(customizations).collect()
}

fn inventory(pool: usize) -> impl Iterator<Item = String> {
    (0..CUSTOMIZATIONS_OF_EACH).map(move |number| format!("site-{pool}-{number}"))
}
