//! Applies the admission rules to one object, as the webhook would.

use jiff::Timestamp;
use kcp_api::names::annotation;
use kcp_rules::{
    Change, Configuration, Context, HasRules, Judgement, Operation, Rule,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, Metadata, decode,
        hive::{ClusterPoolSpec, Inventory},
    },
    defaulting::SetDefaults,
    judge as judge_change,
    topics::rollout,
    topology::ControlPlaneChange,
    view::View,
};
use serde::Deserialize;

use crate::commands::lint::{
    finding::{Fault, LintRule},
    kubeadm_config::{self, WorkerVersions},
    related_objects::{RelatedObjects, ReviewedObject},
    subject::Subject,
    topology::Topologies,
    update,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'w> {
    Create,
    /// An update. Contains the JSON of the object before the update.
    Update(&'w str),
    /// The object is already stored in a cluster. There is no write to check.
    Stored,
}

/// The object before the write, as the admission rules see it.
#[derive(Clone, Copy, Debug)]
enum OldObject<'p> {
    Nothing,
    /// The object is already stored. There is no write.
    Itself,
    Object(&'p str),
    Unknown,
}

#[derive(Debug)]
pub(super) struct Linter<'l> {
    pub(super) configuration: &'l Configuration,
    /// Whether `--configuration`, which has the feature gates of Cluster API, is absent.
    pub(super) are_gates_unknown: bool,
    pub(super) worker_versions: &'l WorkerVersions,
    pub(super) related_objects: &'l RelatedObjects,
    pub(super) topologies: &'l Topologies,
    pub(super) now: Timestamp,
}

impl Linter<'_> {
    /// Checks an object, given as JSON, against the admission rules.
    pub(super) fn check(
        &self,
        subject: Subject,
        text: &str,
        write: Write<'_>,
        namespace: &str,
    ) -> Vec<Fault> {
        // No rule compares the configuration of workers with its earlier state.
        let write = if subject.is_kubeadm_config() {
            Write::Create
        } else {
            write
        };
        match write {
            Write::Create => self.faults(subject, text, OldObject::Nothing, namespace),
            // The webhook never blocks an object that is being deleted, so that controllers can finish the deletion.
            Write::Update(object) if update::is_deleting(object) => Vec::new(),
            Write::Stored if update::is_deleting(text) => Vec::new(),
            Write::Update(old) => {
                let stored = update::merge_as_stored(text, old);
                let text = stored.as_deref().unwrap_or(text);
                match update::version_mismatch(text, old) {
                    None => self.faults(subject, text, OldObject::Object(old), namespace),
                    Some(fault) => {
                        let mut faults = vec![fault];
                        faults.extend(self.faults(subject, text, OldObject::Unknown, namespace));
                        faults
                    }
                }
            }
            Write::Stored => {
                let mut faults = self.faults(subject, text, OldObject::Itself, namespace);
                faults.retain(|fault| {
                    fault
                        .admission
                        .as_ref()
                        .is_none_or(|found| applies_to_stored(found.rule))
                });
                faults
            }
        }
    }

    fn faults(&self, subject: Subject, text: &str, old: OldObject<'_>, namespace: &str) -> Vec<Fault> {
        let found = match subject {
            Subject::ControlPlane => self.check_typed::<KubeadmControlPlane<'_>>(text, old, namespace),
            Subject::Template => self.check_typed::<KubeadmControlPlaneTemplate<'_>>(text, old, namespace),
            Subject::Cluster => self.check_cluster(text, old, namespace),
            Subject::ClusterPool => self.check_typed::<ClusterPool<'_>>(text, old, namespace),
            Subject::Customization => {
                self.check_typed::<ClusterDeploymentCustomization<'_>>(text, old, namespace)
            }
            Subject::ClusterDeployment => self.check_typed::<ClusterDeployment<'_>>(text, old, namespace),
            Subject::KubeadmConfig | Subject::KubeadmConfigTemplate => {
                Ok(self.check_kubeadm_config(subject, text, namespace))
            }
        };
        found.unwrap_or_else(|error| {
            let mut faults = vec![undecodable(&error)];
            if subject == Subject::ClusterPool {
                faults.extend(self.inventory(text, namespace));
            }
            faults
        })
    }

    /// Checks the configuration of a Machine as that of a control plane, for each version that uses it.
    fn check_kubeadm_config(&self, subject: Subject, text: &str, namespace: &str) -> Vec<Fault> {
        let templates = self.worker_versions.as_templates(subject, text, namespace);
        let found = templates.iter().flat_map(|template| {
            self.check_typed::<KubeadmControlPlaneTemplate<'_>>(template, OldObject::Nothing, namespace)
                .unwrap_or_else(|error| vec![undecodable(&error)])
        });
        kubeadm_config::of_machine(subject, found)
    }

    fn check_cluster(
        &self,
        text: &str,
        old: OldObject<'_>,
        namespace: &str,
    ) -> Result<Vec<Fault>, DecodeError> {
        let mut faults = self.check_typed::<Cluster<'_>>(text, old, namespace)?;
        let cluster: Cluster<'_> = decode(text)?;
        let Some(asked) = cluster.topology() else {
            return Ok(faults);
        };
        let stored: Option<Cluster<'_>> = match old {
            OldObject::Object(old) => decode(old).ok(),
            OldObject::Nothing | OldObject::Itself | OldObject::Unknown => None,
        };
        let source = self
            .topologies
            .source(stored.as_ref().unwrap_or(&cluster), asked, namespace);
        // A control plane or a template that cannot be decoded has a finding of its own.
        let change = ControlPlaneChange::new(source, stored.as_ref(), &cluster);
        if let Ok(Some(change)) = &change {
            let change = match old {
                OldObject::Itself => change.stored(),
                _ => change.change(),
            };
            faults.extend(self.check_change(change, namespace));
        }
        Ok(faults)
    }

    /// Sets the webhook's defaults before the rules run, as an API server does, and reports the values that the defaults correct.
    fn check_typed<'t, T: HasRules + SetDefaults + Deserialize<'t>>(
        &self,
        text: &'t str,
        old: OldObject<'t>,
        namespace: &str,
    ) -> Result<Vec<Fault>, DecodeError> {
        let mut new: T = decode(text)?;
        let mut faults = Vec::new();
        let old: Option<T> = match old {
            OldObject::Nothing => {
                faults.extend(new.set_defaults(None).corrections.into_iter().map(Fault::from));
                return Ok(self.with_faults(faults, Change::create(&new), namespace));
            }
            OldObject::Itself => {
                // A stored object may lack a default. A value that a default would correct is a problem.
                let mut completed: T = decode(text)?;
                if completed.set_defaults(None).corrections.is_empty() {
                    new = completed;
                }
                let context = Context {
                    is_stored: true,
                    ..Context::UNKNOWN
                };
                let change = Change::create(&new).with_context(context);
                return Ok(self.with_faults(faults, change, namespace));
            }
            OldObject::Unknown => None,
            OldObject::Object(old) => match decode::<T>(old) {
                Ok(old) => {
                    faults.extend(
                        new.set_defaults(Some(&old))
                            .corrections
                            .into_iter()
                            .map(Fault::from),
                    );
                    Some(old)
                }
                Err(error) => {
                    faults.push(old_undecodable(&error));
                    None
                }
            },
        };
        let update = Change {
            operation: Operation::Update,
            old: old.as_ref(),
            ..Change::create(&new)
        };
        Ok(self.with_faults(faults, update, namespace))
    }

    fn with_faults<T: HasRules>(
        &self,
        mut faults: Vec<Fault>,
        change: Change<'_, T>,
        namespace: &str,
    ) -> Vec<Fault> {
        faults.extend(self.check_change(change, namespace));
        faults
    }

    /// Checks a write. If its rules need other objects, passes these to the rules and checks again.
    fn check_change<T: HasRules>(&self, change: Change<'_, T>, namespace: &str) -> Vec<Fault> {
        let check = |view: &View| -> Judgement {
            let context = Context {
                now: Some(self.now),
                view: Some(view),
                are_gates_unknown: self.are_gates_unknown,
                ..change.context
            };
            judge_change(&change.with_context(context), self.configuration)
        };
        let mut judgement = check(&View::default());
        if !judgement.needs.is_empty() {
            let reviewed = ReviewedObject {
                namespace,
                name: change.new.metadata().name.as_deref(),
                // Read the Cluster's name from the stored object if there is one, because a manifest may lack owner
                // references and labels.
                cluster: change.old.unwrap_or(change.new).metadata().cluster_name(),
                customization: change.new.customization(),
            };
            judgement = check(&self.related_objects.view(&judgement.needs, reviewed));
        }
        let ignored = judgement
            .ignored_overrides
            .iter()
            .map(|why| override_ignored(why));
        let ignored: Vec<_> = ignored.collect();
        judgement
            .findings
            .into_iter()
            .map(Fault::from)
            .chain(ignored)
            .collect()
    }

    /// Checks the inventory of an incomplete ClusterPool, such as a fragment in documentation.
    fn inventory(&self, text: &str, namespace: &str) -> Vec<Fault> {
        #[derive(Deserialize)]
        struct Fragment<'a> {
            #[serde(borrow, default)]
            metadata: Metadata<'a>,
            spec: FragmentSpec,
        }
        #[derive(Deserialize)]
        struct FragmentSpec {
            inventory: Option<Inventory>,
        }
        let Ok(Fragment { metadata, spec }) = decode::<Fragment<'_>>(text) else {
            return Vec::new();
        };
        let pool = ClusterPool {
            metadata,
            spec: ClusterPoolSpec {
                inventory: spec.inventory,
                ..ClusterPoolSpec::default()
            },
        };
        let mut faults = self.check_change(Change::create(&pool), namespace);
        faults.retain(|fault| fault.field.starts_with("spec.inventory"));
        faults
    }
}

/// Whether the rule applies to an object that already exists. Rules about immutable fields do not, because the fields can
/// no longer be corrected. Rules about the effects of a write do not, because the write has already happened.
fn applies_to_stored(rule: &Rule) -> bool {
    rule.operations.contains(&Operation::Update) && rule.id != rollout::AFTER_PAST
}

fn undecodable(error: &DecodeError) -> Fault {
    let types = error.fault.strip_prefix("found ");
    let message = match types.and_then(|types| types.rsplit_once(", expected ")) {
        _ if error.is_missing() => "Required value: the field is missing; add it".to_owned(),
        Some((found, expected)) => {
            let nouns = ["string ", "integer ", "number ", "boolean "];
            let given = nouns.iter().find_map(|noun| found.strip_prefix(noun));
            format!("Invalid value: {}: must be {expected}", given.unwrap_or(found))
        }
        None => format!("Invalid value: {}", error.fault),
    };
    Fault::from_lint(LintRule::Undecodable, error.field.clone(), &message)
}

fn old_undecodable(error: &DecodeError) -> Fault {
    let message = format!(
        "the old object cannot be decoded ({}), so the update was not checked; correct the old manifest",
        error.fault
    );
    Fault::from_lint(LintRule::OldUndecodable, error.field.clone(), &message)
}

fn override_ignored(why: &str) -> Fault {
    let message = format!(
        "{} has no effect: {why}; correct or remove the entry",
        annotation::OVERRIDE_RULES
    );
    Fault::from_lint(LintRule::OverrideIgnored, "metadata.annotations", &message)
}
