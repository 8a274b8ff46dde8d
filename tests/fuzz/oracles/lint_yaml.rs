//! A manifest's bytes, put to `kubectl kcp lint`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_rules::{Configuration, topics::rules};
use kubectl_kcp::commands::lint::document;
use serde_json::{Value, json};

use super::{review::SERVER, review::answered, review::patched};

/// What a server denies for that is no rule: the object's fields do not have the types of its kind.
const UNDECODABLE: &str = "object-undecodable";

/// Causes that a server names one by one.
const CAUSES: usize = 50;

/// There is a report; of an object that a server judges too, both say the same.
pub(crate) fn holds(content: &[u8]) {
    report(content, None);
    let review = match serde_json::from_slice::<Value>(content) {
        // As it is, and as it would become.
        Ok(Value::Array(both)) => match both.as_slice() {
            [old, object] => change(old, object),
            _ => None,
        },
        Ok(object) => creation(&object),
        Err(_) => None,
    };
    if let Some(review) = review {
        agrees(&review);
    }
}

/// Of an object that is created or changed, `lint` says what a server does.
fn agrees(review: &Value) {
    let [object, old] = ["object", "oldObject"].map(|field| &review["request"][field]);
    let old_object = (!old.is_null()).then(|| old.to_string());
    let report = report(object.to_string().as_bytes(), old_object.as_deref());
    // Not every text of JSON is YAML: a control character, or a hundred levels. Of a patch or a template, `lint` says nothing.
    if report["errors"] != json!([]) || report["unrendered"] != json!(0) {
        return;
    }
    let by_server = denials_by_server(review);
    if by_server.len() > CAUSES {
        return;
    }
    let mut by_lint = denials_by_lint(&report);
    if object["kind"] == "ClusterPool" && by_server.iter().any(|(rule, _)| rule == UNDECODABLE) {
        // Of a pool that is not whole `lint` judges the inventory, for the fragments in documents.
        by_lint.retain(|(rule, _)| rule == UNDECODABLE);
    }
    assert_eq!(by_server, by_lint, "{review}");
}

fn report(content: &[u8], old: Option<&str>) -> Value {
    let old: Vec<_> = old.iter().map(|old| ("old", old.as_bytes())).collect();
    let report = document(
        &[("-", content)],
        &old,
        &Configuration::default(),
        Timestamp::now(),
    );
    let report: Value = serde_json::from_str(&report.unwrap()).unwrap();
    assert_eq!(report["kind"], "LintReport");
    let lines = content
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
        .count()
        + 1;
    for finding in report["findings"].as_array().unwrap() {
        let line = finding["line"].as_u64().unwrap();
        assert!(1 <= line && line <= lines as u64, "{finding} of {lines} lines");
    }
    report
}

/// The review that a server is sent when the object is created; none when it is sent none.
fn creation(object: &Value) -> Option<Value> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    let (of_group, resource) = match object["kind"].as_str()? {
        "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"),
        "KubeadmControlPlaneTemplate" => ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanetemplates"),
        "ClusterPool" => ("hive.openshift.io", "clusterpools"),
        "ClusterDeploymentCustomization" => ("hive.openshift.io", "clusterdeploymentcustomizations"),
        "ClusterDeployment" => ("hive.openshift.io", "clusterdeployments"),
        _ => return None,
    };
    if group != of_group {
        return None;
    }
    let metadata = &object["metadata"];
    Some(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "resource": {"group": group, "version": version, "resource": resource},
            "name": metadata["name"].as_str().unwrap_or_default(),
            "namespace": metadata["namespace"].as_str().unwrap_or("default"),
            "operation": "CREATE",
            "object": object,
        }
    }))
}

/// The review of the change from one object to another of its kind and name; none when a server is sent none.
fn change(old: &Value, object: &Value) -> Option<Value> {
    let is_same = |field: &str| old.pointer(field).is_some() && old.pointer(field) == object.pointer(field);
    if !["/apiVersion", "/kind", "/metadata/name"]
        .into_iter()
        .all(is_same)
        || old.pointer("/metadata/namespace") != object.pointer("/metadata/namespace")
    {
        return None;
    }
    let mut review = creation(object)?;
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["oldObject"] = old.clone();
    Some(review)
}

/// Rules and fields, without those rules that look at other objects: of these, both know different ones.
fn denials_by_server(review: &Value) -> BTreeSet<(String, String)> {
    let ask = |review: &Value| answered(&SERVER, review.to_string().as_bytes()).unwrap();
    let [mutated, _] = ask(review);
    let response = if mutated["allowed"] == true {
        let [_, validated] = ask(&patched(review, &mutated));
        validated
    } else {
        mutated
    };
    let causes = response.pointer("/status/details/causes");
    let causes = causes.and_then(Value::as_array).into_iter().flatten();
    causes
        .map(|cause| {
            let message = cause["message"].as_str().unwrap();
            let rule = message
                .rsplit_once('(')
                .map_or("", |(_, end)| end.trim_end_matches(')'));
            unnamed(rule.to_owned(), cause["field"].as_str().unwrap().to_owned())
        })
        .filter(|(rule, _)| is_about_the_object(rule) || rule.is_empty())
        .collect()
}

fn denials_by_lint(report: &Value) -> BTreeSet<(String, String)> {
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["action"] == "deny")
        .map(|finding| unnamed(text(finding, "rule"), text(finding, "field")))
        .filter(|(rule, _)| is_about_the_object(rule))
        .collect()
}

/// A server hides the names of some flags and gates, which are keys of a map.
fn unnamed(rule: String, mut field: String) -> (String, String) {
    if ["component-flag-unknown", "kubeadm-feature-gate-unknown"].contains(&rule.as_str())
        && field.ends_with(']')
    {
        field.truncate(field.find('[').unwrap());
    }
    (rule, field)
}

fn is_about_the_object(id: &str) -> bool {
    id == UNDECODABLE || rules().any(|rule| rule.id == id && rule.reads().is_empty())
}
