//! Predicts the drain of a Machine's node: the pods that block the drain, and the pods and data that the
//! drain deletes.
//!
//! The choice of the pods to evict follows Cluster API v1.14 (`core/reconcilers/machine/drain/filters.go`).
//! The decision about which evictions the API server refuses follows Kubernetes v1.36
//! (`pkg/registry/core/pod/storage/eviction.go`). There is one difference: a pod of a `DaemonSet` that no
//! longer exists counts as a pod of a `DaemonSet`, although Cluster API evicts it.

pub mod node;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kcp_api::{
    Machine, MachineDrainRule, Object as _,
    names::{annotation, label},
};
use kube::core::{Selector, SelectorExt as _};

use crate::{
    duration::format_duration,
    plan::{DeletedMachines, messages::join_names},
    snapshot::{Reading, Snapshot, drain::DrainObjects},
};

/// The annotation that marks the API object of a static pod.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// How many pods a line names. Of the other pods, the line shows only the number.
const MAX_NAMES: usize = 3;

type Labels = BTreeMap<String, String>;

/// What Cluster API does with a pod while it drains the pod's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    Evict,
    Skip,
    /// Cluster API waits until the pod has completed.
    WaitCompleted,
}

/// The effect of a drain on pods, or the reason why the pods block the drain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// The `PodDisruptionBudget` `budget`, as NAMESPACE/NAME, allows no disruption.
    Refused {
        budget: String,
    },
    /// More than one `PodDisruptionBudget` selects the pod, so the API server does not evict it.
    SeveralBudgets,
    WaitsForCompletion,
    /// Cluster API waits for the pod to complete, and the pod has completed, but still exists.
    WaitsForRemoval,
    /// The pod has no controller, so nothing creates it again.
    NotRecreated,
    /// The data in the pod's `emptyDir` volumes is lost.
    LosesData,
}

/// Pods of one node on which the drain has the same effect.
struct Affected<'m> {
    machine: &'m Machine,
    effect: Effect,
    /// The pods as NAMESPACE/NAME, in order.
    pods: BTreeSet<String>,
}

/// Predicts the drains of Machines: one line for each Machine and effect. Empty if nothing blocks the drains
/// and the drains lose nothing.
pub fn forecast(observed: &Snapshot, deleted: &DeletedMachines) -> Vec<String> {
    let is_possible = |machine: &Machine| deleted.possible.contains(machine.name());
    let is_named = |machine: &&Machine| deleted.certain.contains(machine.name()) || is_possible(machine);
    let machines: Vec<_> = observed.machines.iter().filter(is_named).collect();
    if machines.is_empty() {
        return Vec::new();
    }
    let objects = match &*observed.drain {
        Reading::Read(objects) => objects,
        Reading::Failed(failure) | Reading::OutOfReach(failure) => {
            return vec![format!(
                "could not read {}, so it is unknown whether anything blocks the drain of {}: {}",
                failure.object,
                machine_names(&machines),
                failure.message
            )];
        }
        Reading::Excluded { .. } | Reading::NotYet => return Vec::new(),
    };
    let mut lines = Vec::new();
    for machine in machines {
        let Some(node) = observed.node_of(machine) else {
            continue;
        };
        if machine.has_annotation(annotation::EXCLUDE_NODE_DRAINING) {
            let name = machine.name();
            let what = if is_possible(machine) {
                format!("Cluster API would delete Machine {name} without draining its node")
            } else {
                format!("Cluster API deletes Machine {name} without draining its node")
            };
            lines.push(format!(
                "{what}, because the Machine has the annotation {}",
                annotation::EXCLUDE_NODE_DRAINING
            ));
            continue;
        }
        if let Some(rule) = invalid_rule(objects) {
            lines.push(format!(
                "the drain of Machine {} fails, because MachineDrainRule {rule} has an invalid selector; {}",
                machine.name(),
                end_of_drain(machine.spec.node_drain_timeout)
            ));
            continue;
        }
        let effects = effects(observed, objects, machine, node);
        lines.extend(effects.iter().map(|affected| {
            let line = line(affected);
            if is_possible(machine) {
                format!("if Cluster API deletes Machine {}: {line}", machine.name())
            } else {
                line
            }
        }));
    }
    lines.extend(objects.rules.failure().map(|failure| {
        format!(
            "could not list MachineDrainRules: {}; assuming that there are none",
            failure.message
        )
    }));
    lines
}

fn machine_names(machines: &[&Machine]) -> String {
    let names: Vec<_> = machines.iter().map(|machine| machine.name()).collect();
    let kind = if names.len() == 1 { "Machine" } else { "Machines" };
    format!("{kind} {}", join_names(&names, "and"))
}

fn effects<'m>(
    observed: &Snapshot,
    objects: &DrainObjects,
    machine: &'m Machine,
    node: &str,
) -> Vec<Affected<'m>> {
    let rules = matching_rules(observed, objects, machine);
    let mut pods: BTreeMap<Effect, BTreeSet<String>> = BTreeMap::new();
    let is_unreachable = is_unreachable(observed, node);
    // The kubelet of an unreachable node does not finish the deletion of a pod, so Cluster API does not wait for it.
    let is_ignored = |pod: &Pod| is_unreachable && pod.metadata.deletion_timestamp.is_some();
    let pods_of_node = objects.pods.iter().filter(|pod| node_name(pod) == Some(node));
    for pod in pods_of_node.filter(|pod| !is_ignored(pod)) {
        for effect in effects_on(pod, objects, &rules) {
            pods.entry(effect).or_default().insert(full_name(pod));
        }
    }
    let affected = |(effect, pods)| Affected {
        machine,
        effect,
        pods,
    };
    pods.into_iter().map(affected).collect()
}

fn is_unreachable(observed: &Snapshot, node: &str) -> bool {
    let nodes = observed
        .workload
        .value()
        .and_then(|workload| workload.nodes.value());
    let mut nodes = nodes.into_iter().flatten();
    nodes.any(|other| other.name == node && other.is_unreachable)
}

fn effects_on(pod: &Pod, objects: &DrainObjects, rules: &[&MachineDrainRule]) -> Vec<Effect> {
    match behavior(pod, objects, rules) {
        Behavior::Skip => return Vec::new(),
        Behavior::WaitCompleted if is_finished(pod) => return vec![Effect::WaitsForRemoval],
        Behavior::WaitCompleted => return vec![Effect::WaitsForCompletion],
        Behavior::Evict => {}
    }
    if is_finished(pod) || pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut effects: Vec<_> = refusal(pod, &objects.budgets).into_iter().collect();
    if controller(pod).is_none() {
        effects.push(Effect::NotRecreated);
    }
    if has_local_storage(pod) {
        effects.push(Effect::LosesData);
    }
    effects
}

fn behavior(pod: &Pod, objects: &DrainObjects, rules: &[&MachineDrainRule]) -> Behavior {
    let is_of_daemon_set = controller(pod) == Some("DaemonSet") && !is_finished(pod);
    let annotations = pod.metadata.annotations.as_ref();
    let is_static = annotations.is_some_and(|annotations| annotations.contains_key(MIRROR_POD));
    if is_of_daemon_set || is_static {
        return Behavior::Skip;
    }
    let drain = labels(pod)
        .get(label::POD_DRAIN)
        .map(|value| value.to_lowercase());
    match drain.as_deref() {
        Some("skip") => return Behavior::Skip,
        Some("wait-completed" | "waitcompleted") => return Behavior::WaitCompleted,
        Some(_) | None => {}
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = objects.namespaces.get(namespace);
    let applies = |rule: &&&MachineDrainRule| {
        rule.spec.pods.is_empty()
            || rule.spec.pods.iter().any(|selector| {
                is_selected(selector.selector.as_ref(), labels(pod))
                    && is_selected(
                        selector.namespace_selector.as_ref(),
                        namespace.unwrap_or(&Labels::new()),
                    )
            })
    };
    let rule = rules.iter().find(applies);
    match rule.map(|rule| rule.spec.drain.behavior.as_str()) {
        Some("Skip") => Behavior::Skip,
        Some("WaitCompleted") => Behavior::WaitCompleted,
        Some(_) | None => Behavior::Evict,
    }
}

/// The rules that apply to the Machine, by name. The first rule that selects a pod decides.
fn matching_rules<'o>(
    observed: &Snapshot,
    objects: &'o DrainObjects,
    machine: &Machine,
) -> Vec<&'o MachineDrainRule> {
    let none = Labels::new();
    let cluster = observed.cluster.value();
    let of_cluster = cluster.and_then(|cluster| cluster.metadata.labels.as_ref());
    let of_machine = machine.metadata.labels.as_ref();
    let applies = |rule: &&MachineDrainRule| {
        rule.spec.machines.is_empty()
            || rule.spec.machines.iter().any(|selector| {
                is_selected(selector.selector.as_ref(), of_machine.unwrap_or(&none))
                    && is_selected(selector.cluster_selector.as_ref(), of_cluster.unwrap_or(&none))
            })
    };
    let rules = objects.rules.value().into_iter().flatten();
    let mut rules: Vec<_> = rules.filter(applies).collect();
    rules.sort_by_key(|rule| rule.name());
    rules
}

/// The name of a rule with an invalid selector. Such a rule makes every drain in the namespace fail
/// (`getMatchingMachineDrainRules`).
fn invalid_rule(objects: &DrainObjects) -> Option<&str> {
    let is_invalid = |selector: &Option<LabelSelector>| {
        let selector = selector.clone();
        selector.is_some_and(|selector| Selector::try_from(selector).is_err())
    };
    let has_invalid = |rule: &&MachineDrainRule| {
        let machines = rule.spec.machines.iter();
        let mut machines = machines.flat_map(|machine| [&machine.selector, &machine.cluster_selector]);
        let pods = rule.spec.pods.iter();
        let mut pods = pods.flat_map(|pod| [&pod.selector, &pod.namespace_selector]);
        machines.any(is_invalid) || pods.any(is_invalid)
    };
    let mut rules = objects.rules.value().into_iter().flatten();
    rules.find(has_invalid).map(kcp_api::Object::name)
}

/// Why the API server refuses to evict the pod now. `None` if it evicts the pod.
fn refusal(pod: &Pod, budgets: &[PodDisruptionBudget]) -> Option<Effect> {
    if phase(pod) == Some("Pending") {
        return None;
    }
    let protects = |budget: &&PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        budget.metadata.namespace == pod.metadata.namespace
            && selector.is_some_and(|selector| is_selected(Some(&selector), labels(pod)))
    };
    let mut protecting = budgets.iter().filter(protects);
    let budget = protecting.next()?;
    if protecting.next().is_some() {
        return Some(Effect::SeveralBudgets);
    }
    (!allows(budget, pod)).then(|| Effect::Refused {
        budget: format!(
            "{}/{}",
            budget.metadata.namespace.as_deref().unwrap_or_default(),
            budget.metadata.name.as_deref().unwrap_or_default()
        ),
    })
}

fn allows(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let policy = budget
        .spec
        .as_ref()
        .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let Some(status) = &budget.status else {
        return false;
    };
    let (healthy, desired) = (status.current_healthy, status.desired_healthy.unwrap_or(0));
    let has_healthy_budget = desired > 0 && healthy.unwrap_or(0) >= desired;
    let is_unprotected = !is_ready(pod) && (policy == Some("AlwaysAllow") || has_healthy_budget);
    let is_counted = status.observed_generation >= budget.metadata.generation;
    is_unprotected || (is_counted && status.disruptions_allowed.unwrap_or(0) > 0)
}

/// Whether a selector matches: an absent or empty selector matches every object, an invalid selector none. If one
/// selector of a rule is invalid, every drain fails, and this function is not called: see [`invalid_rule`].
fn is_selected(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else {
        return true;
    };
    let selector: Option<Selector> = selector.clone().try_into().ok();
    selector.is_some_and(|selector| selector.matches(labels))
}

fn labels(pod: &Pod) -> &Labels {
    static NONE: Labels = Labels::new();
    pod.metadata.labels.as_ref().unwrap_or(&NONE)
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The kind of the pod's controller. `None` if the pod has no controller.
fn controller(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true))?;
    Some(&controller.kind)
}

fn has_local_storage(pod: &Pod) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    volumes.into_iter().any(|volume| volume.empty_dir.is_some())
}

fn full_name(pod: &Pod) -> String {
    format!(
        "{}/{}",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    )
}

fn line(
    Affected {
        machine,
        effect,
        pods,
    }: &Affected<'_>,
) -> String {
    let name = machine.name();
    let listed = pod_names(pods);
    let end = end_of_drain(machine.spec.node_drain_timeout);
    match effect {
        Effect::Refused { budget } => format!(
            "the drain of Machine {name} waits, because PodDisruptionBudget {budget} allows no disruption of \
             {listed}; {end}"
        ),
        Effect::SeveralBudgets => format!(
            "the drain of Machine {name} waits, because more than one PodDisruptionBudget selects {listed}, \
             and the API server does not evict pods that several budgets select; {end}"
        ),
        Effect::WaitsForCompletion => {
            let complete = if pods.len() == 1 { "completes" } else { "complete" };
            format!("the drain of Machine {name} waits until {listed} {complete}; {end}")
        }
        Effect::WaitsForRemoval => {
            let complete = if pods.len() == 1 {
                "has completed, is"
            } else {
                "have completed, are"
            };
            format!("the drain of Machine {name} waits until {listed}, which {complete} deleted; {end}")
        }
        Effect::NotRecreated => {
            let them = if pods.len() == 1 { "it" } else { "them" };
            format!("the drain of Machine {name} deletes {listed}, and no controller recreates {them}")
        }
        Effect::LosesData => {
            format!("the drain of Machine {name} deletes the data in the emptyDir volumes of {listed}")
        }
    }
}

fn end_of_drain(timeout: Option<SignedDuration>) -> String {
    match timeout {
        Some(timeout) => format!(
            "Cluster API deletes the Machine anyway after {}",
            format_duration(timeout.unsigned_abs())
        ),
        None => "without a nodeDrainTimeout, Cluster API waits indefinitely".to_owned(),
    }
}

fn pod_names(pods: &BTreeSet<String>) -> String {
    let mut names: Vec<String> = pods.iter().take(MAX_NAMES).cloned().collect();
    if pods.len() > MAX_NAMES {
        names.push(format!("{} more", pods.len() - MAX_NAMES));
    }
    let kind = if pods.len() == 1 { "pod" } else { "pods" };
    format!("{kind} {}", join_names(&names, "and"))
}

#[cfg(test)]
mod tests;
