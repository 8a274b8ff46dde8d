//! The `CustomResourceDefinition`s of Hive's kinds for clusters without Hive, generated from the types of kcp-api.
//!
//! They contain the fields that kcp-api reads and preserve unknown ones, so that no object of a real Hive loses fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kcp_api::hive::{
    ClusterClaimResource, ClusterDeploymentCustomizationResource, ClusterPoolReference, ClusterPoolResource,
    any_object,
};
use kube::CustomResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All definitions, sorted by name.
pub(crate) fn custom_resource_definitions() -> [CustomResourceDefinition; 4] {
    let mut deployment = ClusterDeploymentResource::crd();
    // The derive macro makes spec required, but it is optional in Hive's ClusterDeployment.
    for schema in schemas(&mut deployment) {
        if let Some(required) = &mut schema.required {
            required.retain(|field| field != "spec");
        }
        schema.required.take_if(|required| required.is_empty());
    }
    let mut definitions = [
        ClusterClaimResource::crd(),
        ClusterDeploymentCustomizationResource::crd(),
        deployment,
        ClusterPoolResource::crd(),
    ];
    for schema in definitions.iter_mut().flat_map(schemas) {
        // Remove the title, which schemars sets to the name of the Rust type.
        schema.title = None;
        forbid_null(schema);
    }
    definitions
}

fn schemas(definition: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    definition
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

/// schemars makes an `Option` nullable. In Kubernetes, an optional field may be absent but not null, and no field of
/// Hive is nullable.
fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema
        .properties
        .iter_mut()
        .flat_map(|fields| fields.values_mut())
        .for_each(forbid_null);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => forbid_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_null),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        forbid_null(value);
    }
}

/// The desired state of a `ClusterDeployment`.
#[derive(
    Clone, Debug, Default, PartialEq, Serialize, Deserialize, kube::CustomResource, schemars::JsonSchema,
)]
#[kube(
    group = "hive.openshift.io",
    version = "v1",
    kind = "ClusterDeployment",
    root = "ClusterDeploymentResource",
    doc = "One cluster.",
    shortname = "cd",
    namespaced,
    status = "ClusterDeploymentStatus"
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterDeploymentSpec {
    /// The DNS domain above the name of the cluster.
    pub(crate) base_domain: String,
    /// The name of the cluster.
    pub(crate) cluster_name: String,
    /// The platform of the cluster, with the name of the platform as the only key.
    #[schemars(schema_with = "any_object")]
    pub(crate) platform: Map<String, Value>,
    /// The pool of the cluster.
    pub(crate) cluster_pool_ref: Option<ClusterPoolReference>,
    /// Whether the installation of the cluster is complete.
    pub(crate) installed: Option<bool>,
}

/// The observed state of a `ClusterDeployment`. Rules read none of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub(crate) struct ClusterDeploymentStatus {}
