//! The `CustomResourceDefinition`s of Hive's kinds, generated from our types: for clusters without Hive.
//!
//! They hold the fields that we know and keep all others, so that no object of a real Hive loses any of its own.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{
    ClusterClaimResource, ClusterDeploymentCustomizationResource, ClusterDeploymentResource,
    ClusterPoolResource,
};

/// Every definition, by name.
pub fn custom_resource_definitions() -> [CustomResourceDefinition; 4] {
    let mut deployment = ClusterDeploymentResource::crd();
    // The derive asks for a spec in every kind; Hive's own ClusterDeployment does without.
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
        // The name of a Rust type.
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

/// schemars takes an `Option` for a field that may be null. For Kubernetes it is one that may be absent, and none
/// of Hive's fields is nullable.
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
