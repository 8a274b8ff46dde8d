//! An override leaves a trace, and can require a permission.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::{
    cluster::ClusterReader,
    configuration::CurrentConfiguration,
    review::admission::Admission,
    testing::{Captured, api_server},
};

const RULE: &str = "replicas-with-upgrade";

/// A control plane that one write scales and upgrades, with an annotation that overrides the rule against this. Also
/// returns the end of the override.
fn overridden() -> (Value, Timestamp) {
    let until = Timestamp::now() + SignedDuration::from_hours(1);
    let mut new = control_plane();
    new["spec"]["replicas"] = json!(5);
    new["spec"]["version"] = json!("v1.34.3");
    new["metadata"]["annotations"] = json!({"kubectl-kcp.dev/override-rules": format!("{RULE}={until}")});
    let mut review = review("UPDATE", &new, &control_plane());
    review["request"]["userInfo"] = json!({"username": "jane", "groups": ["ops"], "extra": {"a": ["b"]}});
    (review, until)
}

#[tokio::test]
async fn an_override_leaves_an_annotation_a_metric_and_one_line() {
    let (review, until) = overridden();
    let router = router();
    let log = Captured::start();
    for path in ["/mutate", "/validate"] {
        let response = send(&router, path, &review).await;
        assert_eq!(response["allowed"], true, "{response}");
        let expected = if path == "/validate" {
            json!(RULE)
        } else {
            Value::Null
        };
        assert_eq!(response["auditAnnotations"]["overridden-by"], expected, "{path}");
    }
    let lines = log.lines();
    let overridden: Vec<_> = lines.iter().filter(|line| line.contains("overridden")).collect();
    assert_eq!(overridden.len(), 1, "{lines:?}");
    for part in [
        "INFO",
        "user=\"jane\"",
        "resource=\"kubeadmcontrolplanes\"",
        "namespace=\"default\"",
        "name=\"example\"",
        &format!("{RULE} until {until}"),
    ] {
        assert!(
            overridden[0].contains(part),
            "{part} is missing from {}",
            overridden[0]
        );
    }
    let text = router.metrics.encode().unwrap();
    for line in [
        r#"kcp_webhook_decisions_total{webhook="/validate",decision="overridden"} 1"#,
        r#"kcp_webhook_decisions_total{webhook="/validate",decision="allowed"} 0"#,
        &format!(r#"kcp_webhook_rule_findings_total{{rule="{RULE}",decision="overridden"}} 1"#),
    ] {
        assert!(
            text.lines().any(|present| present == line),
            "{line} is missing from:\n{text}"
        );
    }
}

/// A router that asks an API server who may override.
fn authorizing(allowed: Option<bool>) -> Router {
    let metrics = Arc::new(Metrics::new());
    let client = api_server(move |path| {
        let answer = match (path.as_str(), allowed) {
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(allowed)) => {
                (201, json!({"status": {"allowed": allowed}}))
            }
            _ => (500, json!("no")),
        };
        std::future::ready(answer)
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("configuration.yaml");
    let file =
        "apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\nauthorizeOverrides: true\n";
    std::fs::write(&path, file).unwrap();
    let admission = Admission::new(
        ClusterReader::new(Some(client), metrics.clone()),
        Arc::new(CurrentConfiguration::load(Some(&path), metrics.clone())),
    );
    Router::new(
        Admissions::for_all(admission),
        metrics,
        Limits::default(),
        phase(Phase::Serving),
    )
}

#[tokio::test]
async fn an_override_can_require_the_verb_override() {
    let (review, _) = overridden();
    for (allowed, denial) in [
        (Some(true), None),
        (
            Some(false),
            Some("the user needs permission for the verb \"override\" on this object"),
        ),
        (
            None,
            Some("kcp-webhook could not check whether the user may override rules"),
        ),
    ] {
        let response = send(&authorizing(allowed), "/validate", &review).await;
        assert_eq!(response["allowed"], denial.is_none(), "{response}");
        let causes = &response["status"]["details"]["causes"];
        let message = denial.map(|why| {
            format!(
                "Forbidden: this field relaxes rules for the object: {why}; leave the field as it is, or ask a user with this \
                 permission (override-not-allowed)"
            )
        });
        assert_eq!(causes[0]["message"], json!(message), "{response}");
    }
}
