//! Finds the desired ClusterPool in a manifest.

use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_rules::api::hive::Inventory;
use serde::Deserialize as _;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
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

/// Returns the only ClusterPool of the objects in a file. `path` is the file's name in messages.
pub fn parse_pool(objects: &[Value], path: &str) -> Result<ClusterPool, ManifestError> {
    let path = || path.to_owned();
    let is_pool = |object: &&Value| {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        text("kind") == "ClusterPool" && text("apiVersion").starts_with("hive.openshift.io/")
    };
    let pools: Vec<&Value> = objects.iter().filter(is_pool).collect();
    let [object] = pools.as_slice() else {
        return Err(ManifestError::Number {
            path: path(),
            number: pools.len(),
        });
    };
    let pool = ClusterPool::deserialize(*object);
    let pool = pool.map_err(|cause| ManifestError::Pool { path: path(), cause })?;
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

    use serde_json::Value;

    use super::parse_pool;

    const POOL: &str = "apiVersion: hive.openshift.io/v1\nkind: ClusterPool\nmetadata: {name: p}\nspec: {platform: \
                        {none: {}}, baseDomain: d, imageSetRef: {name: i}, size: 1}\n";

    #[test]
    fn reads_exactly_one_pool_of_a_manifest() {
        let read = |text: &str| {
            let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
            let pool = parse_pool(&objects, "f").map_err(|error| error.to_string())?;
            Ok::<_, String>(pool.name().to_owned())
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
    }
}
