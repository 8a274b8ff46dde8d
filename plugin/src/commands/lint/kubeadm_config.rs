//! Checks `KubeadmConfig`s and their templates as the `kubeadmConfigSpec` of a control plane template. No admission rule reviews
//! these kinds.

use std::collections::{BTreeSet, HashMap};

use kcp_rules::{Rule, syntax::parse_version, topics::TOPICS};
use serde_json::{Value, json};

use crate::commands::lint::{finding::Fault, object::Object, subject::Subject};

/// The topics whose rules read only the configuration of one Machine.
const MACHINE_TOPICS: [&str; 8] = [
    "extra-args",
    "component-flags",
    "component-files",
    "component-names",
    "files",
    "users",
    "disk-setup",
    "ignition",
];

/// The rules of other topics that read only the configuration of one Machine.
const MACHINE_RULES: [&str; 2] = ["cloud-provider-removed", "discovery-user-conflict"];

/// Where the rules see the configuration.
const SEEN_AT: &str = "spec.template.spec.kubeadmConfigSpec";

/// The kinds whose Machines have a version, and the field with the spec of the Machines.
const MACHINE_OWNERS: [(&str, &str); 4] = [
    ("MachineDeployment", "/spec/template/spec"),
    ("MachinePool", "/spec/template/spec"),
    ("MachineSet", "/spec/template/spec"),
    ("Machine", "/spec"),
];

/// The versions of Kubernetes for which objects in the files use a `KubeadmConfig` or a template.
#[derive(Debug, Default)]
pub(super) struct WorkerVersions(HashMap<Reference, BTreeSet<String>>);

/// The namespace, the kind and the name of an object.
type Reference = (String, String, String);

impl WorkerVersions {
    pub(super) fn new(objects: &[Object], namespace: &str) -> Self {
        let mut found = Self::default();
        let parsed: Vec<(&str, &str, Value)> = objects
            .iter()
            .filter_map(|object| {
                let kind = object.name.kind.as_deref()?;
                let is_read = matches!(kind, "Cluster" | "ClusterClass")
                    || MACHINE_OWNERS.iter().any(|(owner, _)| *owner == kind);
                let value = is_read.then(|| serde_json::from_str(&object.text).ok())??;
                Some((kind, object.namespace_or(namespace), value))
            })
            .collect();
        for (kind, namespace, object) in &parsed {
            if let Some((_, path)) = MACHINE_OWNERS.iter().find(|(owner, _)| owner == kind)
                && let Some(machine) = object.pointer(path)
            {
                found.add(
                    namespace,
                    machine.pointer("/bootstrap/configRef"),
                    machine.get("version"),
                );
            } else if *kind == "Cluster" {
                found.add_topology(namespace, object, &parsed);
            }
        }
        found
    }

    /// Adds what the `ClusterClass` of a Cluster uses for workers.
    fn add_topology(&mut self, namespace: &str, cluster: &Value, objects: &[(&str, &str, Value)]) {
        let topology = cluster.pointer("/spec/topology");
        let text = |paths: [&str; 2]| {
            let mut found = paths
                .into_iter()
                .filter_map(|path| topology?.pointer(path)?.as_str());
            found.next()
        };
        let Some(class) = text(["/classRef/name", "/class"]) else {
            return;
        };
        let namespace = text(["/classRef/namespace", "/classNamespace"]).unwrap_or(namespace);
        let named = |(kind, other, object): &&(&str, &str, Value)| {
            *kind == "ClusterClass"
                && *other == namespace
                && object.pointer("/metadata/name") == Some(&json!(class))
        };
        for worker in objects
            .iter()
            .filter(named)
            .flat_map(|(_, _, class)| workers(class))
        {
            let references = ["/template/bootstrap/ref", "/bootstrap/templateRef"];
            for reference in references.into_iter().filter_map(|path| worker.pointer(path)) {
                self.add(
                    namespace,
                    Some(reference),
                    topology.and_then(|topology| topology.get("version")),
                );
            }
        }
    }

    fn add(&mut self, namespace: &str, reference: Option<&Value>, version: Option<&Value>) {
        let text = |field| reference?.get(field)?.as_str();
        let version = version.and_then(Value::as_str);
        let (Some(kind), Some(name), Some(version)) = (text("kind"), text("name"), version) else {
            return;
        };
        if parse_version(version).is_ok() {
            let reference = (namespace.to_owned(), kind.to_owned(), name.to_owned());
            self.0.entry(reference).or_default().insert(version.to_owned());
        }
    }

    /// The object, given as JSON, as a control plane template for each version for which it is used.
    pub(super) fn as_templates(&self, subject: Subject, text: &str, namespace: &str) -> Vec<String> {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        let config = object.pointer(&format!("/{}", root(subject).replace('.', "/")));
        let empty = json!({});
        let metadata = object.get("metadata").filter(|metadata| metadata.is_object());
        let versions = self.of(subject, namespace, &object);
        let templates = versions.into_iter().map(|version| {
            json!({
                "apiVersion": object.get("apiVersion"),
                "metadata": metadata.unwrap_or(&empty),
                "spec": {"template": {"spec": {"version": version, "kubeadmConfigSpec": config}}},
            })
            .to_string()
        });
        templates.collect()
    }

    /// The versions for which an object is used; a single `None` if no file shows a version.
    fn of(&self, subject: Subject, namespace: &str, object: &Value) -> Vec<Option<&str>> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let reference = (
            namespace.to_owned(),
            subject.kind().to_owned(),
            name.unwrap_or_default().to_owned(),
        );
        match self.0.get(&reference) {
            Some(versions) => versions.iter().map(|version| Some(version.as_str())).collect(),
            None => vec![None],
        }
    }
}

/// The classes of workers in a `ClusterClass`.
fn workers(class: &Value) -> impl Iterator<Item = &Value> {
    ["machineDeployments", "machinePools"]
        .into_iter()
        .filter_map(|field| class.pointer("/spec/workers")?.get(field)?.as_array())
        .flatten()
}

/// The path of the configuration in an object.
fn root(subject: Subject) -> &'static str {
    match subject {
        Subject::KubeadmConfig => "spec",
        _ => "spec.template.spec",
    }
}

/// The problems of the configuration, without those of other fields of a control plane template, and with the paths in the
/// object. Versions with the same problem have the same message, so such a problem is reported once.
pub(super) fn of_machine(subject: Subject, found: impl Iterator<Item = Fault>) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let is_of_machine = |fault: &Fault| {
        let finding = fault.admission.as_ref();
        finding.is_none_or(|finding| is_about_machine(finding.rule))
    };
    for mut fault in found.filter(is_of_machine) {
        if let Some(rest) = fault.field.strip_prefix(SEEN_AT) {
            fault.field = format!("{}{rest}", root(subject)).into();
        }
        let is_same = |known: &Fault| known.field == fault.field && known.message == fault.message;
        if !faults.iter().any(is_same) {
            faults.push(fault);
        }
    }
    faults
}

fn is_about_machine(rule: &Rule) -> bool {
    let mut topics = TOPICS.iter().filter(|topic| MACHINE_TOPICS.contains(&topic.name));
    MACHINE_RULES.contains(&rule.id)
        || topics.any(|topic| topic.rules.iter().any(|other| other.id == rule.id))
}
