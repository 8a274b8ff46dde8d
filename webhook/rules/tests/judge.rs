//! How configuration, ratcheting and overrides change the action of a finding.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests may panic"
)]

use kcp_rules::{
    Action, Change, Configuration, Context, Judgement,
    api::{ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane, decode},
    configuration::ConfigurationError,
    judge,
    testing::case::{Base, NOW, V1BETA2},
    topics,
    view::{Cluster, View},
};
use serde_json::{Value, json};

fn control_plane(edit: impl FnOnce(&mut Value)) -> String {
    let mut object = Base::ControlPlane(V1BETA2).object();
    edit(&mut object);
    object.to_string()
}

fn pool(inventory: &[&str]) -> String {
    let mut object = Base::ClusterPool.object();
    object["spec"]["inventory"] = inventory.iter().map(|name| json!({ "name": name })).collect();
    object.to_string()
}

fn configuration(rules: Value) -> Configuration {
    let document =
        json!({"apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": "AdmissionConfiguration", "rules": rules});
    serde_json::from_value::<Configuration>(document)
        .unwrap()
        .validate(topics::is_rule)
        .unwrap()
}

fn actions(judgement: &Judgement) -> Vec<(&str, Action)> {
    judgement
        .findings
        .iter()
        .map(|finding| (finding.rule.id, finding.action))
        .collect()
}

fn update(old: &str, new: &str) -> Judgement {
    let (old, new): (KubeadmControlPlane, KubeadmControlPlane) = (decode(old).unwrap(), decode(new).unwrap());
    let context = Context {
        now: Some(NOW.parse().unwrap()),
        ..Context::UNKNOWN
    };
    judge(
        &Change::update(&old, &new).with_context(context),
        &Configuration::default(),
    )
}

#[test]
fn configuration_sets_the_action() {
    let four = control_plane(|object| object["spec"]["replicas"] = json!(4));
    let four: KubeadmControlPlane = decode(&four).unwrap();
    for (action, expected) in [
        ("deny", vec![("replicas-even", Action::Deny)]),
        ("warn", vec![("replicas-even", Action::Warn)]),
        ("audit", vec![("replicas-even", Action::Audit)]),
        ("off", vec![]),
    ] {
        let judgement = judge(
            &Change::create(&four),
            &configuration(json!({ "replicas-even": action })),
        );
        assert_eq!(actions(&judgement), expected, "{action}");
    }
}

#[test]
fn configuration_sets_what_happens_if_a_rule_cannot_read() {
    let one = control_plane(|_| {});
    let one: KubeadmControlPlane = decode(&one).unwrap();
    let failed = || View {
        failures: vec!["could not read the namespace: timeout".to_owned()],
        ..View::default()
    };
    let rule = "control-plane-in-use";
    for (action, on_unread, view, denied, skipped) in [
        ("deny", None, failed(), true, &[][..]),
        ("deny", Some("deny"), failed(), true, &[]),
        ("deny", Some("warn"), failed(), false, &[rule][..]),
        ("warn", None, failed(), false, &[rule]),
        // Nothing was read yet, or `lint` cannot read it.
        ("deny", Some("deny"), View::default(), false, &[]),
        // One known object permits the deletion.
        (
            "deny",
            None,
            View {
                worker_machines: Vec::new().into(),
                ..failed()
            },
            false,
            &[],
        ),
    ] {
        let context = Context {
            view: Some(&view),
            ..Context::UNKNOWN
        };
        let mut configuration = configuration(json!({ rule: action }));
        let on_unread = on_unread.map(|set| (rule.to_owned(), serde_json::from_value(json!(set)).unwrap()));
        configuration.on_unread = on_unread.into_iter().collect();
        let judgement = judge(&Change::delete(&one).with_context(context), &configuration);
        assert_eq!(
            judgement.is_denied(),
            denied,
            "{action} {:?}",
            configuration.on_unread
        );
        assert_eq!(
            judgement.skipped.iter().map(|rule| rule.id).collect::<Vec<_>>(),
            skipped
        );
        if denied {
            assert_eq!(
                judgement.findings[0].message().to_string(),
                "Forbidden: could not check this rule: could not read the namespace: timeout; try again, or override the rule if \
                 you know that the change complies with it (control-plane-in-use)"
            );
        }
    }
}

#[test]
fn configuration_rejects_unknown_rules_and_kinds() {
    let document = |kind: &str, rule: &str| {
        let rules = json!({ rule: "warn" });
        let document = json!({"apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": kind, "rules": rules});
        serde_json::from_value::<Configuration>(document)
            .unwrap()
            .validate(topics::is_rule)
    };
    assert_eq!(
        document("AdmissionConfiguration", "replicas-odd"),
        Err(ConfigurationError::UnknownRule {
            id: "replicas-odd".to_owned()
        })
    );
    assert_eq!(
        document("Configuration", "replicas-even"),
        Err(ConfigurationError::Kind {
            found_version: "kubectl-kcp.dev/v1alpha1".to_owned(),
            found_kind: "Configuration".to_owned()
        })
    );
}

#[test]
fn an_existing_fault_is_a_warning() {
    let old = control_plane(|object| object["spec"]["replicas"] = json!(4));
    let new = control_plane(|object| {
        object["spec"]["replicas"] = json!(4);
        object["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["imageRepository"] = json!("a.example/b");
    });
    assert_eq!(actions(&update(&old, &new)), [("replicas-even", Action::Warn)]);
}

#[test]
fn an_existing_fault_with_a_new_value_is_denied() {
    let old = control_plane(|object| object["spec"]["replicas"] = json!(4));
    let new = control_plane(|object| object["spec"]["replicas"] = json!(6));
    assert_eq!(actions(&update(&old, &new)), [("replicas-even", Action::Deny)]);
}

/// `clusterctl move` creates the Cluster first, which it has paused.
#[test]
fn only_an_object_of_a_paused_cluster_is_a_copy() {
    let object = |kind: &str, uid: &str| {
        let owner =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "example", "uid": uid});
        control_plane(|object| {
            object["spec"]["replicas"] = json!(4);
            object["metadata"]["ownerReferences"] = json!([owner]);
        })
    };
    let cluster = |uid: &str, paused| View {
        cluster: Some(Cluster {
            name: "example".to_owned(),
            uid: Some(uid.to_owned()),
            paused,
            ..Cluster::default()
        })
        .into(),
        ..View::default()
    };
    let absent = || View {
        cluster: Some(None),
        ..View::default()
    };
    for (name, kind, writer, view, action) in [
        (
            "moved",
            "Cluster",
            Some("jane"),
            Some(cluster("u", true)),
            Action::Warn,
        ),
        (
            "not paused",
            "Cluster",
            Some("jane"),
            Some(cluster("u", false)),
            Action::Deny,
        ),
        (
            "another uid",
            "Cluster",
            Some("jane"),
            Some(cluster("v", true)),
            Action::Deny,
        ),
        (
            "no Cluster",
            "Cluster",
            Some("jane"),
            Some(absent()),
            Action::Deny,
        ),
        (
            "unread",
            "Cluster",
            Some("jane"),
            Some(View::default()),
            Action::Deny,
        ),
        (
            "a class",
            "ClusterClass",
            Some("jane"),
            Some(cluster("u", true)),
            Action::Deny,
        ),
        ("mutating webhook", "Cluster", Some("jane"), None, Action::Warn),
        ("lint", "Cluster", None, Some(View::default()), Action::Deny),
        (
            "lint of another",
            "Cluster",
            None,
            Some(cluster("v", true)),
            Action::Deny,
        ),
    ] {
        let object = object(kind, "u");
        let object: KubeadmControlPlane = decode(&object).unwrap();
        let context = Context {
            writer,
            view: view.as_ref(),
            ..Context::UNKNOWN
        };
        let judgement = judge(
            &Change::create(&object).with_context(context),
            &Configuration::default(),
        );
        assert_eq!(actions(&judgement), [("replicas-even", action)], "{name}");
    }
}

fn authorizing() -> Configuration {
    Configuration {
        authorize_overrides: true,
        ..configuration(json!({}))
    }
}

fn scaling_during_rollout(edit: impl FnOnce(&mut Value, &mut Value)) -> (String, String) {
    let mut old = Base::ControlPlane(V1BETA2).object();
    old["metadata"]["generation"] = json!(2);
    old["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "example"});
    old["status"] = json!({"observedGeneration": 2, "version": "v1.20.0", "replicas": 3});
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(5);
    edit(&mut old, &mut new);
    (old.to_string(), new.to_string())
}

/// With `authorizeOverrides`, only a user with the verb can make a change that a pause would let pass, and the pause must come
/// first.
#[test]
fn a_pause_needs_the_permission_to_override() {
    let pause = json!({"cluster.x-k8s.io/paused": ""});
    let before = scaling_during_rollout(|old, new| {
        for object in [old, new] {
            object["metadata"]["annotations"] = pause.clone();
        }
    });
    let together = scaling_during_rollout(|_, new| new["metadata"]["annotations"] = pause.clone());
    let rule = "replicas-during-rollout";
    let refused = ("override-not-allowed", Action::Deny);
    for (name, (old, new), configuration, may_override, expected) in [
        (
            "without the setting",
            &together,
            Configuration::default(),
            None,
            vec![(rule, Action::Warn)],
        ),
        (
            "pause first",
            &before,
            authorizing(),
            Some(true),
            vec![(rule, Action::Warn)],
        ),
        (
            "pause first",
            &before,
            authorizing(),
            Some(false),
            vec![(rule, Action::Deny)],
        ),
        (
            "pause first, unread",
            &before,
            authorizing(),
            None,
            vec![(rule, Action::Deny)],
        ),
        (
            "in the same write",
            &together,
            authorizing(),
            Some(true),
            vec![(rule, Action::Deny)],
        ),
        (
            "in the same write",
            &together,
            authorizing(),
            Some(false),
            vec![(rule, Action::Deny), refused],
        ),
    ] {
        let (old, new): (KubeadmControlPlane, KubeadmControlPlane) =
            (decode(old).unwrap(), decode(new).unwrap());
        let view = View {
            cluster: Some(None),
            machines: Vec::new().into(),
            may_override: may_override.map_or_else(Default::default, Into::into),
            ..View::default()
        };
        let context = Context {
            writer: Some("jane"),
            view: Some(&view),
            ..Context::UNKNOWN
        };
        let judgement = judge(&Change::update(&old, &new).with_context(context), &configuration);
        assert_eq!(actions(&judgement), expected, "{name} {may_override:?}");
        let overridden = judgement
            .findings
            .iter()
            .any(|finding| finding.overridden_by(judgement.is_authorized).is_some());
        assert_eq!(
            overridden,
            may_override == Some(true) && expected == [(rule, Action::Warn)],
            "{name}"
        );
    }
}

#[test]
fn a_deletion_for_a_move_needs_the_permission_to_override() {
    let moved = control_plane(|object| {
        object["metadata"]["annotations"] = json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""});
    });
    let moved: KubeadmControlPlane = decode(&moved).unwrap();
    for (configuration, may_override, expected) in [
        (Configuration::default(), None, vec![]),
        (
            authorizing(),
            Some(true),
            vec![("control-plane-in-use", Action::Warn)],
        ),
        (
            authorizing(),
            Some(false),
            vec![("control-plane-in-use", Action::Deny)],
        ),
    ] {
        let view = View {
            cluster: Some(Cluster::default()).into(),
            worker_machines: vec!["worker".to_owned()].into(),
            namespace_terminating: false.into(),
            may_override: may_override.map_or_else(Default::default, Into::into),
            ..View::default()
        };
        let context = Context {
            writer: Some("jane"),
            view: Some(&view),
            ..Context::UNKNOWN
        };
        let judgement = judge(&Change::delete(&moved).with_context(context), &configuration);
        assert_eq!(actions(&judgement), expected, "{may_override:?}");
    }
}

/// These writes change only metadata. The user who sets an override needs the permission, not the one who uses it.
#[test]
fn fields_that_relax_rules_need_the_permission_to_override() {
    const OVERRIDE: &str = "metadata.annotations[kubectl-kcp.dev/override-rules]";
    let example = |metadata: Value| {
        control_plane(|object| {
            object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "example"});
            for (field, value) in metadata.as_object().unwrap() {
                object["metadata"][field] = value.clone();
            }
        })
    };
    let annotated = |key: &str, value: &str| example(json!({"annotations": {key: value}}));
    let set = |value: &str| annotated("kubectl-kcp.dev/override-rules", value);
    let owner = |name: &str| {
        let owner =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": "u"});
        example(json!({"ownerReferences": [owner]}))
    };
    let plain = example(json!({}));
    for (name, old, new, writer, field) in [
        ("set", &plain, &set("a"), "jane", Some(OVERRIDE)),
        ("changed", &set("a"), &set("b"), "jane", Some(OVERRIDE)),
        ("unchanged", &set("a"), &set("a"), "jane", None),
        ("removed", &set("a"), &plain, "jane", None),
        (
            "paused",
            &plain,
            &annotated("cluster.x-k8s.io/paused", ""),
            "jane",
            Some("metadata.annotations[cluster.x-k8s.io/paused]"),
        ),
        (
            "resumed",
            &annotated("cluster.x-k8s.io/paused", ""),
            &plain,
            "jane",
            None,
        ),
        (
            "no Cluster",
            &plain,
            &example(json!({"labels": null})),
            "jane",
            Some("metadata.ownerReferences"),
        ),
        ("adopted", &plain, &owner("example"), "jane", None),
        (
            "another owner",
            &plain,
            &owner("other"),
            "jane",
            Some("metadata.ownerReferences"),
        ),
        (
            "by Cluster API",
            &plain,
            &owner("other"),
            "system:serviceaccount:capi-system:capi-manager",
            None,
        ),
    ] {
        let (old, new): (KubeadmControlPlane, KubeadmControlPlane) =
            (decode(old).unwrap(), decode(new).unwrap());
        for (may_override, denied) in [(true, None), (false, field)] {
            let view = View {
                may_override: may_override.into(),
                ..View::default()
            };
            let context = Context {
                writer: Some(writer),
                view: Some(&view),
                ..Context::UNKNOWN
            };
            let judgement = judge(&Change::update(&old, &new).with_context(context), &authorizing());
            let fields = judgement.denials().map(|finding| finding.fault.field.as_ref());
            assert_eq!(
                fields.collect::<Vec<_>>(),
                Vec::from_iter(denied),
                "{name} {may_override}"
            );
        }
    }
}

/// If `trustedUsers` does not name the user of the topology controller, its writes are denied.
#[test]
fn a_topology_controller_that_is_not_trusted_is_reported() {
    let object = control_plane(|_| {});
    let object: KubeadmControlPlane = decode(&object).unwrap();
    for (writer, field_manager, untrusted) in [
        (
            "system:serviceaccount:capi-system:capi-manager",
            "capi-topology",
            false,
        ),
        ("system:serviceaccount:fork:manager", "capi-topology", true),
        ("jane", "kubectl", false),
    ] {
        let context = Context {
            writer: Some(writer),
            field_manager: Some(field_manager),
            ..Context::UNKNOWN
        };
        let judgement = judge(
            &Change::create(&object).with_context(context),
            &Configuration::default(),
        );
        assert_eq!(judgement.is_controller_untrusted, untrusted, "{writer}");
    }
}

/// A redacted value can change while the message stays the same.
#[test]
fn a_new_fault_with_the_same_message_is_denied() {
    let customization = |value: &str| {
        json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeploymentCustomization",
            "metadata": {"name": "example"},
            "spec": {"installConfigPatches": [{"op": "add", "path": "/a", "valueJSON": value}]},
        })
        .to_string()
    };
    let injected = r#"{}}, {"op":"remove","path":"/platform"}"#;
    for (old, new, action) in [("{}}", injected, Action::Deny), ("{}}", "{}}", Action::Warn)] {
        let (old, new) = (customization(old), customization(new));
        let old: ClusterDeploymentCustomization = decode(&old).unwrap();
        let new: ClusterDeploymentCustomization = decode(&new).unwrap();
        let judgement = judge(&Change::update(&old, &new), &Configuration::default());
        assert_eq!(actions(&judgement), [("patch-value-json-invalid", action)]);
    }
}

#[test]
fn warnings_about_existing_faults_are_not_repeated() {
    let old = control_plane(|object| object["spec"]["replicas"] = json!(9));
    assert_eq!(actions(&update(&old, &old)), []);
}

#[test]
fn removing_an_entry_does_not_make_later_faults_new() {
    let (old, new) = (pool(&["a", "b", "b", "b"]), pool(&["b", "b", "b"]));
    let (old, new): (ClusterPool, ClusterPool) = (decode(&old).unwrap(), decode(&new).unwrap());
    let judgement = judge(&Change::update(&old, &new), &Configuration::default());
    let duplicates: Vec<_> = actions(&judgement)
        .into_iter()
        .filter(|(id, _)| *id == "inventory-duplicate")
        .collect();
    assert_eq!(
        duplicates,
        [
            ("inventory-duplicate", Action::Warn),
            ("inventory-duplicate", Action::Warn)
        ]
    );
}

#[test]
fn an_additional_equal_fault_is_denied() {
    let (old, new) = (pool(&["b", "b"]), pool(&["b", "b", "b"]));
    let (old, new): (ClusterPool, ClusterPool) = (decode(&old).unwrap(), decode(&new).unwrap());
    let judgement = judge(&Change::update(&old, &new), &Configuration::default());
    let duplicates: Vec<_> = actions(&judgement)
        .into_iter()
        .filter(|(id, _)| *id == "inventory-duplicate")
        .collect();
    assert_eq!(
        duplicates,
        [
            ("inventory-duplicate", Action::Warn),
            ("inventory-duplicate", Action::Deny)
        ]
    );
}

/// A downgrade while Machines cannot be read. Its rule can be overridden.
fn downgrade(annotation: &str) -> Judgement {
    let old = control_plane(|_| ());
    let new = control_plane(|object| {
        object["spec"]["version"] = json!("v1.33.4");
        object["metadata"]["annotations"] = json!({ "kubectl-kcp.dev/override-rules": annotation });
    });
    update(&old, &new)
}

#[test]
fn an_override_turns_a_denial_into_a_warning() {
    let judgement = downgrade("version-lowered-unverified=2026-06-01T13:00:00Z");
    assert_eq!(
        actions(&judgement),
        [("version-lowered-unverified", Action::Warn)]
    );
    assert!(judgement.ignored_overrides.is_empty());
}

#[test]
fn a_valid_override_applies_before_or_after_an_expired_one() {
    const RULE: &str = "version-lowered-unverified";
    let expired = format!("{RULE}=2026-06-01T11:00:00Z");
    let valid = format!("{RULE}=2026-06-01T18:00:00Z");
    for annotation in [format!("{expired},{valid}"), format!("{valid},{expired}")] {
        let judgement = downgrade(&annotation);
        assert_eq!(actions(&judgement), [(RULE, Action::Warn)], "{annotation}");
        assert!(judgement.ignored_overrides.is_empty(), "{annotation}");
    }
}

#[test]
fn an_invalid_override_is_reported_while_its_rule_denies() {
    for (annotation, why) in [
        (
            "version-lowered-unverified=2026-06-01T11:00:00Z",
            "the override of version-lowered-unverified expired at 2026-06-01T11:00:00Z",
        ),
        (
            "version-lowered-unverified=2026-06-02T13:00:00Z",
            "the override of version-lowered-unverified has no effect, because it expires at 2026-06-02T13:00:00Z: the time \
             can be at most 24 h ahead",
        ),
        (
            "version-lowered-unverified",
            "the override \"version-lowered-unverified\" does not have the form <rule id>=<RFC 3339 time>",
        ),
    ] {
        let judgement = downgrade(annotation);
        assert_eq!(
            actions(&judgement),
            [("version-lowered-unverified", Action::Deny)],
            "{annotation}"
        );
        assert_eq!(judgement.ignored_overrides, [why]);
    }
}

#[test]
fn an_override_applies_only_to_its_rule() {
    let judgement = downgrade("replicas-with-upgrade=2026-06-01T13:00:00Z");
    assert_eq!(
        actions(&judgement),
        [("version-lowered-unverified", Action::Deny)]
    );
}

#[test]
fn an_override_that_can_never_apply_is_reported_even_if_nothing_is_denied() {
    for (annotation, why) in [
        (
            "replicas-even=2026-06-01T13:00:00Z",
            Some("the rule replicas-even cannot be overridden"),
        ),
        (
            "replicas-even=2026-06-01T11:00:00Z",
            Some("the rule replicas-even cannot be overridden"),
        ),
        (
            "version-lowerd-unverified=2026-06-01T13:00:00Z",
            Some(
                "there is no rule \"version-lowerd-unverified\" to override; did you mean version-lowered-unverified?",
            ),
        ),
        (
            "replica-evne=2026-06-01T11:00:00Z",
            Some("there is no rule \"replica-evne\" to override; did you mean replicas-even?"),
        ),
        (
            "all=2026-06-01T13:00:00Z",
            Some("there is no rule \"all\" to override"),
        ),
        ("=2026-06-01T13:00:00Z", Some("there is no rule \"\" to override")),
        (
            "version-lowered-unverified=tomorrow",
            Some(
                "the override \"version-lowered-unverified=tomorrow\" does not have the form <rule id>=<RFC 3339 time>",
            ),
        ),
        // These entries were valid, or will be.
        ("version-lowered-unverified=2026-06-01T11:00:00Z", None),
        ("version-lowered-unverified=2026-06-02T13:00:00Z", None),
        (" , version-lowered-unverified=2026-06-01T13:00:00Z,", None),
    ] {
        let new = control_plane(|object| {
            object["metadata"]["annotations"] = json!({ "kubectl-kcp.dev/override-rules": annotation });
        });
        let judgement = update(&control_plane(|_| ()), &new);
        assert_eq!(actions(&judgement), [], "{annotation}");
        assert_eq!(judgement.ignored_overrides, Vec::from_iter(why), "{annotation}");
    }
}

#[test]
fn overriding_a_rule_that_forbids_it_is_reported() {
    let new = control_plane(|object| {
        object["spec"]["replicas"] = json!(4);
        object["metadata"]["annotations"] =
            json!({"kubectl-kcp.dev/override-rules": "replicas-even=2026-06-01T13:00:00Z"});
    });
    let judgement = update(&control_plane(|_| ()), &new);
    assert_eq!(actions(&judgement), [("replicas-even", Action::Deny)]);
    assert_eq!(
        judgement.ignored_overrides,
        ["the rule replicas-even cannot be overridden"]
    );
}
