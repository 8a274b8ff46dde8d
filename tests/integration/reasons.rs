//! Compares why a Machine is outdated according to `kubectl kcp plan` and `kubectl kcp status` with the condition
//! `UpToDate` that Cluster API's controller writes, for one change after another.
//!
//! No rollout proceeds, because a static pod is not ready.

mod cases;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use kcp_rules::testing::row::merge;
use kcp_tests::cluster::Cluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::resources::{self, CONTROL_PLANE_GROUP, INFRASTRUCTURE_GROUP};
use kcp_tests::wait;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use self::cases::{Case, Outdated, cases};
use crate::objects::{control_plane, written};
use crate::shared::with_controllers;

const NAMESPACE: &str = "reasons";
const NAME: &str = "edge";

/// The reasons, by Machine.
type Reasons = BTreeMap<String, BTreeSet<String>>;

#[test]
#[ignore = "takes minutes: make test-long"]
fn a_machine_is_outdated_for_the_reasons_of_the_controller() {
    with_controllers(NAMESPACE, agree);
}

async fn agree(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_without_control_plane(management.client(), NAMESPACE, NAME).await?;
    another_template(management).await?;
    let control_plane = control_plane(NAME, 3, "v1.34.2");
    written(
        management.kubectl(),
        "create",
        &[control_plane],
        &["-n", NAMESPACE],
    )
    .await?;
    cluster.settled(3).await?;
    let machines = cluster.machines().await?;
    let [first, _, last] = machines.as_slice() else {
        bail!("the Machines are {machines:?}");
    };
    let mut bench = Bench {
        management,
        first: first.clone(),
        spec_at_first: BTreeMap::new(),
    };
    for version in ["v1beta1", "v1beta2"] {
        let control_plane = bench.control_planes(version).get(NAME).await?;
        let spec = control_plane.data.get("spec").context("no spec")?.clone();
        bench.spec_at_first.insert(version, spec);
    }
    bench.certificates_expire_in_a_month(&machines).await?;
    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    workload.inflict(Fault::PodNotReady, last).await?;
    bench.is_held_up_by(last).await?;

    let mut disagreements = Vec::new();
    for case in cases() {
        if let Err(error) = bench.try_out(&case).await {
            disagreements.push(format!("{}: {error:#}", case.name));
        }
    }
    ensure!(disagreements.is_empty(), "{}", disagreements.join("\n"));
    ensure!(cluster.machines().await? == machines, "Machines were replaced");
    cluster.delete().await
}

/// Creates another template for the same machines.
async fn another_template(management: &ManagementCluster) -> Result<()> {
    let templates = resources::stand_in_machine_templates();
    let template: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{INFRASTRUCTURE_GROUP}/v1beta1"), "kind": "StandInMachineTemplate",
        "metadata": {"name": "another"}, "spec": {"template": {"spec": {}}},
    }))?;
    Api::<DynamicObject>::namespaced_with(management.client().clone(), NAMESPACE, &templates)
        .create(&PostParams::default(), &template)
        .await
        .context("creating the template")
        .map(drop)
}

struct Bench<'m> {
    management: &'m ManagementCluster,
    /// The first Machine, which the others joined.
    first: String,
    /// The spec before any change, by API version.
    spec_at_first: BTreeMap<&'static str, Value>,
}

impl Bench<'_> {
    /// Changes the original spec, and compares the reasons.
    async fn try_out(&self, case: &Case) -> Result<()> {
        let Case {
            version,
            change,
            outdated,
            reasons,
            ..
        } = case;
        let first = self.spec_at_first.get(version).context("no such version")?;
        let mut spec = first.clone();
        merge(&mut spec, change);
        // Replacing the whole spec also reverts the previous change.
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]).to_string();
        let resource = format!("kubeadmcontrolplanes.{version}.{CONTROL_PLANE_GROUP}");
        let write = [
            "patch",
            &resource,
            NAME,
            "-n",
            NAMESPACE,
            "--type=json",
            "-p",
            &patch,
        ];
        self.management.kubectl().succeed(write).await?;
        let said = wait::until("the controller has observed the change", || self.judged()).await?;
        for (machine, of_machine) in &said {
            let is_outdated = match outdated {
                Outdated::All => true,
                Outdated::Joined => *machine != self.first,
                Outdated::None => false,
            };
            let expected: BTreeSet<String> = reasons
                .iter()
                .filter(|_| is_outdated)
                .map(|reason| (*reason).to_owned())
                .collect();
            ensure!(
                *of_machine == expected,
                "Cluster API reports for {machine}: {of_machine:?}"
            );
        }
        for (command, key) in [("plan", "reasons"), ("status", "outdatedBecause")] {
            let ours = self.told(command, key).await?;
            ensure!(ours == said, "{command} reports {ours:?}, Cluster API {said:?}");
        }
        Ok(())
    }

    /// The controller's reasons for each Machine, once it has observed the spec.
    async fn judged(&self) -> Result<Reasons> {
        let control_plane = self.control_planes("v1beta2").get(NAME).await?;
        let status = |pointer: &str| control_plane.data.pointer(&format!("/status/{pointer}"));
        ensure!(
            status("observedGeneration") == Some(&json!(control_plane.metadata.generation)),
            "the controller has not seen the change"
        );
        let machines = self.machines().await?;
        let said: Reasons = machines
            .iter()
            .map(|machine| Ok((name(machine)?, said(machine)?)))
            .collect::<Result<_>>()?;
        let rolls_out = condition(&control_plane, "RollingOut")?;
        let is_outdated = said.values().any(|reasons| !reasons.is_empty());
        ensure!(
            rolls_out.0 == if is_outdated { "True" } else { "False" },
            "RollingOut is {rolls_out:?}, and the Machines are outdated for {said:?}"
        );
        Ok(said)
    }

    /// A command's reasons for each Machine.
    async fn told(&self, command: &str, key: &str) -> Result<Reasons> {
        let read = ["kcp", command, NAME, "-n", NAMESPACE, "-o", "json"];
        // On a busy machine, a member may respond too late, which is a warning on stderr.
        let ended = wait::until("every source is read", || async {
            let ended = self.management.kubectl().run(read).await?;
            ensure!(ended.code <= 1 && ended.stderr.is_empty(), "{ended}");
            Ok(ended)
        })
        .await?;
        let document: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
        let machines = document.get("machines").and_then(Value::as_array);
        machines
            .context("no Machines")?
            .iter()
            .map(|machine| {
                let gaps = machine.get("gaps").and_then(Value::as_array);
                ensure!(gaps.is_some_and(Vec::is_empty), "not judged whole: {machine}");
                // The reasons of other versions of Cluster API only.
                ensure!(machine.get("afterProviderUpdate").is_none(), "{machine}");
                let reasons = machine.get(key).and_then(Value::as_array).context("no reasons")?;
                let reasons = reasons.iter().map(|reason| text(reason, "/reason"));
                Ok((text(machine, "/name")?, reasons.collect::<Result<_>>()?))
            })
            .collect()
    }

    /// Sets the annotation that the kubeadm control plane provider writes after it has read a certificate.
    async fn certificates_expire_in_a_month(&self, machines: &[String]) -> Result<()> {
        let expire = Timestamp::now() + SignedDuration::from_hours(24 * 30);
        let expire = expire.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch =
            json!({"metadata": {"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": expire}}});
        let api = resources::machines(self.management.client(), NAMESPACE);
        for machine in machines {
            let patched = api
                .patch(machine, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            patched.context("patching the Machine")?;
        }
        wait::until("the Machines' certificates expire", || async {
            for machine in self.machines().await? {
                let told = machine.data.pointer("/status/certificatesExpiryDate");
                ensure!(
                    told == Some(&json!(expire)),
                    "{:?}: {told:?}",
                    machine.metadata.name
                );
            }
            Ok(())
        })
        .await
    }

    /// Waits until the controller has observed that a Machine's static pod is not ready.
    async fn is_held_up_by(&self, machine: &str) -> Result<()> {
        let api = resources::machines(self.management.client(), NAMESPACE);
        let control_planes = self.control_planes("v1beta2");
        wait::until("the controller sees the pod", || async {
            // A change of the object makes the controller reconcile it.
            let touched = json!({"metadata": {"annotations": {"touched": Timestamp::now().to_string()}}});
            control_planes
                .patch(NAME, &PatchParams::default(), &Patch::Merge(touched))
                .await?;
            let (status, _) = condition(&api.get(machine).await?, "EtcdPodHealthy")?;
            ensure!(status == "False", "EtcdPodHealthy is {status}");
            Ok(())
        })
        .await
    }

    async fn machines(&self) -> Result<Vec<DynamicObject>> {
        let api = resources::machines(self.management.client(), NAMESPACE);
        Ok(api.list(&kube::api::ListParams::default()).await?.items)
    }

    fn control_planes(&self, version: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(CONTROL_PLANE_GROUP, version, "KubeadmControlPlane");
        let resource = ApiResource::from_gvk_with_plural(&kind, "kubeadmcontrolplanes");
        Api::namespaced_with(self.management.client().clone(), NAMESPACE, &resource)
    }
}

fn name(object: &DynamicObject) -> Result<String> {
    object.metadata.name.clone().context("no name")
}

fn text(value: &Value, pointer: &str) -> Result<String> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    Ok(text
        .with_context(|| format!("no {pointer} in {value}"))?
        .to_owned())
}

/// The status and the message of a condition.
fn condition(object: &DynamicObject, kind: &str) -> Result<(String, String)> {
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let condition = conditions
        .find(|condition| condition.get("type").is_some_and(|found| found == kind))
        .with_context(|| format!("no condition {kind}"))?;
    let message = condition.get("message").and_then(Value::as_str);
    Ok((
        text(condition, "/status")?,
        message.unwrap_or_default().to_owned(),
    ))
}

/// The reasons in the condition `UpToDate`, by our own names.
fn said(machine: &DynamicObject) -> Result<BTreeSet<String>> {
    let (status, message) = condition(machine, "UpToDate")?;
    match status.as_str() {
        "True" => Ok(BTreeSet::new()),
        "False" => message
            .lines()
            .map(|line| {
                let reason = match line.trim_start_matches("* ") {
                    "KubeadmConfig is not up-to-date" => "config",
                    "StandInMachine is not up-to-date" => "infrastructure",
                    "KubeadmControlPlane spec.rolloutAfter expired" => "rolloutAfter",
                    "Certificates will expire soon" => "certificates",
                    line if line.starts_with("Version ") => "version",
                    line => bail!("a reason that we do not know: {line}"),
                };
                Ok(reason.to_owned())
            })
            .collect(),
        status => bail!("UpToDate is {status}"),
    }
}
