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
    api::{Cluster, KubeadmControlPlane, decode},
    judge,
    testing::{
        case::{Base, NOW, V1BETA1, V1BETA2},
        row::merge,
    },
    topics::rules,
    topology::{ControlPlaneChange, Source},
    trusted_users,
    view::{Machine, View},
};
use serde_json::{Value, json};

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

fn judge_change(change: Change<'_, KubeadmControlPlane<'_>>, writer: &str) -> Judgement {
    let view = machines();
    let context = Context {
        writer: Some(writer),
        now: NOW.parse().ok(),
        view: Some(&view),
        topology: change.context.topology,
        ..Context::UNKNOWN
    };
    judge(&change.with_context(context), &Configuration::default())
}

/// `None` if the rules do not apply.
fn judge_write(source: Source<'_>, old: Option<&str>, new: &str) -> Option<Judgement> {
    let old: Option<Cluster<'_>> = old.map(|old| decode(old).unwrap());
    let new: Cluster<'_> = decode(new).unwrap();
    let change = ControlPlaneChange::new(source, old.as_ref(), &new).unwrap()?;
    Some(judge_change(change.change(), "alice"))
}

fn judge_update(control_plane: &str, old: &str, new: &str) -> Judgement {
    judge_write(Source::ControlPlane(control_plane), Some(old), new).unwrap()
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
                let judgement = judge_update(&control_plane, &old, &new);
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
    let old = cluster(V1BETA2, &json!({"version": "v1.36.3"}));
    let new = cluster(V1BETA2, &json!({"version": "v1.35.1"}));
    let found = |annotations: Value| {
        let mut new: Value = serde_json::from_str(&new).unwrap();
        new["metadata"]["annotations"] = annotations;
        found(&judge_update(&control_plane, &old, &new.to_string()).findings)
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
        for finding in judge_update(&control_plane, &old, &new).findings {
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
        let (old, new): (Cluster<'_>, Cluster<'_>) = (decode(&old).unwrap(), decode(&new).unwrap());
        let source = Source::ControlPlane(&control_plane);
        let change = ControlPlaneChange::new(source, Some(&old), &new).unwrap();
        let change = change.as_ref().unwrap();
        let denials = |topology| {
            let context = Context {
                topology,
                ..Context::UNKNOWN
            };
            let judgement = judge_change(change.change().with_context(context), "alice");
            let denied = judgement.denials().map(|finding| finding.rule.id);
            denied.filter(|rule| judged.contains(rule)).collect::<Vec<_>>()
        };
        assert_eq!(denials(change.change().context.topology), denials(None), "{case}");
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
    let (template, external) = (template.to_string(), external.to_string());
    let of_class = |text, is_patched| Source::Template { text, is_patched };
    let copy = json!({"spec": {"paused": true, "controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "edge-x"}}});
    let foreign = json!({"spec": {"controlPlaneRef": {"kind": "KamajiControlPlane", "name": "edge"}}});
    let even = |action| Some(vec![("replicas-even", REPLICAS.to_owned(), action)]);
    for (source, patch, expected) in [
        (of_class(&template, false), json!({}), even(Action::Deny)),
        (of_class(&external, false), json!({}), Some(vec![])),
        (of_class(&template, true), json!({}), even(Action::Warn)),
        (of_class(&template, false), copy, even(Action::Warn)),
        (Source::Unknown, json!({}), even(Action::Warn)),
        (Source::OtherKind, json!({}), None),
        (Source::Unknown, foreign, None),
    ] {
        let mut new: Value = serde_json::from_str(&cluster(V1BETA2, &two)).unwrap();
        merge(&mut new, &patch);
        let judgement = judge_write(source, None, &new.to_string());
        let found = judgement.map(|judgement| found(&judgement.findings));
        assert_eq!(found, expected, "{source:?} {patch}");
    }
    let zero = cluster(
        V1BETA2,
        &json!({"version": "v1.34.2", "controlPlane": {"replicas": 0}}),
    );
    let judgement = judge_write(Source::Unknown, None, &zero).unwrap();
    let zero = vec![("replicas-not-positive", REPLICAS.to_owned(), Action::Deny)];
    assert_eq!(found(&judgement.findings), zero);
}

/// The API server records the API version in which the topology controller applies the control plane.
#[test]
fn a_topology_in_v1beta1_plans_no_rollout() {
    let planned = json!({"version": "v1.34.2", "controlPlane": {"replicas": 3, "rollout": {"after": "2026-06-02T00:00:00Z"}}});
    let old = cluster(
        V1BETA2,
        &json!({"version": "v1.34.2", "controlPlane": {"replicas": 3}}),
    );
    let new = cluster(V1BETA2, &planned);
    let of_class =
        |class: &str| new.replace(r#""classRef":{"name":"edge"}"#, &format!(r#""classRef":{class}"#));
    let of_other_class = of_class(r#"{"name":"other"}"#);
    let of_same_class = of_class(r#"{"name":"edge","namespace":"default"}"#);
    assert!(new != of_other_class && new != of_same_class);
    let field = "spec.topology.controlPlane.rollout.after".to_owned();
    let refused = ("topology-rollout-unsupported", field, Action::Deny);
    for (version, new, expected) in [
        (V1BETA1, &new, vec![refused.clone()]),
        (V1BETA1, &of_same_class, vec![refused]),
        (V1BETA2, &new, vec![]),
        // The other class may refer to a template of v1beta2.
        (V1BETA1, &of_other_class, vec![]),
    ] {
        let applied = json!({"metadata": {"managedFields": [{
            "manager": "capi-topology", "operation": "Apply", "fieldsV1": {"f:spec": {"f:version": {}}},
            "apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
        }]}});
        let control_plane = control_plane(V1BETA2, &applied);
        let judgement = judge_update(&control_plane, &old, new);
        assert_eq!(found(&judgement.findings), expected, "{version} {new}");
    }
}

/// The old topology says what a control plane has that is not known.
#[test]
fn without_its_control_plane_a_topology_is_judged_by_what_changes() {
    let mut template = Base::Template(V1BETA2).object();
    let gates = json!({"spec": {"template": {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"featureGates": {
        "NoSuchGate": true}}}}}}});
    merge(&mut template, &gates);
    let template = template.to_string();
    let of_class = Source::Template {
        text: &template,
        is_patched: false,
    };
    let topology_of =
        |version: &str, replicas: i64| json!({"version": version, "controlPlane": {"replicas": replicas}});
    let labelled =
        json!({"version": "v1.34.2", "controlPlane": {"replicas": 3, "metadata": {"labels": {"a": "b"}}}});
    let rules = |source, new: &Value| {
        let (old, new) = (
            cluster(V1BETA2, &topology_of("v1.34.2", 3)),
            cluster(V1BETA2, new),
        );
        let judgement = judge_write(source, Some(&old), &new).unwrap();
        let findings = judgement.findings.iter();
        findings
            .map(|finding| (finding.rule.id, finding.action))
            .collect::<Vec<_>>()
    };
    for source in [of_class, Source::Unknown] {
        assert_eq!(rules(source, &labelled), []);
        assert_eq!(rules(source, &topology_of("v1.34.2", 5)), []);
        assert_eq!(rules(source, &topology_of("v1.34.3", 3)), []);
        let lowered = [("topology-version-lowered", Action::Deny)];
        assert_eq!(rules(source, &topology_of("v1.34.1", 3)), lowered);
        let dropped = [("replicas-dropped", Action::Deny)];
        assert_eq!(rules(source, &json!({"version": "v1.34.2"})), dropped);
        let both = [("replicas-with-upgrade", Action::Deny)];
        assert_eq!(rules(source, &topology_of("v1.35.0", 5)), both);
    }
}

/// As `util/version/version.go` of Cluster API compares builds.
#[test]
fn builds_are_ordered_as_the_topology_controller_orders_them() {
    let control_plane = control_plane(V1BETA2, &json!({}));
    let of_version = |version: &str| cluster(V1BETA2, &json!({"version": version}));
    for (old, new, is_lowered) in [
        ("v1.34.2+vmware.2-fips.1", "v1.34.2+vmware.1-fips.1", false),
        ("v1.34.2+f3a9c1d", "v1.34.2+0b77de2", false),
        ("v1.34.2+vmware.1", "v1.34.2+acme.1", false),
        ("v1.34.2+b.2", "v1.34.2+b.1", true),
        ("v1.34.2+b.10", "v1.34.2+b.9", true),
        ("v1.34.2+b.1.1", "v1.34.2+b.1", true),
        ("v1.34.2+b", "v1.34.2+1", true),
        ("v1.34.2+1", "v1.34.2+b", false),
        ("v1.34.2+b", "v1.34.2", true),
        ("v1.34.2", "v1.34.2+b", false),
        ("v1.34.2+z", "v1.34.3+a", false),
    ] {
        let mut running: Value = serde_json::from_str(&control_plane).unwrap();
        running["spec"]["version"] = old.into();
        let judgement = judge_update(&running.to_string(), &of_version(old), &of_version(new));
        let mut rules = judgement.findings.iter().map(|finding| finding.rule.id);
        assert_eq!(
            rules.any(|rule| rule == "topology-version-lowered"),
            is_lowered,
            "{old} -> {new}"
        );
    }
}

#[test]
fn an_override_of_the_cluster_itself_has_no_effect() {
    let control_plane = control_plane(V1BETA2, &json!({}));
    let annotation =
        json!({"kubectl-kcp.dev/override-rules": "topology-version-lowered=2026-06-01T18:00:00Z"});
    let old = cluster(V1BETA2, &json!({"version": "v1.34.2"}));
    let lowered = |metadata: Value, of_control_plane: Value| {
        let topology = json!({"version": "v1.34.1", "controlPlane": {"metadata": of_control_plane}});
        let mut new: Value = serde_json::from_str(&cluster(V1BETA2, &topology)).unwrap();
        merge(&mut new, &json!({ "metadata": metadata }));
        judge_update(&control_plane, &old, &new.to_string())
    };
    let ignored = lowered(json!({"annotations": annotation}), json!({}));
    assert!(ignored.is_denied());
    assert_eq!(
        ignored.ignored_overrides,
        [
            "the KubeadmControlPlane does not get the annotations of its Cluster: set the annotation in \
             spec.topology.controlPlane.metadata.annotations"
        ]
    );
    let overridden = lowered(json!({}), json!({"annotations": annotation}));
    assert!(!overridden.is_denied() && overridden.ignored_overrides.is_empty());
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
    let mut both = raised.clone();
    merge(&mut both, &changed);
    let old: KubeadmControlPlane<'_> = decode(&old).unwrap();
    for (patch, writer, expected) in [
        (&raised, trusted_users::CLUSTER_API, &[Action::Warn][..]),
        (&raised, "alice", &[Action::Deny]),
        // The class can be taken back.
        (&changed, trusted_users::CLUSTER_API, &[Action::Deny]),
        // So can what is written together with the version, which does not break it.
        (&both, trusted_users::CLUSTER_API, &[Action::Warn, Action::Deny]),
    ] {
        let new = control_plane(V1BETA2, patch);
        let new: KubeadmControlPlane<'_> = decode(&new).unwrap();
        let judgement = judge_change(Change::update(&old, &new), writer);
        let of_rule = judgement.findings.iter();
        let actions: Vec<_> = of_rule
            .filter(|finding| finding.rule.id == "kubeadm-feature-gate-unknown")
            .map(|finding| finding.action)
            .collect();
        assert_eq!(actions, expected, "{writer}: {patch}");
    }
}
