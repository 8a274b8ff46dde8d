//! The configuration exempts writes by user, group and namespace.

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::{
    cluster::ClusterReader, configuration::CurrentConfiguration, review::admission::Admission,
    testing::api_server,
};

/// A router with a configuration file, in a cluster with one namespace, or with none that can be read.
fn router_with_file(rest: &str, labels: Option<Value>) -> Router {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("configuration.yaml");
    let text = format!("apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\n{rest}");
    fs::write(&path, text).unwrap();
    let metrics = Arc::new(Metrics::new());
    let configuration = CurrentConfiguration::load(Some(&path), metrics.clone());
    assert_eq!(configuration.status().unwrap().to_string(), "ok", "{rest}");
    let client = api_server(move |path| {
        let answer = match (path.as_str(), &labels) {
            ("/api/v1/namespaces/default", Some(labels)) => (200, json!({"metadata": {"labels": labels}})),
            _ => (500, json!("no")),
        };
        std::future::ready(answer)
    });
    Router::new(
        Admissions::for_all(Admission::new(
            ClusterReader::new(Some(client), metrics.clone()),
            Arc::new(configuration),
        )),
        metrics,
        Limits::default(),
        phase(Phase::Serving),
    )
}

fn even() -> Value {
    let mut object = control_plane();
    object["spec"]["replicas"] = json!(4);
    let mut review = review("CREATE", &object, &Value::Null);
    review["request"]["userInfo"] = json!({"username": "jane", "groups": ["ops"]});
    review
}

#[tokio::test]
async fn exempts_writes_and_warns_only_in_both_webhooks() {
    let unread =
        json!(["could not read the labels of the namespace: error; exemptions by namespace do not apply"]);
    let dev = Some(json!({"env": "dev"}));
    let exempts = |condition: &str| format!("exemptions:\n- {{{condition}, until: 2126-01-01T00:00:00Z}}\n");
    let by_label = "namespaceSelector: {matchLabels: {env: dev}}";
    let warn_only = "warnOnly: {matchLabels: {env: dev}}\n";
    // The audit annotation that names the rule.
    for (file, labels, annotation, warnings) in [
        (String::new(), None, "denied-by", Value::Null),
        (exempts("users: [jane]"), None, "audited-by", Value::Null),
        (exempts("users: [joe]"), None, "denied-by", Value::Null),
        (exempts("groups: [ops]"), None, "audited-by", Value::Null),
        (exempts(by_label), dev.clone(), "audited-by", Value::Null),
        (exempts(by_label), Some(json!({})), "denied-by", Value::Null),
        (exempts(by_label), None, "denied-by", unread.clone()),
        (warn_only.to_owned(), Some(json!({})), "denied-by", Value::Null),
        (
            "exemptions:\n- {users: [jane], until: 2026-01-01T00:00:00Z}\n".to_owned(),
            None,
            "denied-by",
            Value::Null,
        ),
    ] {
        let router = router_with_file(&file, labels);
        let mutated = send(&router, "/mutate", &even()).await;
        assert_eq!(mutated["allowed"], annotation != "denied-by", "{file}: {mutated}");
        let validated = send(&router, "/validate", &even()).await;
        assert_eq!(
            validated["auditAnnotations"],
            json!({annotation: "replicas-even"}),
            "{file}"
        );
        assert_eq!(validated["warnings"], warnings, "{file}");
    }
    let warned = send(&router_with_file(warn_only, dev), "/validate", &even()).await;
    assert_eq!(warned["auditAnnotations"], json!({"warned-by": "replicas-even"}));
    assert_eq!(
        (&warned["allowed"], warned["warnings"].as_array().unwrap().len()),
        (&json!(true), 1)
    );
}
