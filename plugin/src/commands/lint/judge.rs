//! Applies the rules to one object, as admission would.

use std::borrow::Cow;

use jiff::Timestamp;
use kcp_rules::{
    Change, Configuration, Context, Judged, Judgement, Operation, Rule,
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
    finding::{Fault, OwnRule},
    neighbours::{Neighbours, Viewer},
    subject::Subject,
    update,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'w> {
    Create,
    /// An update of this object, as JSON.
    Update(&'w str),
    /// No write: the object is stored already.
    Stored,
}

/// The state of an object before the write.
#[derive(Clone, Copy, Debug)]
enum Past<'p> {
    Nothing,
    Object(&'p str),
    Unknown,
}

#[derive(Debug)]
pub(super) struct Linter<'l> {
    pub(super) configuration: &'l Configuration,
    pub(super) neighbours: &'l Neighbours,
    pub(super) now: Timestamp,
}

impl Linter<'_> {
    /// Judges an object, given as JSON, in a namespace.
    pub(super) fn judge(
        &self,
        subject: Subject,
        text: &str,
        write: Write<'_>,
        namespace: &str,
    ) -> Vec<Fault> {
        match write {
            Write::Create => self.completed(subject, text, None, namespace),
            // A controller must always be able to finish a deletion.
            Write::Update(object) if update::is_deleting(object) => Vec::new(),
            Write::Stored if update::is_deleting(text) => Vec::new(),
            Write::Update(old) => {
                let stored = update::stored(text, old);
                let text = stored.as_deref().unwrap_or(text);
                match update::other_version(text, old) {
                    None => self.completed(subject, text, Some(old), namespace),
                    Some(fault) => {
                        let mut faults = vec![fault];
                        faults.extend(self.faults(subject, text, Past::Unknown, namespace));
                        faults
                    }
                }
            }
            Write::Stored => {
                // A stored object may lack our defaults. A value that a default would repair is a fault.
                let completed = defaulted(subject, text, None)
                    .filter(|defaulted| defaulted.repairs.is_empty())
                    .and_then(|defaulted| apply(text, &defaulted.operations));
                let mut faults = self.faults(
                    subject,
                    completed.as_deref().unwrap_or(text),
                    Past::Nothing,
                    namespace,
                );
                faults.retain(|fault| fault.admission.is_none_or(stands));
                faults
            }
        }
    }

    /// Applies the defaults first, as the mutating webhook runs before the validating one, and reports its repairs.
    fn completed(&self, subject: Subject, text: &str, old: Option<&str>, namespace: &str) -> Vec<Fault> {
        let Defaulted { operations, repairs } = defaulted(subject, text, old).unwrap_or_default();
        let text = match operations.as_slice() {
            [] => Cow::Borrowed(text),
            operations => apply(text, operations).map_or(Cow::Borrowed(text), Cow::Owned),
        };
        let mut faults: Vec<_> = repairs.into_iter().map(Fault::from).collect();
        faults.extend(self.faults(subject, &text, old.map_or(Past::Nothing, Past::Object), namespace));
        faults
    }

    fn faults(&self, subject: Subject, text: &str, past: Past<'_>, namespace: &str) -> Vec<Fault> {
        let found = match subject {
            Subject::ControlPlane => self.judged::<KubeadmControlPlane<'_>>(text, past, namespace),
            Subject::Template => self.judged::<KubeadmControlPlaneTemplate<'_>>(text, past, namespace),
            Subject::Cluster => self.judged::<Cluster<'_>>(text, past, namespace),
            Subject::ClusterPool => self.judged::<ClusterPool<'_>>(text, past, namespace),
            Subject::Customization => {
                self.judged::<ClusterDeploymentCustomization<'_>>(text, past, namespace)
            }
            Subject::ClusterDeployment => self.judged::<ClusterDeployment<'_>>(text, past, namespace),
        };
        found.unwrap_or_else(|error| {
            let mut faults = vec![undecodable(&error)];
            if subject == Subject::ClusterPool {
                faults.extend(self.inventory(text, namespace));
            }
            faults
        })
    }

    fn judged<'t, T: Judged + Deserialize<'t>>(
        &self,
        text: &'t str,
        past: Past<'t>,
        namespace: &str,
    ) -> Result<Vec<Fault>, DecodeError> {
        let new: T = decode(text)?;
        let unknown = Change {
            operation: Operation::Update,
            ..Change::create(&new)
        };
        match past {
            Past::Nothing => Ok(self.put(Change::create(&new), namespace)),
            Past::Unknown => Ok(self.put(unknown, namespace)),
            Past::Object(old) => match decode::<T>(old) {
                Ok(old) => Ok(self.put(Change::update(&old, &new), namespace)),
                Err(error) => {
                    let mut faults = vec![old_undecodable(&error)];
                    faults.extend(self.put(unknown, namespace));
                    Ok(faults)
                }
            },
        }
    }

    /// Puts a change to the rules. Those that ask for other objects are shown them, and asked again.
    fn put<T: Judged>(&self, change: Change<'_, T>, namespace: &str) -> Vec<Fault> {
        let judged = |view: &View| -> Judgement {
            let context = Context {
                now: Some(self.now),
                view: Some(view),
                ..Context::UNKNOWN
            };
            judge_change(&change.within(context), self.configuration)
        };
        let nothing = View::default();
        let mut judgement = judged(&nothing);
        let wanted = nothing.missing();
        if wanted.any() {
            let viewer = Viewer {
                namespace,
                name: change.new.metadata().name.as_deref(),
                // A client can leave owners and labels out of what it writes.
                cluster: change.old.unwrap_or(change.new).metadata().cluster_name(),
            };
            judgement = judged(&self.neighbours.view(wanted, viewer));
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

    /// Judges the inventory of a pool that is not whole, such as the fragments in a document.
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
        let mut faults = self.put(Change::create(&pool), namespace);
        faults.retain(|fault| fault.field.starts_with("spec.inventory"));
        faults
    }
}

/// Whether a rule speaks of an object that is there as it does of one that is written: what cannot be changed any more
/// is no use to know, and what a write would set off now has been set off.
fn stands(rule: &Rule) -> bool {
    rule.operations.contains(&Operation::Update) && rule.id != rollout::AFTER_PAST
}

/// What the mutating webhook makes of a write. What it cannot read it lets through.
fn defaulted(subject: Subject, new: &str, old: Option<&str>) -> Option<Defaulted> {
    fn by<'t, T: Deserialize<'t>>(
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
        Subject::ControlPlane => by::<KubeadmControlPlane<'_>>(default_control_plane, new, old),
        Subject::Customization => by::<ClusterDeploymentCustomization<'_>>(default_customization, new, old),
        Subject::Template | Subject::Cluster | Subject::ClusterPool | Subject::ClusterDeployment => None,
    }
}

fn undecodable(error: &DecodeError) -> Fault {
    let message = if error.is_missing() {
        "Required value: the field is missing; add it".to_owned()
    } else {
        format!("Invalid value: {}; write a value of that type", error.fault)
    };
    Fault::own(OwnRule::Undecodable, error.field.clone(), &message)
}

fn old_undecodable(error: &DecodeError) -> Fault {
    let message = format!(
        "the object as it was cannot be read ({}), and the change to it was not judged; correct the old one",
        error.fault
    );
    Fault::own(OwnRule::OldUndecodable, error.field.clone(), &message)
}

fn override_ignored(why: &str) -> Fault {
    let message = format!(
        "{} overrides nothing: {why}; correct or remove the entry",
        overrides::ANNOTATION
    );
    Fault::own(OwnRule::OverrideIgnored, "metadata.annotations", &message)
}
