//! Compares the policies with the rules and with the webhook configuration.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

use std::{collections::BTreeSet, fs, path::Path};

use kcp_rules::{
    Action, Configuration, Operation, Scope,
    admission_policy::{EXEMPT_NAMESPACES, defaults, left_out, objects},
    api::control_plane::Shape,
    rule::Check,
    topics::rules,
};
use serde_json::{Value, json};

fn policies() -> Vec<Value> {
    let mut objects = objects(&Configuration::default());
    objects.retain(|object| object["kind"] == "ValidatingAdmissionPolicy");
    objects
}

/// Names of policies must be DNS subdomains.
#[test]
fn every_policy_has_a_unique_name_and_a_binding() {
    let mut objects = objects(&Configuration::default());
    objects.extend(defaults::objects());
    let mut names = BTreeSet::new();
    for pair in objects.chunks(2) {
        let [policy, binding] = pair else {
            unreachable!("an odd number of objects")
        };
        let name = policy["metadata"]["name"].as_str().unwrap();
        assert!(kcp_rules::syntax::is_dns1123_subdomain(name.as_bytes()), "{name}");
        assert!(names.insert(name), "{name} is not unique");
        assert_eq!(
            binding["kind"],
            format!("{}Binding", policy["kind"].as_str().unwrap())
        );
        assert_eq!(binding["spec"]["policyName"], name);
        let effect = name.split('.').next().unwrap();
        let action = binding["spec"]["validationActions"][0].as_str();
        assert_eq!(action.unwrap_or("default").to_lowercase(), effect);
    }
    assert_eq!(names.len(), 16);
}

#[test]
fn every_rule_with_cel_is_in_a_policy_whose_message_ends_with_its_id() {
    let policies = policies();
    let validations: Vec<_> = policies
        .iter()
        .flat_map(|policy| policy["spec"]["validations"].as_array().unwrap())
        .collect();
    let mut count = 0;
    for rule in rules().filter(|rule| rule.cel.no_cel().is_none() && rule.action != Action::Off) {
        let ending = format!("({})", rule.id);
        let of_rule: Vec<_> = validations
            .iter()
            .filter(|validation| validation["message"].as_str().unwrap().ends_with(&ending))
            .collect();
        assert!(!of_rule.is_empty(), "{} is in no policy", rule.id);
        for validation in of_rule {
            assert_eq!(validation["reason"], "Invalid");
            let message = validation["messageExpression"].as_str().unwrap();
            assert!(message.contains(&ending), "{message}");
        }
        count += 1;
    }
    assert!(count >= 40, "{count} rules have CEL");
}

/// An object rule must not name `object` or `oldObject`, because it is evaluated for both.
#[test]
fn expressions_read_the_variables_of_their_scope() {
    for rule in rules() {
        let Some(faults) = rule.cel.expression(Shape::V1Beta2) else {
            continue;
        };
        let (object, old) = (
            faults.contains("object.") || faults.contains("object)"),
            faults.contains("oldObject"),
        );
        match rule.scope {
            Scope::Object => {
                let input = match rule.check {
                    Check::ControlPlaneSpec(_) => "spec",
                    _ => "self",
                };
                assert!(faults.contains(input) && !object && !old, "{}", rule.id);
            }
            Scope::Transition => {
                assert_eq!(rule.operations, [Operation::Update], "{}", rule.id);
                assert!(old, "{}", rule.id);
            }
            Scope::Cluster(_) => unreachable!("{} reads other objects", rule.id),
        }
    }
}

/// What CEL can express of a configuration is in the policies, and the rest is named.
#[test]
fn the_policies_follow_the_configuration() {
    let configuration: Configuration = serde_json::from_value(json!({
        "apiVersion": "kubectl-kcp.dev/v1alpha1", "kind": "AdmissionConfiguration", "rules": {},
        "authorizeOverrides": true, "denialEvents": true,
        "warnOnly": {"matchLabels": {"env": "dev"}, "matchExpressions": [{"key": "old", "operator": "Exists"}]},
        "exemptions": [{"users": ["velero"], "groups": ["ops"], "rules": ["replicas-even"],
            "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]},
            "until": "2099-12-31T00:00:00Z"}],
    }))
    .unwrap();
    let objects = objects(&configuration);
    let deny = "deny.v1beta2.kubeadmcontrolplanes.kubectl-kcp.dev";
    let policy = objects
        .iter()
        .find(|object| object["metadata"]["name"] == deny)
        .unwrap();
    let variable = |name: &str| {
        let variables = policy["spec"]["variables"].as_array().unwrap();
        let found = variables
            .iter()
            .find(|variable| variable["name"] == name)
            .unwrap();
        found["expression"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        variable("exemption0"),
        r#"(request.userInfo.username in ["velero"] || request.userInfo.groups.exists(group, group in ["ops"])) && "#.to_owned()
            + r#"!(namespaceObject.metadata.?labels[?"env"].hasValue() && "#
            + r#"namespaceObject.metadata.?labels[?"env"].value() in ["prod"])"#
    );
    let allowed = "authorizer.group('controlplane.cluster.x-k8s.io').resource('kubeadmcontrolplanes')\
                   .namespace(request.namespace).name(request.name).check('override').allowed()";
    assert!(variable("overridden").starts_with(&format!("{allowed} ? object.")));
    assert!(variable("copied").ends_with(&format!("|| {allowed})")));
    for validation in policy["spec"]["validations"].as_array().unwrap() {
        let is_exempted = validation["message"]
            .as_str()
            .unwrap()
            .ends_with("(replicas-even)");
        let expression = validation["expression"].as_str().unwrap();
        assert_eq!(
            expression.contains("variables.exemption0"),
            is_exempted,
            "{expression}"
        );
    }

    let bindings = objects
        .iter()
        .filter(|object| object["spec"]["policyName"] == deny);
    let bindings: Vec<_> = bindings
        .map(|binding| {
            let selected =
                binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"].as_array();
            (
                binding["metadata"]["name"].as_str().unwrap(),
                &binding["spec"]["validationActions"][0],
                json!(selected.unwrap()[1..]),
            )
        })
        .collect();
    let requirement = |operator: &str, key: &str, values: &[&str]| match values {
        [] => json!({"key": key, "operator": operator}),
        values => json!({"key": key, "operator": operator, "values": values}),
    };
    let (denies, warns) = (json!("Deny"), json!("Warn"));
    assert_eq!(
        bindings,
        [
            (deny, &denies, json!([requirement("NotIn", "env", &["dev"])])),
            (
                &*format!("1.{deny}"),
                &denies,
                json!([requirement("DoesNotExist", "old", &[])])
            ),
            (
                &*format!("warn-only.{deny}"),
                &warns,
                json!([
                    requirement("In", "env", &["dev"]),
                    requirement("Exists", "old", &[])
                ])
            ),
        ]
    );
    assert_eq!(
        left_out(&configuration)[2..],
        [
            "the user who makes a write needs the verb override, not the user who set the annotation, because a policy cannot tell \
             who set it",
            "exemptions[0] ends at 2099-12-31T00:00:00Z: export the policies again then",
            "a denial is not recorded as an Event",
        ]
    );
}

#[test]
fn exemptions_are_those_of_the_webhook_configuration() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../manifests/registration/validatingwebhookconfiguration.yaml");
    let registration: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let webhooks = registration["webhooks"].as_array().unwrap();
    let mut compared = 0;
    for policy in policies() {
        let matched = &policy["spec"]["matchConstraints"]["resourceRules"][0];
        let webhook = webhooks.iter().find(|webhook| {
            let rule = &webhook["rules"][0];
            rule["resources"] == matched["resources"] && rule["operations"] == matched["operations"]
        });
        let webhook = webhook.unwrap();
        assert_eq!(webhook["rules"][0]["apiGroups"], matched["apiGroups"]);
        assert_eq!(
            webhook["failurePolicy"], policy["spec"]["failurePolicy"],
            "{matched}"
        );
        let mut conditions = policy["spec"]["matchConditions"].as_array().unwrap().clone();
        conditions.retain(|condition| condition["name"] != "not-v1beta1");
        let theirs = webhook["matchConditions"].as_array().cloned().unwrap_or_default();
        assert_eq!(conditions, theirs, "{matched}");
        let selector = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*selector, json!(EXEMPT_NAMESPACES));
        compared += 1;
    }
    assert_eq!(compared, 14);
}
