//! A deletion of a customization reads few bytes, and never depends on a stale object.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Subject;
use crate::{cluster::ClusterReader, metrics::Metrics, testing::api_server_by_uri};

fn deployment(name: &str, customization: &str) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": {"name": name, "namespace": name},
        "spec": {"clusterPoolRef": {
            "namespace": "prod", "poolName": "pool", "clusterDeploymentCustomization": {"name": customization}
        }}
    })
}

/// The names of the clusters that use customization `a`, and the requests to an API server with the objects `live`.
async fn read(cached: Option<&[Value]>, live: &[Value]) -> (Vec<String>, Vec<String>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (log, objects) = (requests.clone(), live.to_vec());
    let client = api_server_by_uri(move |uri| {
        let target = uri.path_and_query().unwrap().as_str();
        let named = |name: &str| {
            let mut objects = objects.iter();
            objects.find(|object| object["metadata"]["name"] == name).cloned()
        };
        let path = target.strip_prefix("/apis/hive.openshift.io").unwrap();
        if !path.is_empty() {
            log.lock().unwrap().push(path.to_owned());
        }
        let answer = match path.split('/').collect::<Vec<_>>().as_slice() {
            [""] => (
                200,
                json!({"versions": [], "preferredVersion": {"version": "v1"}}),
            ),
            ["", "v1", "clusterdeployments?limit=1"] => (
                200,
                json!({
                    "metadata": {
                        "continue": if objects.len() > 1 { "more" } else { "" },
                        "remainingItemCount": objects.len().saturating_sub(1)
                    },
                    "items": objects.first().into_iter().collect::<Vec<_>>()
                }),
            ),
            ["", "v1", _] => (200, json!({"metadata": {}, "items": &objects})),
            ["", "v1", "namespaces", namespace, "clusterdeployments", _] => named(namespace).map_or_else(
                || (404, json!({"kind": "Status", "code": 404})),
                |object| (200, object),
            ),
            _ => (500, json!("no")),
        };
        std::future::ready(answer)
    });
    let cluster = ClusterReader::new(Some(client), Arc::new(Metrics::new()));
    if let Some(cached) = cached {
        cluster.fill_caches(cached);
    }
    let subject = Subject::new("prod", "a", None).unwrap();
    let found = cluster
        .start_reads(crate::cluster::ReadLimits::default())
        .read_cluster_deployments(&subject, &cluster.caches.cluster_deployments)
        .await
        .unwrap();
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    (found.into_iter().map(|found| found.name).collect(), requests)
}

const COUNT: &str = "/v1/clusterdeployments?limit=1";
const LIST: &str = "/v1/clusterdeployments?labelSelector=&limit=500&continue=";

#[tokio::test]
async fn lists_all_clusters_only_if_the_cache_cannot_know_them() {
    let [paris, oslo, lima] =
        [("paris", "a"), ("oslo", "a"), ("lima", "b")].map(|(name, entry)| deployment(name, entry));
    let paris_again = "/v1/namespaces/paris/clusterdeployments/paris";
    for (case, cached, live, found, requests) in [
        (
            "one uses it",
            Some(vec![paris.clone(), lima.clone()]),
            vec![paris.clone(), lima.clone()],
            vec!["paris"],
            vec![COUNT, paris_again],
        ),
        (
            "none uses it",
            Some(vec![lima.clone()]),
            vec![lima.clone()],
            vec![],
            vec![COUNT],
        ),
        ("there are none", Some(vec![]), vec![], vec![], vec![COUNT]),
        (
            "several use it",
            Some(vec![paris.clone(), oslo.clone()]),
            vec![paris.clone(), oslo.clone()],
            vec!["oslo", "paris"],
            vec![COUNT, "/v1/namespaces/oslo/clusterdeployments/oslo", paris_again],
        ),
        (
            "the cache lacks a new one",
            Some(vec![lima.clone()]),
            vec![lima.clone(), paris.clone()],
            vec!["paris"],
            vec![COUNT, LIST],
        ),
        (
            "the cache has a deleted one",
            Some(vec![paris.clone(), lima.clone()]),
            vec![lima.clone()],
            vec![],
            vec![COUNT, LIST],
        ),
        (
            "one was deleted and another created",
            Some(vec![paris.clone()]),
            vec![lima.clone()],
            vec![],
            vec![COUNT, paris_again],
        ),
        (
            "the cache is not filled",
            None,
            vec![paris.clone()],
            vec!["paris"],
            vec![LIST],
        ),
    ] {
        let read = read(cached.as_deref(), &live).await;
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(read, (names(found), names(requests)), "{case}");
    }
}
