//! The definitions of the stand-in objects.

use anyhow::Result;
use kube::Client;
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::cluster_api::CLUSTERCTL_LABEL;
use crate::{manifests, resources};

pub async fn install(client: &Client) -> Result<()> {
    let kinds = [
        resources::stand_in_clusters(),
        resources::stand_in_cluster_templates(),
        resources::stand_in_machines(),
        resources::stand_in_machine_templates(),
    ];
    for kind in kinds {
        let definition = serde_json::from_value(definition(&kind))?;
        manifests::create_definition(client, &definition).await?;
    }
    Ok(())
}

fn definition(resource: &ApiResource) -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", resource.plural, resource.group),
            "labels": {
                // The contract version that our version implements.
                "cluster.x-k8s.io/v1beta2": resource.version,
                CLUSTERCTL_LABEL: "",
            },
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": format!("{}List", resource.kind),
                "plural": resource.plural,
                "singular": resource.kind.to_lowercase(),
            },
            "versions": [{
                "name": resource.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": anything, "status": anything},
                }},
            }],
        },
    })
}
