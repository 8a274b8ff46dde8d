//! What a client writes into an object reaches neither the log nor a metric, at any log level.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::testing::{Captured, api_server, scale_review};

const SECRET: &str = "hunter2-S3cr3t";

/// The paths of all values in an object that are no objects or lists.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                leaves(
                    field,
                    &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, &format!("{path}/{index}"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// Documents with as many fields as possible: control planes of both versions, and Hive's kinds.
fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let text = include_str!("../../../../../tests/fixtures/every-field-v1beta1.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let control_planes = documents.into_iter().flat_map(|old| {
        let mut new = old.clone();
        new["apiVersion"] = json!("controlplane.cluster.x-k8s.io/v1beta2");
        [("v1beta1", old), ("v1beta2", new)]
    });
    control_planes
        .map(|(version, object)| {
            (
                "controlplane.cluster.x-k8s.io",
                version,
                "kubeadmcontrolplanes",
                object,
            )
        })
        .chain([
            (
                "hive.openshift.io",
                "v1",
                "clusterpools",
                kcp_rules::testing::case::Base::ClusterPool.object(),
            ),
            (
                "hive.openshift.io",
                "v1",
                "clusterdeploymentcustomizations",
                kcp_rules::testing::case::Base::Customization.object(),
            ),
        ])
        .collect()
}

#[tokio::test]
async fn planted_secrets_reach_neither_the_log_nor_a_metric() {
    let log = Captured::start();
    let live = Arc::new(Mutex::new(Value::Null));
    let answered = live.clone();
    // A scale reads the object live.
    let client = api_server(move |path| {
        let found = path.ends_with("/kubeadmcontrolplanes/example");
        let answer = if found {
            (200, answered.lock().unwrap().clone())
        } else {
            (500, json!("no"))
        };
        std::future::ready(answer)
    });
    let router = router_with(Some(client), Limits::default());
    let mut planted = 0;
    for (group, version, resource, object) in objects() {
        let mut paths = Vec::new();
        leaves(&object["spec"], "/spec", &mut paths);
        for path in paths {
            for secret in [json!(SECRET), json!([SECRET])] {
                let mut changed = object.clone();
                *changed.pointer_mut(&path).unwrap() = secret;
                live.lock().unwrap().clone_from(&changed);
                planted += 1;
                for (hook, mut review) in [
                    ("/mutate", review("CREATE", &changed, &Value::Null)),
                    ("/validate", review("UPDATE", &changed, &object)),
                    ("/validate", review("UPDATE", &object, &changed)),
                    ("/validate", scale_review(4)),
                ] {
                    review["request"]["resource"] =
                        json!({"group": group, "version": version, "resource": resource});
                    send(&router, hook, &review).await;
                }
            }
        }
        // Not a review at all.
        post(&router, "/validate", json!({"spec": SECRET}).to_string()).await;
    }
    assert!(planted > 500, "{planted}");
    let metrics = router.metrics.encode().unwrap();
    assert!(!metrics.contains(SECRET), "{metrics}");
    let leaked: Vec<_> = log
        .lines()
        .into_iter()
        .filter(|line| line.contains(SECRET))
        .collect();
    assert_eq!(leaked, [""; 0]);
}
