//! Decodes the part of a `ClusterClass` that names the template of the control plane, and the versions through which Clusters are
//! upgraded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, de::IgnoredAny};

use crate::{decode::null_as_default, kind::KUBEADM_CONTROL_PLANE_TEMPLATE, metadata};

#[derive(Clone, Debug, Deserialize)]
pub struct ClusterClass {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: ClassSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassSpec {
    #[serde(deserialize_with = "null_as_default")]
    control_plane: ClassControlPlane,
    #[serde(deserialize_with = "null_as_default")]
    patches: Vec<IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    kubernetes_versions: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassControlPlane {
    /// Only v1beta2 has this field.
    template_ref: Option<TemplateRef>,
    /// Only v1beta1 has this field.
    r#ref: Option<TemplateRef>,
}

#[derive(Clone, Debug, Deserialize)]
struct TemplateRef {
    kind: String,
    name: String,
}

impl TemplateRef {
    fn is_kubeadm(&self) -> bool {
        self.kind == KUBEADM_CONTROL_PLANE_TEMPLATE.kind
    }
}

impl ClusterClass {
    /// The name of the `KubeadmControlPlaneTemplate`, which is in the namespace of the class. `None` for another kind of control
    /// plane.
    pub fn control_plane_template(&self) -> Option<&str> {
        let template = self.template()?;
        template.is_kubeadm().then_some(&template.name)
    }

    /// Whether the class creates another kind of control plane.
    pub fn has_other_control_plane(&self) -> bool {
        self.template().is_some_and(|template| !template.is_kubeadm())
    }

    fn template(&self) -> Option<&TemplateRef> {
        let control_plane = &self.spec.control_plane;
        control_plane
            .template_ref
            .as_ref()
            .or(control_plane.r#ref.as_ref())
    }

    /// The versions through which Clusters of the class are upgraded. Cluster API 1.12 and later have this field.
    pub fn kubernetes_versions(&self) -> &[String] {
        &self.spec.kubernetes_versions
    }

    /// Whether patches may change the template for a Cluster.
    pub fn has_patches(&self) -> bool {
        !self.spec.patches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ClusterClass;

    #[test]
    fn both_versions_name_the_template() {
        let template = json!({"kind": "KubeadmControlPlaneTemplate", "name": "a"});
        let other = json!({"kind": "AcmeControlPlaneTemplate", "name": "a"});
        for (spec, name, has_patches) in [
            (
                json!({"controlPlane": {"templateRef": template}, "patches": [{"name": "p"}]}),
                Some("a"),
                true,
            ),
            (
                json!({"controlPlane": {"ref": template}, "patches": null}),
                Some("a"),
                false,
            ),
            (json!({"controlPlane": {"templateRef": other}}), None, false),
            (json!({}), None, false),
        ] {
            let class = json!({"metadata": {"name": "c"}, "spec": spec}).to_string();
            let class: ClusterClass = crate::decode(&class).expect("decodes");
            assert_eq!(class.control_plane_template(), name, "{spec}");
            assert_eq!(class.has_patches(), has_patches, "{spec}");
            assert_eq!(
                class.has_other_control_plane(),
                spec.to_string().contains("Acme"),
                "{spec}"
            );
        }
    }
}
