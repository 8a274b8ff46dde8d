//! Reads all objects for `lint` before the first one is checked, because rules for one object also read other objects.

use std::{
    collections::HashMap,
    env,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use kcp_api::Machine;
use kcp_pool::sources::lost_inventory::{LostInventory, applied_entries};
use kcp_rules::Configuration;
use serde_json::Value;

use crate::commands::lint::{
    check::{Linter, Write},
    document::{self, SyntaxError},
    finding::{Fault, LintRule, UnreadFile},
    health_check::{ControlPlanes, check_of_topology},
    kubeadm_config::WorkerVersions,
    object::{Identity, Object},
    related_objects::RelatedObjects,
    report::{LintReport, ObjectResult, ObjectSource},
    schema,
    source::{self, SourceError},
    subject::{LintRole, Subject},
    substitution::substitute,
    topology::Topologies,
    unrendered::{self, Foreign},
};
use crate::file;

/// The objects that `lint` has read, and an error for each file that it could not read.
#[derive(Debug)]
pub(super) struct Input {
    objects: Vec<Object>,
    /// The objects before the update, for objects that are checked as updates.
    old: HashMap<Identity, Object>,
    related_objects: RelatedObjects,
    /// The namespace that objects get if they have none.
    namespace: String,
    /// Whether to fill the variables of files from the environment.
    pub(super) substitutes: bool,
    /// Whether the cluster drops the inventory of `ClusterPools`; `None` if unknown.
    pub(super) drops_inventory: Option<bool>,
    report: LintReport,
}

impl Input {
    pub(super) fn new(namespace: &str, place: ObjectSource) -> Self {
        Self {
            objects: Vec::new(),
            old: HashMap::new(),
            related_objects: RelatedObjects::default(),
            namespace: namespace.to_owned(),
            substitutes: false,
            drops_inventory: None,
            report: LintReport::new(place),
        }
    }

    pub(super) fn read(&mut self, named: &[PathBuf], recursive: bool) {
        for file in self.files(named, recursive) {
            match self.content(&file) {
                Some(content) => self.parse(&file.display().to_string(), &content),
                None => self.report.count_file(),
            }
        }
    }

    /// Reads the manifests of `--old`, which contain objects before an update.
    pub(super) fn read_old(&mut self, named: &[PathBuf], recursive: bool) {
        for file in self.files(named, recursive) {
            if let Some(content) = self.content(&file) {
                self.parse_old(&file.display().to_string(), &content);
            }
        }
    }

    fn files(&mut self, named: &[PathBuf], recursive: bool) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for named in named {
            match source::files(named, recursive) {
                Ok(files) => found.extend(files),
                Err(error) => self.report.add_unread_file(unread(&error)),
            }
        }
        found
    }

    fn content(&mut self, file: &Path) -> Option<Vec<u8>> {
        let content = file::read(file).map_err(SourceError::from);
        let content = content.and_then(|content| {
            if self.substitutes {
                filled(file, content)
            } else {
                Ok(content)
            }
        });
        content
            .map_err(|error| self.report.add_unread_file(unread(&error)))
            .ok()
    }

    pub(super) fn parse(&mut self, file: &str, content: &[u8]) {
        self.report.count_file();
        for object in self.objects_of(file, content) {
            self.related_objects.add(&object, &self.namespace);
            self.objects.push(object);
        }
    }

    /// Adds the objects before an update. If two have the same name, the last one counts, as in kubectl.
    pub(super) fn parse_old(&mut self, file: &str, content: &[u8]) {
        for object in self.objects_of(file, content) {
            if let Some(identity) = object.identity(&self.namespace) {
                self.old.insert(identity, object);
            }
        }
    }

    fn objects_of(&mut self, file: &str, content: &[u8]) -> Vec<Object> {
        let mut objects = Vec::new();
        for document in document::parse(content) {
            match document {
                Ok(document) => objects.extend(Object::from_document(file, document)),
                Err(error) => self.add_faulty(file, error, &mut objects),
            }
        }
        objects
    }

    /// Adds a document with a syntax error. A template, or a document that lint need not check, becomes an object. Anything else
    /// becomes an error of the file.
    fn add_faulty(&mut self, file: &str, mut error: SyntaxError, objects: &mut Vec<Object>) {
        let tolerated = error.tolerated.take();
        let mut tolerated =
            tolerated.map_or_else(Vec::new, |document| Object::from_document(file, *document));
        let is_ignored = |object: &Object| match object.role {
            LintRole::Ignored => object.name.kind.is_some(),
            role => matches!(role, LintRole::Foreign(_)),
        };
        if error.is_template && tolerated.is_empty() {
            let is_known = |object: &Object| object.role == LintRole::Unrendered(None);
            if !objects.iter().any(is_known) {
                objects.push(Object::unparsable(file, &error));
            }
        } else if tolerated.iter().all(is_ignored)
            && let Some(first) = tolerated.first_mut()
        {
            let message =
                format!("Duplicate value: {error}, and kubectl takes the last value; remove the others");
            first.faults.push(Fault {
                line: error.line,
                ..Fault::from_lint(LintRule::KeyDuplicate, ".", &message)
            });
            objects.append(&mut tolerated);
        } else {
            self.report.add_unread_file(UnreadFile {
                file: file.to_owned(),
                line: error.line,
                message: error.to_string(),
            });
        }
    }

    /// Adds all objects of a kind that were listed in a cluster.
    pub(super) fn add_listed(&mut self, subject: Subject, objects: impl IntoIterator<Item = String>) {
        self.related_objects.mark_complete(LintRole::Subject(subject));
        for text in objects {
            let object = Object::from_cluster(subject, text);
            self.related_objects.add(&object, &self.namespace);
            self.objects.push(object);
        }
    }

    /// Adds all Machines that were listed in a cluster.
    pub(super) fn add_listed_machines(&mut self, machines: Vec<Machine>) {
        self.related_objects.mark_complete(LintRole::Machine);
        for machine in machines {
            self.related_objects.add_machine(machine);
        }
    }

    /// Records that the cluster does not serve a kind, given as `plural.group`.
    pub(super) fn add_unserved_kind(&mut self, resource: String) {
        self.report.add_unserved_kind(resource);
    }

    /// Checks all objects. Without a configuration, the default one applies, and the feature gates of Cluster API are unknown.
    pub(super) fn check(self, configuration: Option<&Configuration>, now: Timestamp) -> LintReport {
        let Self {
            objects,
            old,
            related_objects,
            namespace,
            mut report,
            substitutes: _,
            drops_inventory,
        } = self;
        let default = Configuration::default();
        let linter = Linter {
            configuration: configuration.unwrap_or(&default),
            are_gates_unknown: configuration.is_none(),
            worker_versions: &WorkerVersions::new(&objects, &namespace),
            related_objects: &related_objects,
            topologies: &Topologies::new(&objects, old.values(), &namespace),
            now,
        };
        let control_planes = ControlPlanes::new(&objects, &namespace);
        let is_foreign = |object: &Object| matches!(object.role, LintRole::Foreign(_));
        let has_objects = !objects.iter().all(is_foreign);
        for mut object in objects {
            let mut faults = std::mem::take(&mut object.faults);
            if object.role == LintRole::Foreign(Foreign::Kustomization) && !has_objects {
                faults.push(unrendered::kustomization());
                object.role = LintRole::Unrendered(None);
            }
            match object.role {
                LintRole::Unrendered(_) => {
                    report.add_object(ObjectResult::Unrendered(object.into_findings(faults)));
                    continue;
                }
                LintRole::Foreign(_) => {
                    report.count_foreign();
                    continue;
                }
                _ => {}
            }
            let is_deprecated = object.located().is_some_and(schema::has_deprecated_version);
            report.count_deprecated_version(is_deprecated);
            report.add_object(match (object.role.subject(), &object.name.kind) {
                (Some(subject), _) => {
                    let identity = object.identity(&namespace);
                    let before = identity.and_then(|identity| old.get(&identity));
                    let write = match before {
                        _ if object.is_from_cluster() => Write::Stored,
                        Some(before) => Write::Update(&before.text),
                        None => Write::Create,
                    };
                    let namespace = object.namespace_or(&namespace);
                    faults.extend(linter.check(subject, &object.text, write, namespace));
                    if subject == Subject::Cluster {
                        faults.extend(check_of_topology(&object));
                    }
                    if subject == Subject::ClusterPool && object.is_from_cluster() {
                        faults.extend(lost_inventory(&object.text, drops_inventory));
                    }
                    if let Some(located) = object.located() {
                        schema::check(located, before.and_then(Object::located), true, &mut faults);
                    }
                    ObjectResult::Judged(object.into_findings(faults))
                }
                (None, Some(kind)) => {
                    let found = control_planes.check(&object, &namespace);
                    let is_idle_checked = found.is_some();
                    faults.extend(found.into_iter().flatten());
                    let mut check = |located| schema::check(located, None, false, &mut faults);
                    if object.located().is_some_and(&mut check) || is_idle_checked {
                        ObjectResult::Judged(object.into_findings(faults))
                    } else {
                        ObjectResult::Skipped(kind.clone(), object.into_findings(faults))
                    }
                }
                (None, None) => ObjectResult::Unknown(object.into_findings(faults)),
            });
        }
        report
    }
}

/// The content of a clusterctl template with the values of its variables.
fn filled(file: &Path, content: Vec<u8>) -> Result<Vec<u8>, SourceError> {
    let Ok(text) = str::from_utf8(&content) else {
        return Ok(content);
    };
    let filled = substitute(text, &|name| env::var(name).ok());
    filled
        .map(String::into_bytes)
        .map_err(|cause| SourceError::Template {
            path: file.display().to_string(),
            cause,
        })
}

/// The problem that the cluster drops, or dropped, the inventory of a stored `ClusterPool`, given as JSON.
fn lost_inventory(pool: &str, is_dropped: Option<bool>) -> Option<Fault> {
    let pool: Value = serde_json::from_str(pool).ok()?;
    if pool.pointer("/spec/inventory").is_some() {
        return None;
    }
    let lost = LostInventory {
        is_dropped,
        applied: applied_entries(&pool),
    };
    let message = format!("Required value: {}", lost.explanation()?);
    Some(Fault::from_lint(
        LintRule::InventoryDropped,
        "spec.inventory",
        &message,
    ))
}

fn unread(error: &SourceError) -> UnreadFile {
    UnreadFile {
        file: error.path().to_owned(),
        line: None,
        message: error.to_string(),
    }
}

/// Whether both `--filename` and `--old` are stdin, which can be read only once.
pub(super) fn both_read_stdin(files: &[PathBuf], others: &[PathBuf]) -> bool {
    let has_stdin = |files: &[PathBuf]| files.iter().any(|named| named == Path::new(file::STDIN));
    has_stdin(files) && has_stdin(others)
}

#[cfg(test)]
mod tests {
    use super::both_read_stdin;

    #[test]
    fn stdin_is_read_once() {
        let files = |names: &[&str]| names.iter().map(Into::into).collect::<Vec<_>>();
        assert!(both_read_stdin(&files(&["a", "-"]), &files(&["-"])));
        assert!(!both_read_stdin(&files(&["-"]), &files(&["a"])));
    }
}
