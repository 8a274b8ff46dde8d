//! All rules put to one change. Every finding is reported, in table order; no rule stops another.

use std::collections::HashMap;

use crate::{
    action::Action,
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, Metadata,
    },
    change::{Change, Operation},
    configuration::Configuration,
    context::Context,
    fault::{Faults, Found},
    finding::{Finding, Softening},
    overrides,
    rule::{Check, Rule, Scope},
    topics,
};

/// What all rules say of one change.
#[derive(Debug, Default)]
pub struct Judgement {
    /// In table order. Findings of rules that are off are not among them.
    pub findings: Vec<Finding>,
    /// Overrides that do not override, each with its reason.
    pub ignored_overrides: Vec<String>,
}

impl Judgement {
    /// The findings that refuse the change.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.action == Action::Deny)
    }

    /// Whether the change is refused.
    pub fn is_denied(&self) -> bool {
        self.denials().next().is_some()
    }
}

/// A kind that rules judge.
pub trait Judged: Sized {
    /// Its metadata: overrides are read from there.
    fn metadata(&self) -> &Metadata<'_>;
    /// Puts one rule to a change of this kind; a rule for another kind says nothing.
    fn check(rule: &Rule, change: &Change<'_, Self>, faults: &mut Faults);
}

macro_rules! judged {
    ($($kind:ident: $check:ident),+) => {$(
        impl Judged for $kind<'_> {
            fn metadata(&self) -> &Metadata<'_> {
                &self.metadata
            }

            fn check(rule: &Rule, change: &Change<'_, Self>, faults: &mut Faults) {
                if let Check::$check(check) = rule.check {
                    check(change, faults);
                }
            }
        }
    )+};
}

judged!(
    Cluster: Cluster,
    ClusterPool: ClusterPool,
    ClusterDeploymentCustomization: Customization,
    ClusterDeployment: ClusterDeployment
);

/// The kinds that have a [`crate::api::ControlPlaneSpec`]: rules about it judge both.
macro_rules! judged_with_common_spec {
    ($($kind:ident: $check:ident),+) => {$(
        impl Judged for $kind<'_> {
            fn metadata(&self) -> &Metadata<'_> {
                &self.metadata
            }

            fn check(rule: &Rule, change: &Change<'_, Self>, faults: &mut Faults) {
                match rule.check {
                    Check::$check(check) => check(change, faults),
                    Check::ControlPlaneSpec(check) => {
                        let (new, old) = (change.new.common_spec(), change.old.map(Self::common_spec));
                        check(&change.part(&new, old.as_ref()), faults);
                    }
                    _ => {}
                }
            }
        }
    )+};
}

judged_with_common_spec!(
    KubeadmControlPlane: ControlPlane,
    KubeadmControlPlaneTemplate: Template
);

/// Judges a change.
pub fn judge<T: Judged>(change: &Change<'_, T>, configuration: &Configuration) -> Judgement {
    let context = Context {
        feature_gates: configuration.feature_gates,
        ..change.context
    };
    let change = &Change { context, ..*change };
    let mut judgement = Judgement::default();
    for rule in topics::rules().filter(|rule| rule.operations.contains(&change.operation)) {
        let action = configuration.action(rule);
        if action == Action::Off {
            continue;
        }
        let mut faults = Faults::default();
        T::check(rule, change, &mut faults);
        let faults = faults.into_vec();
        if !faults.is_empty() {
            let known = faults_before(rule, change);
            let findings = ratchet(rule, action, faults, known);
            judgement
                .findings
                .extend(findings.map(|finding| soften_copy(finding, change)));
        }
    }
    apply_overrides(change, &mut judgement);
    judgement
}

/// What an object rule said of the old object already.
fn faults_before<T: Judged>(rule: &Rule, change: &Change<'_, T>) -> Vec<Found> {
    let mut faults = Faults::default();
    if rule.scope == Scope::Object
        && let Some(before) = change.before()
    {
        T::check(rule, &before, &mut faults);
    }
    faults.into_vec()
}

/// A fault that the old object had already is a warning, never a denial: installing a rule on a living fleet must not
/// make unrelated edits fail. What is a warning anyway is not repeated.
fn ratchet(
    rule: &'static Rule,
    action: Action,
    faults: Vec<Found>,
    known: Vec<Found>,
) -> impl Iterator<Item = Finding> {
    let mut known: HashMap<_, usize> = known.into_iter().fold(HashMap::new(), |mut counts, found| {
        *counts.entry(found.identity()).or_default() += 1;
        counts
    });
    faults.into_iter().filter_map(move |found| {
        let before = (!known.is_empty())
            .then(|| known.get_mut(&found.identity()))
            .flatten()
            .filter(|count| **count > 0);
        let (fault, action) = (found.fault, action.min(found.at_most));
        match (before, action) {
            (None, _) => Some(Finding {
                rule,
                action,
                softened: None,
                fault,
            }),
            (Some(count), Action::Deny) => {
                *count -= 1;
                Some(Finding {
                    rule,
                    action: Action::Warn,
                    softened: Some(Softening::Unchanged),
                    fault,
                })
            }
            (Some(count), _) => {
                *count -= 1;
                None
            }
        }
    })
}

/// An object that is made of one that was there before is not refused for what it has always been: moving a cluster,
/// restoring a backup or taking a customization along must not fail half-way.
fn soften_copy<T: Judged>(mut finding: Finding, change: &Change<'_, T>) -> Finding {
    if finding.rule.scope == Scope::Object
        && finding.action == Action::Deny
        && change.operation == Operation::Create
        && is_copy(change.new.metadata(), &change.context)
    {
        finding.action = Action::Warn;
        finding.softened = Some(Softening::Copied);
    }
    finding
}

/// Whether a new object is made of another: by Hive, which copies a customization into each cluster's namespace, or by
/// `clusterctl move` and restores, which bring the owner that Cluster API set. Its topology controller sets that as well
/// when it creates.
fn is_copy(metadata: &Metadata<'_>, context: &Context<'_>) -> bool {
    let owned = metadata.is_owned_by("Cluster") || metadata.is_owned_by("ClusterClass");
    context.is_hive() || owned && !context.is_topology_controller()
}

fn apply_overrides<T: Judged>(change: &Change<'_, T>, judgement: &mut Judgement) {
    let annotations = change.new.metadata().annotations.as_ref();
    let Some(value) = annotations.and_then(|annotations| annotations.get(overrides::ANNOTATION)) else {
        return;
    };
    let Some(now) = change.context.now else { return };
    let denied = |rule: &str, findings: &[Finding]| {
        findings
            .iter()
            .any(|finding| finding.action == Action::Deny && finding.rule.id == rule)
    };
    let mut faulty = Vec::new();
    for entry in overrides::parse(value, now) {
        match entry {
            Ok(entry) => {
                let denials = judgement
                    .findings
                    .iter_mut()
                    .filter(|finding| finding.action == Action::Deny && finding.rule.id == entry.rule.id);
                for finding in denials {
                    finding.action = Action::Warn;
                    finding.softened = Some(Softening::Overridden { until: entry.until });
                }
            }
            Err(error) => faulty.push(error),
        }
    }
    // Last: of two entries for one rule, the one that counts may stand behind the other.
    let ignored = faulty.iter().filter(|error| {
        let rule = error.rule_outside_its_time();
        rule.is_none_or(|rule| denied(rule, &judgement.findings))
    });
    judgement.ignored_overrides = ignored.map(ToString::to_string).collect();
}
