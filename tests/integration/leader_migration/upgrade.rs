//! The upgrade of a control plane to 1.36 with leader migration: the webhook denies it, and the real program exits.

use anyhow::{Context as _, Result, ensure};
use kcp_rules::leader_migration::Assignment::NonMigrated;
use kcp_tests::controller_manager::{ControllerManager, ControllerManagers, Identity, Locks, Program};
use kcp_tests::management_cluster::ManagementCluster;
use serde_json::{Value, json};

use super::{MIGRATION, configuration, model, predicted};
use crate::objects::{control_plane, written};
use crate::shared::with_management_cluster;

const NAMESPACE: &str = "migration-upgrade";
const CONFIGURATION: &str = "leader-migration-config";

#[test]
fn the_upgrade_to_1_36_with_leader_migration_is_denied_and_its_controller_manager_exits() {
    with_management_cluster(async |management| upgraded(management).await.unwrap());
}

async fn upgraded(management: &ManagementCluster) -> Result<()> {
    management.create_namespace(NAMESPACE).await?;
    let kubectl = management.kubectl();
    let migrating = migrating();
    written(
        kubectl,
        "create",
        std::slice::from_ref(&migrating),
        &["-n", NAMESPACE],
    )
    .await?;

    let version = json!({"spec": {"version": "v1.36.3"}}).to_string();
    let patch = ["patch", "kcp", "edge", "-n", NAMESPACE, "--type=merge", "-p"];
    let denied = kubectl
        .run(patch.iter().copied().chain([version.as_str()]))
        .await?;
    ensure!(
        denied.code == 1 && denied.stderr.contains("(leader-migration-unsupported)"),
        "{denied}"
    );
    let locks = Locks::in_namespace(management.client(), NAMESPACE);
    let programs = management.controller_managers(management.api(), "upgrade")?;
    let mut denied = boot(&programs, &locks, "denied", &migrating).await?;
    let end = denied.end().await?;
    assert_eq!(end.code, 1, "{:?}", end.errors());
    let cause = "informer name \\\"kube-controller-manager\\\" is already registered";
    assert!(end.log.contains(cause), "{:?}", end.errors());
    // It took both locks, which nobody else can have until they expire.
    assert_eq!(
        locks.holder(MIGRATION).await?,
        locks.holder(Program::Kube.name()).await?
    );
    locks.vacate(MIGRATION).await?;
    locks.vacate(Program::Kube.name()).await?;

    let removal = json!({"spec": {"version": "v1.36.3", "kubeadmConfigSpec": {"clusterConfiguration": {
        "controllerManager": null}}}})
    .to_string();
    kubectl
        .succeed(patch.iter().copied().chain([removal.as_str()]))
        .await?;
    let read = kubectl
        .succeed(["get", "kcp", "edge", "-n", NAMESPACE, "-o", "json"])
        .await?;
    let accepted: Value = serde_json::from_str(&read.stdout)?;
    let mut accepted = boot(&programs, &locks, "accepted", &accepted).await?;
    let flags = programs.flags(Program::Kube, Identity::Administrator, &locks);
    let model = model(Program::Kube, &flags, None);
    accepted
        .runs(&predicted(Program::Kube, &model, &[NonMigrated]))
        .await
}

/// A control plane at 1.35 that migrates Node IPAM.
fn migrating() -> Value {
    let mut object = control_plane("edge", 3, "v1.35.4");
    let path = "/etc/kubernetes/pki/leader-migration.yaml";
    if let Some(spec) = object
        .pointer_mut("/spec/kubeadmConfigSpec")
        .and_then(Value::as_object_mut)
    {
        let content = configuration(&["node-ipam-controller"]);
        spec.insert("files".to_owned(), json!([{"path": path, "content": content}]));
        let arguments = json!([{"name": "enable-leader-migration", "value": "true"},
            {"name": CONFIGURATION, "value": path}]);
        if let Some(cluster) = spec
            .get_mut("clusterConfiguration")
            .and_then(Value::as_object_mut)
        {
            cluster.insert("controllerManager".to_owned(), json!({"extraArgs": arguments}));
        }
    }
    object
}

/// Starts kube-controller-manager 1.36.3 as a Machine of the control plane does. The configuration file has another path.
async fn boot(
    programs: &ControllerManagers,
    locks: &Locks,
    name: &str,
    object: &Value,
) -> Result<ControllerManager> {
    let spec = object.pointer("/spec/kubeadmConfigSpec").context("no spec")?;
    let arguments = spec.pointer("/clusterConfiguration/controllerManager/extraArgs");
    let mut flags = programs.flags(Program::Kube, Identity::Administrator, locks);
    for argument in arguments.and_then(Value::as_array).into_iter().flatten() {
        let [key, value] = ["name", "value"].map(|field| argument.get(field).and_then(Value::as_str));
        let (key, value) = key.zip(value).context("an argument without name or value")?;
        if key == CONFIGURATION {
            let content = spec.pointer("/files/0/content").and_then(Value::as_str);
            let file = programs.file(&format!("{name}.yaml"), content.context("no file")?)?;
            flags.push(format!("--{key}={}", file.display()));
        } else {
            flags.push(format!("--{key}={value}"));
        }
    }
    programs.start(Program::Kube, name, &flags).await
}
