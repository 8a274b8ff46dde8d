//! The topology of a Cluster is judged as the change of its control plane.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::format_push_string,
    reason = "tests: they may panic, and speed does not matter"
)]

use std::collections::BTreeSet;

use kcp_rules::{
    Action, Change, Configuration, Context, Finding, InTopology, Judgement,
    api::{Cluster, KubeadmControlPlane, KubeadmControlPlaneTemplate, decode},
    case::{Base, NOW, V1BETA1, V1BETA2},
    context::OfTopology,
    judge,
    row::merge,
    topics::rules,
    topology, trusted_users,
    view::{Machine, View},
};
use serde_json::{Value, json};

const KNOWN: OfTopology = OfTopology {
    knows_configuration: true,
    is_copy: false,
};

/// A Cluster with a topology, in an API version.
fn cluster(version: &str, topology: &Value) -> String {
    let mut topology = topology.clone();
    let class = match version {
        V1BETA1 => json!({"class": "edge"}),
        _ => json!({"classRef": {"name": "edge"}}),
    };
    merge(&mut topology, &class);
    json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"topology": topology},
    })
    .to_string()
}

fn control_plane(version: &'static str, patch: &Value) -> String {
    let mut object = Base::ControlPlane(version).object();
    let running = json!({
        "metadata": {"generation": 4, "labels": {"cluster.x-k8s.io/cluster-name": "edge", "topology.cluster.x-k8s.io/owned": ""}},
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "upToDateReplicas": 3, "version": "v1.34.2"},
    });
    merge(&mut object, &running);
    merge(&mut object, patch);
    object.to_string()
}

/// Machines that run the version of the control plane.
fn machines() -> View {
    let machine = |name: &str| Machine {
        name: name.to_owned(),
        version: Some("v1.34.2".to_owned()),
        created: "2026-05-01T00:00:00Z".parse().ok(),
        has_node: true,
        has_controller: true,
        ..Machine::default()
    };
    View {
        machines: Some(["a", "b", "c"].map(machine).to_vec()),
        cluster: Some(None),
        ..View::default()
    }
}

fn judge_change(
    change: Change<'_, KubeadmControlPlane<'_>>,
    topology: Option<OfTopology>,
    writer: &str,
) -> Judgement {
    let view = machines();
    let context = Context {
        writer: Some(writer),
        now: NOW.parse().ok(),
        view: Some(&view),
        topology,
        ..Context::UNKNOWN
    };
    judge(&change.with_context(context), &Configuration::default())
}

fn judge_update(control_plane: &str, old: Option<&str>, new: &str) -> Judgement {
    let control_plane: KubeadmControlPlane<'_> = decode(control_plane).unwrap();
    let old: Option<Cluster<'_>> = old.map(|old| decode(old).unwrap());
    let new: Cluster<'_> = decode(new).unwrap();
    let was = old.as_ref().and_then(Cluster::topology);
    let (before, after) = topology::changed(&control_plane, was, new.topology().unwrap());
    judge_change(Change::update(&before, &after), Some(KNOWN), "alice")
}

fn judge_creation(template: Option<&Value>, new: &Value, topology: OfTopology) -> Judgement {
    let text = template.map(Value::to_string);
    let template: Option<KubeadmControlPlaneTemplate<'_>> = text.as_deref().map(|text| decode(text).unwrap());
    let cluster = cluster(V1BETA2, new);
    let cluster: Cluster<'_> = decode(&cluster).unwrap();
    let control_plane =
        topology::created(&cluster, None, cluster.topology().unwrap(), template.as_ref()).unwrap();
    judge_change(Change::create(&control_plane), Some(topology), "alice")
}

fn found(findings: &[Finding]) -> Vec<(&'static str, String, Action)> {
    let findings = findings.iter();
    let found = findings.map(|finding| (finding.rule.id, finding.fault.field.to_string(), finding.action));
    found.collect()
}

const VERSION: &str = "spec.topology.version";
const REPLICAS: &str = "spec.topology.controlPlane.replicas";

type Case = (
    &'static str,
    Value,
    Value,
    Value,
    &'static [(&'static str, &'static str, Action)],
);

/// The control plane's patch, the old topology, the new one, and the findings.
fn cases() -> Vec<Case> {
    use Action::{Deny, Warn};
    let count = |replicas: i64| json!({"version": "v1.34.2", "controlPlane": {"replicas": replicas}});
    let three = || count(3);
    let annotated = |key: &str| json!({"version": "v1.34.2", "controlPlane": {"replicas": 3, "metadata": {"annotations": {key: ""}}}});
    let rolled = |time: &str| json!({"version": "v1.34.2", "controlPlane": {"replicas": 3, "rollout": {"after": time}}});
    let same = || json!({});
    vec![
        ("replicas 5", same(), three(), count(5), &[]),
        (
            "replicas 0",
            same(),
            three(),
            count(0),
            &[("replicas-not-positive", REPLICAS, Deny)],
        ),
        (
            "replicas negative",
            same(),
            three(),
            count(-1),
            &[("replicas-not-positive", REPLICAS, Deny)],
        ),
        (
            "replicas even",
            same(),
            three(),
            count(2),
            &[("replicas-even", REPLICAS, Deny)],
        ),
        (
            "replicas even with external etcd",
            json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {"endpoints": ["https://a"]}}}}}}),
            three(),
            count(2),
            &[],
        ),
        (
            "replicas 9",
            same(),
            three(),
            count(9),
            &[("replicas-above-seven", REPLICAS, Warn)],
        ),
        (
            "replicas removed",
            same(),
            three(),
            json!({"version": "v1.34.2"}),
            &[("replicas-dropped", REPLICAS, Deny)],
        ),
        (
            "replicas never set",
            same(),
            json!({"version": "v1.34.2"}),
            json!({"version": "v1.34.3"}),
            &[],
        ),
        ("bad replicas taken back", same(), count(2), three(), &[]),
        (
            "bad replicas left alone",
            same(),
            count(2),
            json!({"version": "v1.34.2", "controlPlane": {"replicas": 2, "metadata": {"labels": {"a": "b"}}}}),
            &[],
        ),
        (
            "version with replicas",
            same(),
            three(),
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 5}}),
            &[("replicas-with-upgrade", REPLICAS, Deny)],
        ),
        (
            "version over two minors",
            same(),
            three(),
            json!({"version": "v1.36.0", "controlPlane": {"replicas": 3}}),
            &[],
        ),
        (
            "replicas while the version is pending",
            same(),
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 3}}),
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 5}}),
            &[("replicas-during-rollout", REPLICAS, Deny)],
        ),
        (
            "another version while one is pending",
            same(),
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 3}}),
            json!({"version": "v1.36.0", "controlPlane": {"replicas": 3}}),
            &[("version-changes-too-early", VERSION, Deny)],
        ),
        (
            "pending version taken back",
            same(),
            json!({"version": "v1.35.0", "controlPlane": {"replicas": 3}}),
            three(),
            &[],
        ),
        (
            "replicas during a rollout",
            json!({"status": {"replicas": 4, "updatedReplicas": 1, "upToDateReplicas": 1}}),
            three(),
            count(5),
            &[("replicas-during-rollout", REPLICAS, Deny)],
        ),
        (
            "version not semantic",
            same(),
            three(),
            json!({"version": "latest", "controlPlane": {"replicas": 3}}),
            &[("version-not-semantic", VERSION, Deny)],
        ),
        (
            "pre-release of the same release",
            same(),
            three(),
            json!({"version": "v1.34.2-rc.1", "controlPlane": {"replicas": 3}}),
            &[("topology-version-lowered", VERSION, Deny)],
        ),
        (
            "lower patch",
            same(),
            three(),
            json!({"version": "v1.34.1", "controlPlane": {"replicas": 3}}),
            &[("topology-version-lowered", VERSION, Deny)],
        ),
        (
            "rollout in the past",
            same(),
            three(),
            rolled("2026-05-02T00:00:00Z"),
            &[(
                "rollout-after-past",
                "spec.topology.controlPlane.rollout.after",
                Warn,
            )],
        ),
        (
            "rollout now",
            same(),
            three(),
            rolled("2026-06-01T12:00:00Z"),
            &[],
        ),
        (
            "scale of a paused control plane by its annotation",
            same(),
            three(),
            annotated("cluster.x-k8s.io/paused"),
            &[(
                "machine-annotation-misplaced",
                "spec.topology.controlPlane.metadata.annotations[cluster.x-k8s.io/paused]",
                Deny,
            )],
        ),
        (
            "remediation of every Machine",
            same(),
            three(),
            annotated("cluster.x-k8s.io/remediate-machine"),
            &[(
                "machine-annotation-misplaced",
                "spec.topology.controlPlane.metadata.annotations[cluster.x-k8s.io/remediate-machine]",
                Deny,
            )],
        ),
        (
            "a label that is not valid",
            same(),
            three(),
            json!({"version": "v1.34.2", "controlPlane": {"replicas": 3, "metadata": {"labels": {"a b": "c"}}}}),
            &[(
                "machine-label-invalid",
                "spec.topology.controlPlane.metadata.labels",
                Deny,
            )],
        ),
        (
            "maxSurge 0 and one Machine",
            json!({"spec": {
                "rollout": {"strategy": {"rollingUpdate": {"maxSurge": 0}}},
                "rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}},
            }}),
            three(),
            count(1),
            &[("max-surge-zero-below-three", REPLICAS, Deny)],
        ),
        (
            "a gate that the new version does not know",
            json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}}}}}),
            three(),
            json!({"version": "v1.36.0", "controlPlane": {"replicas": 3}}),
            &[("kubeadm-feature-gate-unknown", VERSION, Warn)],
        ),
    ]
}

#[test]
fn a_topology_is_judged_as_the_change_of_its_control_plane() {
    for (case, patch, old, new, expected) in cases() {
        for version in [V1BETA2, V1BETA1] {
            let control_plane = control_plane(version, &patch);
            for version in [V1BETA2, V1BETA1] {
                let (old, new) = (cluster(version, &old), cluster(version, &new));
                let judgement = judge_update(&control_plane, Some(&old), &new);
                let expected: Vec<_> = expected
                    .iter()
                    .map(|(rule, field, action)| (*rule, (*field).to_owned(), *action))
                    .collect();
                assert_eq!(found(&judgement.findings), expected, "{case}");
            }
        }
    }
}

#[test]
fn a_pending_version_is_taken_back_only_without_cluster_apis_check() {
    let control_plane = control_plane(V1BETA2, &json!({}));
    let control_plane: KubeadmControlPlane<'_> = decode(&control_plane).unwrap();
    let old = cluster(V1BETA2, &json!({"version": "v1.36.3"}));
    let new = cluster(V1BETA2, &json!({"version": "v1.35.1"}));
    let found = |annotations: Value| {
        let mut new: Value = serde_json::from_str(&new).unwrap();
        new["metadata"]["annotations"] = annotations;
        let new = new.to_string();
        let (old, new): (Cluster<'_>, Cluster<'_>) = (decode(&old).unwrap(), decode(&new).unwrap());
        let was = topology::before(&old, &new);
        let (before, after) = topology::changed(&control_plane, was.as_ref(), new.topology().unwrap());
        let judgement = judge_change(Change::update(&before, &after), Some(KNOWN), "alice");
        found(&judgement.findings)
    };
    let lowered = ("topology-version-lowered", VERSION.to_owned(), Action::Deny);
    assert_eq!(found(json!({})), [lowered]);
    let unchecked = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";
    assert_eq!(found(json!({ unchecked: "" })), []);
}

/// Every message as the user reads it.
#[test]
fn messages() {
    let mut list = String::new();
    for (case, patch, old, new, _) in cases() {
        let control_plane = control_plane(V1BETA2, &patch);
        let (old, new) = (cluster(V1BETA2, &old), cluster(V1BETA2, &new));
        for finding in judge_update(&control_plane, Some(&old), &new).findings {
            let field = &finding.fault.field;
            list.push_str(&format!("{case}\n  {field}: {}\n", finding.message()));
        }
    }
    insta::assert_snapshot!(list);
}

/// What the rules of the subset deny at the control plane, they deny at the Cluster.
#[test]
fn the_cluster_is_denied_what_the_control_plane_would_be() {
    let judged: BTreeSet<&str> = rules()
        .filter(|rule| rule.topology == InTopology::Judged)
        .map(|rule| rule.id)
        .collect();
    for (case, patch, old, new, _) in cases() {
        let control_plane = control_plane(V1BETA2, &patch);
        let (old, new) = (cluster(V1BETA2, &old), cluster(V1BETA2, &new));
        let control_plane: KubeadmControlPlane<'_> = decode(&control_plane).unwrap();
        let (old, new): (Cluster<'_>, Cluster<'_>) = (decode(&old).unwrap(), decode(&new).unwrap());
        let (before, after) = topology::changed(&control_plane, old.topology(), new.topology().unwrap());
        let denials = |topology| {
            let judgement = judge_change(Change::update(&before, &after), topology, "alice");
            let denied = judgement.denials().map(|finding| finding.rule.id);
            denied.filter(|rule| judged.contains(rule)).collect::<Vec<_>>()
        };
        assert_eq!(denials(Some(KNOWN)), denials(None), "{case}");
    }
}

#[test]
fn a_new_cluster_is_judged_with_the_template_of_its_class() {
    let template = Base::Template(V1BETA2).object();
    let mut external = template.clone();
    merge(
        &mut external,
        &json!({"spec": {"template": {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {
            "endpoints": ["https://a"]}}}}}}}}),
    );
    let two = json!({"version": "v1.34.2", "controlPlane": {"replicas": 2}});
    let patched = OfTopology {
        knows_configuration: false,
        ..KNOWN
    };
    let copied = OfTopology {
        is_copy: true,
        ..KNOWN
    };
    let even = |action| vec![("replicas-even", REPLICAS.to_owned(), action)];
    for (template, topology, expected) in [
        (Some(&template), KNOWN, even(Action::Deny)),
        (Some(&external), KNOWN, vec![]),
        (Some(&template), patched, even(Action::Warn)),
        (Some(&template), copied, even(Action::Warn)),
        (None, patched, even(Action::Warn)),
    ] {
        let judgement = judge_creation(template, &two, topology);
        assert_eq!(found(&judgement.findings), expected, "{topology:?}");
    }
    let none = judge_creation(
        None,
        &json!({"version": "v1.34.2", "controlPlane": {"replicas": 0}}),
        patched,
    );
    let zero = vec![("replicas-not-positive", REPLICAS.to_owned(), Action::Deny)];
    assert_eq!(found(&none.findings), zero);
}

/// Users cannot lower the version of a topology again, so its controller only gets warnings of what the version alone breaks.
#[test]
fn a_new_version_of_the_topology_controller_only_warns() {
    let gates = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"featureGates": {"ControlPlaneKubeletLocalMode": true}}}}});
    let old = control_plane(V1BETA2, &gates);
    let (mut raised, mut changed) = (gates.clone(), gates);
    merge(&mut raised, &json!({"spec": {"version": "v1.36.0"}}));
    merge(
        &mut changed,
        &json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"featureGates": {"NoSuchGate": true}}}}}),
    );
    let old: KubeadmControlPlane<'_> = decode(&old).unwrap();
    for (patch, writer, expected) in [
        (&raised, trusted_users::CLUSTER_API, Action::Warn),
        (&raised, "alice", Action::Deny),
        // The class can be taken back.
        (&changed, trusted_users::CLUSTER_API, Action::Deny),
    ] {
        let new = control_plane(V1BETA2, patch);
        let new: KubeadmControlPlane<'_> = decode(&new).unwrap();
        let judgement = judge_change(Change::update(&old, &new), None, writer);
        let of_rule = judgement.findings.iter();
        let actions: Vec<_> = of_rule
            .filter(|finding| finding.rule.id == "kubeadm-feature-gate-unknown")
            .map(|finding| finding.action)
            .collect();
        assert_eq!(actions, [expected], "{writer}: {patch}");
    }
}
