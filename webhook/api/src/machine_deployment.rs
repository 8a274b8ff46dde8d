//! `MachineDeployment` and `MachinePool`: the kinds that create worker Machines.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::{decode::null_as_default, metadata};

/// A `MachineDeployment` or `MachinePool`: the fields that both kinds have in both API versions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MachineDeployment {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: MachineDeploymentSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: MachineDeploymentStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineDeploymentSpec {
    pub cluster_name: String,
    /// `None` if an autoscaler has not set it yet.
    pub replicas: Option<i64>,
    pub template: Option<MachineTemplate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineDeploymentStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub replicas: i64,
    #[serde(deserialize_with = "null_as_default")]
    pub ready_replicas: i64,
    /// `None` for a `MachinePool` in v1beta1.
    #[serde(alias = "updatedReplicas")]
    pub up_to_date_replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineTemplate {
    pub spec: Option<MachineTemplateSpec>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineTemplateSpec {
    pub version: Option<String>,
}

impl MachineDeployment {
    /// The Kubernetes version of the worker Machines. `None` if the template does not set it.
    pub fn version(&self) -> Option<&str> {
        self.spec.template.as_ref()?.spec.as_ref()?.version.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::MachineDeployment;
    use crate::{decode, metadata::Object as _};

    #[test]
    fn its_template_may_set_a_version() {
        for (template, version) in [
            (
                json!({"spec": {"clusterName": "c1", "version": "v1.31.0"}}),
                Some("v1.31.0"),
            ),
            (json!({"spec": {"version": null}}), None),
            (json!({"metadata": {}}), None),
            (Value::Null, None),
        ] {
            let object = json!({"kind": "MachinePool", "metadata": {"name": "md-0"},
                "spec": {"clusterName": "c1", "replicas": 3, "template": template}});
            let read: MachineDeployment = decode(&object.to_string()).expect("decodes");
            assert_eq!((read.name(), read.spec.cluster_name.as_str()), ("md-0", "c1"));
            assert_eq!(read.version(), version, "{template}");
        }
    }
}
