//! `kubectl kcp logs` of a real kubelet. There is no Cluster API: the test writes the objects of a control plane, which is its own
//! workload cluster.

use anyhow::{Result, ensure};
use kcp_tests::cluster_api::install_unconverted;
use kcp_tests::fleet::Fleet;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::{Addons, Images, KubeadmCluster};
use kcp_tests::wait;

use crate::real_machines::on_machines;

const NAMESPACE: &str = "logs";

/// The names that [`Fleet`] gives.
const CONTROL_PLANE: &str = "edge-00000";
const MACHINE: &str = "edge-00000-0";

const DEFINITIONS: [&str; 5] = [
    "kubeadmcontrolplanes",
    "machines",
    "clusters",
    "machinehealthchecks",
    "kubeadmconfigs",
];

#[test]
#[ignore = "needs root: make test-machines PART=short"]
fn logs_come_from_a_real_kubelet() {
    on_machines("component-logs", Images::ControlPlane, async |site| {
        let machine = site.machine(MACHINE)?;
        machine.power_on().await?;
        let cluster = KubeadmCluster::init(&machine, Addons::None).await?;
        let kubectl = cluster.kubectl();
        let client = cluster.client();
        install_unconverted(client, site.assets(), &DEFINITIONS).await?;
        kubectl.succeed(["create", "namespace", NAMESPACE]).await?;
        let fleet = Fleet {
            control_planes: 0..1,
            machines_of_each: 1,
        };
        fleet.create(client, NAMESPACE).await?;
        let secret = format!("{CONTROL_PLANE}-kubeconfig");
        let content = format!("--from-file=value={}", kubectl.kubeconfig().display());
        let words = ["create", "secret", "generic", &secret, &content, "-n", NAMESPACE];
        kubectl.succeed(words).await?;

        for (component, text) in [
            ("etcd", "ready to serve client requests"),
            ("kube-apiserver", "Serving securely"),
            ("kube-controller-manager", "Serving securely"),
            ("kube-scheduler", "Serving securely"),
        ] {
            let shown = logs(&cluster, component, &["--tail", "10000"]).await?;
            let begins = |line: &str| line.starts_with(&format!("{MACHINE}  "));
            ensure!(
                shown.code == 0 && shown.stdout.contains(text) && shown.stdout.lines().all(begins),
                "{shown}"
            );
            let end = logs(&cluster, component, &["--tail", "2"]).await?;
            ensure!(end.code == 0 && end.stdout.lines().count() == 2, "{end}");
        }
        let none = logs(&cluster, "kube-scheduler", &["--previous"]).await?;
        ensure!(
            none.code == 2 && none.stderr.contains("previous terminated container"),
            "{none}"
        );
        machine
            .succeed(["pkill", "-KILL", "-x", "kube-scheduler"])
            .await?;
        wait::until("the kubelet has started the scheduler again", || async {
            let previous = logs(&cluster, "kube-scheduler", &["--previous"]).await?;
            ensure!(
                previous.code == 0 && previous.stdout.contains("Serving securely"),
                "{previous}"
            );
            Ok(())
        })
        .await?;
        machine.wipe().await
    });
}

async fn logs(cluster: &KubeadmCluster, component: &str, flags: &[&str]) -> Result<CommandOutput> {
    let words = ["logs", CONTROL_PLANE, "--component", component];
    let words: Vec<&str> = words.iter().chain(flags).copied().collect();
    cluster.kubectl().kcp(NAMESPACE, &words).await
}
