//! Writes the defaults of control planes as `MutatingAdmissionPolicy` objects and their bindings.
//!
//! The API server applies these policies before it calls mutating webhooks. So Cluster API's webhook finds a number of replicas,
//! and does not set 1. The policies set the same fields as [`crate::defaulting`], with one expression for each field.

use serde_json::{Value, json};

use super::{
    API_VERSION, matched_namespaces,
    target::{DEFAULTED, PolicyTarget},
};
use crate::api::control_plane::Shape;

/// What the policies leave out, one sentence for each.
pub const LEFT_OUT: &[&str] = &[
    "they do not add the leading slash of JSON pointers in ClusterDeploymentCustomizations",
    "they deny nothing; export the rules with: kubectl kcp rules export --format vap",
];

/// The policy of each API version, followed by its binding.
pub fn objects() -> Vec<Value> {
    DEFAULTED.iter().flat_map(policy_and_binding).collect()
}

fn policy_and_binding(target: &PolicyTarget) -> [Value; 2] {
    let name = target.name("default");
    let expressions = expressions(target.shape).into_iter();
    let mutations: Vec<_> = expressions
        .map(|expression| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}))
        .collect();
    [
        json!({
            "apiVersion": API_VERSION,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": target.failure_policy,
                "reinvocationPolicy": "Never",
                "matchConstraints": target.match_constraints(),
                "matchConditions": target.match_conditions(),
                "mutations": mutations,
            },
        }),
        json!({
            "apiVersion": API_VERSION,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "matchResources": matched_namespaces(Vec::new())},
        }),
    ]
}

/// CEL expressions, each of which returns a JSON patch. An expression sees the result of those before it.
fn expressions(shape: Shape) -> Vec<String> {
    let strategy = match shape {
        Shape::V1Beta1 => "rolloutStrategy",
        Shape::V1Beta2 => "rollout.strategy",
    };
    let rolling_update = format!("{strategy}.rollingUpdate");
    let is_rolling_update = format!("object.spec.{strategy}.type == 'RollingUpdate'");
    let mut expressions = vec![add("replicas", OLD_REPLICAS), ADD_V.to_owned()];
    if shape == Shape::V1Beta2 {
        expressions.push(add("rollout", "{}"));
    }
    expressions.extend([
        add(strategy, "{}"),
        add(&format!("{strategy}.type"), "'RollingUpdate'"),
        format!("{is_rolling_update} ? {} : []", add(&rolling_update, "{}")),
        format!(
            "{is_rolling_update} ? {} : []",
            add(&format!("{rolling_update}.maxSurge"), "1")
        ),
    ]);
    expressions
}

const OLD_REPLICAS: &str = "request.operation == 'UPDATE' ? oldObject.spec.?replicas.orValue(1) : 1";

const ADD_V: &str = "isSemver(object.spec.?version.orValue('')) \
                     ? [JSONPatch{op: 'replace', path: '/spec/version', value: 'v' + object.spec.version}] : []";

/// A CEL expression that adds a field of `spec` if the object omits it. The field's parent must exist.
fn add(field: &str, value: &str) -> String {
    let pointer = field.replace('.', "/");
    format!(
        "(has(object.spec.{field}) ? [] : [JSONPatch{{op: 'add', path: '/spec/{pointer}', value: {value}}}])"
    )
}
