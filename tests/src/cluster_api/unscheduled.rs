//! The Deployments of the managers without Pods: the managers themselves are processes on this host. Programs read only the version
//! from them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::PROVIDERS;
use crate::cluster_api_alone::create_namespace;

/// Writes the Deployment of each manager, whose image has this version.
pub(crate) async fn name_version(client: &Client, version: &str) -> Result<()> {
    for provider in &PROVIDERS {
        let (namespace, name) = (provider.namespace(), provider.name_of("controller-manager"));
        create_namespace(client, &namespace).await?;
        let labels = json!({"cluster.x-k8s.io/provider": provider.label});
        let image = format!("registry.example.com/{}:{version}", provider.program);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": image}]}},
            },
        });
        Api::<Deployment>::namespaced(client.clone(), &namespace)
            .patch(
                &name,
                &PatchParams::apply("tests").force(),
                &Patch::Apply(deployment),
            )
            .await
            .with_context(|| format!("writing Deployment {namespace}/{name}"))?;
    }
    Ok(())
}
