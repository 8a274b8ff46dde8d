//! `KubeadmConfig`, whose spec is also embedded in a control plane.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{decode::null_as_default, metadata};

const CERTIFICATE_VALIDITY_DAYS: &str = "/clusterConfiguration/certificateValidityPeriodDays";
const EXTERNAL_ETCD: &str = "/clusterConfiguration/etcd/external";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct KubeadmConfig {
    pub metadata: ObjectMeta,
    pub spec: KubeadmConfigSpec,
}

/// `spec` of a `KubeadmConfig`, or `spec.kubeadmConfigSpec` of a control plane, with all fields, because Cluster API
/// compares every field. Fields may contain passwords and keys, so `Debug` hides them.
#[derive(Clone, Default, PartialEq)]
pub struct KubeadmConfigSpec {
    /// The API version of the fields: `v1beta1` or `v1beta2`. Their fields differ, so specs of different versions
    /// cannot be compared.
    pub version: String,
    pub fields: Value,
}

impl fmt::Debug for KubeadmConfigSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KubeadmConfigSpec")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: Map<String, Value>,
}

impl From<Wire> for KubeadmConfig {
    fn from(wire: Wire) -> Self {
        Self {
            metadata: wire.metadata,
            spec: KubeadmConfigSpec::new(&wire.api_version, wire.spec),
        }
    }
}

impl KubeadmConfigSpec {
    pub(crate) fn new(api_version: &str, fields: Map<String, Value>) -> Self {
        Self {
            version: api_version.rsplit('/').next().unwrap_or_default().to_owned(),
            fields: Value::Object(fields),
        }
    }

    /// How long the certificates that kubeadm issues are valid, in days. `None` means kubeadm's default.
    pub fn certificate_validity_days(&self) -> Option<i64> {
        self.fields.pointer(CERTIFICATE_VALIDITY_DAYS)?.as_i64()
    }

    pub fn has_external_etcd(&self) -> bool {
        let external = self.fields.pointer(EXTERNAL_ETCD);
        external.is_some_and(|external| !external.is_null())
    }

    /// Drops all fields except those that this type's methods read. The other fields are large, may be secret, and are
    /// needed only to compare a control plane with a Machine's `KubeadmConfig`.
    pub fn drop_unread_fields(&mut self) {
        let mut cluster = Map::new();
        if let Some(days) = self.certificate_validity_days() {
            cluster.insert("certificateValidityPeriodDays".to_owned(), days.into());
        }
        if self.has_external_etcd() {
            cluster.insert("etcd".to_owned(), json!({"external": {}}));
        }
        self.fields = json!({ "clusterConfiguration": cluster });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{KubeadmConfig, KubeadmConfigSpec};
    use crate::{decode, metadata::Object as _};

    fn spec(fields: Value) -> KubeadmConfigSpec {
        KubeadmConfigSpec {
            version: "v1beta2".to_owned(),
            fields,
        }
    }

    #[test]
    fn keeps_every_field_and_the_version() {
        for version in ["v1beta1", "v1beta2"] {
            let object = json!({"apiVersion": format!("bootstrap.cluster.x-k8s.io/{version}"),
                "metadata": {"name": "m1"}, "spec": {"verbosity": 3}});
            let config: KubeadmConfig = decode(&object.to_string()).expect("decodes");
            assert_eq!(config.name(), "m1");
            assert_eq!(config.spec.version, version);
            assert_eq!(config.spec.fields, json!({"verbosity": 3}));
        }
        let bare: KubeadmConfig = decode(r#"{"metadata": {"name": "m1"}}"#).expect("decodes");
        assert_eq!(bare.spec.fields, json!({}));
    }

    #[test]
    fn the_fields_with_a_method_outlive_the_others() {
        for (cluster, days, external) in [
            (json!({}), None, false),
            (
                json!({"certificateValidityPeriodDays": 90, "clusterName": "c"}),
                Some(90),
                false,
            ),
            (
                json!({"etcd": {"external": {"endpoints": ["https://e"]}}}),
                None,
                true,
            ),
            (json!({"etcd": {"local": {}}}), None, false),
            (json!({"etcd": {"external": null}}), None, false),
            (Value::Null, None, false),
        ] {
            let mut spec = spec(json!({"users": [{"passwd": "sesame"}], "clusterConfiguration": cluster}));
            for fields in ["all", "few"] {
                assert_eq!(spec.certificate_validity_days(), days, "{fields} of {cluster}");
                assert_eq!(spec.has_external_etcd(), external, "{fields} of {cluster}");
                spec.drop_unread_fields();
            }
            let kept = spec.fields.to_string();
            assert!(
                !kept.contains("sesame") && !kept.contains("clusterName"),
                "{kept}"
            );
        }
    }

    #[test]
    fn debug_shows_no_field() {
        let shown = format!("{:?}", spec(json!({"users": [{"passwd": "sesame"}]})));
        assert_eq!(shown, r#"KubeadmConfigSpec { version: "v1beta2", .. }"#);
    }
}
