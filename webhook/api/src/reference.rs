//! References to objects in the same namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use crate::{metadata::Object as _, names::annotation};

/// A reference without a version, decoded from `apiVersion` (v1beta1) or `apiGroup` (v1beta2).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "Wire")]
pub struct Reference {
    pub group: String,
    pub kind: String,
    pub name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    api_group: Option<String>,
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
}

impl From<Wire> for Reference {
    fn from(wire: Wire) -> Self {
        let of_version = || Some(group_of(wire.api_version.as_deref()?).to_owned());
        Self {
            group: wire.api_group.clone().or_else(of_version).unwrap_or_default(),
            kind: wire.kind.unwrap_or_default(),
            name: wire.name.unwrap_or_default(),
        }
    }
}

/// The API group in an `apiVersion`. Empty for `v1`.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl From<&OwnerReference> for Reference {
    fn from(owner: &OwnerReference) -> Self {
        Self {
            group: group_of(&owner.api_version).to_owned(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
        }
    }
}

impl Reference {
    /// The kind and the group, such as `DockerMachineTemplate.infrastructure.cluster.x-k8s.io`.
    pub fn group_kind(&self) -> String {
        match self.group.as_str() {
            "" => self.kind.clone(),
            group => format!("{}.{group}", self.kind),
        }
    }

    /// The template that an object was cloned from, according to its annotations. `None` if it has no such annotations.
    pub fn cloned_from(metadata: &ObjectMeta) -> Option<Self> {
        let name = metadata.annotation(annotation::CLONED_FROM_NAME)?;
        let group_kind = metadata.annotation(annotation::CLONED_FROM_GROUP_KIND)?;
        let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
        Some(Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Reference;
    use crate::{PartialObjectMetadata, decode};

    fn template() -> Reference {
        Reference {
            group: "infrastructure.cluster.x-k8s.io".to_owned(),
            kind: "DockerMachineTemplate".to_owned(),
            name: "t1".to_owned(),
        }
    }

    #[test]
    fn both_versions_of_a_reference_are_the_same() {
        let (group, kind) = ("infrastructure.cluster.x-k8s.io", "DockerMachineTemplate");
        for reference in [
            json!({"apiGroup": group, "kind": kind, "name": "t1"}),
            json!({"apiVersion": format!("{group}/v1beta1"), "kind": kind, "name": "t1", "namespace": "d", "uid": "u"}),
        ] {
            assert_eq!(
                serde_json::from_value::<Reference>(reference).expect("decodes"),
                template()
            );
        }
        let core: Reference =
            serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "name": "n"}))
                .expect("decodes");
        assert_eq!((core.group.as_str(), core.group_kind().as_str()), ("", "Node"));
    }

    #[test]
    fn annotations_name_the_template_of_a_clone() {
        let (name, group_kind) = (
            "cluster.x-k8s.io/cloned-from-name",
            "cluster.x-k8s.io/cloned-from-groupkind",
        );
        let cloned_from = |annotations: Value| {
            let object = json!({"metadata": {"name": "m1", "annotations": annotations}});
            let object: PartialObjectMetadata = decode(&object.to_string()).expect("decodes");
            Reference::cloned_from(&object.metadata)
        };
        let both = json!({name: "t1", group_kind: template().group_kind()});
        assert_eq!(cloned_from(both), Some(template()));
        assert_eq!(cloned_from(json!({name: "t1"})), None);
        assert_eq!(cloned_from(json!({})), None);
    }
}
