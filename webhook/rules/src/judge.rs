//! Applies all rules to one change, and reports every finding in the order of the rules. A finding of one
//! rule does not stop the other rules.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    action::{Action, DowngradeReason},
    api::{
        Cluster, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, Metadata,
    },
    change::{Change, Operation},
    configuration::Configuration,
    context::{Context, OfTopology},
    fault::{CauseReason, CollectedFault, Fault, Faults},
    finding::Finding,
    overrides,
    rule::{Check, InTopology, Rule, Scope},
    topics, topology,
    view::Part,
};
use kcp_api::names::annotation;

/// The findings of all rules for one change.
#[derive(Debug, Default)]
pub struct Judgement {
    /// The findings in the order of the rules, without those of rules that are off.
    pub findings: Vec<Finding>,
    /// The rules whose findings depend on objects that are unknown.
    pub unread: Vec<&'static Rule>,
    /// The unknown objects that the rules need. With them, the judgement is complete.
    pub needs: BTreeSet<Part>,
    /// The rules that found nothing because objects could not be read, and that let the change pass.
    pub skipped: Vec<&'static Rule>,
    /// Whether the change may need the permission to override, and the user has it. A change needs the permission in two cases: a
    /// pause, a move or a copy weakens a denial to a warning, or the change writes a field that relaxes rules.
    pub is_authorized: bool,
    /// Whether a user writes as Cluster API's topology controller, but is not one of the trusted users.
    pub is_controller_untrusted: bool,
    /// Why entries of the override annotation have no effect, one sentence for each.
    pub ignored_overrides: Vec<String>,
}

impl Judgement {
    /// The findings that deny the change.
    pub fn denials(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.action == Action::Deny)
    }

    /// Whether any finding denies the change.
    pub fn is_denied(&self) -> bool {
        self.denials().next().is_some()
    }
}

/// A kind that has rules.
pub trait HasRules: Sized {
    /// The metadata of the object, which contains the override annotation.
    fn metadata(&self) -> &Metadata<'_>;
    /// The namespace and name of the customization that the object refers to; `None` if it refers to none.
    fn customization(&self) -> Option<(&str, &str)> {
        None
    }
    /// The version of Kubernetes; `None` for kinds without one.
    fn version(&self) -> Option<&str> {
        None
    }
    /// This object with the version of another. `None` for kinds without one.
    fn with_version_of(&self, _other: &Self) -> Option<Self> {
        None
    }
    /// Calls `apply` with the function that checks a change with a rule. Rules about other kinds find nothing.
    fn with_checker(change: &Change<'_, Self>, apply: impl FnOnce(&dyn Fn(&Rule, &mut Faults)));
}

/// Implements [`HasRules`] for kinds that have only rules of their own.
macro_rules! judged {
    ($($kind:ident: $check:ident $({ $($method:item)+ })?)+) => {$(
        impl HasRules for $kind<'_> {
            fn metadata(&self) -> &Metadata<'_> {
                &self.metadata
            }

            $($($method)+)?

            fn with_checker(change: &Change<'_, Self>, apply: impl FnOnce(&dyn Fn(&Rule, &mut Faults))) {
                apply(&|rule, faults| {
                    if let Check::$check(check) = rule.check {
                        check(change, faults);
                    }
                });
            }
        }
    )+};
}

judged! {
    Cluster: Cluster
    ClusterPool: ClusterPool
    ClusterDeploymentCustomization: Customization
    ClusterDeployment: ClusterDeployment {
        fn customization(&self) -> Option<(&str, &str)> {
            let pool = self.pool()?;
            Some((&pool.namespace, pool.customization()?))
        }
    }
}

/// Implements [`HasRules`] for the kinds that have a [`crate::api::ControlPlaneSpec`]. Rules about this spec
/// apply to all of these kinds.
macro_rules! judged_with_common_spec {
    ($($kind:ident: $check:ident $({ $($method:item)+ })?)+) => {$(
        impl HasRules for $kind<'_> {
            fn metadata(&self) -> &Metadata<'_> {
                &self.metadata
            }

            fn version(&self) -> Option<&str> {
                self.common_spec().version_text()
            }

            $($($method)+)?

            fn with_checker(change: &Change<'_, Self>, apply: impl FnOnce(&dyn Fn(&Rule, &mut Faults))) {
                // Computed once, because most rules read the common spec.
                let (new, old) = (change.new.common_spec(), change.old.map(Self::common_spec));
                let common = change.part(&new, old.as_ref());
                apply(&|rule, faults| match rule.check {
                    Check::$check(check) => check(change, faults),
                    Check::ControlPlaneSpec(check) => check(&common, faults),
                    _ => {}
                });
            }
        }
    )+};
}

judged_with_common_spec! {
    KubeadmControlPlane: ControlPlane {
        fn with_version_of(&self, other: &Self) -> Option<Self> {
            let mut copy = self.clone();
            copy.spec.version.clone_from(&other.spec.version);
            Some(copy)
        }
    }
    KubeadmControlPlaneTemplate: Template
}

/// Applies all rules to a change.
pub fn judge<T: HasRules>(change: &Change<'_, T>, configuration: &Configuration) -> Judgement {
    let context = Context {
        feature_gates: configuration.feature_gates,
        trusted_users: Some(&configuration.trusted_users),
        authorizes_overrides: configuration.authorize_overrides,
        ..change.context
    };
    let change = &Change { context, ..*change };
    let mut judgement = Judgement {
        is_controller_untrusted: context.is_untrusted_topology_controller(),
        ..Judgement::default()
    };
    T::with_checker(change, |check| {
        let applies = |rule: &&Rule| {
            rule.operations.contains(&change.operation) && rule.topology.checks(context.topology.is_some())
        };
        for rule in topics::rules().filter(applies) {
            let action = configuration.action(rule).min(severest(rule, change));
            if action == Action::Off {
                continue;
            }
            let mut faults = Faults::default();
            check(rule, &mut faults);
            if faults.needs_objects() {
                let is_unknown = |part: &&Part| context.view.is_none_or(|view| !view.knows(**part));
                judgement.needs.extend(rule.reads().iter().filter(is_unknown));
            }
            if let Some(severest) = faults.unread_action() {
                judgement.unread.push(rule);
                if let Some(view) = change.context.view.filter(|view| !view.failures.is_empty())
                    && faults.is_empty()
                {
                    // If the webhook lacks a permission, the rule does not deny. It would deny every write until somebody grants
                    // the permission, even during an uninstall.
                    let may_deny = severest.min(action) == Action::Deny && !view.lacks_permission;
                    if may_deny && configuration.denies_unread(rule) {
                        faults.push(unread_fault(&view.failures));
                    } else {
                        judgement.skipped.push(rule);
                    }
                }
            }
            let mut faults = faults.into_vec();
            if !faults.is_empty() {
                soften_stranding(rule, change, &mut faults);
                let existing = faults_before(rule, change);
                let findings = ratchet(rule, action, faults, existing);
                judgement.findings.extend(findings);
            }
        }
    });
    soften_copy(change, &mut judgement);
    apply_overrides(change, &mut judgement);
    authorize(change, configuration, &mut judgement);
    if context.topology.is_some() {
        judgement.findings.iter_mut().for_each(topology::place);
    }
    judgement
}

/// The severest action of a rule. A rule that a new version alone can break only warns at the topology of a Cluster that already
/// exists, or whose kubeadm configuration is unknown.
fn severest<T>(rule: &Rule, change: &Change<'_, T>) -> Action {
    // The rule can deny a new Cluster, because its class can still be changed.
    let strands = |topology: OfTopology| change.old.is_some() || !topology.knows_configuration;
    if rule.topology == InTopology::Strands && change.context.topology.is_some_and(strands) {
        Action::Warn
    } else {
        Action::Deny
    }
}

/// Turns denials into warnings for faults that the new version alone causes, if the topology controller writes the control plane.
/// Users cannot lower the version of a topology again. They can take back everything else that the topology controller writes.
fn soften_stranding<T: HasRules>(rule: &Rule, change: &Change<'_, T>, faults: &mut [CollectedFault]) {
    let context = &change.context;
    let is_of_cluster_api = context.topology.is_none() && context.is_written_by_cluster_api();
    if rule.topology != InTopology::Strands || !is_of_cluster_api {
        return;
    }
    let unavoidable = change.old.map(|old| {
        let mut found = Faults::default();
        let upgraded = old.with_version_of(change.new);
        if let Some(new) = upgraded.filter(|_| old.version() != change.new.version()) {
            let upgrade = Change { new: &new, ..*change };
            T::with_checker(&upgrade, |check| check(rule, &mut found));
        }
        let found = found.into_vec();
        found.iter().map(CollectedFault::identity).collect::<HashSet<_>>()
    });
    let is_unavoidable = |fault: &CollectedFault| {
        unavoidable
            .as_ref()
            .is_none_or(|unavoidable| unavoidable.contains(&fault.identity()))
    };
    for fault in faults.iter_mut().filter(|fault| is_unavoidable(fault)) {
        fault.max_action = fault.max_action.min(Action::Warn);
    }
}

/// The denial of a change that a rule could not check.
fn unread_fault(failures: &[String]) -> Fault {
    Fault {
        field: "spec".into(),
        reason: CauseReason::Forbidden,
        value: None,
        detail: format!("could not check this rule: {}", failures.join("; ")).into(),
        remedy: "try again, or override the rule if you know that the change complies with it".into(),
    }
}

/// The problems that a rule of [`Scope::Object`] finds in the old object; none for other rules.
fn faults_before<T: HasRules>(rule: &Rule, change: &Change<'_, T>) -> Vec<CollectedFault> {
    let mut faults = Faults::default();
    if rule.scope == Scope::Object
        && let Some(before) = change.unchanged_old()
    {
        T::with_checker(&before, |check| check(rule, &mut faults));
    }
    faults.into_vec()
}

/// Turns a denial into a warning if the old object already had the problem: a rule that is installed in a cluster
/// with existing objects must not make unrelated edits fail. Drops warnings about problems that the old object
/// already had.
fn ratchet(
    rule: &'static Rule,
    action: Action,
    faults: Vec<CollectedFault>,
    existing: Vec<CollectedFault>,
) -> impl Iterator<Item = Finding> {
    let mut existing: HashMap<_, usize> = existing.into_iter().fold(HashMap::new(), |mut counts, found| {
        *counts.entry(found.identity()).or_default() += 1;
        counts
    });
    faults.into_iter().filter_map(move |found| {
        let before = (!existing.is_empty())
            .then(|| existing.get_mut(&found.identity()))
            .flatten()
            .filter(|count| **count > 0);
        let (fault, action) = (found.fault, action.min(found.max_action));
        let exact_field = found.exact_field;
        let downgrade_reason = found.downgrade_reason.filter(|_| action == Action::Deny);
        let action = if downgrade_reason.is_some() {
            Action::Warn
        } else {
            action
        };
        match (before, action) {
            (None, _) => Some(Finding {
                rule,
                action,
                downgrade_reason,
                fault,
                exact_field,
            }),
            (Some(count), Action::Deny) => {
                *count -= 1;
                Some(Finding {
                    rule,
                    action: Action::Warn,
                    downgrade_reason: Some(DowngradeReason::Unchanged),
                    fault,
                    exact_field,
                })
            }
            (Some(count), _) => {
                *count -= 1;
                None
            }
        }
    })
}

/// Turns denials into warnings for a copy of an existing object, so that the move of a cluster, the restore of a
/// backup, or the copy of a customization does not fail halfway.
fn soften_copy<T: HasRules>(change: &Change<'_, T>, judgement: &mut Judgement) {
    let is_about_object =
        |finding: &&mut Finding| finding.rule.scope == Scope::Object && finding.action == Action::Deny;
    let mut denials = judgement.findings.iter_mut().filter(is_about_object).peekable();
    if change.operation != Operation::Create
        || denials.peek().is_none()
        || !is_copy(change, &mut judgement.needs)
    {
        return;
    }
    for denial in denials {
        denial.action = Action::Warn;
        denial.downgrade_reason = Some(DowngradeReason::Copied);
    }
}

/// Whether a new object is a copy of an existing one. Hive copies a customization into the namespace of its cluster. `clusterctl
/// move` first creates the Cluster, which it has paused, and then the objects that this Cluster owns. An object that a cluster
/// already stores is not a copy, even if it has an owner.
fn is_copy<T: HasRules>(change: &Change<'_, T>, needs: &mut BTreeSet<Part>) -> bool {
    let context = &change.context;
    if context.is_stored || context.is_written_by_hive() {
        return !context.is_stored;
    }
    if let Some(topology) = context.topology {
        return topology.is_copy;
    }
    let Some(owner) = change.new.metadata().cluster_owner() else {
        return false;
    };
    match context.view.and_then(|view| view.cluster.as_ref()) {
        Some(Some(cluster)) => cluster.paused && cluster.uid.as_deref() == owner.uid.as_deref(),
        Some(None) => false,
        // The mutating webhook predicts the decision without the Cluster, and assumes a copy. `lint` assumes no copy, because
        // `kubectl get` may have written its files, and these objects also have owners.
        None => {
            needs.insert(Part::Cluster);
            context.writer.is_some() && !context.is_decision()
        }
    }
}

/// If overrides need a permission and the user lacks it, restores the denials that a pause, a move or a copy has turned into
/// warnings. Also denies changes of the fields that override rules for later writes. Controllers that the configuration trusts
/// need no permission.
fn authorize<T: HasRules>(change: &Change<'_, T>, configuration: &Configuration, judgement: &mut Judgement) {
    let context = &change.context;
    let is_trusted = context.is_written_by_cluster_api() || context.is_written_by_hive();
    let Some(view) = context.view.filter(|_| context.is_decision()) else {
        return;
    };
    if !configuration.authorize_overrides || is_trusted {
        return;
    }
    let is_write = change.operation != Operation::Delete && change.subresource.is_none();
    let old = change.old.map(HasRules::metadata);
    let fields = is_write.then(|| overrides::relaxed_fields(change.new.metadata(), old));
    let fields = fields.unwrap_or_default();
    let needs_permission = |finding: &Finding| {
        finding.action == Action::Warn
            && finding
                .downgrade_reason
                .is_some_and(DowngradeReason::needs_permission)
    };
    let is_relaxed = judgement.findings.iter().any(needs_permission);
    // Objects that are still unknown may relax the denials: the Cluster may be paused.
    let may_depend = !judgement.unread.is_empty() || judgement.is_denied();
    if !is_relaxed && fields.is_empty() && !may_depend {
        return;
    }
    judgement.is_authorized = view.may_override == Some(true);
    if judgement.is_authorized {
        return;
    }
    if view.may_override.is_none() {
        judgement.needs.insert(Part::MayOverride);
    }
    for finding in judgement
        .findings
        .iter_mut()
        .filter(|finding| needs_permission(finding))
    {
        finding.action = Action::Deny;
        finding.downgrade_reason = None;
    }
    let why = match view.may_override {
        Some(_) => "the user needs permission for the verb \"override\" on this object".to_owned(),
        None => "kcp-webhook could not check whether the user may override rules".to_owned(),
    };
    if is_relaxed {
        let ignored = format!("the pause, the move or the copy has no effect: {why}");
        judgement.ignored_overrides.push(ignored);
    }
    let denials = fields.into_iter().map(|field| Finding {
        rule: &overrides::NOT_ALLOWED,
        action: Action::Deny,
        downgrade_reason: None,
        fault: Fault {
            field: field.into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!("this field relaxes rules for the object: {why}").into(),
            remedy: "leave the field as it is, or ask a user with this permission".into(),
        },
        exact_field: None,
    });
    judgement.findings.extend(denials);
}

fn apply_overrides<T: HasRules>(change: &Change<'_, T>, judgement: &mut Judgement) {
    if change
        .context
        .topology
        .is_some_and(|topology| topology.has_override)
        && judgement.is_denied()
    {
        judgement.ignored_overrides.push(
            "the KubeadmControlPlane does not get the annotations of its Cluster: set the annotation in \
             spec.topology.controlPlane.metadata.annotations"
                .to_owned(),
        );
    }
    let annotations = change.new.metadata().annotations.as_ref();
    let Some(value) = annotations.and_then(|annotations| annotations.get(annotation::OVERRIDE_RULES)) else {
        return;
    };
    let Some(now) = change.context.now else { return };
    let denied = |rule: &str, findings: &[Finding]| {
        findings
            .iter()
            .any(|finding| finding.action == Action::Deny && finding.rule.id == rule)
    };
    let mut invalid = Vec::new();
    for entry in overrides::parse(value, now) {
        match entry {
            Ok(entry) => {
                let denials = judgement
                    .findings
                    .iter_mut()
                    .filter(|finding| finding.action == Action::Deny && finding.rule.id == entry.rule.id);
                for finding in denials {
                    finding.action = Action::Warn;
                    finding.downgrade_reason = Some(DowngradeReason::Overridden { until: entry.until });
                }
            }
            Err(error) => invalid.push(error),
        }
    }
    // Report invalid entries after the loop, because a valid entry for the same rule may follow.
    let ignored = invalid.iter().filter(|error| {
        let rule = error.rule_with_invalid_time();
        rule.is_none_or(|rule| denied(rule, &judgement.findings))
    });
    judgement
        .ignored_overrides
        .extend(ignored.map(ToString::to_string));
}
