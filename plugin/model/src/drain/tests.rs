use std::collections::BTreeMap;

use kcp_api::{MachineDrainRule, names::annotation};
use serde_json::{Value, from_value, json};

use super::forecast;
use crate::{
    plan::DeletedMachines,
    snapshot::{DrainObjects, Failure, Reading, Snapshot},
    testing::{objects::annotate, snapshot::observed},
};

/// A ready pod of a `ReplicaSet` on the node of Machine `m1`, with changes.
fn pod(changes: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "node-m1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_patch::merge(&mut pod, changes);
    pod
}

/// A budget that allows no disruption of pods with the label `app: web`, with changes.
fn budget(changes: &Value) -> Value {
    let mut budget = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    json_patch::merge(&mut budget, changes);
    budget
}

fn rule(behavior: &str, spec: &Value) -> Value {
    let mut rule = json!({"metadata": {"name": "r"}, "spec": {"drain": {"behavior": behavior}}});
    json_patch::merge(&mut rule, &json!({ "spec": spec }));
    rule
}

fn draining(pods: &[Value], budgets: &[Value], rules: &[Value]) -> Snapshot {
    let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
    let rules: Vec<MachineDrainRule> = from_value(json!(rules)).expect("rules");
    Snapshot {
        drain: Box::new(Reading::Read(DrainObjects {
            pods: from_value(json!(pods)).expect("pods"),
            budgets: from_value(json!(budgets)).expect("budgets"),
            namespaces: [("shop".to_owned(), labels("a")), ("lab".to_owned(), labels("b"))].into(),
            rules: Reading::Read(rules),
        })),
        ..observed()
    }
}

fn forecast_of(observed: &Snapshot, names: &[&str]) -> Vec<String> {
    let certain = names.iter().map(ToString::to_string).collect();
    let deleted = DeletedMachines {
        certain,
        ..DeletedMachines::default()
    };
    forecast(observed, &deleted)
}

const REFUSED: &str = "the drain of Machine m1 waits, because PodDisruptionBudget shop/web allows no \
    disruption of pod shop/web-0; without a nodeDrainTimeout, Cluster API waits indefinitely";
const NOT_RECREATED: &str = "the drain of Machine m1 deletes pod shop/web-0, and no controller recreates it";
const LOSES_DATA: &str = "the drain of Machine m1 deletes the data in the emptyDir volumes of pod shop/web-0";
const WAITS: &str = "the drain of Machine m1 waits until pod shop/web-0 completes; without a \
    nodeDrainTimeout, Cluster API waits indefinitely";
const SEVERAL: &str = "the drain of Machine m1 waits, because more than one PodDisruptionBudget selects pod \
    shop/web-0, and the API server does not evict pods that several budgets select; without a \
    nodeDrainTimeout, Cluster API waits indefinitely";

#[test]
fn a_budget_refuses_what_the_api_server_refuses() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let other_budget = budget(&json!({"metadata": {"name": "other"}}));
    let cases: &[(&str, Value, Vec<Value>, &[&str])] = &[
        ("no budget", json!({}), vec![], &[]),
        ("it allows none", json!({}), vec![budget(&json!({}))], &[REFUSED]),
        (
            "it allows one",
            json!({}),
            vec![budget(&json!({"status": {"disruptionsAllowed": 1}}))],
            &[],
        ),
        (
            "the controller has not counted yet",
            json!({}),
            vec![budget(&json!({"status": null}))],
            &[REFUSED],
        ),
        (
            "it changed, and the controller has not counted again",
            json!({}),
            vec![budget(
                &json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "disruptionsAllowed": 1}}),
            )],
            &[REFUSED],
        ),
        (
            "another namespace",
            json!({}),
            vec![budget(&json!({"metadata": {"namespace": "lab"}}))],
            &[],
        ),
        (
            "other labels",
            json!({"metadata": {"labels": {"app": "db"}}}),
            vec![budget(&json!({}))],
            &[],
        ),
        (
            "an empty selector selects every pod",
            json!({}),
            vec![budget(&json!({"spec": {"selector": {"matchLabels": null}}}))],
            &[REFUSED],
        ),
        (
            "no selector selects none",
            json!({}),
            vec![budget(&json!({"spec": {"selector": null}}))],
            &[],
        ),
        (
            "two budgets",
            json!({}),
            vec![budget(&json!({})), other_budget],
            &[SEVERAL],
        ),
        (
            "an unready pod beside enough ready ones",
            unready.clone(),
            vec![budget(&json!({}))],
            &[],
        ),
        (
            "an unready pod that is missing",
            unready.clone(),
            vec![budget(&json!({"status": {"currentHealthy": 0}}))],
            &[REFUSED],
        ),
        (
            "an unready pod and AlwaysAllow",
            unready,
            vec![budget(
                &json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"currentHealthy": 0}}),
            )],
            &[],
        ),
        (
            "a pending pod",
            json!({"status": {"phase": "Pending"}}),
            vec![budget(&json!({}))],
            &[],
        ),
        (
            "a pod that is being deleted",
            json!({"metadata": {"deletionTimestamp": "2026-08-21T11:00:00Z", "ownerReferences": null}}),
            vec![budget(&json!({}))],
            &[],
        ),
    ];
    for (name, changes, budgets, expected) in cases {
        let observed = draining(&[pod(changes)], budgets, &[]);
        assert_eq!(forecast_of(&observed, &["m1"]), *expected, "{name}");
    }
}

#[test]
fn the_drain_evicts_what_cluster_api_evicts() {
    let alone = json!({"metadata": {"ownerReferences": null}});
    let of_daemon_set = json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "u", "controller": true}]}});
    let storage = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    let labelled = |value: &str| json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": value}}});
    let selects = |label: &str| json!({"selector": {"matchLabels": {"app": label}}});
    let in_team = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
    let no_rule = Vec::new;
    let cases: &[(&str, Value, Vec<Value>, &[&str])] = &[
        (
            "without controller",
            alone.clone(),
            no_rule(),
            &[REFUSED, NOT_RECREATED],
        ),
        ("with local storage", storage, no_rule(), &[REFUSED, LOSES_DATA]),
        ("of a DaemonSet", of_daemon_set, no_rule(), &[]),
        (
            "static",
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}, "ownerReferences": null}}),
            no_rule(),
            &[],
        ),
        (
            "completed",
            json!({"status": {"phase": "Succeeded"}, "metadata": {"ownerReferences": null}}),
            no_rule(),
            &[],
        ),
        ("label skip", labelled("Skip"), no_rule(), &[]),
        (
            "label wait-completed",
            labelled("wait-completed"),
            no_rule(),
            &[WAITS],
        ),
        ("another label", labelled("later"), no_rule(), &[REFUSED]),
        (
            "rule for all pods",
            json!({}),
            vec![rule("Skip", &json!({}))],
            &[],
        ),
        (
            "rule that waits",
            json!({}),
            vec![rule("WaitCompleted", &json!({"pods": [selects("web")]}))],
            &[WAITS],
        ),
        (
            "rule for other pods",
            json!({}),
            vec![rule("Skip", &json!({"pods": [selects("db")]}))],
            &[REFUSED],
        ),
        (
            "rule for its namespace",
            json!({}),
            vec![rule("Skip", &json!({"pods": [in_team("a")]}))],
            &[],
        ),
        (
            "rule for another namespace",
            json!({}),
            vec![rule("Skip", &json!({"pods": [in_team("b")]}))],
            &[REFUSED],
        ),
        (
            "rule for other Machines",
            json!({}),
            vec![rule(
                "Skip",
                &json!({"machines": [{"selector": {"matchLabels": {"pool": "x"}}}]}),
            )],
            &[REFUSED],
        ),
        (
            "the first rule by name decides",
            json!({}),
            vec![rule("Skip", &json!({})), {
                let mut first = rule("Drain", &json!({}));
                first["metadata"]["name"] = json!("a");
                first
            }],
            &[REFUSED],
        ),
    ];
    for (name, changes, rules, expected) in cases {
        let observed = draining(&[pod(changes)], &[budget(&json!({}))], rules);
        assert_eq!(forecast_of(&observed, &["m1"]), *expected, "{name}");
    }
}

#[test]
fn a_rule_with_an_invalid_selector_fails_every_drain() {
    let operator = json!({"matchExpressions": [{"key": "app", "operator": "Sometimes"}]});
    for spec in [
        json!({"machines": [{"selector": operator}]}),
        json!({"machines": [{"clusterSelector": operator}]}),
        json!({"pods": [{"selector": operator}]}),
        json!({"pods": [{}, {"namespaceSelector": operator}]}),
    ] {
        let observed = draining(&[], &[], &[rule("Skip", &json!({})), rule("Skip", &spec)]);
        assert_eq!(
            forecast_of(&observed, &["m1"]),
            [
                "the drain of Machine m1 fails, because MachineDrainRule r has an invalid selector; without a \
                 nodeDrainTimeout, Cluster API waits indefinitely"
            ],
            "{spec}"
        );
    }
}

#[test]
fn a_pod_that_has_completed_is_waited_for_until_it_is_gone() {
    let finished = json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "wait-completed"}},
        "status": {"phase": "Succeeded"}});
    let mut observed = draining(&[pod(&finished)], &[], &[]);
    assert_eq!(
        forecast_of(&observed, &["m1"]),
        [
            "the drain of Machine m1 waits until pod shop/web-0, which has completed, is deleted; without a \
             nodeDrainTimeout, Cluster API waits indefinitely"
        ]
    );
    // Cluster API does not wait for the deletion of a pod whose kubelet is unreachable.
    let mut deleted = pod(&finished);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-08-21T11:00:00Z");
    observed.drain = draining(&[deleted], &[], &[]).drain;
    assert_eq!(forecast_of(&observed, &["m1"]).len(), 1);
    observed.nodes()[0].is_unreachable = true;
    assert_eq!(forecast_of(&observed, &["m1"]), [""; 0]);
}

#[test]
fn only_the_machines_that_go_are_drained() {
    let observed = draining(&[pod(&json!({}))], &[budget(&json!({}))], &[]);
    assert_eq!(forecast_of(&observed, &["m2", "m3"]), [""; 0]);
    assert_eq!(forecast_of(&observed, &["m1", "m2"]), [REFUSED]);
    let mut excluded = observed;
    annotate(
        &mut excluded.machines[0].metadata,
        annotation::EXCLUDE_NODE_DRAINING,
        "",
    );
    assert_eq!(
        forecast_of(&excluded, &["m1"]),
        [
            "Cluster API deletes Machine m1 without draining its node, because the Machine has the annotation machine.cluster.x-k8s.io/exclude-node-draining"
        ]
    );
}

#[test]
fn a_timeout_ends_the_drain_and_long_lists_are_counted() {
    let named = |name: &str| pod(&json!({"metadata": {"name": name}}));
    let pods = ["e", "d", "c", "b", "a"].map(named);
    let mut observed = draining(&pods, &[budget(&json!({}))], &[]);
    observed.machines[0].spec.node_drain_timeout = Some(jiff::SignedDuration::from_mins(10));
    assert_eq!(
        forecast_of(&observed, &["m1"]),
        [
            "the drain of Machine m1 waits, because PodDisruptionBudget shop/web allows no disruption of \
             pods shop/a, shop/b, shop/c and 2 more; Cluster API deletes the Machine anyway after 10m"
        ]
    );
}

#[test]
fn what_could_not_be_read_is_said() {
    let failure = Failure {
        object: "Pod".to_owned(),
        message: "no answer within 3s".to_owned(),
        hint: None,
        ..Failure::default()
    };
    let unread = Snapshot {
        drain: Box::new(Reading::Failed(failure.clone())),
        ..observed()
    };
    assert_eq!(
        forecast_of(&unread, &["m1", "m2"]),
        [
            "could not read Pod, so it is unknown whether anything blocks the drain of Machines m1 and m2: \
             no answer within 3s"
        ]
    );
    assert_eq!(forecast_of(&unread, &[]), [""; 0]);
    let mut without_rules = draining(&[], &[], &[]);
    if let Reading::Read(objects) = &mut *without_rules.drain {
        objects.rules = Reading::Failed(failure);
    }
    assert_eq!(
        forecast_of(&without_rules, &["m1"]),
        ["could not list MachineDrainRules: no answer within 3s; assuming that there are none"]
    );
    assert_eq!(forecast_of(&without_rules, &[]), [""; 0]);
}
