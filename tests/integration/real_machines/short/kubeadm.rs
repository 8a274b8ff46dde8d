//! kubeadm's own path: a control plane, a worker, a power failure, a removal.

use anyhow::Result;
use jiff::Timestamp;
use kcp_tests::machines::real::{Addons, Images, Join, KubeadmCluster};

use crate::real_machines::on_machines;

/// A CA that nobody has.
const WRONG_HASH: &str = "sha256:8888888888888888888888888888888888888888888888888888888888888888";

#[test]
#[ignore = "needs root: make test-machines PART=short"]
fn kubeadm_cluster_survives_a_power_failure() {
    on_machines("kubeadm", Images::ControlPlane, async |site| {
        let (first, worker) = (site.machine("first")?, site.machine("worker")?);
        tokio::try_join!(first.power_on(), worker.power_on())?;
        let cluster = KubeadmCluster::init(&first, Addons::None).await?;

        let wrong = Join {
            authority_hash: WRONG_HASH,
            ..cluster.worker()
        };
        let refused = cluster.join(&worker, &wrong).await?;
        assert_eq!(refused.code, 1, "{refused}");
        assert!(refused.stderr.contains("are pinned"), "{refused}");
        assert!(!worker.file("/etc/kubernetes/kubelet.conf").exists());
        assert_eq!(nodes(&cluster).await?, "first");

        let joined = cluster.join(&worker, &cluster.worker()).await?;
        assert_eq!(joined.code, 0, "{joined}");
        cluster.ready(&["first", "worker"]).await?;

        // The kernel ends everything at once; nothing is drained and nothing is stopped.
        tokio::try_join!(first.power_off(), worker.power_off())?;
        let unreachable = cluster
            .kubectl()
            .run(["get", "nodes", "--request-timeout=5s"])
            .await?;
        assert_eq!(unreachable.code, 1, "{unreachable}");
        let switched_on = Timestamp::now();
        tokio::try_join!(first.power_on(), worker.power_on())?;
        cluster.ready_since(&["first", "worker"], switched_on).await?;

        cluster
            .kubectl()
            .succeed(["drain", "worker", "--ignore-daemonsets"])
            .await?;
        let reset = ["kubeadm", "reset", "--force", "--skip-phases=remove-etcd-member"];
        worker.succeed(reset).await?;
        cluster.kubectl().succeed(["delete", "node", "worker"]).await?;
        cluster.ready(&["first"]).await?;
        assert!(!worker.file("/etc/kubernetes/kubelet.conf").exists());
        worker.wipe().await?;
        first.wipe().await
    });
}

async fn nodes(cluster: &KubeadmCluster) -> Result<String> {
    let names = ["get", "nodes", "--output=jsonpath={.items[*].metadata.name}"];
    Ok(cluster.kubectl().succeed(names).await?.stdout)
}
