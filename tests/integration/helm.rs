//! Installs, upgrades, rolls back and uninstalls the chart in `manifests/helm`, while a client changes a control plane every 100
//! ms. `make helm` compares what the chart renders with kustomize.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use kcp_tests::kubectl::{CommandOutput, Kubectl};
use kcp_tests::managed::writer::{Writer, control_planes};
use kcp_tests::managed::{KINDS, Managed};
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{assets, manifests, products, wait};
use serde_json::{Value, json};

use crate::installation::{STEADY, denies, steady};
use crate::objects::{control_plane, write, written};
use crate::shared::with_management_cluster;

/// The namespace of the control planes.
const NAME: &str = "helm";

const OBJECT: &str = "written";

/// The values of the upgrades, which keep those of the installation.
const KEEP: &str = "--reset-then-reuse-values";

/// The release, and the namespace of the shipped manifests.
struct Helm<'k> {
    program: PathBuf,
    kubectl: &'k Kubectl,
}

impl Helm<'_> {
    async fn run(&self, command: &str, arguments: &[&str]) -> Result<CommandOutput> {
        let program = self.program.display().to_string();
        let release = ["kcp-webhook", "--namespace=kcp-webhook-system"];
        let words = command.split(' ').chain(release);
        self.kubectl
            .script(&program, words.chain(arguments.iter().copied()))
            .await
    }

    async fn succeed(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let ended = self.run(command, arguments).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended.stdout)
    }

    /// The objects of the current revision.
    async fn objects(&self) -> Result<Vec<Value>> {
        manifests::parse(&self.succeed("get manifest", &[]).await?)
    }
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_release_is_installed_upgraded_rolled_back_and_uninstalled() {
    with_management_cluster(async |management| {
        let lived = life(management).await;
        lived.unwrap();
    });
}

async fn life(management: &ManagementCluster) -> Result<()> {
    let cluster = management.another_without_ours(NAME).await?;
    cluster.create_namespace(NAME).await?;
    let kubectl = cluster.kubectl();
    written(
        kubectl,
        "create",
        &[control_plane(OBJECT, 3, "v1.34.2")],
        &["-n", NAME],
    )
    .await?;
    let writer = Writer::begin(control_planes(cluster.client(), NAME), OBJECT);
    let helm = Helm {
        program: assets::helm()?,
        kubectl,
    };
    let chart = products::workspace().join("manifests/helm").display().to_string();
    let chart = chart.as_str();

    let mut managed = Managed::install_with(management.run(), cluster.api(), 3, async |service| {
        let service = format!("service={service}");
        helm.succeed("install", &[chart, "--create-namespace", "--set-json", &service])
            .await?;
        helm.objects().await
    })
    .await?;
    managed.start_manager()?;
    managed.start_server(1).await?;
    managed.start_server(2).await?;
    managed.registered().await?;
    wait::until("the API server calls the webhook", || async {
        denies(kubectl, NAME).await
    })
    .await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "helm install").await?;

    let wrong = helm.run("upgrade", &[chart, KEEP, "--set=replicas=two"]).await?;
    ensure!(
        wrong.code == 1 && wrong.stderr.contains("at '/replicas': got string, want integer"),
        "{wrong}"
    );
    helm.succeed("upgrade", &[chart, KEEP, "--set=replicas=3"])
        .await?;
    roll_out(&mut managed, &helm.objects().await?).await?;
    configure(&helm, chart, &mut managed, ("denialEvents", json!(true))).await?;
    recorded(kubectl).await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "helm upgrade, with Events about denials").await?;

    configure(
        &helm,
        chart,
        &mut managed,
        ("rules", json!({"replicas-even": "warn"})),
    )
    .await?;
    wait::until("the rule only warns", || async { warns(kubectl).await }).await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "helm upgrade, with a configuration").await?;

    helm.succeed("rollback", &["1"]).await?;
    let objects = helm.objects().await?;
    ensure!(
        !objects.iter().any(|object| is(object, "ConfigMap")),
        "the rollback keeps the configuration"
    );
    managed.deploy(&objects)?;
    // Its volume has no configuration, as on a Pod that starts without the ConfigMap.
    managed.start_server(3).await?;
    managed.stop_server(1).await?;
    managed.stop_server(2).await?;
    managed.stop_manager().await?;
    managed.start_manager()?;
    denies(kubectl, NAME).await?;
    writer.admitted(STEADY).await?;
    steady(&writer, "helm rollback").await?;

    ensure!(managed.delete_owner_and_what_it_owns().await? == KINDS.len());
    writer.admitted(STEADY).await?;
    helm.succeed("uninstall", &[]).await?;
    managed.stop_server(3).await?;
    managed.stop_manager().await?;
    let file = kubectl.scratch_file("helm-objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, serde_json::to_vec(&list)?).context("writing the objects")?;
    let file = file.display().to_string();
    let left = ["get", "-f", &file, "--ignore-not-found", "-o", "name"];
    let left = kubectl.succeed(left).await?;
    ensure!(left.stdout.is_empty(), "{left}");
    ensure!(
        managed.configurations().await?.iter().all(Option::is_none),
        "registered again"
    );
    writer.admitted(STEADY).await?;
    steady(&writer, "helm uninstall").await
}

/// Sets a field of the configuration, which the servers soon apply.
async fn configure(
    helm: &Helm<'_>,
    chart: &str,
    managed: &mut Managed,
    (field, value): (&str, Value),
) -> Result<()> {
    let configuration = json!({
        "apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": "AdmissionConfiguration", field: value,
    });
    let configuration = format!("configuration={configuration}");
    helm.succeed("upgrade", &[chart, KEEP, "--set-json", &configuration])
        .await?;
    let objects = helm.objects().await?;
    let map = objects.iter().find(|object| is(object, "ConfigMap"));
    let text = map.and_then(|map| map.pointer("/data/configuration.yaml")?.as_str());
    for number in [1, 2] {
        let text = text.context("no configuration in the release")?;
        managed
            .configuration(number)?
            .replace(&[("configuration.yaml", text)])?;
    }
    Ok(())
}

fn is(object: &Value, kind: &str) -> bool {
    object.get("kind").is_some_and(|found| found == kind)
}

/// Replaces both servers and the manager by those of new Deployments, as a rolling update with maxUnavailable 0 does it.
async fn roll_out(managed: &mut Managed, objects: &[Value]) -> Result<()> {
    managed.deploy(objects)?;
    for (new, old) in [(3, 1), (1, 2), (2, 3)] {
        managed.start_server(new).await?;
        managed.stop_server(old).await?;
    }
    managed.stop_manager().await?;
    managed.start_manager()
}

/// Creates an object that a rule denies, and waits until an Event says so.
async fn recorded(kubectl: &Kubectl) -> Result<()> {
    let even = [control_plane("even", 4, "v1.34.2")];
    wait::until("an Event about the denial exists", || async {
        let answer = write(kubectl, "create", &even, &["-n", NAME]).await?;
        ensure!(
            answer.code == 1 && answer.stderr.contains("(replicas-even)"),
            "{answer}"
        );
        let events = ["get", "events.events.k8s.io", "-n", NAME, "-o", "json"];
        let events = kubectl.succeed(events).await?;
        ensure!(events.stdout.contains("(replicas-even)"), "{events}");
        Ok(())
    })
    .await
}

/// A server dry run of an object that a rule finds wrong and does not deny.
async fn warns(kubectl: &Kubectl) -> Result<()> {
    let even = control_plane("even", 4, "v1.34.2");
    let answer = write(kubectl, "create", &[even], &["-n", NAME, "--dry-run=server"]).await?;
    let is_warning = |line: &str| line.starts_with("Warning: ") && line.ends_with("(replicas-even)");
    ensure!(answer.stderr.lines().any(is_warning), "{answer}");
    Ok(())
}
