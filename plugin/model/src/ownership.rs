//! Who owns the fields that a patch writes, according to `metadata.managedFields`.
//!
//! If another client manages a field with server-side apply, its next apply reverts the patch. The plugin warns about this.
//! The topology controller applies its fields again and again, so the plugin writes these fields to the Cluster instead, if the
//! Cluster has them.
//!
//! If another client has changed a field since the plugin read the object, and the patch also writes this
//! field, the write fails with a conflict.

use jiff::Timestamp;
use kcp_api::{
    Object as _,
    metadata::{ManagedFieldsEntry, decode_with_managed_fields},
    names::{annotation, label},
};
use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::merge_patch::{self, differences};

/// The field manager of Cluster API's topology controller: `TopologyManagerName` of
/// `core/reconcilers/topology/cluster/structuredmerge`.
const TOPOLOGY_MANAGER: &str = "capi-topology";

/// Tools for continuous deployment, by the prefix of their field managers.
const CONTINUOUS_APPLIERS: &[(&str, &str)] = &[
    ("argocd", "Argo CD"),
    ("flux", "Flux"),
    ("helm-controller", "Flux"),
    ("kustomize-controller", "Flux"),
    ("helm", "Helm"),
];

/// The fields that the topology controller sets from the Cluster, in both API versions, and the fields of the Cluster.
const TOPOLOGY_FIELDS: &[(&[&str], &[&str])] = &[
    (
        &["spec", "replicas"],
        &["spec", "topology", "controlPlane", "replicas"],
    ),
    (
        &["spec", "rollout", "after"],
        &["spec", "topology", "controlPlane", "rollout", "after"],
    ),
    (
        &["spec", "rollout"],
        &["spec", "topology", "controlPlane", "rollout"],
    ),
    (
        &["spec", "rolloutAfter"],
        &["spec", "topology", "controlPlane", "rollout", "after"],
    ),
    (&["spec", "version"], &["spec", "topology", "version"]),
    (PAUSED, &["spec", "paused"]),
];

/// The fields that have different paths in the two API versions. An entry in `managedFields` has the paths of the API
/// version in which its client wrote.
const RENAMED_FIELDS: &[(&[&str], &[&str])] = &[
    (&["spec", "rolloutAfter"], &["spec", "rollout", "after"]),
    (&["spec", "rolloutAfter"], &["spec", "rollout"]),
];

const VERSION: &[&str] = &["spec", "version"];

const PAUSED: &[&str] = &["metadata", "annotations", annotation::PAUSED];

const OVERRIDE: &[&str] = &["metadata", "annotations", annotation::OVERRIDE_RULES];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// No other client reverts the fields that the patch writes.
    Free,
    /// Other clients apply the fields that the patch writes, and will revert the change.
    Applied(Vec<AppliedField>),
    /// The topology controller sets the fields from the Cluster. The value is the merge patch of the Cluster that has the same
    /// effect.
    FromCluster(Value),
    /// The topology controller sets a field that the patch writes, and a patch of the Cluster cannot have the same effect.
    ManagedByTopology {
        field: String,
        /// The field of the Cluster to set instead. `None` if the value comes from the `ClusterClass`.
        instead: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedField {
    pub field: String,
    pub manager: String,
    /// The product that uses this field manager. `None` if it is not known.
    pub product: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct ManagedFields<'m>(&'m ManagedFieldsEntry);

impl<'m> ManagedFields<'m> {
    fn manager(self) -> &'m str {
        self.0.manager.as_deref().unwrap_or_default()
    }

    fn fields(self) -> &'m Value {
        self.0.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0)
    }

    fn applies(self) -> bool {
        self.0.operation.as_deref() == Some("Apply")
    }

    /// Whether the entry owns the field at `path`. An entry that ends above the field owns everything below.
    fn owns(self, path: &[&str]) -> bool {
        let mut fields = self.fields();
        for name in path {
            match fields.get(format!("f:{name}")) {
                Some(child) => fields = child,
                None => return false,
            }
            if fields.as_object().is_some_and(serde_json::Map::is_empty) {
                return true;
            }
        }
        // "." means that the entry owns the object itself, not only fields in it.
        fields.get(".").is_some()
    }

    /// Whether the entry owns the field at `path`, or a field below it. Removing a field also removes the
    /// fields below it.
    fn owns_any_below(self, path: &[&str]) -> bool {
        let entry = path
            .iter()
            .try_fold(self.fields(), |fields, name| fields.get(format!("f:{name}")));
        entry.is_some() || self.owns_in_any_version(path)
    }

    fn owns_in_any_version(self, path: &[&str]) -> bool {
        let same = RENAMED_FIELDS.iter().find_map(|(one, other)| {
            if *one == path {
                Some(*other)
            } else {
                (*other == path).then_some(*one)
            }
        });
        self.owns(path) || same.is_some_and(|same| self.owns(same))
    }
}

/// Finds out who owns the fields that a merge patch of `object` writes as the field manager `manager`.
pub fn ownership(object: &str, patch: &Value, manager: &str) -> Result<Ownership, DecodeError> {
    let metadata = decode_with_managed_fields(object)?;
    let entries = || metadata.managed_fields.iter().flatten().map(ManagedFields);
    let fields = merge_patch::fields(patch);
    let (mut applied, mut of_topology) = (Vec::new(), Vec::new());
    for path in &fields {
        let field = || merge_patch::display_path(path);
        // A patch that sets a list removes the earlier items of the list, which have owners of their own.
        let sets =
            merge_patch::value_at(patch, path).is_some_and(|value| !value.is_null() && !value.is_array());
        // A control plane of a topology is paused through its Cluster. But an annotation that exists is removed from the
        // control plane itself, because a person may have set it.
        let pauses = path.as_slice() == PAUSED
            && metadata.label(label::TOPOLOGY_OWNED).is_some()
            && (sets || metadata.annotation(annotation::PAUSED).is_none());
        // The topology controller always sets the version, although `kubectl edit` may have taken it over for a moment.
        let is_version = path.as_slice() == VERSION && metadata.label(label::TOPOLOGY_OWNED).is_some();
        let owners = || {
            entries().filter(|entry| {
                if sets {
                    entry.owns_in_any_version(path)
                } else {
                    entry.owns_any_below(path)
                }
            })
        };
        if pauses
            || is_version
            || owners().any(|owner| owner.manager() == TOPOLOGY_MANAGER && owner.applies())
        {
            of_topology.push(path.as_slice());
            continue;
        }
        let others = owners().filter(|owner| owner.manager() != manager);
        let appliers = others.filter(|owner| owner.applies() || product_name(owner.manager()).is_some());
        applied.extend(appliers.map(|owner| AppliedField {
            field: field(),
            manager: owner.manager().to_owned(),
            product: product_name(owner.manager()),
        }));
    }
    let are_all_of_topology = of_topology.len() == fields.len();
    Ok(match of_topology.first() {
        Some(first) => {
            let from_cluster = are_all_of_topology
                .then(|| patch_of_cluster(&of_topology, patch))
                .flatten();
            from_cluster.map_or_else(
                || Ownership::ManagedByTopology {
                    field: merge_patch::display_path(first),
                    instead: field_of_cluster(first).map(merge_patch::display_path),
                },
                Ownership::FromCluster,
            )
        }
        None if applied.is_empty() => Ownership::Free,
        None => Ownership::Applied(applied),
    })
}

/// The field of the Cluster from which the topology controller sets a field of the control plane.
fn field_of_cluster(path: &[&str]) -> Option<&'static [&'static str]> {
    let known = TOPOLOGY_FIELDS.iter().find(|(field, _)| *field == path);
    known.map(|(_, of_cluster)| *of_cluster)
}

/// The merge patch of the Cluster that sets these fields of a control plane to the values of `patch`. `None` if the Cluster
/// has no field for one of these fields.
fn patch_of_cluster(fields: &[&[&str]], patch: &Value) -> Option<Value> {
    let mut of_cluster = json!({});
    for field in fields {
        let value = match merge_patch::value_at(patch, field)? {
            // The annotation pauses the control plane with any value, but `spec.paused` of the Cluster needs a boolean.
            value if *field == PAUSED && !value.is_null() => json!(true),
            value => value.clone(),
        };
        merge_patch::set(&mut of_cluster, field_of_cluster(field)?, value);
    }
    Some(of_cluster)
}

/// A field manager that owns fields of a spec, or the annotation that overrides rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldWriter {
    pub manager: String,
    /// When the manager last wrote the object. `None` if the API server has recorded no time, as for the subresource `scale`.
    pub last_write: Option<Timestamp>,
    pub is_scale: bool,
    /// The fields directly below the spec of which the manager owns a part, such as `spec.version`, and the annotation.
    pub fields: Vec<String>,
}

/// The field managers of an object, from its JSON.
pub fn field_writers(object: &str) -> Result<Vec<FieldWriter>, DecodeError> {
    let metadata = decode_with_managed_fields(object)?;
    let entries = metadata.managed_fields.iter().flatten();
    let entries = entries.filter(|entry| entry.subresource.as_deref() != Some("status"));
    let writer = |entry: &ManagedFieldsEntry| {
        let owned = ManagedFields(entry);
        let spec = owned.fields().get("f:spec").and_then(Value::as_object);
        let names = spec.into_iter().flat_map(serde_json::Map::keys);
        let names = names.filter_map(|key| key.strip_prefix("f:"));
        let annotation = owned
            .owns(OVERRIDE)
            .then(|| format!("annotation {}", annotation::OVERRIDE_RULES));
        let fields: Vec<String> = names
            .map(|name| format!("spec.{name}"))
            .chain(annotation)
            .collect();
        (!fields.is_empty()).then(|| FieldWriter {
            manager: owned.manager().to_owned(),
            last_write: entry.time.as_ref().map(|time| time.0),
            is_scale: entry.subresource.as_deref() == Some("scale"),
            fields,
        })
    };
    Ok(entries.filter_map(writer).collect())
}

/// The field manager that last wrote the field at `path`. `None` if the field has no owner.
pub fn last_writer(object: &str, path: &[&str]) -> Option<String> {
    let metadata = decode_with_managed_fields(object).ok()?;
    let entries = metadata.managed_fields.iter().flatten().map(ManagedFields);
    let owners = entries.filter(|entry| entry.owns_in_any_version(path));
    let last = owners.max_by_key(|entry| entry.0.time.as_ref().map(|time| time.0))?;
    Some(last.manager().to_owned())
}

fn product_name(manager: &str) -> Option<&'static str> {
    let is_of = |prefix: &str| {
        let rest = manager.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let known = CONTINUOUS_APPLIERS.iter().find(|(prefix, _)| is_of(prefix));
    known.map(|(_, product)| *product)
}

impl Ownership {
    /// Returns one warning for each field that another client will revert. Fails if the topology of `cluster` forbids the write.
    /// The error says what to set instead.
    pub fn warnings(&self, cluster: Option<&str>) -> Result<Vec<String>, String> {
        match self {
            Self::Free | Self::FromCluster(_) => Ok(Vec::new()),
            Self::Applied(applied) => Ok(applied.iter().map(AppliedField::message).collect()),
            Self::ManagedByTopology { field, instead } => Err(topology_refusal(
                field,
                instead.as_deref(),
                cluster.unwrap_or_default(),
            )),
        }
    }
}

/// Returns the warnings about a merge patch of a Machine. The patch may write fields of the topology controller,
/// because a Machine is not part of the topology's templates.
pub fn apply_warnings(object: &str, patch: &Value, manager: &str) -> Vec<String> {
    match ownership(object, patch, manager) {
        Ok(Ownership::Applied(applied)) => applied.iter().map(AppliedField::message).collect(),
        Ok(Ownership::Free | Ownership::FromCluster(_) | Ownership::ManagedByTopology { .. }) | Err(_) => {
            Vec::new()
        }
    }
}

impl AppliedField {
    pub fn message(&self) -> String {
        let Self {
            field,
            manager,
            product,
        } = self;
        let product = product.map_or_else(String::new, |product| format!(" ({product})"));
        format!(
            "{manager}{product} also applies {field} and will revert this change: change the value in the applied \
             manifest too"
        )
    }
}

fn topology_refusal(field: &str, instead: Option<&str>, cluster: &str) -> String {
    let instead = instead.map_or_else(
        || format!("change the variables of Cluster {cluster}, or its ClusterClass, instead"),
        |instead| format!("set {instead} of Cluster {cluster} instead"),
    );
    format!("{field} is managed by the topology of Cluster {cluster}: {instead}")
}

/// The fields that another client has changed between two reads of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldConflict {
    /// The changed fields that the patch also writes, one line for each. The user decided based on their earlier values.
    pub contested: Vec<String>,
    /// The other changed fields of the spec: one line for each.
    pub others: Vec<String>,
}

impl FieldConflict {
    /// Compares the object that was checked with its current state. `patch` is the merge patch that a command wants to write.
    pub fn between(checked: &str, now: &str, patch: &Value) -> Self {
        let decode = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let (before, after) = (decode(checked), decode(now));
        let fields = merge_patch::fields(patch);
        let is_contested = |path: &&Vec<&str>| {
            let old = merge_patch::value_at(&before, path);
            let new = merge_patch::value_at(&after, path);
            // The fields do not conflict if the other client wrote the same value.
            let ours = merge_patch::value_at(patch, path).filter(|ours| !ours.is_null());
            old != new && new != ours
        };
        let contested = fields.iter().filter(is_contested).map(|path| {
            let value = |object| {
                merge_patch::value_at(object, path).map_or_else(|| "unset".to_owned(), display_value)
            };
            let writer =
                last_writer(now, path).map_or_else(String::new, |writer| format!(", set by {writer}"));
            format!(
                "{} was {} when this command checked the change, and is now {}{writer}",
                merge_patch::display_path(path),
                value(&before),
                value(&after)
            )
        });
        let own: Vec<String> = fields
            .iter()
            .map(|path| merge_patch::display_path(path))
            .collect();
        let spec = |object: &Value| json!({ "spec": object.get("spec") });
        let others = differences(&spec(&before), &spec(&after)).into_iter();
        Self {
            contested: contested.collect(),
            others: others
                .filter(|field| !own.contains(field))
                .map(|field| {
                    format!(
                        "another client changed {field} in the meantime, so this command checked its own change again"
                    )
                })
                .collect(),
        }
    }
}

fn display_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        AppliedField, FieldConflict, Ownership, apply_warnings, field_writers, last_writer, ownership,
        topology_refusal,
    };

    /// The `managedFields` of a control plane that a topology controller applies, that a user once created with
    /// `kubectl apply`, and whose status controllers write.
    fn managed() -> Vec<Value> {
        vec![
            json!({"manager": "kubectl-client-side-apply", "operation": "Update",
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "time": "2026-08-21T10:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}},
                    "f:spec": {".": {}, "f:replicas": {}, "f:version": {}}}}),
            json!({"manager": "manager", "operation": "Update", "subresource": "status",
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "time": "2026-08-21T11:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:replicas": {}}}}),
        ]
    }

    fn applies(manager: &str, operation: &str, version: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "time": "2026-08-21T12:00:00Z",
            "apiVersion": format!("controlplane.cluster.x-k8s.io/{version}"),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}})
    }

    fn object(more: Option<Value>, labels: &Value) -> String {
        let mut managed = managed();
        managed.extend(more);
        json!({"metadata": {"name": "c1-cp", "labels": labels, "managedFields": managed}}).to_string()
    }

    fn of(more: Option<Value>, patch: &Value) -> Ownership {
        ownership(&object(more, &json!({})), patch, "kubectl-kcp").expect("decodes")
    }

    /// The owner of the fields that a patch of `spec` writes, if another client has written some fields.
    type Case = (&'static str, Value, Value, Ownership);

    fn judged(cases: &[Case]) {
        for (name, entry, patch, expected) in cases {
            assert_eq!(
                of(Some(entry.clone()), &json!({"spec": patch})),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn fields_of_the_topology_controller_come_from_the_cluster() {
        let topology = |field: &str, instead: Option<&str>| Ownership::ManagedByTopology {
            field: field.to_owned(),
            instead: instead.map(str::to_owned),
        };
        let from_cluster = |control_plane: Value| {
            Ownership::FromCluster(json!({"spec": {"topology": {"controlPlane": control_plane}}}))
        };
        let five = || from_cluster(json!({"replicas": 5}));
        let after = || from_cluster(json!({"rollout": {"after": "t"}}));
        let applied = |version: &str, fields: &Value| applies("capi-topology", "Apply", version, fields);
        let replicas = json!({"f:replicas": {}});
        let (v1beta1, v1beta2) = (
            json!({"f:rolloutAfter": {}}),
            json!({"f:rollout": {"f:after": {}}}),
        );
        let strategy = json!({"f:rollout": {"f:strategy": {"f:type": {}}}});
        judged(&[
            (
                "the field",
                applied("v1beta2", &replicas),
                json!({"replicas": 5}),
                five(),
            ),
            (
                "its name, but no apply",
                applies("capi-topology", "Update", "v1beta2", &replicas),
                json!({"replicas": 5}),
                Ownership::Free,
            ),
            (
                "another field",
                applied("v1beta2", &replicas),
                json!({"version": "v1.35.0"}),
                Ownership::Free,
            ),
            (
                "one of several",
                applied("v1beta2", &json!({"f:version": {}})),
                json!({"replicas": 5, "version": "v1.35.0"}),
                topology("spec.version", Some("spec.topology.version")),
            ),
            (
                "v1beta1 written as v1beta2",
                applied("v1beta1", &v1beta1),
                json!({"rollout": {"after": "t"}}),
                after(),
            ),
            (
                "v1beta2 written as v1beta1",
                applied("v1beta2", &v1beta2),
                json!({"rolloutAfter": "t"}),
                after(),
            ),
            (
                "taken away",
                applied("v1beta1", &v1beta1),
                json!({"rolloutAfter": null}),
                from_cluster(json!({"rollout": {"after": null}})),
            ),
            (
                "taken away with its parent",
                applied("v1beta2", &v1beta2),
                json!({"rollout": null}),
                from_cluster(json!({"rollout": null})),
            ),
            (
                "taken away with its parent, written as v1beta1",
                applied("v1beta1", &v1beta1),
                json!({"rollout": null}),
                from_cluster(json!({"rollout": null})),
            ),
            (
                "a neighbour of the same parent",
                applied("v1beta2", &strategy),
                json!({"rollout": {"after": "t"}}),
                Ownership::Free,
            ),
            (
                "all of the parent",
                applied("v1beta2", &json!({"f:rollout": {}})),
                json!({"rollout": {"after": "t"}}),
                after(),
            ),
            (
                "a field of the ClusterClass",
                applied("v1beta2", &json!({"f:machineNaming": {}})),
                json!({"machineNaming": {"template": "x"}}),
                topology("spec.machineNaming.template", None),
            ),
        ]);
    }

    #[test]
    fn names_the_client_that_will_revert_a_field() {
        let tool = |manager: &str, product| {
            Ownership::Applied(vec![AppliedField {
                field: "spec.replicas".to_owned(),
                manager: manager.to_owned(),
                product,
            }])
        };
        assert_eq!(of(None, &json!({"spec": {"replicas": 5}})), Ownership::Free);
        for (manager, operation, expected) in [
            ("kubectl-kcp", "Apply", Ownership::Free),
            ("kubectl", "Apply", tool("kubectl", None)),
            ("kubectl", "Update", Ownership::Free),
            (
                "argocd-controller",
                "Apply",
                tool("argocd-controller", Some("Argo CD")),
            ),
            (
                "argocd-controller",
                "Update",
                tool("argocd-controller", Some("Argo CD")),
            ),
            (
                "kustomize-controller",
                "Apply",
                tool("kustomize-controller", Some("Flux")),
            ),
            ("helm-controller", "Update", tool("helm-controller", Some("Flux"))),
            ("helm", "Update", tool("helm", Some("Helm"))),
            ("helmsman", "Update", Ownership::Free),
        ] {
            let entry = applies(manager, operation, "v1beta2", &json!({"f:replicas": {}}));
            let found = of(Some(entry), &json!({"spec": {"replicas": 5}}));
            assert_eq!(found, expected, "{manager} {operation}");
        }
    }

    #[test]
    fn a_list_belongs_to_the_clients_that_apply_its_items() {
        let items = json!({"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:value": {}}});
        let entry = applies(
            "argocd-controller",
            "Apply",
            "v1beta2",
            &json!({ "f:extraArgs": items }),
        );
        let patch = json!({"spec": {"extraArgs": [{"name": "b", "value": "1"}]}});
        let expected = AppliedField {
            field: "spec.extraArgs".to_owned(),
            manager: "argocd-controller".to_owned(),
            product: Some("Argo CD"),
        };
        assert_eq!(of(Some(entry), &patch), Ownership::Applied(vec![expected]));
    }

    #[test]
    fn an_object_of_a_topology_is_paused_by_its_cluster() {
        let pause = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
        let labels = json!({"topology.cluster.x-k8s.io/owned": ""});
        let owner = |labels: &Value, value| {
            ownership(&object(None, labels), &pause(value), "kubectl-kcp").expect("decodes")
        };
        assert_eq!(
            owner(&labels, json!("true")),
            Ownership::FromCluster(json!({"spec": {"paused": true}}))
        );
        assert_eq!(
            owner(&labels, Value::Null),
            Ownership::FromCluster(json!({"spec": {"paused": null}}))
        );
        let paused = json!({"metadata": {"name": "c1-cp", "labels": labels,
            "annotations": {"cluster.x-k8s.io/paused": ""}}});
        assert_eq!(
            ownership(&paused.to_string(), &pause(Value::Null), "kubectl-kcp").expect("decodes"),
            Ownership::Free,
            "a person has paused it here"
        );
        assert_eq!(owner(&json!({}), json!("true")), Ownership::Free);
    }

    #[test]
    fn an_object_without_managed_fields_is_free() {
        let object = json!({"metadata": {"name": "c1-cp"}}).to_string();
        let patch = json!({"spec": {"replicas": 5}});
        assert_eq!(
            ownership(&object, &patch, "kubectl-kcp").expect("decodes"),
            Ownership::Free
        );
        assert_eq!(last_writer(&object, &["spec", "replicas"]), None);
    }

    #[test]
    fn names_the_last_writer() {
        let entry = applies("kubectl-scale", "Update", "v1beta2", &json!({"f:replicas": {}}));
        let object = object(Some(entry), &json!({}));
        let writer = |path: &[&str]| last_writer(&object, path);
        assert_eq!(writer(&["spec", "replicas"]).as_deref(), Some("kubectl-scale"));
        assert_eq!(
            writer(&["spec", "version"]).as_deref(),
            Some("kubectl-client-side-apply")
        );
        assert_eq!(writer(&["spec", "rollout", "after"]), None);
    }

    #[test]
    fn says_what_to_do() {
        let field = AppliedField {
            field: "spec.replicas".to_owned(),
            manager: "argocd-controller".to_owned(),
            product: Some("Argo CD"),
        };
        assert_eq!(
            field.message(),
            "argocd-controller (Argo CD) also applies spec.replicas and will revert this change: change the value in \
             the applied manifest too"
        );
        assert_eq!(
            topology_refusal("spec.replicas", Some("spec.topology.controlPlane.replicas"), "c1"),
            "spec.replicas is managed by the topology of Cluster c1: set spec.topology.controlPlane.replicas of Cluster c1 \
             instead"
        );
        assert_eq!(
            topology_refusal("spec.machineNaming.template", None, "c1"),
            "spec.machineNaming.template is managed by the topology of Cluster c1: change the variables of Cluster c1, or \
             its ClusterClass, instead"
        );
    }

    #[test]
    fn an_applied_annotation_of_a_machine_is_a_warning_only() {
        let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
        let owners = |manager: &str| {
            let fields = json!({"f:metadata": {"f:annotations": {"f:cluster.x-k8s.io/delete-machine": {}}}});
            let entry = json!({"manager": manager, "operation": "Apply", "fieldsV1": fields});
            let object = json!({"metadata": {"name": "m1", "managedFields": [entry],
                "labels": {"topology.cluster.x-k8s.io/owned": ""}}});
            apply_warnings(&object.to_string(), &patch, "kubectl-kcp")
        };
        assert_eq!(
            owners("capi-kubeadmcontrolplane"),
            [
                "capi-kubeadmcontrolplane also applies metadata.annotations[cluster.x-k8s.io/delete-machine] and will \
                 revert this change: change the value in the applied manifest too"
            ]
        );
        assert_eq!(owners("capi-topology"), Vec::<String>::new());
        assert_eq!(owners("kubectl-kcp"), Vec::<String>::new());
    }

    fn changed(replicas: Option<i64>, version: &str, by: Option<&str>) -> String {
        let managed = by.map(|manager| {
            json!({"manager": manager, "operation": "Update", "time": "2026-08-21T12:00:00Z",
                "fieldsV1": {"f:spec": {"f:replicas": {}}}})
        });
        let managed: Vec<Value> = managed.into_iter().collect();
        let mut object = json!({"metadata": {"resourceVersion": version.len().to_string(), "managedFields": managed},
            "spec": {"version": version}, "status": {"replicas": replicas}});
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        object.to_string()
    }

    #[test]
    fn a_field_that_another_client_changed_is_contested() {
        let checked = changed(Some(3), "v1.34.1", None);
        let patch = json!({"spec": {"replicas": 7}});
        let conflict = |now: &str| FieldConflict::between(&checked, now, &patch);
        let contested = |line: &str| FieldConflict {
            contested: vec![line.to_owned()],
            others: vec![],
        };
        for (name, now, expected) in [
            (
                "nothing",
                changed(Some(3), "v1.34.1", None),
                FieldConflict::default(),
            ),
            (
                "replicas",
                changed(Some(5), "v1.34.1", Some("kubectl-scale")),
                contested(
                    "spec.replicas was 3 when this command checked the change, and is now 5, set by \
                     kubectl-scale",
                ),
            ),
            (
                "unknown writer",
                changed(Some(5), "v1.34.1", None),
                contested("spec.replicas was 3 when this command checked the change, and is now 5"),
            ),
            (
                "removed",
                changed(None, "v1.34.1", None),
                contested("spec.replicas was 3 when this command checked the change, and is now unset"),
            ),
            (
                "our value",
                changed(Some(7), "v1.34.1", None),
                FieldConflict::default(),
            ),
            (
                "another field",
                changed(Some(3), "v1.35.0", None),
                FieldConflict {
                    contested: vec![],
                    others: vec![
                        "another client changed spec.version in the meantime, so this command checked its own change \
                         again".to_owned(),
                    ],
                },
            ),
        ] {
            assert_eq!(conflict(&now), expected, "{name}");
        }
    }

    #[test]
    fn a_removed_field_is_contested_when_another_client_sets_it() {
        let object = |after: &str| json!({"spec": {"rollout": {"after": after}}}).to_string();
        let patch = json!({"spec": {"rollout": {"after": null}}});
        let checked = object("2026-08-21T12:00:00Z");
        assert_eq!(
            FieldConflict::between(&checked, &object("2026-08-22T12:00:00Z"), &patch).contested,
            [
                "spec.rollout.after was 2026-08-21T12:00:00Z when this command checked the change, and is \
                 now 2026-08-22T12:00:00Z"
            ]
        );
        assert_eq!(
            FieldConflict::between(&checked, &json!({"spec": {"rollout": {}}}).to_string(), &patch),
            FieldConflict::default()
        );
    }

    /// The API server writes no time for the subresource `scale`.
    #[test]
    fn the_writers_of_a_spec_and_of_overrides_are_listed() {
        let scale = json!({"manager": "kubectl", "operation": "Update", "subresource": "scale",
            "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let overrides = json!({"manager": "kubectl-annotate", "operation": "Update", "time": "2026-08-21T12:00:00Z",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:kubectl-kcp.dev/override-rules": {}}}}});
        let labels = json!({"manager": "kubectl-label", "operation": "Update", "time": "2026-08-21T12:00:00Z",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:tier": {}}}}});
        let mut managed = managed();
        managed.extend([scale, overrides, labels]);
        let object = json!({"metadata": {"managedFields": managed}}).to_string();
        let found: Vec<(String, bool, bool, String)> = field_writers(&object)
            .expect("decodes")
            .into_iter()
            .map(|writer| {
                let fields = writer.fields.join(", ");
                (
                    writer.manager,
                    writer.last_write.is_some(),
                    writer.is_scale,
                    fields,
                )
            })
            .collect();
        let row = |manager: &str, has_time, is_scale, fields: &str| {
            (manager.to_owned(), has_time, is_scale, fields.to_owned())
        };
        assert_eq!(
            found,
            [
                row(
                    "kubectl-client-side-apply",
                    true,
                    false,
                    "spec.replicas, spec.version"
                ),
                row("kubectl", false, true, "spec.replicas"),
                row(
                    "kubectl-annotate",
                    true,
                    false,
                    "annotation kubectl-kcp.dev/override-rules"
                ),
            ]
        );
    }
}
