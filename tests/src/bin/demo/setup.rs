//! The setup before the first step: a management cluster, one workload cluster, one pool.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use kcp_tests::assets::Assets;
use kcp_tests::cluster::{Cluster, SHORTEST_CONTROL_PLANE};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::products;
use kcp_tests::run::Run;

/// The name in [`SHORTEST_CONTROL_PLANE`].
pub(crate) const NAME: &str = "edge";

pub(crate) struct Demo {
    management: ManagementCluster,
    cluster: Cluster,
    control_plane: PathBuf,
    /// The control plane as the API server returned it.
    pub(crate) applied: serde_json::Value,
}

impl Demo {
    pub(crate) async fn set_up(run: &Arc<Run>) -> Result<Self> {
        println!("Setup: everything is real except for the machines, see tests/README.md.");
        let started = Instant::now();
        let management = ManagementCluster::start(run, Assets::locate_for_demo()?).await?;
        report(
            started,
            "a management cluster: etcd, kube-apiserver, Cluster API, Hive's CRDs, kcp-webhook",
        );

        management.start_controllers(&[]).await?;
        let cluster = Cluster::create_without_control_plane(management.client(), "default", NAME).await?;
        let control_plane = run.folder().join("control-plane.yaml");
        fs::write(&control_plane, SHORTEST_CONTROL_PLANE).context("writing the control plane's manifest")?;
        let file = control_plane.display().to_string();
        let applied = management
            .kubectl()
            .succeed(["apply", "-o", "json", "-f", &file])
            .await?;
        let applied = serde_json::from_str(&applied.stdout).context("parsing kubectl's output")?;
        cluster.settled(1).await?;
        report(started, "a workload cluster with one control plane Machine");

        let pool = sample("good/clusterpool.yaml");
        management.kubectl().succeed(["apply", "-f", &pool]).await?;
        report(started, "a ClusterPool with two customizations in its inventory");
        Ok(Self {
            management,
            cluster,
            control_plane,
            applied,
        })
    }

    /// A machine of the workload cluster.
    pub(crate) async fn machine(&self) -> Result<String> {
        let mut machines = self.cluster.machines().await?;
        machines.pop().context("there is no Machine")
    }

    pub(crate) fn management(&self) -> &ManagementCluster {
        &self.management
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        self.management.kubectl()
    }

    /// Ends Cluster API's controllers, and fails if our webhooks refused one of their writes.
    pub(crate) async fn end(&self) -> Result<()> {
        self.management.stop_controllers(None).await
    }

    pub(crate) fn control_plane(&self) -> &Path {
        &self.control_plane
    }
}

/// The path of a shipped sample.
pub(crate) fn sample(name: &str) -> String {
    products::workspace()
        .join("manifests/samples")
        .join(name)
        .display()
        .to_string()
}

fn report(started: Instant, what: &str) {
    println!("{:5.1} s  {what}", started.elapsed().as_secs_f32());
}
