//! Decodes what is the same in objects of many kinds: conditions, and the last error of their controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::{
    Condition,
    condition::{self, V1Beta2Status},
    decode::null_as_default,
    metadata,
};

/// An object of Cluster API or of a provider, such as a `KubeadmConfig` or an infrastructure machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ConditionedObject {
    pub metadata: ObjectMeta,
    pub conditions: Vec<Condition>,
    /// `status.failureMessage`: an error that the controller does not try to overcome. `None` if there is none.
    pub failure_message: Option<String>,
    /// `spec.format` of a `KubeadmConfig`: `cloud-config` or `ignition`. `None` if unset.
    pub format: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    format: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    conditions: Option<Vec<Condition>>,
    v1beta2: Option<V1Beta2Status>,
    failure_message: Option<String>,
}

impl From<Wire> for ConditionedObject {
    fn from(wire: Wire) -> Self {
        let format = wire.spec.format.as_ref().and_then(serde_json::Value::as_str);
        Self {
            metadata: wire.metadata,
            conditions: condition::conditions_of(wire.status.conditions, wire.status.v1beta2),
            failure_message: wire.status.failure_message.filter(|message| !message.is_empty()),
            format: format.filter(|format| !format.is_empty()).map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ConditionedObject;
    use crate::{decode, metadata::Object as _};

    #[test]
    fn both_versions_and_objects_without_status_decode() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        for (object, conditions, failure, format) in [
            (json!({"metadata": {"name": "a"}}), 0, None, None),
            (
                json!({"metadata": {"name": "a"}, "spec": {"format": "ignition"}, "status": {"conditions": ready}}),
                1,
                None,
                Some("ignition"),
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"format": {"other": "kind"}}, "status": {
                    "v1beta2": {"conditions": ready}, "conditions": [], "failureMessage": "no quota"}}),
                1,
                Some("no quota"),
                None,
            ),
        ] {
            let object: ConditionedObject = decode(&object.to_string()).expect("decodes");
            assert_eq!((object.name(), object.conditions.len()), ("a", conditions));
            assert_eq!(
                (object.failure_message.as_deref(), object.format.as_deref()),
                (failure, format)
            );
        }
    }
}
