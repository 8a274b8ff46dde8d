//! Machines that boot the real kube-controller-manager with the flags, volumes and files of their bootstrap data, so that what
//! is written to the `KubeadmControlPlane` is what runs.

mod guided;
mod samples;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kcp_tests::addresses::free_port;
use kcp_tests::assets::Assets;
use kcp_tests::cluster::Cluster;
use kcp_tests::controller_manager::{CLOUD_POD, CloudPod, ControllerManager, Identity, Locks};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::machines::{PodCidrWrite, WorkloadCluster};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::steps::{NODE_IPAM as STEP_FLAGS, Steps};
use super::{ELECTION, election};
use crate::objects::written;
use crate::shared::with_controllers;

/// The name of the cluster.
const NAME: &str = "edge";

const NODE_IPAM: &str = "node-ipam-controller";

const TOKENS: &str = "serviceaccount-token-controller";

const KUBE_SYSTEM: &str = "kube-system";

#[test]
fn a_machine_runs_the_controller_manager_that_its_bootstrap_data_asks_for() {
    const NAMESPACE: &str = "migration-machine";
    with_controllers(NAMESPACE, async |management| {
        let mut arguments = election();
        arguments.push(json!({"name": "controllers", "value": "*,-nodeipam"}));
        let component = json!({"extraArgs": arguments});
        let (client, version) = (management.client(), "v1.36.3");
        let cluster =
            Cluster::create_with_controller_managers(client, NAMESPACE, NAME, 1, version, &component).await?;
        cluster.settled(1).await?;
        let workload = management.machines().cluster(NAMESPACE, NAME).await?;
        all_healthy(&cluster, &workload, &[TOKENS]).await?;
        cluster.delete().await
    });
}

#[test]
#[ignore = "needs kube-controller-managers that take half an hour to build: make test-migration"]
fn three_machines_hand_node_ipam_over_during_their_upgrade() {
    const NAMESPACE: &str = "migration-machines";
    with_controllers(NAMESPACE, async |management| {
        upgraded(management, NAMESPACE).await
    });
}

#[test]
#[ignore = "needs kube-controller-managers that take half an hour to build: make test-migration"]
fn three_machines_hand_node_ipam_over_by_what_generate_prints() {
    with_controllers(guided::NAMESPACE, guided::migrated);
}

async fn upgraded(management: &ManagementCluster, namespace: &'static str) -> Result<()> {
    let component = json!({"extraArgs": election()});
    let (client, version) = (management.client(), "v1.35.4");
    let cluster =
        Cluster::create_with_controller_managers(client, namespace, NAME, 3, version, &component).await?;
    cluster.settled(3).await?;
    let workload = management.machines().cluster(namespace, NAME).await?;
    all_healthy(&cluster, &workload, &[TOKENS, NODE_IPAM]).await?;

    let kubectl = Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?;
    let configuration = enable(management, namespace, &kubectl).await?;
    rolled_out(&cluster, &workload, None).await?;
    all_healthy(&cluster, &workload, &[TOKENS, NODE_IPAM]).await?;
    node_gets_range(&workload, "before").await?;

    create_cloud_pod(management, &cluster, &workload, &configuration).await?;
    let pod = cloud_pod(Some(&configuration));
    let process = ("cloud", free_port()?);
    let cloud = start_cloud(&workload, process, &pod, Identity::Administrator).await?;
    let mut arguments = election();
    arguments.push(json!({"name": "controllers", "value": "*,-nodeipam"}));
    let upgrade = json!({"spec": {"version": "v1.36.3", "kubeadmConfigSpec": {"clusterConfiguration": {
        "controllerManager": {"extraArgs": arguments}}}}});
    cluster.patch(&upgrade).await?;
    rolled_out(&cluster, &workload, Some(&cloud)).await?;
    all_healthy(&cluster, &workload, &[TOKENS]).await?;
    node_gets_range(&workload, "after").await?;
    // Its Machine was replaced.
    create_cloud_pod(management, &cluster, &workload, &configuration).await?;
    wait::until("status says protected", || async {
        let ended = status(management, namespace).await?;
        ensure!(ended.code == 0 && ended.stdout.contains("protected"), "{ended}");
        Ok(())
    })
    .await?;

    let writers = writers(&workload)?;
    let writer = |node: &str| writers.get(node).map(String::as_str);
    assert_eq!(writer("before"), Some("kube-controller-manager-1.35"));
    assert_eq!(writer("after"), Some("cloud-controller-manager"));
    cluster.delete().await
}

/// The only program that wrote the range of each Node, according to the audit log of the API server.
fn writers(workload: &WorkloadCluster) -> Result<BTreeMap<String, String>> {
    let mut writers: BTreeMap<String, String> = BTreeMap::new();
    for write in workload.pod_cidr_writes()? {
        let PodCidrWrite { node, program, .. } = write;
        if let Some(other) = writers.insert(node.clone(), program.clone()) {
            ensure!(
                other == program,
                "{other} and {program} wrote the range of {node}"
            );
        }
    }
    Ok(writers)
}

/// Enables leader migration, and returns the configuration.
async fn enable(
    management: &ManagementCluster,
    namespace: &'static str,
    workload: &Kubectl,
) -> Result<String> {
    let steps = Steps {
        management,
        workload,
        namespace,
        name: NAME,
    };
    let configuration = [&STEP_FLAGS[..], &["-o", "configuration"]].concat();
    let configuration = steps.generate("start", &configuration).await?;
    ensure!(configuration.code == 0, "{configuration}");
    steps.take("start", &STEP_FLAGS).await?;
    Ok(configuration.stdout)
}

/// The Pod of the cloud-controller-manager, with a leader migration configuration if it migrates.
const fn cloud_pod(configuration: Option<&str>) -> CloudPod<'_> {
    CloudPod {
        controllers: NODE_IPAM,
        configuration,
    }
}

/// Creates the Pod of the cloud-controller-manager on a Machine that exists, as the `DaemonSet` of its provider does.
async fn create_cloud_pod(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
    configuration: &str,
) -> Result<()> {
    let machine = cluster.machines().await?.pop().context("there is no Machine")?;
    let kubectl = Kubectl::new(management.run(), &Assets::locate()?, workload.kubeconfig())?;
    replace_cloud_pod(&kubectl, &machine, &cloud_pod(Some(configuration))).await
}

/// Deletes the Pod of the cloud-controller-manager, if it exists, and creates it on a Node.
async fn replace_cloud_pod(kubectl: &Kubectl, node: &str, pod: &CloudPod<'_>) -> Result<()> {
    let now = ["--grace-period=0", "--force", "--ignore-not-found"];
    let delete = ["delete", "pod", CLOUD_POD, "-n", KUBE_SYSTEM];
    kubectl.succeed(delete.into_iter().chain(now)).await?;
    let objects = [pod.config_map(), pod.pod(node)];
    written(kubectl, "apply", &objects, &["-n", KUBE_SYSTEM]).await?;
    Ok(())
}

/// Starts the process behind the Pod of the cloud-controller-manager. `name` names its log. Each process behind a Pod has the
/// same port.
async fn start_cloud(
    workload: &WorkloadCluster,
    (name, port): (&str, u16),
    pod: &CloudPod<'_>,
    identity: Identity,
) -> Result<ControllerManager> {
    workload.forward(CLOUD_POD, 10258, port).await?;
    let locks = Locks::in_namespace(workload.client()?, KUBE_SYSTEM);
    let lock = (identity, &locks);
    workload
        .controller_managers()?
        .start_cloud(port, name, pod, lock, &ELECTION)
        .await
}

/// Waits for the end of a rollout. Until then, no sample sees two controller managers that run Node IPAM.
async fn rolled_out(
    cluster: &Cluster,
    workload: &WorkloadCluster,
    cloud: Option<&ControllerManager>,
) -> Result<()> {
    wait::until("the rollout ends", || async {
        let mut owners = Vec::new();
        for machine in workload.machines_with_controller_managers().await {
            let controllers = workload.controllers_of(&machine).await.unwrap_or_default();
            if controllers.contains(NODE_IPAM) {
                owners.push(machine);
            }
        }
        if let Some(cloud) = cloud
            && let Ok(controllers) = cloud.controllers().await
            && controllers.contains(NODE_IPAM)
        {
            owners.push(CLOUD_POD.to_owned());
        }
        assert!(owners.len() < 2, "{owners:?} run Node IPAM at the same time");
        cluster.is_settled(3).await
    })
    .await
}

/// Waits until the kube-controller-manager of each Machine is healthy, and the leader runs exactly these controllers.
async fn all_healthy(cluster: &Cluster, workload: &WorkloadCluster, expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    wait::until("each kube-controller-manager is healthy", || async {
        let mut leaders = Vec::new();
        for machine in cluster.machines().await? {
            let controllers = workload.controllers_of(&machine).await;
            let controllers = controllers.with_context(|| format!("kube-controller-manager of {machine}"))?;
            if !controllers.is_empty() {
                leaders.push(controllers);
            }
        }
        ensure!(
            leaders.as_slice() == std::slice::from_ref(&expected),
            "{leaders:?}"
        );
        Ok(())
    })
    .await
}

async fn node_gets_range(workload: &WorkloadCluster, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(workload.client()?.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    wait::until("the Node has a range", || async {
        let range = nodes.get(name).await?.spec.and_then(|spec| spec.pod_cidr);
        range.context("it has none")
    })
    .await
    .map(drop)
}

async fn status(management: &ManagementCluster, namespace: &str) -> Result<CommandOutput> {
    let status = ["kcp", "leader-migration", "status", NAME, "-n", namespace];
    management.kubectl().run(status).await
}
