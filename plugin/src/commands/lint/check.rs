//! Applies the admission rules to one object, as the webhook would.

use std::borrow::Cow;

use jiff::Timestamp;
use kcp_rules::{
    Change, Configuration, Context, HasRules, Judgement, Operation, Rule,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError,
        KubeadmControlPlane, KubeadmControlPlaneTemplate, Metadata, decode,
        hive::{ClusterPoolSpec, Inventory},
    },
    defaulting::{Defaulted, apply, default_control_plane, default_customization},
    judge as judge_change, overrides,
    topics::rollout,
    view::View,
};
use serde::Deserialize;

use crate::commands::lint::{
    finding::{Fault, LintRule},
    related_objects::{RelatedObjects, ReviewedObject},
    subject::Subject,
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
    pub(super) related_objects: &'l RelatedObjects,
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
        match write {
            Write::Create => self.faults_with_defaults(subject, text, None, namespace),
            // The webhook never blocks an object that is being deleted, so that controllers can finish the deletion.
            Write::Update(object) if update::is_deleting(object) => Vec::new(),
            Write::Stored if update::is_deleting(text) => Vec::new(),
            Write::Update(old) => {
                let stored = update::merge_as_stored(text, old);
                let text = stored.as_deref().unwrap_or(text);
                match update::version_mismatch(text, old) {
                    None => self.faults_with_defaults(subject, text, Some(old), namespace),
                    Some(fault) => {
                        let mut faults = vec![fault];
                        faults.extend(self.faults(subject, text, OldObject::Unknown, namespace));
                        faults
                    }
                }
            }
            Write::Stored => {
                // Apply the defaults, which a stored object may lack. Report a value that a default would change as a
                // problem.
                let completed = apply_defaults(subject, text, None)
                    .filter(|defaulted| defaulted.corrections.is_empty())
                    .and_then(|defaulted| apply(text, &defaulted.operations));
                let mut faults = self.faults(
                    subject,
                    completed.as_deref().unwrap_or(text),
                    OldObject::Itself,
                    namespace,
                );
                faults.retain(|fault| fault.admission.is_none_or(applies_to_stored));
                faults
            }
        }
    }

    /// Applies the webhook's defaults before the rules, as an API server does, and reports values that the defaults
    /// corrected.
    fn faults_with_defaults(
        &self,
        subject: Subject,
        text: &str,
        old: Option<&str>,
        namespace: &str,
    ) -> Vec<Fault> {
        let Defaulted {
            operations,
            corrections: repairs,
        } = apply_defaults(subject, text, old).unwrap_or_default();
        let text = match operations.as_slice() {
            [] => Cow::Borrowed(text),
            operations => apply(text, operations).map_or(Cow::Borrowed(text), Cow::Owned),
        };
        let mut faults: Vec<_> = repairs.into_iter().map(Fault::from).collect();
        faults.extend(self.faults(
            subject,
            &text,
            old.map_or(OldObject::Nothing, OldObject::Object),
            namespace,
        ));
        faults
    }

    fn faults(&self, subject: Subject, text: &str, old: OldObject<'_>, namespace: &str) -> Vec<Fault> {
        let found = match subject {
            Subject::ControlPlane => self.check_typed::<KubeadmControlPlane<'_>>(text, old, namespace),
            Subject::Template => self.check_typed::<KubeadmControlPlaneTemplate<'_>>(text, old, namespace),
            Subject::Cluster => self.check_typed::<Cluster<'_>>(text, old, namespace),
            Subject::ClusterPool => self.check_typed::<ClusterPool<'_>>(text, old, namespace),
            Subject::Customization => {
                self.check_typed::<ClusterDeploymentCustomization<'_>>(text, old, namespace)
            }
            Subject::ClusterDeployment => self.check_typed::<ClusterDeployment<'_>>(text, old, namespace),
        };
        found.unwrap_or_else(|error| {
            let mut faults = vec![undecodable(&error)];
            if subject == Subject::ClusterPool {
                faults.extend(self.inventory(text, namespace));
            }
            faults
        })
    }

    fn check_typed<'t, T: HasRules + Deserialize<'t>>(
        &self,
        text: &'t str,
        old: OldObject<'t>,
        namespace: &str,
    ) -> Result<Vec<Fault>, DecodeError> {
        let new: T = decode(text)?;
        let unknown = Change {
            operation: Operation::Update,
            ..Change::create(&new)
        };
        match old {
            OldObject::Nothing => Ok(self.check_change(Change::create(&new), namespace)),
            OldObject::Itself => {
                let context = Context {
                    is_stored: true,
                    ..Context::UNKNOWN
                };
                Ok(self.check_change(Change::create(&new).with_context(context), namespace))
            }
            OldObject::Unknown => Ok(self.check_change(unknown, namespace)),
            OldObject::Object(old) => match decode::<T>(old) {
                Ok(old) => Ok(self.check_change(Change::update(&old, &new), namespace)),
                Err(error) => {
                    let mut faults = vec![old_undecodable(&error)];
                    faults.extend(self.check_change(unknown, namespace));
                    Ok(faults)
                }
            },
        }
    }

    /// Checks a write. If its rules need other objects, passes these to the rules and checks again.
    fn check_change<T: HasRules>(&self, change: Change<'_, T>, namespace: &str) -> Vec<Fault> {
        let check = |view: &View| -> Judgement {
            let context = Context {
                now: Some(self.now),
                view: Some(view),
                ..change.context
            };
            judge_change(&change.with_context(context), self.configuration)
        };
        let nothing = View::default();
        let mut judgement = check(&nothing);
        let wanted = nothing.missing();
        if wanted.any() {
            let reviewed = ReviewedObject {
                namespace,
                name: change.new.metadata().name.as_deref(),
                // Read the Cluster's name from the stored object if there is one, because a manifest may lack owner
                // references and labels.
                cluster: change.old.unwrap_or(change.new).metadata().cluster_name(),
                customization: change.new.customization(),
            };
            judgement = check(&self.related_objects.view(wanted, reviewed));
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

/// Applies the mutating webhook's defaults to an object. `None` if the object cannot be decoded; the webhook then sets no
/// defaults.
fn apply_defaults(subject: Subject, new: &str, old: Option<&str>) -> Option<Defaulted> {
    fn with_defaults<'t, T: Deserialize<'t>>(
        complete: impl Fn(&Change<'_, T>) -> Defaulted,
        new: &'t str,
        old: Option<&'t str>,
    ) -> Option<Defaulted> {
        let new: T = decode(new).ok()?;
        let old: Option<T> = old.map(decode).transpose().ok()?;
        let change = old
            .as_ref()
            .map_or(Change::create(&new), |old| Change::update(old, &new));
        Some(complete(&change))
    }
    match subject {
        Subject::ControlPlane => with_defaults::<KubeadmControlPlane<'_>>(default_control_plane, new, old),
        Subject::Customization => {
            with_defaults::<ClusterDeploymentCustomization<'_>>(default_customization, new, old)
        }
        Subject::Template | Subject::Cluster | Subject::ClusterPool | Subject::ClusterDeployment => None,
    }
}

fn undecodable(error: &DecodeError) -> Fault {
    let message = if error.is_missing() {
        "Required value: the field is missing; add it".to_owned()
    } else {
        format!(
            "Invalid value: {}; write a value of the expected type",
            error.fault
        )
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
        overrides::ANNOTATION
    );
    Fault::from_lint(LintRule::OverrideIgnored, "metadata.annotations", &message)
}
