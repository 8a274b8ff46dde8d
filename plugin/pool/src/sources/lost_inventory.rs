//! Finds inventories that the server dropped. A server whose ClusterPool CRD is older than inventories drops
//! `spec.inventory` without an error, and Hive then creates clusters without customizations.

use kcp_api::{ClusterPool, kind::CLUSTER_POOL, metadata::Object as _, names::annotation};
use kcp_client::Error;
use serde_json::Value;

use crate::store::Store;

/// What is known about the inventory that a pool does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostInventory {
    /// Whether the server drops the field; `None` if unknown.
    pub is_dropped: Option<bool>,
    /// The names of the entries in the manifest that was last applied with kubectl.
    pub applied: Vec<String>,
}

/// What to say if the server drops the inventory.
pub const DROPS: &str = "the server's ClusterPool CRD has no field spec.inventory, so the server drops the inventory; upgrade \
                     Hive's CRDs";

impl LostInventory {
    /// Why the pool has no inventory, although it should have one; `None` if nothing says that it should.
    pub fn problem(&self) -> Option<String> {
        if self.applied.is_empty() {
            return None;
        }
        let entries = self.applied.join(", ");
        let applied =
            format!("the manifest that was last applied has an inventory ({entries}), but the pool has none");
        Some(match self.is_dropped {
            Some(true) => format!("{applied}: {DROPS}, and apply the manifest again"),
            Some(false) => format!(
                "{applied}: another client removed the inventory, or the server dropped it, because the ClusterPool CRD was older; \
                 apply the manifest again, with or without the inventory"
            ),
            None => format!(
                "{applied}; it is unknown whether the server drops the inventory, because its ClusterPool CRD cannot be read"
            ),
        })
    }

    /// Why the pool has no inventory, or can have none; `None` if nothing is known about this.
    pub fn explanation(&self) -> Option<String> {
        let dropped = || (self.is_dropped == Some(true)).then(|| DROPS.to_owned());
        self.problem().or_else(dropped)
    }
}

/// Whether the server drops the inventory of pools; `None` if this is unknown. `pools` are pools of the server.
pub async fn read_drops_inventory<'p>(
    store: &Store<'_>,
    pools: impl IntoIterator<Item = &'p ClusterPool>,
) -> Option<bool> {
    // The server also drops the field when it reads a stored object.
    if pools.into_iter().any(|pool| pool.spec.inventory.is_some()) {
        return Some(false);
    }
    let keeps = store
        .connection()
        .keeps_field(&CLUSTER_POOL, "v1", &["spec", "inventory"])
        .await;
    keeps.ok().flatten().map(|keeps| !keeps)
}

/// Reads what is known about the inventory of a pool that has none. What cannot be read stays unknown.
pub async fn read_lost_inventory(store: &Store<'_>, pool: &ClusterPool) -> LostInventory {
    LostInventory {
        is_dropped: read_drops_inventory(store, [pool]).await,
        applied: read_applied(store, pool.name()).await.unwrap_or_default(),
    }
}

/// The names of the inventory's entries in the manifest that was last applied with kubectl.
pub async fn read_applied(store: &Store<'_>, pool: &str) -> Result<Vec<String>, Error> {
    let resource = CLUSTER_POOL.api_resource("v1");
    let read = store
        .connection()
        .get_metadata::<Value>(&resource, store.namespace(), pool);
    Ok(applied_entries(&read.await?))
}

/// The names of the inventory's entries in the annotation in which `kubectl apply` stores the manifest.
pub fn applied_entries(object: &Value) -> Vec<String> {
    let annotations = object.pointer("/metadata/annotations");
    let manifest = annotations.and_then(|annotations| annotations.get(annotation::LAST_APPLIED)?.as_str());
    let manifest: Option<Value> = manifest.and_then(|manifest| serde_json::from_str(manifest).ok());
    let inventory = manifest
        .as_ref()
        .and_then(|manifest| manifest.pointer("/spec/inventory"));
    let entries = inventory.and_then(Value::as_array).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use kcp_client::{Connection, testing::failure};
    use serde_json::{Value, json};

    use super::{LostInventory, read_lost_inventory};
    use crate::{store::Store, testing::objects::pool};

    fn applied(manifest: &str) -> Value {
        json!({"metadata": {"name": "pool", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest}}})
    }

    async fn read(schema: (u16, Value), metadata: (u16, Value)) -> LostInventory {
        let connection = Connection::canned(move |_, path| {
            if path.starts_with("/openapi") {
                schema.clone()
            } else {
                metadata.clone()
            }
        });
        read_lost_inventory(&Store::new(&connection, "m"), &pool(&json!({}))).await
    }

    fn schema(fields: &Value) -> (u16, Value) {
        let named = json!([{"group": "hive.openshift.io", "version": "v1", "kind": "ClusterPool"}]);
        let pool =
            json!({"x-kubernetes-group-version-kind": named, "properties": {"spec": {"properties": fields}}});
        (200, json!({"components": {"schemas": {"ClusterPool": pool}}}))
    }

    #[tokio::test]
    async fn what_the_schema_and_the_last_manifest_say() {
        const APPLIED: &str =
            "the manifest that was last applied has an inventory (host-a, host-b), but the pool has none";
        const DROPS: &str = "the server's ClusterPool CRD has no field spec.inventory, so the server drops the inventory; \
                             upgrade Hive's CRDs";
        let old = || schema(&json!({"size": {}}));
        let new = || schema(&json!({"inventory": {}}));
        let refused = || failure(403, "Forbidden", "no");
        let with_inventory = || {
            (
                200,
                applied(r#"{"spec":{"inventory":[{"name":"host-a"},{"name":"host-b"}]}}"#),
            )
        };
        let without_inventory = || (200, applied(r#"{"spec":{"size":1}}"#));
        let unreadable = || (200, applied("{"));
        for (case, schema, metadata, is_dropped, problem, explanation) in [
            (
                "dropped",
                old(),
                with_inventory(),
                Some(true),
                Some(format!("{APPLIED}: {DROPS}, and apply the manifest again")),
                None,
            ),
            (
                "dropped earlier",
                new(),
                with_inventory(),
                Some(false),
                Some(format!(
                    "{APPLIED}: another client removed the inventory, or the server dropped it, because the ClusterPool CRD was \
                     older; apply the manifest again, with or without the inventory"
                )),
                None,
            ),
            (
                "an unreadable schema",
                refused(),
                with_inventory(),
                None,
                Some(format!(
                    "{APPLIED}; it is unknown whether the server drops the inventory, because its ClusterPool CRD cannot be read"
                )),
                None,
            ),
            (
                "an old definition",
                old(),
                without_inventory(),
                Some(true),
                None,
                Some(DROPS),
            ),
            (
                "no inventory",
                new(),
                without_inventory(),
                Some(false),
                None,
                None,
            ),
            ("nothing is readable", refused(), refused(), None, None, None),
            (
                "a damaged annotation",
                old(),
                unreadable(),
                Some(true),
                None,
                Some(DROPS),
            ),
        ] {
            let lost = read(schema, metadata).await;
            assert_eq!(lost.is_dropped, is_dropped, "{case}");
            assert_eq!(lost.problem(), problem, "{case}");
            let explanation = explanation.map(str::to_owned).or(problem);
            assert_eq!(lost.explanation(), explanation, "{case}");
        }
    }
}
