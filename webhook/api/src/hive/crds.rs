//! The `CustomResourceDefinition`s of Hive's kinds for clusters without Hive, generated from the types of this crate.
//!
//! They contain the fields that this project uses and preserve unknown ones, so that no object of a real Hive loses fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{
    claim::ClusterClaimResource, customization::ClusterDeploymentCustomizationResource,
    pool::ClusterPoolResource, schema::ClusterDeploymentResource,
};

/// All definitions, sorted by name.
pub fn custom_resource_definitions() -> [CustomResourceDefinition; 4] {
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
