//! `make demo-migration`: leader migration of kube-controller-manager, on real controller managers.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{CLOUD_POD, CloudPod, Identity, Locks, Program};
use kcp_tests::kubectl::Kubectl;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::run::Run;
use kcp_tests::wait::until;
use serde_json::json;

use crate::command::{denied, ended_with, run, title};
use crate::setup::report;

/// The control plane whose machine runs a real kube-controller-manager.
const NAME: &str = "edge";

/// A control plane before the upgrade. It has no machines.
const OLD: &str = "\
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata:
  name: old
spec:
  version: v1.35.4
  machineTemplate:
    spec:
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: StandInMachineTemplate
        name: edge
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer:
        certSANs: [127.0.0.1]
    initConfiguration:
      nodeRegistration:
        name: '{{ ds.meta_data.local_hostname }}'
    joinConfiguration:
      nodeRegistration:
        name: '{{ ds.meta_data.local_hostname }}'
";

const VERSION: &str = "v1.36.3";

/// The migration lock.
const LEASE: &str = "node-ipam-migration";

const KUBE_SYSTEM: &str = "kube-system";

/// The port of cloud-controller-manager in its Pod.
const CLOUD_PORT: u16 = 10258;

const NEGATIVE: i32 = 1;

pub(crate) async fn show(demo: &Arc<Run>) -> Result<()> {
    println!("Setup: the controller managers are real, see tests/README.md.");
    let started = Instant::now();
    let management = ManagementCluster::start(demo, Assets::locate()?).await?;
    report(
        started,
        "a management cluster: etcd, kube-apiserver, Cluster API, kcp-webhook",
    );
    management.start_controllers(&[]).await?;
    // As after the upgrade: cloud-controller-manager is to run Node IPAM.
    let component = json!({"extraArgs": [{"name": "controllers", "value": "*,-nodeipam"}]});
    let (client, namespace) = (management.client(), "default");
    let cluster =
        Cluster::create_with_controller_managers(client, namespace, NAME, 1, VERSION, &component).await?;
    cluster.settled(1).await?;
    report(
        started,
        "a workload cluster whose Machine runs kube-controller-manager 1.36.3",
    );

    let kubectl = management.kubectl();
    let configuration = upgrade(demo, kubectl).await?;
    exits(&management, &configuration).await?;
    status(demo, &management, &cluster, &configuration).await?;
    management.stop_controllers(None).await
}

/// Enables leader migration, and tries to upgrade to a version that cannot run it. Returns the configuration.
async fn upgrade(demo: &Run, kubectl: &Kubectl) -> Result<String> {
    title(
        "A control plane at 1.35 enables leader migration of Node IPAM, with the configuration that generate writes.",
    );
    let old = demo.folder().join("old.yaml");
    fs::write(&old, OLD).context("writing the control plane's manifest")?;
    let old = old.display().to_string();
    run(kubectl, &["apply", "-f", &old]).await?;
    let generate = |part| {
        let step = [
            "kcp",
            "leader-migration",
            "generate",
            "--step=start",
            "--to",
            VERSION,
            "--node-ipam",
        ];
        [&step[..], &["--leader-name", LEASE, "-f", &old, "-o", part]].concat()
    };
    let configuration = kubectl.succeed(generate("configuration")).await?.stdout;
    println!("$ kubectl {}", generate("patch").join(" "));
    let generated = kubectl.succeed(generate("patch")).await?.stdout;
    println!("{generated}");
    let file = demo.folder().join("patch.yaml");
    fs::write(&file, generated).context("writing the patch")?;
    let file = file.display().to_string();
    let patch = ["patch", "kubeadmcontrolplane", "old"];
    run(
        kubectl,
        &[patch.as_slice(), &["--type=json", "--patch-file", &file]].concat(),
    )
    .await?;

    title("check shows what an upgrade to 1.36 would do: kube-controller-manager would exit.");
    let check = ["kcp", "leader-migration", "check", "old", "--to", VERSION];
    ended_with(kubectl, NEGATIVE, &check).await?;

    title("The webhook denies that upgrade while leader migration is enabled.");
    let version = json!({"spec": {"version": VERSION}}).to_string();
    denied(
        kubectl,
        "leader-migration-unsupported",
        &[patch.as_slice(), &["--type=merge", "-p", &version]].concat(),
    )
    .await?;
    Ok(configuration)
}

/// Starts the real program with what the webhook denied.
async fn exits(management: &ManagementCluster, configuration: &str) -> Result<()> {
    title("The webhook is right: the real kube-controller-manager 1.36.3 exits with this configuration.");
    let programs = management.controller_managers(management.api(), "demo")?;
    let locks = Locks::in_namespace(management.client(), "default");
    let mut flags = programs.flags(Program::Kube, Identity::Administrator, &locks);
    let file = programs.file("leader-migration.yaml", configuration)?;
    let migrate = [
        "--enable-leader-migration=true".to_owned(),
        format!("--leader-migration-config={}", file.display()),
    ];
    println!("$ kube-controller-manager ... {}", migrate.join(" "));
    flags.extend(migrate);
    let end = programs
        .start(Program::Kube, "exits", &flags)
        .await?
        .end()
        .await?;
    let errors = end.errors();
    let cause = errors
        .iter()
        .find(|error| error.contains("is already registered"));
    println!("{}", cause.context("it did not print the cause")?);
    println!("exit code {}", end.code);
    ensure!(end.code == 1, "it ended with exit code {}", end.code);
    Ok(())
}

async fn status(
    demo: &Arc<Run>,
    management: &ManagementCluster,
    cluster: &Cluster,
    configuration: &str,
) -> Result<()> {
    title(
        "status asks each controller manager what it runs. After the upgrade, cloud-controller-manager does not run:",
    );
    let kubectl = management.kubectl();
    let status = ["kcp", "leader-migration", "status", NAME];
    let workload = management.machines().cluster("default", NAME).await?;
    let machine = cluster.machines().await?.pop().context("there is no Machine")?;
    let pod = CloudPod {
        controllers: "node-ipam-controller",
        configuration: Some(configuration),
    };
    let file = demo.folder().join("cloud-controller-manager.json");
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [pod.config_map(), pod.pod(&machine)]});
    fs::write(&file, objects.to_string()).context("writing the Pod's manifest")?;
    let file = file.display().to_string();
    let of_workload = Kubectl::new(demo, &Assets::locate()?, workload.kubeconfig())?;
    let apply = ["apply", "-n", KUBE_SYSTEM, "-f", &file];
    of_workload.succeed(apply).await?;
    let port = free_port()?;
    workload.forward(CLOUD_POD, CLOUD_PORT, port).await?;
    ended_with(kubectl, NEGATIVE, &status).await?;

    title("It starts, runs Node IPAM, and holds the migration lock.");
    let locks = Locks::in_namespace(workload.client()?, KUBE_SYSTEM);
    let lock = (Identity::Administrator, &locks);
    println!("(starts cloud-controller-manager)");
    let _cloud = workload
        .controller_managers()?
        .start_cloud(port, "cloud", &pod, lock, &[])
        .await?;
    until("status says protected", || async {
        let ended = kubectl.run(status).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(())
    })
    .await?;
    run(kubectl, &status).await
}
