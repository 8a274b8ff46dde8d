//! `ExtensionConfig`: the registration of a runtime extension.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

use crate::{decode::null_as_default, metadata};

/// The hook with which an extension says whether it can update a Machine in place.
const CAN_UPDATE_MACHINE: &str = "CanUpdateMachine";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ExtensionConfig {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: ExtensionConfigSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: ExtensionConfigStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtensionConfigSpec {
    /// Selects namespaces. Cluster API calls the extension only for objects in these namespaces. If the
    /// selector is absent or empty, it selects all namespaces.
    pub namespace_selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ExtensionConfigStatus {
    /// The handlers of the extension that Cluster API has discovered.
    #[serde(deserialize_with = "null_as_default")]
    pub handlers: Vec<ExtensionHandler>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtensionHandler {
    /// The name of the handler and of its `ExtensionConfig`, such as `can-update.in-place`.
    pub name: String,
    pub request_hook: RequestHook,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestHook {
    pub hook: String,
}

impl ExtensionConfig {
    /// The names of the handlers that say whether a Machine can be updated in place.
    pub fn in_place_handlers(&self) -> impl Iterator<Item = &str> {
        let handlers = self.status.handlers.iter();
        handlers
            .filter(|handler| handler.request_hook.hook == CAN_UPDATE_MACHINE)
            .map(|handler| handler.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ExtensionConfig;
    use crate::decode;

    #[test]
    fn handlers_of_in_place_updates_are_told_by_their_hook() {
        let hook =
            |hook: &str| json!({"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook});
        let config = json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": "in-place"},
            "spec": {"clientConfig": {"url": "https://e"}, "namespaceSelector": {"matchLabels": {"tier": "gold"}}},
            "status": {"handlers": [
                {"name": "can-update.in-place", "requestHook": hook("CanUpdateMachine"), "timeoutSeconds": 10},
                {"name": "update.in-place", "requestHook": hook("UpdateMachine")},
                {"name": "set.in-place", "requestHook": hook("CanUpdateMachineSet")},
            ]},
        });
        let config: ExtensionConfig = decode(&config.to_string()).expect("decodes");
        assert_eq!(
            config.in_place_handlers().collect::<Vec<_>>(),
            ["can-update.in-place"]
        );
        assert!(config.spec.namespace_selector.is_some());
        let new = json!({"metadata": {"name": "new"}, "spec": {"namespaceSelector": null}, "status": {"handlers": null}});
        let new: ExtensionConfig = decode(&new.to_string()).expect("decodes");
        assert_eq!(new.in_place_handlers().count(), 0);
    }
}
