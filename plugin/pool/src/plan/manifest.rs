//! Reads the desired ClusterPool from a manifest.

use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_rules::api::hive::Inventory;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file is neither JSON nor YAML.
    #[error("{path} is not a manifest: {cause}")]
    Syntax {
        path: String,
        cause: Box<serde_saphyr::Error>,
    },
    #[error("{path} contains {number} ClusterPools, but must contain exactly one")]
    Number { path: String, number: usize },
    #[error("ClusterPool in {path}: {cause}")]
    Pool { path: String, cause: serde_json::Error },
    #[error("ClusterPool in {path} has no metadata.name")]
    Nameless { path: String },
    /// `spec.inventory` is an object, as in the design document, but the API server accepts only a list.
    #[error("ClusterPool in {path}: spec.inventory is an object, but must be a list")]
    DocumentedInventory { path: String },
}

/// Returns the only ClusterPool of a manifest. `path` is the file's name in messages.
pub fn parse_pool(content: &[u8], path: &str) -> Result<ClusterPool, ManifestError> {
    let path = || path.to_owned();
    let text = String::from_utf8_lossy(content);
    // The manifest may contain secrets, so an error must contain only the position.
    let options = serde_saphyr::options! { with_snippet: false };
    let objects: Vec<Value> =
        serde_saphyr::from_multiple_with_options(&text, options).map_err(|cause| ManifestError::Syntax {
            path: path(),
            cause: Box::new(cause),
        })?;
    let is_pool = |object: &Value| {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        text("kind") == "ClusterPool" && text("apiVersion").starts_with("hive.openshift.io/")
    };
    let mut pools: Vec<Value> = objects.into_iter().filter(is_pool).collect();
    let number = pools.len();
    let (Some(object), 1) = (pools.pop(), number) else {
        return Err(ManifestError::Number { path: path(), number });
    };
    let pool: ClusterPool =
        serde_json::from_value(object).map_err(|cause| ManifestError::Pool { path: path(), cause })?;
    if pool.name().is_empty() {
        return Err(ManifestError::Nameless { path: path() });
    }
    if pool.spec.inventory.as_ref().is_some_and(Inventory::is_object) {
        return Err(ManifestError::DocumentedInventory { path: path() });
    }
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Object as _;

    use super::parse_pool;

    const POOL: &str = "apiVersion: hive.openshift.io/v1\nkind: ClusterPool\nmetadata: {name: p}\nspec: {platform: \
                        {none: {}}, baseDomain: d, imageSetRef: {name: i}, size: 1}\n";

    #[test]
    fn a_malformed_manifest_is_not_quoted() {
        let manifest = "kind: Secret\nstringData:\n  password: sesame\nbad: [\n";
        let message = parse_pool(manifest.as_bytes(), "f.yaml").unwrap_err().to_string();
        assert!(message.starts_with("f.yaml is not a manifest: "), "{message}");
        assert!(!message.contains("sesame"), "{message}");
    }

    #[test]
    fn reads_exactly_one_pool_of_a_manifest() {
        let read = |text: &str| match parse_pool(text.as_bytes(), "f") {
            Ok(pool) => Ok(pool.name().to_owned()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(read(POOL), Ok("p".to_owned()));
        let others = format!("kind: Secret\n---\n{POOL}---\n");
        assert_eq!(read(&others), Ok("p".to_owned()));
        let none = "f contains 0 ClusterPools, but must contain exactly one";
        assert_eq!(read("kind: Secret"), Err(none.to_owned()));
        let two = "f contains 2 ClusterPools, but must contain exactly one";
        assert_eq!(read(&format!("{POOL}---\n{POOL}")), Err(two.to_owned()));
        let documented = POOL.replace(
            "size: 1",
            "size: 1, inventory: {ClusterDeploymentCustomizations: []}",
        );
        let object = "ClusterPool in f: spec.inventory is an object, but must be a list";
        assert_eq!(read(&documented), Err(object.to_owned()));
        for nameless in ["{}", "{name: \"\"}", "{generateName: p-}"] {
            assert_eq!(
                read(&POOL.replace("{name: p}", nameless)),
                Err("ClusterPool in f has no metadata.name".to_owned()),
                "{nameless}"
            );
        }
        let sizeless = read(&POOL.replace("size: 1", "sise: 1")).unwrap_err();
        assert_eq!(sizeless, "ClusterPool in f: missing field `size`");
        assert!(read("a: [").unwrap_err().starts_with("f is not a manifest: "));
    }
}
