//! Compares `kubectl kcp plan` with what Cluster API's controllers do after `scale`, `rollout start` and `upgrade`, as
//! a watch of the Machines shows it: the failure domain of each new Machine, and the Machine that is deleted. A client
//! writes to the workload cluster's etcd throughout, and loses no acknowledged write.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::TryStreamExt as _;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::WorkloadCluster;
use kcp_tests::machines::fault::Fault;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::{resources, wait};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::acknowledged_writes::AcknowledgedWrites;
use crate::objects::{control_plane, written};
use crate::shared::with_controllers;

const NAMESPACE: &str = "predictions";
const NAME: &str = "edge";

const OLD: &str = "v1.33.6";
const NEW: &str = "v1.34.2";

/// How long a settled control plane may have a plan that something blocks.
const PLAN_LIMIT: Duration = Duration::from_secs(180);

/// The label of control plane Machines.
const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";

/// The conditions of a Machine for which the controller waits before it deletes another one.
const COMPONENTS: [&str; 5] = [
    "EtcdMemberHealthy",
    "EtcdPodHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
];

/// The warnings of the rules about the planned changes: Kubernetes 1.34 brings etcd 3.6.
const EXPECTED: [&str; 2] = ["(etcd-upgrade-unsafe)", "(replicas-with-upgrade)"];

/// The minimum of acknowledged writes during a change. On an idle machine there are ten times as many.
const LEAST_WRITES: usize = 10;

#[test]
#[ignore = "takes minutes: make test-long"]
fn the_controller_does_what_the_plan_says() {
    with_controllers(NAMESPACE, predicted);
}

async fn predicted(management: &ManagementCluster) -> Result<()> {
    let cluster = Cluster::create_without_control_plane(management.client(), NAMESPACE, NAME).await?;
    has_failure_domains(management, &["a", "b", "c"]).await?;
    let control_plane = control_plane(NAME, 1, OLD);
    written(
        management.kubectl(),
        "create",
        &[control_plane],
        &["-n", NAMESPACE],
    )
    .await?;
    cluster.settled(1).await?;

    let workload = management.machines().cluster(NAMESPACE, NAME).await?;
    let writes = AcknowledgedWrites::begin(workload.clone());

    let surge = |surge: u32| json!({"rollout": {"strategy": {"rollingUpdate": {"maxSurge": surge}}}});
    let comes_about = async |arguments: &[&str], verb: &[&str], replicas: usize, steps: usize| {
        let before = writes.acknowledged();
        let outcome = as_planned(management, &cluster, arguments, verb, replicas, steps).await;
        outcome.with_context(|| format!("plan {}", arguments.join(" ")))?;
        let count = writes.acknowledged() - before;
        ensure!(
            count >= LEAST_WRITES,
            "{verb:?}: only {count} acknowledged writes"
        );
        Ok(())
    };
    let (scale, restart) = (["scale", NAME, "--yes"], ["rollout", "start", NAME, "--yes"]);
    let scaled = async |replicas: &str, number: usize| {
        comes_about(&[replicas], &[&scale[..], &[replicas]].concat(), number, 2).await
    };
    scaled("--replicas=3", 3).await?;
    scaled("--replicas=5", 5).await?;
    scaled("--replicas=3", 3).await?;
    comes_about(&["--restart"], &restart, 3, 6).await?;
    let upgrade = ["upgrade", NAME, "--to", NEW, "--yes"];
    comes_about(&["--to", NEW], &upgrade, 3, 6).await?;
    cluster.patch(&json!({"spec": surge(0)})).await?;
    comes_about(&["--restart"], &restart, 3, 6).await?;
    cluster.patch(&json!({"spec": surge(1)})).await?;
    let before = writes.acknowledged();
    let remediated = remediated_as_planned(management, &cluster, &workload).await;
    remediated.context("plan of a remediation")?;
    let count = writes.acknowledged() - before;
    ensure!(
        count >= LEAST_WRITES,
        "a remediation: only {count} acknowledged writes"
    );
    scaled("--replicas=1", 1).await?;
    writes.end().await?;
    cluster.delete().await
}

/// Plans a change, makes it with a verb, and compares the result with the plan.
pub(crate) async fn as_planned(
    management: &ManagementCluster,
    cluster: &Cluster,
    arguments: &[&str],
    verb: &[&str],
    replicas: usize,
    steps: usize,
) -> Result<()> {
    let (planned, _) = clear_plan(management, cluster, arguments, steps).await?;
    let seen = Seen::begin(management, cluster).await?;
    let command = [&["kcp"], verb, &["-n", cluster.namespace()]].concat();
    let ended = management.kubectl().run(&command).await?;
    ensure!(ended.code == 0, "{command:?}: {ended}");
    cluster.settled(replicas).await?;
    seen.is(&planned).await
}

/// Waits until nothing blocks the plan of a change. Returns its steps and its document.
pub(crate) async fn clear_plan(
    management: &ManagementCluster,
    cluster: &Cluster,
    arguments: &[&str],
    steps: usize,
) -> Result<(Vec<Planned>, Value)> {
    // A control plane that is settled for its controller may still elect an etcd leader, and a Machine that is
    // unhealthy for a moment is planned to be deleted first.
    wait::until_within("nothing blocks the first step", PLAN_LIMIT, || async {
        let name = format!("cluster/{}", cluster.name());
        let status = ["kcp", "status", &name, "-n", cluster.namespace()];
        let ended = management.kubectl().run(&status).await?;
        ensure!(ended.code == 0, "{ended}");
        all_components_are_healthy(management, cluster).await?;
        let (ended, document) = plan(management, cluster, arguments).await?;
        all_components_are_healthy(management, cluster).await?;
        let mut warnings = ended.stderr.lines();
        let is_expected = |line: &str| EXPECTED.iter().any(|rule| line.ends_with(rule));
        ensure!(ended.code == 0 && warnings.all(is_expected), "{ended}");
        ensure!(document.get("etcd") == Some(&json!("read")), "{document:#}");
        let planned = planned(&document)?;
        ensure!(planned.len() == steps, "{} steps: {document:#}", planned.len());
        ensure!(
            planned.iter().all(|step| step.purpose != "remediate"),
            "{document:#}"
        );
        Ok((planned, document))
    })
    .await
}

/// Succeeds if the controller reports every component of every Machine as healthy. `status` does not require it of a
/// Machine that has just joined, but the controller deletes no other Machine until then.
pub(crate) async fn all_components_are_healthy(
    management: &ManagementCluster,
    cluster: &Cluster,
) -> Result<()> {
    let machines = resources::machines(management.client(), cluster.namespace());
    let of_control_plane = ListParams::default().labels(CONTROL_PLANE);
    for machine in machines.list(&of_control_plane).await? {
        let conditions = machine
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        for component in COMPONENTS {
            let is_healthy = |condition: &Value| {
                condition.get("type") == Some(&json!(component))
                    && condition.get("status") == Some(&json!("True"))
            };
            ensure!(
                conditions.is_some_and(|conditions| conditions.iter().any(is_healthy)),
                "{component} of {} is not True",
                machine.name_any()
            );
        }
    }
    Ok(())
}

/// Makes the controller replace a Machine without a member, and compares the result with the plan. The control plane is
/// paused while the plan is made, because its controller is faster.
async fn remediated_as_planned(
    management: &ManagementCluster,
    cluster: &Cluster,
    workload: &WorkloadCluster,
) -> Result<()> {
    cluster.check_health().await?;
    let machines = cluster.machines().await?;
    let victim = machines.get(1).context("there is no second Machine")?;
    let pause = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    cluster.patch(&pause(json!(""))).await?;
    workload.inflict(Fault::Kill, victim).await?;
    let remediate = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
    resources::machines(management.client(), NAMESPACE)
        .patch(victim, &PatchParams::default(), &Patch::Merge(&remediate))
        .await?;
    let planned = wait::until("the plan is to replace the Machine", || async {
        let (ended, document) = plan(management, cluster, &[]).await?;
        let blockers = document.get("blockers").and_then(Value::as_array);
        let blockers: Option<Vec<&Value>> = blockers.map(|blockers| {
            blockers
                .iter()
                .filter_map(|blocker| blocker.get("reason"))
                .collect()
        });
        ensure!(
            ended.code == 1 && blockers.as_deref() == Some(&[&json!("paused")][..]),
            "{ended}"
        );
        planned(&document)
    })
    .await?;
    let [deletion, creation] = planned.as_slice() else {
        bail!("{planned:#?}");
    };
    ensure!(
        !deletion.is_creation && deletion.names == [victim.as_str()] && creation.is_creation,
        "{planned:#?}"
    );
    let seen = Seen::begin(management, cluster).await?;
    cluster.patch(&pause(Value::Null)).await?;
    wait::until("the Machine is being deleted", || async {
        let machines = cluster.machines().await?;
        ensure!(!machines.contains(victim), "{machines:?}");
        Ok(())
    })
    .await?;
    cluster.settled(3).await?;
    seen.is(&planned).await?;
    // On a busy machine a Node is not ready for longer than the health check tolerates. The controller would replace its
    // Machine after a later plan.
    resources::machine_health_checks(management.client(), NAMESPACE)
        .delete(NAME, &DeleteParams::default())
        .await?;
    Ok(())
}

/// The plan, and its document.
pub(crate) async fn plan(
    management: &ManagementCluster,
    cluster: &Cluster,
    arguments: &[&str],
) -> Result<(CommandOutput, Value)> {
    let name = format!("cluster/{}", cluster.name());
    let plan = ["kcp", "plan", &name, "-n", cluster.namespace(), "-o", "json"];
    let ended = management.kubectl().run(plan.iter().chain(arguments)).await?;
    let document = serde_json::from_str(&ended.stdout).with_context(|| ended.to_string())?;
    Ok((ended, document))
}

/// `(new 2)` is the second new Machine.
fn step_name<'n>(name: &'n str, made: &[&'n str]) -> Result<&'n str> {
    let Some(number) = name.strip_prefix("(new ") else {
        return Ok(name);
    };
    let number: usize = number.trim_end_matches(')').parse()?;
    let made = number.checked_sub(1).and_then(|index| made.get(index));
    made.copied().with_context(|| format!("{name} was never made"))
}

/// A planned creation or deletion of a Machine.
#[derive(Debug)]
pub(crate) struct Planned {
    is_creation: bool,
    purpose: String,
    names: Vec<String>,
    failure_domains: BTreeSet<Option<String>>,
}

pub(crate) fn planned(document: &Value) -> Result<Vec<Planned>> {
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned();
    let steps = list(document, "steps").context("no steps")?;
    let text = |value: Value| value.as_str().map(str::to_owned);
    steps
        .iter()
        .filter(|step| step.get("action") != Some(&json!("wait")))
        .map(|step| {
            ensure!(step.get("mayDiffer") == Some(&json!(false)), "{step}");
            let names = list(step, "names").context("no names")?;
            let domains = list(step, "failureDomains").context("no failure domains")?;
            Ok(Planned {
                is_creation: step.get("action") == Some(&json!("create")),
                purpose: step
                    .get("purpose")
                    .cloned()
                    .and_then(text)
                    .context("no purpose")?,
                names: names.into_iter().filter_map(text).collect(),
                failure_domains: domains.into_iter().map(text).collect(),
            })
        })
        .collect()
}

/// An observed creation of a Machine, or the start of its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    is_creation: bool,
    machine: String,
    is_worker: bool,
    version: String,
    failure_domain: Option<String>,
}

/// The events of a watch of the Machines, in order.
pub(crate) struct Seen {
    events: Arc<Mutex<Vec<Event>>>,
    watch: JoinHandle<Result<()>>,
}

impl Seen {
    pub(crate) async fn begin(management: &ManagementCluster, cluster: &Cluster) -> Result<Self> {
        let machines = resources::machines(management.client(), cluster.namespace());
        let list = machines.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("a list without version")?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let watch = tokio::spawn(watch(machines, version, events.clone()));
        Ok(Self { events, watch })
    }

    /// Waits until as much has happened to the control plane as was planned, and compares.
    pub(crate) async fn is(&self, planned: &[Planned]) -> Result<()> {
        // The watch may be late.
        wait::until("the watch shows all changes", || async {
            ensure!(!self.watch.is_finished(), "the watch has ended");
            let seen = self.of_control_plane();
            ensure!(seen.len() >= planned.len(), "so far: {seen:?}");
            Ok(())
        })
        .await?;
        let seen = self.of_control_plane();
        ensure!(seen.len() == planned.len(), "{seen:?}");
        // The plan numbers new Machines in the order of their creation.
        let made: Vec<&str> = seen
            .iter()
            .filter(|event| event.is_creation)
            .map(|event| event.machine.as_str())
            .collect();
        for (step, event) in planned.iter().zip(&seen) {
            let names: BTreeSet<&str> = step
                .names
                .iter()
                .map(|name| step_name(name, &made))
                .collect::<Result<_>>()?;
            ensure!(
                step.is_creation == event.is_creation
                    && names.contains(event.machine.as_str())
                    && step.failure_domains.contains(&event.failure_domain),
                "{step:?} was planned, but {event:?} happened; all events: {seen:?}"
            );
        }
        Ok(())
    }

    /// The upgrade as the document of a plan has it: the versions of which Machines were created.
    pub(crate) fn upgrade(&self) -> Value {
        let mut steps: Vec<(String, bool, bool)> = Vec::new();
        for event in self.events().into_iter().filter(|event| event.is_creation) {
            let is_new = steps.last().is_none_or(|(version, _, has_workers)| {
                *version != event.version || (*has_workers && !event.is_worker)
            });
            if is_new {
                steps.push((event.version, false, false));
            }
            if let Some((_, has_control_plane, has_workers)) = steps.last_mut() {
                *has_control_plane |= !event.is_worker;
                *has_workers |= event.is_worker;
            }
        }
        let step = |(version, control_plane, workers)| json!({"version": version, "controlPlane": control_plane, "workers": workers});
        steps.into_iter().map(step).collect()
    }

    fn of_control_plane(&self) -> Vec<Event> {
        let mut events = self.events();
        events.retain(|event| !event.is_worker);
        events
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn watch(
    machines: Api<DynamicObject>,
    mut version: String,
    events: Arc<Mutex<Vec<Event>>>,
) -> Result<()> {
    loop {
        let mut stream = Box::pin(machines.watch(&WatchParams::default(), &version).await?);
        // The API server ends a watch without events after a while. Then it continues from the last version.
        while let Ok(Some(event)) = stream.try_next().await {
            let (machine, is_creation) = match event {
                WatchEvent::Added(machine) => (machine, true),
                WatchEvent::Modified(machine) | WatchEvent::Deleted(machine) => (machine, false),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => bail!("the watch failed: {status:?}"),
            };
            version = machine.resource_version().context("a Machine without version")?;
            if !is_creation && machine.metadata.deletion_timestamp.is_none() {
                continue;
            }
            let domain = machine
                .data
                .pointer("/spec/failureDomain")
                .and_then(Value::as_str);
            let version = machine.data.pointer("/spec/version").and_then(Value::as_str);
            let event = Event {
                is_creation,
                is_worker: !machine.labels().contains_key(CONTROL_PLANE),
                version: version.unwrap_or_default().to_owned(),
                failure_domain: domain.map(str::to_owned),
                machine: machine.name_any(),
            };
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            if !events.contains(&event) {
                events.push(event);
            }
        }
    }
}

/// Declares failure domains in the Cluster's infrastructure object.
async fn has_failure_domains(management: &ManagementCluster, names: &[&str]) -> Result<()> {
    let domains: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "controlPlane": true}))
        .collect();
    let client = management.client();
    let infrastructure: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &resources::stand_in_clusters());
    let status = json!({"status": {"failureDomains": domains}});
    infrastructure
        .patch_status(NAME, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    wait::until("the Cluster has failure domains", || async {
        let cluster = resources::clusters(client, NAMESPACE).get(NAME).await?;
        let declared = cluster
            .data
            .pointer("/status/failureDomains")
            .and_then(Value::as_array);
        ensure!(
            declared.is_some_and(|declared| declared.len() == names.len()),
            "{declared:?}"
        );
        Ok(())
    })
    .await
}
