//! The shipped roles, and copies that lack one permission.

use std::path::Path;

use anyhow::Result;
use kcp_tests::kubectl::Kubectl;
use kcp_tests::{manifests, products};
use serde_json::{Value, json};

/// A resource and a verb.
pub(crate) type Permission = (String, String);

/// Gives a user the shipped roles for reading and for changing, and no others.
pub(crate) async fn bind_operator(kubectl: &Kubectl, user: &str, namespace: &str) -> Result<()> {
    for folder in ["manifests/reader", "manifests/operator"] {
        kubectl.apply_kustomization(folder).await?;
    }
    for role in ["kcp-reader", "kcp-secret-reader", "kcp-operator"] {
        let (to, whose) = (format!("--clusterrole={role}"), format!("--user={user}"));
        let bind = ["create", "rolebinding", role, &to, &whose, "-n", namespace];
        kubectl.succeed(bind).await?;
    }
    Ok(())
}

/// The roles in a file of `manifests/reader`.
pub(crate) fn shipped(file: &str) -> Result<Vec<Value>> {
    manifests::read(&products::workspace().join(Path::new("manifests/reader").join(file)))
}

/// The permissions of a role.
pub(crate) fn permissions(role: &Value) -> Vec<Permission> {
    let pairs = rules(role).flat_map(|rule| {
        let verbs = texts(rule.get("verbs"));
        let resources = texts(rule.get("resources")).into_iter();
        resources.flat_map(move |resource| {
            verbs
                .clone()
                .into_iter()
                .map(move |verb| (resource.clone(), verb))
        })
    });
    pairs.collect()
}

/// The role without one permission. Splits rules for several resources.
pub(crate) fn without(role: &Value, (resource, verb): &Permission) -> Value {
    let rules = rules(role).flat_map(|rule| {
        texts(rule.get("resources")).into_iter().map(move |other| {
            let mut verbs = texts(rule.get("verbs"));
            if other == *resource {
                verbs.retain(|kept| kept != verb);
            }
            json!({
                "apiGroups": rule.get("apiGroups"), "resources": [other], "resourceNames": rule.get("resourceNames"),
                "verbs": verbs,
            })
        })
    });
    let rules: Vec<Value> = rules
        .filter(|rule| !texts(rule.get("verbs")).is_empty())
        .collect();
    let mut role = role.clone();
    if let Some(role) = role.as_object_mut() {
        role.insert("rules".to_owned(), json!(rules));
    }
    role
}

fn rules(role: &Value) -> impl Iterator<Item = &Value> {
    role.get("rules").and_then(Value::as_array).into_iter().flatten()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}
