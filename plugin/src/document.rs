//! The JSON documents of all commands.

use kcp_api::{Kind, KubeadmControlPlane, Object as _};
use serde::Serialize;

/// The `apiVersion` of all JSON documents.
const API_VERSION: &str = "kubectl-kcp.dev/v1alpha1";

/// The address of the book.
pub(crate) const BOOK: &str = "https://kubectl-kcp.dev";

/// The address of a page of the book, such as `reference/rules.html#replicas-even`.
pub(crate) fn book_page(page: &str) -> String {
    format!("{BOOK}/{page}")
}

/// The content of a JSON document. [`Versioned`] adds `apiVersion` and `kind`.
pub(crate) trait Document: Serialize {
    const KIND: &'static str;
}

impl<D: Document> Document for &D {
    const KIND: &'static str = D::KIND;
}

/// A JSON document: `apiVersion`, `kind`, and the fields of its content.
#[derive(Debug)]
pub(crate) struct Versioned<D>(pub(crate) D);

impl<D: Document> Serialize for Versioned<D> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'d, D> {
            api_version: &'static str,
            kind: &'static str,
            #[serde(flatten)]
            content: &'d D,
        }
        let fields = Fields {
            api_version: API_VERSION,
            kind: D::KIND,
            content: &self.0,
        };
        fields.serialize(serializer)
    }
}

#[cfg(test)]
impl<D: Document + schemars::JsonSchema> schemars::JsonSchema for Versioned<D> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        D::KIND.into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let constant = |value| serde_json::json!({ "type": "string", "const": value });
        let mut schema = D::json_schema(generator);
        let fields = [("kind", D::KIND), ("apiVersion", API_VERSION)];
        for (name, value) in fields {
            let properties = schema
                .ensure_object()
                .entry("properties")
                .or_insert_with(|| serde_json::json!({}));
            let properties = properties.as_object_mut().expect("properties are an object");
            properties.insert(name.to_owned(), constant(value));
            let required = schema
                .ensure_object()
                .entry("required")
                .or_insert_with(|| serde_json::json!([]));
            let required = required.as_array_mut().expect("required is an array");
            required.insert(0, name.into());
        }
        schema
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ObjectName {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl From<&KubeadmControlPlane> for ObjectName {
    fn from(control_plane: &KubeadmControlPlane) -> Self {
        Self {
            name: control_plane.name().to_owned(),
            namespace: control_plane.namespace().to_owned(),
        }
    }
}

/// The name of an object, as `kubectl get -o name` prints it: `RESOURCE.GROUP/NAME`, or `RESOURCE/NAME` in the core group.
pub(crate) fn resource_name(kind: &Kind, name: &str) -> String {
    let resource = kind.kind.to_lowercase();
    match kind.group {
        "" => format!("{resource}/{name}"),
        group => format!("{resource}.{group}/{name}"),
    }
}
