//! Computes the change that `kubectl apply` would make for a manifest.
//!
//! As in kubectl's three-way merge patch for custom resources (`k8s.io/kubectl`, `pkg/cmd/apply`), fields of the
//! manifest are set, and fields of the last applied manifest that the new one lacks are removed. Other fields stay.

use kcp_api::{
    Reference,
    kind::{CLUSTER_POOL, KUBEADM_CONTROL_PLANE, Kind},
    names::annotation,
};
use serde_json::{Map, Value, json};
use thiserror::Error as ThisError;

use crate::commands::lint::document::{LocatedValue, parse};
use kcp_control_plane::plan::options::with_leading_v;

const APPLIABLE_METADATA: [&str; 2] = ["labels", "annotations"];

#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The name of the file in messages.
    file: String,
    pub object: Value,
    /// The API version of the control plane in the manifest, without the group.
    pub api_version: String,
    /// The other objects in the file. The plan ignores all of them but the infrastructure template.
    pub others: Vec<Value>,
}

/// Why a manifest cannot be used for a plan.
#[derive(Debug, ThisError)]
pub enum ManifestError {
    #[error("{file}{}: {cause}", line.map_or_else(String::new, |line| format!(":{line}")))]
    Syntax {
        file: String,
        /// The line number of the error, counted from 1.
        line: Option<u64>,
        cause: String,
    },
    #[error("{file} does not contain KubeadmControlPlane {name}{}", found.as_ref().map_or_else(String::new, |found| format!(", \
                                                                                                                             only \
                                                                                                                             {found}")))]
    Absent {
        file: String,
        name: String,
        found: Option<String>,
    },
    #[error(
        "{file} must contain exactly one KubeadmControlPlane or ClusterPool with a name; to choose a control plane, name it \
         before -f"
    )]
    Ambiguous { file: String },
    #[error("{file} contains KubeadmControlPlane {name} {count} times")]
    Repeated {
        file: String,
        name: String,
        count: usize,
    },
    /// The manifest does not describe the control plane that is in the cluster.
    #[error(
        "{file} describes another control plane: {field} is {given} in the file but {actual} in the cluster"
    )]
    Other {
        file: String,
        field: &'static str,
        given: String,
        actual: String,
    },
}

/// The objects of a file.
#[derive(Debug)]
pub(super) struct ManifestFile {
    /// The name of the file in messages.
    pub(super) file: String,
    pub(super) objects: Vec<Value>,
}

impl ManifestFile {
    pub(super) fn parse(file: String, content: &[u8]) -> Result<Self, ManifestError> {
        let mut objects = Vec::new();
        for document in parse(content) {
            match document {
                Ok(document) => objects.extend(objects_of(&document)),
                Err(error) => {
                    return Err(ManifestError::Syntax {
                        file,
                        line: error.line,
                        cause: error.to_string(),
                    });
                }
            }
        }
        Ok(Self { file, objects })
    }

    /// The namespace and the name of the only control plane in the file. `None` if the file contains a ClusterPool instead. Fails
    /// if the file contains no pool, and either no control plane or several.
    pub(super) fn control_plane(&self) -> Result<Option<(&str, &str)>, ManifestError> {
        let own: Vec<&Value> = self.of_kind(&KUBEADM_CONTROL_PLANE).collect();
        match (own.as_slice(), self.of_kind(&CLUSTER_POOL).next()) {
            ([own], None) if !text(own, "/metadata/name").is_empty() => Ok(Some((
                text(own, "/metadata/namespace"),
                text(own, "/metadata/name"),
            ))),
            ([], Some(_)) => Ok(None),
            _ => Err(ManifestError::Ambiguous {
                file: self.file.clone(),
            }),
        }
    }

    fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(|object| is_of_kind(object, kind))
    }

    /// The manifest of the control plane with this name. Fails if the file does not contain the control plane exactly once.
    pub(super) fn manifest(self, name: &str) -> Result<Manifest, ManifestError> {
        let Self { file, objects } = self;
        let is_own = |object: &Value| {
            is_of_kind(object, &KUBEADM_CONTROL_PLANE) && text(object, "/metadata/name") == name
        };
        let (mut own, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_own);
        let name = name.to_owned();
        match (own.pop(), own.len()) {
            (Some(object), 0) => Ok(Manifest {
                api_version: text(&object, "/apiVersion")
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                file,
                object,
                others,
            }),
            (None, _) => Err(ManifestError::Absent {
                file,
                name,
                found: (!others.is_empty()).then(|| names(&others)),
            }),
            (Some(_), more) => Err(ManifestError::Repeated {
                file,
                name,
                count: more + 1,
            }),
        }
    }
}

impl Manifest {
    /// Warnings about what the plan ignores or assumes, one line each.
    pub fn warnings(&self, patch: &Value, template: &Reference) -> Vec<String> {
        let others = self.others.iter().filter(|object| !is_template(object, template));
        let others: Vec<&Value> = others.collect();
        let others = (!others.is_empty()).then(|| {
            format!(
                "the plan ignores the other objects in the file: {}",
                names(others)
            )
        });
        let replicas = patch.pointer("/spec/replicas").is_some_and(Value::is_null).then(|| {
            "the manifest removes spec.replicas, so the plan assumes Cluster API's default, 1; if kcp-webhook is \
             installed, it keeps the current value".to_owned()
        });
        others.into_iter().chain(replicas).collect()
    }

    /// The infrastructure template to which the control plane refers, if the file contains it.
    pub fn template(&self, template: &Reference) -> Option<&Value> {
        self.others.iter().find(|object| is_template(object, template))
    }

    /// Computes the merge patch that `kubectl apply` would send for the manifest. Fails if the manifest describes an object other
    /// than the current one.
    pub fn patch(&self, current: &Value) -> Result<Value, ManifestError> {
        for (field, pointer) in [
            ("metadata.namespace", "/metadata/namespace"),
            ("metadata.uid", "/metadata/uid"),
        ] {
            let (given, actual) = (text(&self.object, pointer), text(current, pointer));
            if !given.is_empty() && given != actual {
                return Err(ManifestError::Other {
                    file: self.file.clone(),
                    field,
                    given: given.to_owned(),
                    actual: actual.to_owned(),
                });
            }
        }
        let annotations = current.pointer("/metadata/annotations");
        let last = annotations.and_then(|annotations| annotations.get(annotation::LAST_APPLIED));
        let last: Value = last
            .and_then(Value::as_str)
            .and_then(|last| serde_json::from_str(last).ok())
            .unwrap_or_default();
        let mut patch = appliable_fields(&self.object);
        // Set the defaults that admission webhooks set.
        if let Some(Value::String(version)) = patch.pointer_mut("/spec/version") {
            *version = with_leading_v(version);
        }
        remove_missing(&mut patch, &appliable_fields(&last));
        Ok(patch)
    }
}

/// The objects in one document of a file: the items of a List, or the document itself.
fn objects_of(document: &LocatedValue) -> Vec<Value> {
    let object = document.to_json();
    let items = object.get("items").and_then(Value::as_array);
    match items {
        Some(items) if text(&object, "/kind").ends_with("List") => items.clone(),
        _ => vec![object],
    }
}

fn is_of_kind(object: &Value, kind: &Kind) -> bool {
    let group = text(object, "/apiVersion").split('/').next().unwrap_or_default();
    group == kind.group && text(object, "/kind") == kind.kind
}

fn is_template(object: &Value, template: &Reference) -> bool {
    let group = text(object, "/apiVersion").split('/').next().unwrap_or_default();
    group == template.group
        && text(object, "/kind") == template.kind
        && text(object, "/metadata/name") == template.name
}

/// The objects as `Kind/name`, separated by commas.
fn names<'v>(objects: impl IntoIterator<Item = &'v Value>) -> String {
    let names: Vec<String> = objects.into_iter().map(kind_and_name).collect();
    names.join(", ")
}

fn kind_and_name(object: &Value) -> String {
    format!("{}/{}", text(object, "/kind"), text(object, "/metadata/name"))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn appliable_fields(object: &Value) -> Value {
    let metadata = APPLIABLE_METADATA.iter().filter_map(|field| {
        let value = object.get("metadata")?.get(field)?;
        Some(((*field).to_owned(), value.clone()))
    });
    let metadata: Map<String, Value> = metadata.collect();
    let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
    json!({ "metadata": metadata, "spec": spec })
}

/// Removes from the object the fields of the last applied manifest that the new manifest lacks.
fn remove_missing(patch: &mut Value, last: &Value) {
    let (Value::Object(patch), Value::Object(last)) = (patch, last) else {
        return;
    };
    for (name, last) in last {
        match patch.get_mut(name) {
            Some(patch) => remove_missing(patch, last),
            None => {
                patch.insert(name.clone(), Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Manifest, ManifestError, ManifestFile, Reference};

    const FILE: &str = "new.yaml";

    fn read(content: &str) -> Result<Manifest, ManifestError> {
        ManifestFile::parse(FILE.to_owned(), content.as_bytes())?.manifest("edge")
    }

    fn manifest(rest: &str) -> Manifest {
        read(&format!(
            "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlane\nmetadata: {{name: edge}}\n{rest}"
        ))
        .expect("a control plane")
    }

    #[test]
    fn reads_the_named_control_plane_and_warns_about_other_objects() {
        let found = read(
            "apiVersion: v1
kind: List
items:
- {apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: edge}}
- {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, metadata: {name: edge}}
---
{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {name: other}}
",
        )
        .expect("a control plane");
        assert_eq!(found.api_version, "v1beta1");
        assert_eq!(
            found.warnings(&json!({}), &Reference::default()),
            ["the plan ignores the other objects in the file: Cluster/edge, KubeadmControlPlane/other"]
        );
    }

    #[test]
    fn the_template_of_the_plan_is_part_of_it() {
        let found = read(
            "{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: {name: edge}}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, metadata: {name: t2}}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, metadata: {name: t3}}
",
        )
        .expect("a control plane");
        let template = Reference {
            group: "infrastructure.cluster.x-k8s.io".to_owned(),
            kind: "DockerMachineTemplate".to_owned(),
            name: "t2".to_owned(),
        };
        let name = found
            .template(&template)
            .and_then(|object| object.pointer("/metadata/name"));
        assert_eq!(name, Some(&json!("t2")));
        assert_eq!(
            found.warnings(&json!({}), &template),
            ["the plan ignores the other objects in the file: DockerMachineTemplate/t3"]
        );
    }

    #[test]
    fn without_a_name_the_kind_decides() {
        let control_plane = "{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: \
                             {name: edge, namespace: d}}";
        let pool = "{apiVersion: hive.openshift.io/v1, kind: ClusterPool, metadata: {name: hosts}}";
        let nameless = control_plane.replace("name: edge, ", "");
        let ambiguous = Err(
            "new.yaml must contain exactly one KubeadmControlPlane or ClusterPool with a name; to choose a control plane, \
             name it before -f"
                .to_owned(),
        );
        for (objects, expected) in [
            (&[control_plane, "{kind: Secret}"][..], Ok(Some(("d", "edge")))),
            (&[pool, pool], Ok(None)),
            (&[pool, control_plane], ambiguous.clone()),
            (&[control_plane, control_plane], ambiguous.clone()),
            (&["{kind: Secret}"], ambiguous.clone()),
            (&[&nameless], ambiguous.clone()),
        ] {
            let content = objects.join("\n---\n");
            let file = ManifestFile::parse(FILE.to_owned(), content.as_bytes()).expect("YAML");
            let found = file.control_plane().map_err(|error| error.to_string());
            assert_eq!(found, expected, "{content}");
        }
    }

    #[test]
    fn rejects_files_without_exactly_one_such_control_plane() {
        let control_plane = "{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane, metadata: \
                             {name: NAME}}\n";
        let own = control_plane.replace("NAME", "edge");
        for (content, expected) in [
            ("", "new.yaml does not contain KubeadmControlPlane edge"),
            (
                &control_plane.replace("NAME", "other")[..],
                "new.yaml does not contain KubeadmControlPlane edge, only KubeadmControlPlane/other",
            ),
            (
                &control_plane
                    .replace("NAME", "edge")
                    .replace("controlplane.", "other."),
                "new.yaml does not contain KubeadmControlPlane edge, only KubeadmControlPlane/edge",
            ),
            (
                &format!("{own}---\n{own}"),
                "new.yaml contains KubeadmControlPlane edge 2 times",
            ),
        ] {
            let error = read(content).expect_err(content).to_string();
            assert_eq!(error, expected, "{content}");
        }
        let secret = "kind: Secret\nstringData:\n  password: sesame\nbad: [\n";
        let error = read(secret).expect_err("no YAML").to_string();
        assert!(
            error.starts_with("new.yaml:") && !error.contains("sesame"),
            "{error}"
        );
    }

    #[test]
    fn removes_fields_of_the_last_applied_manifest() {
        let manifest =
            manifest("spec: {replicas: 5, version: 1.35.0, rollout: {strategy: {type: RollingUpdate}}}");
        let last = json!({"apiVersion": "g/v", "metadata": {"name": "edge", "labels": {"team": "a"}},
            "spec": {"replicas": 3, "rollout": {"after": "t", "strategy": {"type": "x"}}, "machineNaming": {"template": "m"}}});
        let current = json!({"metadata": {"namespace": "d", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": last.to_string()}}});
        let expected = json!({
            "metadata": {"labels": null},
            "spec": {
                "replicas": 5, "version": "v1.35.0", "machineNaming": null,
                "rollout": {"after": null, "strategy": {"type": "RollingUpdate"}},
            },
        });
        assert_eq!(manifest.patch(&current).expect("of it"), expected);
        // Fields that no client has applied stay.
        assert_eq!(
            manifest.patch(&json!({"metadata": {}})).expect("of it"),
            json!({"metadata": {}, "spec": manifest_spec()})
        );
    }

    fn manifest_spec() -> Value {
        json!({"replicas": 5, "version": "v1.35.0", "rollout": {"strategy": {"type": "RollingUpdate"}}})
    }

    #[test]
    fn warns_if_the_manifest_removes_replicas() {
        let manifest = manifest("spec: {version: v1.35.0}");
        let last = json!({"spec": {"replicas": 3}}).to_string();
        let current =
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}}});
        let patch = manifest.patch(&current).expect("of it");
        assert_eq!(
            manifest.warnings(&patch, &Reference::default()),
            [
                "the manifest removes spec.replicas, so the plan assumes Cluster API's default, 1; if kcp-webhook is \
                 installed, it keeps the current value"
            ]
        );
    }

    #[test]
    fn rejects_a_manifest_of_another_object() {
        let current = json!({"metadata": {"namespace": "d", "uid": "u1"}});
        let other = |metadata: &str| {
            let mut manifest = manifest("");
            manifest.object["metadata"] = serde_json::from_str(metadata).expect("JSON");
            manifest.patch(&current).map_err(|error| error.to_string())
        };
        assert!(other(r#"{"name": "edge", "namespace": "d", "uid": "u1"}"#).is_ok());
        assert_eq!(
            other(r#"{"name": "edge", "namespace": "e"}"#),
            Err(
                "new.yaml describes another control plane: metadata.namespace is e in the file but d in the cluster"
                    .to_owned()
            )
        );
        assert_eq!(
            other(r#"{"name": "edge", "uid": "u2"}"#),
            Err(
                "new.yaml describes another control plane: metadata.uid is u2 in the file but u1 in the cluster"
                    .to_owned()
            )
        );
    }
}
