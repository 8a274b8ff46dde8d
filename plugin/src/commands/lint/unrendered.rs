//! Recognizes patches and templates, which are no whole objects, and files of other programs. The rules would report fields as
//! missing that the rendered object has.

use std::path::Path;

use kcp_api::kind::{KUBEADM_CONFIG, KUBEADM_CONFIG_TEMPLATE};
use serde_json::Value;

use crate::commands::lint::{
    document::{LocatedValue, YamlNode},
    finding::{Fault, LintRule},
    substitution::is_placeholder,
};

/// The names of a kustomization, which needs no kind.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The group of the files that Kustomize reads. Flux has objects of the same kind in another group.
const KUSTOMIZE_GROUP: &str = "kustomize.config.k8s.io/";

/// The fields that an object without a kind may have.
const OBJECT_FIELDS: [&str; 3] = ["kind", "metadata", "spec"];

/// Fields whose text is for programs on a Machine, or for Cluster API itself. A placeholder in such a field may belong to that
/// program.
const OTHER_LANGUAGES: [&str; 6] = [
    "kubeadmConfigSpec",
    "machineNaming",
    "machineNamingStrategy",
    "naming",
    "installConfigPatches",
    "variables",
];

/// The kind of a document that no API server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Kustomization,
    /// A JSON patch, the values or the description of a Helm chart, or a file of another program.
    Other,
}

/// Whether a document is the file of a program rather than an object.
pub(super) fn foreign(file: &str, document: &LocatedValue) -> Option<Foreign> {
    let has = |field: &&str| document.get(field).is_some();
    let name = Path::new(file).file_name().and_then(|name| name.to_str());
    let is_named = name.is_some_and(|name| KUSTOMIZATIONS.contains(&name));
    let api_version = document.text("apiVersion");
    if (is_named && !has(&"kind")) || api_version.is_some_and(|given| given.starts_with(KUSTOMIZE_GROUP)) {
        return Some(Foreign::Kustomization);
    }
    let is_foreign = match &document.node {
        YamlNode::Object(_) => {
            // Chart.yaml, the description of a Helm chart, has an apiVersion and a version.
            !OBJECT_FIELDS.iter().any(has) && (api_version.is_none() || has(&"version"))
        }
        YamlNode::List(items) => !items.iter().any(|item| item.get("kind").is_some()),
        YamlNode::Scalar(_) => true,
    };
    is_foreign.then_some(Foreign::Other)
}

/// The problem of a kustomization without the objects that it refers to.
pub(super) fn kustomization() -> Fault {
    not_checked(".".to_owned(), "Invalid value: this file is a kustomization", "")
}

/// The problem of an object of this kind that is a patch or a template.
pub(super) fn fault(object: &LocatedValue, kind: &str) -> Option<Fault> {
    if let Some((field, text)) = placeholder_of(object, kind) {
        let also = if text.contains("${") {
            ", or pass --substitute"
        } else {
            ""
        };
        let what = format!("Invalid value: {text:?}: this object is a template");
        return Some(not_checked(field, &what, also));
    }
    let missing = match kind {
        _ if object.get("$patch").is_some() => "what its field $patch refers to",
        "KubeadmControlPlane" => missing_in_patch(object)?,
        "MachineDeployment" => missing_in_deployment(object)?,
        "Cluster" => missing_in_cluster(object)?,
        _ => return None,
    };
    let what = format!("Required value: this object is a patch, because it lacks {missing}");
    Some(not_checked("spec".to_owned(), &what, ""))
}

/// The problem of a document that is not YAML because it is a template.
pub(super) fn unparsable(why: &str) -> Fault {
    not_checked(
        ".".to_owned(),
        &format!("Invalid value: this document is a template ({why})"),
        "",
    )
}

fn not_checked(field: String, what: &str, also: &str) -> Fault {
    let message = format!(
        "{what}, so lint does not check it; lint the output of kustomize build, helm template or clusterctl generate{also}"
    );
    Fault::from_lint(LintRule::Unrendered, field, &message)
}

/// The first field with a placeholder, and its text.
fn placeholder_of<'o>(object: &'o LocatedValue, kind: &str) -> Option<(String, &'o str)> {
    let metadata = object.get("metadata");
    let names = ["name", "namespace"].into_iter().find_map(|field| {
        let value = metadata?.get(field)?;
        placeholder(value, format!("metadata.{field}"))
    });
    let is_for_machine = [KUBEADM_CONFIG, KUBEADM_CONFIG_TEMPLATE]
        .iter()
        .any(|known| known.kind == kind);
    let spec = object.get("spec").filter(|_| !is_for_machine);
    names.or_else(|| placeholder(spec?, "spec".to_owned()))
}

fn placeholder(value: &LocatedValue, path: String) -> Option<(String, &str)> {
    match &value.node {
        YamlNode::Scalar(Value::String(text)) => is_placeholder(text).then_some((path, text)),
        YamlNode::Scalar(_) => None,
        YamlNode::List(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| placeholder(item, format!("{path}[{index}]"))),
        YamlNode::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !OTHER_LANGUAGES.contains(&name.as_str()))
            .find_map(|(name, value)| placeholder(value, format!("{path}.{name}"))),
    }
}

/// The fields that a control plane lacks, if it is a patch. `None` if it is a whole object, or if the document has no kind.
fn missing_in_patch(object: &LocatedValue) -> Option<&'static str> {
    object.text("kind")?;
    let spec = object.get("spec");
    if spec.is_some_and(|spec| !spec.is_null() && !matches!(spec.node, YamlNode::Object(_))) {
        return None;
    }
    let has = |path: &str| spec.is_some_and(|spec| spec.value_at(path).is_some_and(|value| !value.is_null()));
    // A patch may change only the name in a reference, so the kind shows whether the reference is complete.
    let has_reference = has("machineTemplate.infrastructureRef.kind")
        || has("machineTemplate.spec.infrastructureRef.kind")
        || has("infrastructureTemplate");
    match (has("version"), has("kubeadmConfigSpec")) {
        _ if has_reference => None,
        (false, _) => Some("version and infrastructureRef"),
        (true, false) => Some("kubeadmConfigSpec and infrastructureRef"),
        (true, true) => None,
    }
}

fn missing_in_deployment(object: &LocatedValue) -> Option<&'static str> {
    let spec = object.get("spec");
    let has = |field: &str| spec.is_some_and(|spec| spec.get(field).is_some());
    (!has("clusterName") && !has("selector")).then_some("clusterName and selector")
}

fn missing_in_cluster(object: &LocatedValue) -> Option<&'static str> {
    let Some(spec) = object.get("spec") else {
        return Some("spec");
    };
    let topology = spec.get("topology")?;
    let has_class = topology
        .get("classRef")
        .or_else(|| topology.get("class"))
        .is_some();
    (!has_class && spec.get("controlPlaneRef").is_none()).then_some("topology.classRef")
}
