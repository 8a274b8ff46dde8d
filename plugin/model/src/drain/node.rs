//! The drain of a Node without a Machine, as `kubectl kcp node remove` does it: which pods it evicts, what delays it, and
//! what is lost.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};

use super::{Behavior, Effect, behavior, effects_on, full_name, node_name, pod_names};
use crate::snapshot::{DrainObjects, Reading};

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodToEvict {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The drain of a Node as far as it can be predicted now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDrain {
    /// The pods to evict, without those that are being deleted.
    pub evict: BTreeSet<PodToEvict>,
    /// How many pods still have to leave the Node, including those that are being deleted.
    pub remaining: usize,
    /// What delays the drain now: one line for each reason.
    pub delays: Vec<String>,
    /// What is lost with the Node: one line for each reason.
    pub losses: Vec<String>,
}

/// Predicts the drain of a Node. As in a drain by Cluster API, pods of `DaemonSets` and static pods stay, and so do pods
/// with the label `cluster.x-k8s.io/drain: skip`.
pub fn node_drain(node: &str, pods: Vec<Pod>, budgets: Vec<PodDisruptionBudget>) -> NodeDrain {
    let objects = DrainObjects {
        pods,
        budgets,
        namespaces: BTreeMap::new(),
        rules: Reading::Read(Vec::new()),
    };
    let mut drain = NodeDrain::default();
    let mut effects: BTreeMap<Effect, BTreeSet<String>> = BTreeMap::new();
    let mut leaving = BTreeSet::new();
    for pod in objects.pods.iter().filter(|pod| node_name(pod) == Some(node)) {
        let waits = match behavior(pod, &objects, &[]) {
            Behavior::Skip => continue,
            Behavior::WaitCompleted => true,
            Behavior::Evict => false,
        };
        if waits && super::is_finished(pod) {
            continue;
        }
        drain.remaining += 1;
        if !waits && pod.metadata.deletion_timestamp.is_none() {
            drain.evict.insert(PodToEvict {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                uid: pod.metadata.uid.clone().unwrap_or_default(),
            });
        }
        if pod.metadata.deletion_timestamp.is_some() {
            leaving.insert(full_name(pod));
            continue;
        }
        for effect in effects_on(pod, &objects, &[]) {
            effects.entry(effect).or_default().insert(full_name(pod));
        }
    }
    for (effect, pods) in effects {
        let listed = pod_names(&pods);
        let is_one = pods.len() == 1;
        match effect {
            Effect::Refused { budget } => {
                drain.delays.push(format!(
                    "PodDisruptionBudget {budget} allows no disruption of {listed}"
                ));
            }
            Effect::SeveralBudgets => drain.delays.push(format!(
                "more than one PodDisruptionBudget selects {listed}, so the API server does not evict {}",
                if is_one { "it" } else { "them" }
            )),
            Effect::WaitsForCompletion => {
                let verb = if is_one { "has" } else { "have" };
                drain.delays.push(format!("{listed} {verb} not completed"));
            }
            // Only a `MachineDrainRule` or a drain label of Cluster API leads to this effect.
            Effect::WaitsForRemoval => {}
            Effect::NotRecreated => {
                let them = if is_one { "it" } else { "them" };
                drain.losses.push(format!(
                    "no controller recreates {listed} on another Node: the drain deletes {them}"
                ));
            }
            Effect::LosesData => {
                drain
                    .losses
                    .push(format!("the data in the emptyDir volumes of {listed} is lost"));
            }
        }
    }
    if !leaving.is_empty() {
        let verb = if leaving.len() == 1 { "is" } else { "are" };
        drain
            .delays
            .push(format!("{} {verb} being deleted", pod_names(&leaving)));
    }
    drain
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::node_drain;

    fn pod(name: &str, changes: &Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                    "controller": true}]},
            "spec": {"nodeName": "w1", "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_patch::merge(&mut pod, changes);
        pod
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_drain_says_what_it_evicts_what_delays_it_and_what_is_lost() {
        let budget = |name: &str, allowed: u8| {
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})
        };
        let refusing = json!([budget("web", 0)]);
        let none: &[&str] = &[];
        for (name, pods, budgets, evicted, remaining, delays, losses) in [
            ("no pods", json!([]), json!([]), none, 0, none, none),
            (
                "a pod",
                json!([pod("a", &json!({}))]),
                json!([]),
                &["a"][..],
                1,
                none,
                none,
            ),
            (
                "pods that stay",
                json!([
                    pod("a", &json!({"spec": {"nodeName": "w2"}})),
                    pod(
                        "b",
                        &json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet",
                        "name": "d", "uid": "u", "controller": true}]}})
                    ),
                    pod(
                        "c",
                        &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})
                    ),
                    pod(
                        "d",
                        &json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "skip"}}})
                    ),
                ]),
                refusing.clone(),
                none,
                0,
                none,
                none,
            ),
            (
                "a budget",
                json!([pod("a", &json!({}))]),
                refusing.clone(),
                &["a"],
                1,
                &["PodDisruptionBudget shop/web allows no disruption of pod shop/a"],
                none,
            ),
            (
                "two budgets",
                json!([pod("a", &json!({}))]),
                json!([budget("web", 1), budget("web-2", 1)]),
                &["a"],
                1,
                &[
                    "more than one PodDisruptionBudget selects pod shop/a, so the API server does not evict it",
                ],
                none,
            ),
            (
                "a pod that is being deleted",
                json!([pod(
                    "a",
                    &json!({"metadata": {"deletionTimestamp": "2026-11-25T12:00:00Z"}})
                )]),
                refusing,
                none,
                1,
                &["pod shop/a is being deleted"],
                none,
            ),
            (
                "a finished pod without a controller",
                json!([pod(
                    "a",
                    &json!({"metadata": {"ownerReferences": null}, "status": {"phase": "Succeeded"}})
                )]),
                json!([]),
                &["a"],
                1,
                none,
                none,
            ),
            (
                "losses",
                json!([
                    pod("a", &json!({"metadata": {"ownerReferences": null}})),
                    pod(
                        "b",
                        &json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}})
                    ),
                ]),
                json!([]),
                &["a", "b"],
                2,
                none,
                &[
                    "no controller recreates pod shop/a on another Node: the drain deletes it",
                    "the data in the emptyDir volumes of pod shop/b is lost",
                ],
            ),
            (
                "a pod that must complete",
                json!([pod(
                    "a",
                    &json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "wait-completed"}}})
                )]),
                json!([]),
                none,
                1,
                &["pod shop/a has not completed"],
                none,
            ),
        ] {
            let drain = node_drain("w1", from_value(pods).unwrap(), from_value(budgets).unwrap());
            let names: Vec<&str> = drain.evict.iter().map(|pod| pod.name.as_str()).collect();
            assert_eq!(
                (names.as_slice(), drain.remaining),
                (evicted, remaining),
                "{name}"
            );
            assert_eq!(
                (drain.delays, drain.losses),
                (
                    delays.iter().map(ToString::to_string).collect(),
                    losses.iter().map(ToString::to_string).collect(),
                ),
                "{name}"
            );
        }
    }
}
