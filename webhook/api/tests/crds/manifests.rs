//! Compares our CRDs with the manifests.

use std::{fs, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::definitions::custom_resource_definitions;

const HEADER: &str = "\
# Generated from webhook/api/src/hive by `make crds`.
# For clusters without Hive: never apply it over Hive's own.
";

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../manifests/dev/crds")
}

fn file_name(definition: &CustomResourceDefinition) -> String {
    format!("{}.yaml", definition.spec.names.plural)
}

fn manifest(definition: &CustomResourceDefinition) -> String {
    format!("{HEADER}{}", serde_saphyr::to_string(definition).unwrap())
}

#[test]
fn manifests_are_up_to_date() {
    for definition in custom_resource_definitions() {
        let file = directory().join(file_name(&definition));
        let generated = manifest(&definition);
        if std::env::var_os("UPDATE_CRDS").is_some_and(|update| update == "1") {
            fs::write(&file, &generated).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == generated,
            "{} does not match the types: run `make crds`",
            file.display()
        );
    }
}

/// Serializing and parsing loses nothing.
#[test]
fn manifests_read_back_unchanged() {
    for definition in custom_resource_definitions() {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&manifest(&definition)).unwrap();
        assert_eq!(read, definition);
    }
}

#[test]
fn kustomization_lists_every_manifest() {
    #[derive(serde::Deserialize)]
    struct Kustomization {
        resources: Vec<String>,
    }
    let text = fs::read_to_string(directory().join("kustomization.yaml")).unwrap();
    let kustomization: Kustomization = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        kustomization.resources,
        custom_resource_definitions().each_ref().map(file_name)
    );
}
