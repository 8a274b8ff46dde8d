//! What the management cluster keeps for reaching a workload cluster: in memory, and shown nowhere.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::ByteString;
use serde::Deserialize;

use crate::{Connection, Error, KUBEADM_CONTROL_PLANE, SECRET};

/// The type of the Secrets that Cluster API makes (Cluster API, `ClusterSecretType`).
const MADE_BY_CLUSTER_API: &str = "cluster.x-k8s.io/secret";

/// A Secret's values.
#[derive(Default, Deserialize)]
pub struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
}

impl Secret {
    /// Reads it from a management cluster.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub async fn read(management: &Connection, namespace: &str, name: &str) -> Result<Self, Error> {
        management.get(&SECRET.at("v1"), namespace, name).await
    }

    /// Whether the control plane's controller has made it, and would make it anew: it leaves alone what a user has given.
    pub fn is_managed(&self) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        self.kind == MADE_BY_CLUSTER_API && owners.any(|owner| owner.kind == KUBEADM_CONTROL_PLANE.kind)
    }

    /// The value under a key.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.0.as_slice())
    }
}

impl<const N: usize> From<[(&str, &[u8]); N]> for Secret {
    fn from(values: [(&str, &[u8]); N]) -> Self {
        let values = values.map(|(key, value)| (key.to_owned(), ByteString(value.to_vec())));
        Self {
            data: values.into(),
            ..Self::default()
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.data.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn shows_keys_and_no_values() {
        let text = r#"{"kind": "Secret", "data": {"tls.crt": "aGVsbG8=", "tls.key": "c2VzYW1l"}}"#;
        let secret: Secret = serde_json::from_str(text).expect("a Secret");
        assert_eq!(secret.value("tls.key"), Some(&b"sesame"[..]));
        assert_eq!(secret.value("value"), None);
        assert_eq!(format!("{secret:?}"), r#"{"tls.crt", "tls.key"}"#);
    }
}
