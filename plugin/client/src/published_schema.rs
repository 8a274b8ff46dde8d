//! Finds out from the schema that a server publishes whether the server keeps a field, or drops the field without an error.

use http::Request;
use kcp_api::Kind;
use serde_json::Value;

use crate::{Action, Connection, Error, request::decode_response};

impl Connection {
    /// Whether the server keeps this field of a kind's objects. `None` if the schema does not say so. By default, every user may
    /// read the schema. Fails if the server does not serve the kind's group.
    pub async fn keeps_field(
        &self,
        kind: &Kind,
        version: &str,
        field: &[&str],
    ) -> Result<Option<bool>, Error> {
        let path = format!("/openapi/v3/apis/{}/{version}", kind.group);
        let action = Action::path("get", &path);
        let build = || {
            let request = Request::get(&path).header("Accept", "application/json");
            request
                .body(Vec::new())
                .map_err(kube::core::request::Error::BuildRequest)
        };
        let text = self.read_text(&action, &build).await?;
        let document: Value = decode_response(&action, &text)?;
        Ok(keeps(&document, kind, version, field))
    }
}

fn keeps(document: &Value, kind: &Kind, version: &str, field: &[&str]) -> Option<bool> {
    let is_kind = |named: &Value| {
        let text = |key| named.get(key).and_then(Value::as_str);
        [text("group"), text("version"), text("kind")] == [Some(kind.group), Some(version), Some(kind.kind)]
    };
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let mut schema = schemas.values().find(|schema| {
        let named = schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array);
        named.is_some_and(|named| named.iter().any(is_kind))
    })?;
    // Without any property, the schema of the kind itself does not describe its objects.
    schema.get("properties")?;
    for name in field {
        let property = schema
            .get("properties")
            .and_then(|properties| properties.get(name));
        let Some(property) = property else {
            let keeps_others = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
                || schema.get("additionalProperties").is_some();
            return Some(keeps_others);
        };
        schema = property;
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::CLUSTER_POOL;
    use serde_json::{Value, json};

    use crate::{Connection, Error, testing::failure};

    fn document(spec: &Value) -> Value {
        let named = |kind: &str| json!([{"group": "hive.openshift.io", "version": "v1", "kind": kind}]);
        json!({"components": {"schemas": {
            "ClusterClaim": {"x-kubernetes-group-version-kind": named("ClusterClaim"), "properties": {"spec": {}}},
            "ClusterPool": {"x-kubernetes-group-version-kind": named("ClusterPool"), "properties": {"spec": spec}},
            "Status": {},
        }}})
    }

    #[tokio::test]
    async fn a_field_that_the_schema_does_not_have_is_dropped() {
        let list = json!({"type": "array"});
        for (case, document, expected) in [
            (
                "new",
                document(&json!({"properties": {"inventory": list}})),
                Some(true),
            ),
            ("old", document(&json!({"properties": {"size": {}}})), Some(false)),
            (
                "keeps all",
                document(&json!({"properties": {}, "x-kubernetes-preserve-unknown-fields": true})),
                Some(true),
            ),
            (
                "a map",
                document(&json!({"additionalProperties": {}})),
                Some(true),
            ),
            (
                "no schema of the kind",
                json!({"components": {"schemas": {}}}),
                None,
            ),
            ("no document", json!({}), None),
        ] {
            let connection = Connection::canned(move |_, path| {
                assert_eq!(path, "/openapi/v3/apis/hive.openshift.io/v1");
                (200, document.clone())
            });
            let found = connection
                .keeps_field(&CLUSTER_POOL, "v1", &["spec", "inventory"])
                .await;
            assert_eq!(found.ok(), Some(expected), "{case}");
        }
    }

    #[tokio::test]
    async fn a_schema_that_cannot_be_read_is_an_error() {
        let connection = Connection::canned(|_, _| failure(403, "Forbidden", "no"));
        let found = connection.keeps_field(&CLUSTER_POOL, "v1", &["spec"]).await;
        assert!(matches!(found, Err(Error::Forbidden { .. })), "{found:?}");
    }
}
