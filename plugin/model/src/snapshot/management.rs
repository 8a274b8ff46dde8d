//! The deletions of Machines, and the `MachineHealthChecks` that select Machines.
//!
//! Selectors and limits of a `MachineHealthCheck` are evaluated as in Cluster API v1.14
//! (`core/reconcilers/machinehealthcheck`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kcp_api::{
    Cluster, Condition, ExtensionConfig, Machine, MachineHealthCheck, Object as _,
    machine_health_check::UnhealthyCondition, names::annotation,
};
use kube::core::{Selector, SelectorExt as _};

/// The deletion of a Machine that has begun, but has not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub machine: String,
    pub started_at: Timestamp,
    /// What the deletion waits for: one line for each deletion hook, for each finalizer, and for the condition `Deleting`.
    pub waits_for: Vec<String>,
}

/// A Machine that the control plane controller could not create or delete, according to its Events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// Whether the controller deletes a Machine. Otherwise it creates one.
    pub is_deletion: bool,
    /// The message of the Event, with the API server's error.
    pub message: String,
    /// When this error was first reported.
    pub first_reported: Timestamp,
    pub last_reported: Timestamp,
}

/// A `MachineHealthCheck` of the Cluster, and the Machines that it selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    pub name: String,
    pub paused: bool,
    /// The names of the control plane's Machines that the selector matches, except those that Cluster API skips because of an
    /// annotation.
    pub targets: BTreeSet<String>,
    /// Whether the number of unhealthy Machines permits remediation now. `None` if the status does not say.
    pub remediation_allowed: Option<bool>,
    /// The numbers of unhealthy Machines at which the `MachineHealthCheck` remediates. `None` if the spec does not have the
    /// documented form.
    pub trigger: Option<RemediationTrigger>,
    /// How many Machines the selector matches that do not belong to the control plane. `None` if the status does not say.
    pub other_targets: Option<u64>,
    /// Whether remediation would still be permitted if one more Machine became unhealthy. `None` if this is unknown.
    pub allows_one_more: Option<bool>,
    /// How long a condition may have a given status before the `MachineHealthCheck` marks the Machine as
    /// unhealthy.
    pub timeouts: Vec<UnhealthyCondition>,
    /// How long a Machine may have no Node before the `MachineHealthCheck` marks it as unhealthy. `None` if there is no limit.
    pub node_startup_timeout: Option<Duration>,
}

impl Deletion {
    pub fn from_machine(machine: &Machine) -> Option<Self> {
        let since = machine.deletion_timestamp()?;
        let condition = machine
            .condition("Deleting")
            .filter(|condition| condition.is_true());
        let hooks: Vec<String> = machine
            .foreign_deletion_hooks()
            .map(|hook| format!("deletion hook {hook}"))
            .collect();
        // Until other programs have removed their hooks, Cluster API's own steps also wait.
        let waits_for = if hooks.is_empty() {
            let hooks = machine
                .deletion_hooks()
                .map(|hook| format!("deletion hook {hook}"));
            let finalizers = machine
                .finalizers()
                .iter()
                .map(|name| format!("finalizer {name}"));
            hooks
                .chain(finalizers)
                .chain(condition.map(Condition::message_or_reason))
                .collect()
        } else {
            hooks
        };
        Some(Self {
            machine: machine.name().to_owned(),
            started_at: since,
            waits_for,
        })
    }
}

impl HealthCheck {
    pub fn new(check: &MachineHealthCheck, machines: &[Machine]) -> Self {
        let targets = machines
            .iter()
            .filter(|machine| selects(check, machine) && !is_skipped(machine));
        let targets: BTreeSet<String> = targets.map(|machine| machine.name().to_owned()).collect();
        let of_control_plane = u64::try_from(targets.len()).unwrap_or(u64::MAX);
        let all = check.status.expected_machines;
        Self {
            name: check.name().to_owned(),
            paused: check.is_paused(),
            targets,
            remediation_allowed: check.remediation_allowed(),
            trigger: RemediationTrigger::from_spec(check),
            other_targets: all.map(|all| all.saturating_sub(of_control_plane)),
            allows_one_more: would_remediate(check, 1),
            timeouts: check.spec.unhealthy_conditions.clone(),
            node_startup_timeout: check.spec.node_startup_timeout,
        }
    }

    /// Why the `MachineHealthCheck` does not remediate the first Machine that fails, and what to do. `replicas` is the number of
    /// Machines of the control plane. `None` if it remediates the Machine, or if this is unknown.
    pub fn ignores_first_failure(&self, replicas: u64) -> Option<(String, String)> {
        let all = self.other_targets.map(|others| others.saturating_add(replicas));
        self.trigger?.ignores_first_failure(all)
    }

    /// Whether the `MachineHealthCheck` acts once `machine remediate` has marked this Machine, which is one of its targets. If not,
    /// the command refuses to mark the Machine.
    pub fn acts_on(&self, machine: &Machine) -> bool {
        // The mark makes one more Machine unhealthy, unless this Machine is already unhealthy.
        let allowed = if machine.is_condition_true("HealthCheckSucceeded") {
            self.allows_one_more
        } else {
            self.remediation_allowed
        };
        !self.paused && allowed != Some(false)
    }

    /// When the `MachineHealthCheck` marks the Machine as unhealthy if no Node appears. `None` if it never does, and while the
    /// Cluster's infrastructure is not ready.
    ///
    /// Source: Cluster API v1.14, `needsRemediation`, `nodeChecks` and `shouldSkipRemediation`.
    pub fn node_startup_deadline(&self, machine: &Machine, cluster: &Cluster) -> Option<Timestamp> {
        let timeout = self.node_startup_timeout?;
        if machine.has_node() || is_skipped(machine) || !self.targets.contains(machine.name()) {
            return None;
        }
        let infrastructure = cluster.status.infrastructure_ready_since?;
        let ready = machine
            .condition("InfrastructureReady")
            .filter(|ready| ready.is_true());
        let start = [
            machine.creation_timestamp(),
            Some(infrastructure),
            cluster.status.initialized_since,
            ready.and_then(|ready| ready.last_transition_time),
        ];
        start.into_iter().flatten().max()?.checked_add(timeout).ok()
    }
}

/// The name of a Machine's controller in messages, such as `KubeadmControlPlane c2-cp`.
pub fn describe_owner(machine: &Machine) -> String {
    machine.controller().map_or_else(
        || "another owner".to_owned(),
        |owner| format!("{} {}", owner.kind, owner.name),
    )
}

/// The numbers of unhealthy Machines at which a `MachineHealthCheck` requests remediation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemediationTrigger {
    AtMost(u64),
    /// Remediate if at most this percentage of the selected Machines, rounded down, is unhealthy.
    AtMostPercent(u64),
    /// Remediate if the number of unhealthy Machines is between these two numbers, both included.
    Between(u64, u64),
}

impl RemediationTrigger {
    /// Returns the trigger in the spec. `None` if the spec does not have the documented form.
    pub fn from_spec(check: &MachineHealthCheck) -> Option<Self> {
        match (
            &check.spec.unhealthy_in_range,
            &check.spec.unhealthy_less_than_or_equal_to,
        ) {
            (Some(range), _) => Self::parse_range(range),
            (None, Some(most)) => Self::parse_limit(most),
            (None, None) => Some(Self::AtMostPercent(100)),
        }
    }

    fn parse_range(range: &str) -> Option<Self> {
        let (least, most) = range.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
        Some(Self::Between(least.parse().ok()?, most.parse().ok()?))
    }

    /// Parses a maximum: a number, or a percentage such as `40%`.
    fn parse_limit(most: &IntOrString) -> Option<Self> {
        match most {
            IntOrString::Int(number) => u64::try_from(*number).ok().map(Self::AtMost),
            IntOrString::String(text) => Some(Self::AtMostPercent(text.strip_suffix('%')?.parse().ok()?)),
        }
    }

    /// Why no Machine is remediated while only one of `all` selected Machines is unhealthy, and what to do. `all` is none if
    /// it is unknown. The controller rounds a percentage down (`getMaxUnhealthy`).
    pub fn ignores_first_failure(self, all: Option<u64>) -> Option<(String, String)> {
        const FIELD: &str = "unhealthyLessThanOrEqualTo (maxUnhealthy in v1beta1)";
        let never = "never remediates";
        match self {
            Self::AtMost(0) => Some((
                format!("{never}: its limit of unhealthy Machines is 0"),
                format!("set {FIELD} to 1 or more"),
            )),
            Self::AtMostPercent(percent) => {
                let all = all.filter(|all| *all > 0 && !self.allows(1, *all))?;
                let machines = if all == 1 { "Machine" } else { "Machines" };
                Some((
                    format!(
                        "{never}: its limit of unhealthy Machines is {percent}% of {all} {machines}, which Cluster API rounds \
                         down to 0"
                    ),
                    format!("set {FIELD} to {}% or more, or to 1", 100_u64.div_ceil(all)),
                ))
            }
            Self::Between(least, most) if least > 1 => Some((
                format!(
                    "does not remediate the first Machine that fails: it remediates only while {least} to {most} of its \
                     Machines are unhealthy"
                ),
                "let unhealthyInRange (unhealthyRange in v1beta1) begin with 1".to_owned(),
            )),
            Self::Between(_, 0) => Some((
                format!("{never}: unhealthyInRange ends with 0"),
                "let unhealthyInRange (unhealthyRange in v1beta1) end with 1 or more".to_owned(),
            )),
            Self::AtMost(_) | Self::Between(..) => None,
        }
    }

    fn allows(self, unhealthy: u64, all: u64) -> bool {
        match self {
            Self::AtMost(most) => unhealthy <= most,
            Self::AtMostPercent(percent) => unhealthy <= percent.saturating_mul(all) / 100,
            Self::Between(least, most) => (least..=most).contains(&unhealthy),
        }
    }
}

/// Whether no `MachineHealthCheck` checks the Machine (`shouldSkipRemediation`).
pub fn is_skipped(machine: &Machine) -> bool {
    machine.is_paused() || machine.annotation(annotation::SKIP_REMEDIATION).is_some()
}

/// Whether a `MachineHealthCheck` selects a Machine of its Cluster. As in Cluster API, an invalid selector selects no
/// Machine.
pub fn selects(check: &MachineHealthCheck, machine: &Machine) -> bool {
    let selector: Option<Selector> = check.spec.selector.clone().try_into().ok();
    let labels = machine.metadata().labels.clone().unwrap_or_default();
    selector.is_some_and(|selector| selector.matches(&labels))
}

/// Whether Cluster API calls an extension for objects of a namespace with these labels. An absent or empty selector
/// selects every namespace, an invalid selector none.
pub fn selects_namespace(config: &ExtensionConfig, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = config.spec.namespace_selector.clone() else {
        return true;
    };
    let selector: Option<Selector> = selector.try_into().ok();
    selector.is_some_and(|selector| selector.matches(labels))
}

/// Whether a `MachineHealthCheck` would remediate if `more` of its Machines became unhealthy. `None` if this is unknown.
pub fn would_remediate(check: &MachineHealthCheck, more: u64) -> Option<bool> {
    let status = &check.status;
    let Some((all, healthy)) = status.expected_machines.zip(status.current_healthy) else {
        return check.remediation_allowed();
    };
    let unhealthy = all.saturating_sub(healthy) + more;
    RemediationTrigger::from_spec(check).map(|trigger| trigger.allows(unhealthy, all))
}

#[cfg(test)]
mod tests {
    use kcp_api::{Machine, MachineHealthCheck, decode};
    use serde_json::{Value, json};

    use std::time::Duration;

    use super::{Deletion, HealthCheck, selects, selects_namespace, would_remediate};

    fn machine(object: &Value) -> Machine {
        decode(&object.to_string()).expect("a Machine")
    }

    #[test]
    fn a_health_check_skips_machines_by_their_annotations() {
        let named = |name: &str, annotations: Value| {
            machine(
                &json!({"metadata": {"name": name, "namespace": "d", "annotations": annotations}, "spec": {}}),
            )
        };
        let machines = [
            named("checked", json!({})),
            named("skipped", json!({"cluster.x-k8s.io/skip-remediation": ""})),
            named("paused", json!({"cluster.x-k8s.io/paused": "false"})),
        ];
        let check = json!({"metadata": {"name": "h"}, "spec": {"clusterName": "c1", "selector": {}}});
        let check: MachineHealthCheck = decode(&check.to_string()).expect("a MachineHealthCheck");
        let targets = HealthCheck::new(&check, &machines).targets;
        assert_eq!(targets, ["checked".to_owned()].into());
    }

    #[test]
    fn an_extension_is_called_for_the_namespaces_that_it_selects() {
        let labels = [("tier".to_owned(), "gold".to_owned())].into();
        for (selector, expected) in [
            (json!(null), true),
            (json!({}), true),
            (json!({"matchLabels": {"tier": "gold"}}), true),
            (json!({"matchLabels": {"tier": "silver"}}), false),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "Sometimes"}]}),
                false,
            ),
        ] {
            let config = json!({"metadata": {"name": "e"}, "spec": {"namespaceSelector": selector}});
            let config = decode(&config.to_string()).expect("an ExtensionConfig");
            assert_eq!(selects_namespace(&config, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn both_versions_of_a_machine_tell_what_its_deletion_waits_for() {
        let metadata = json!({
            "name": "m1", "deletionTimestamp": "2026-08-21T10:00:00Z",
            "finalizers": ["machine.cluster.x-k8s.io"],
            "annotations": {
                "a": "b",
                "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": "",
            },
        });
        let deleting = json!([{"type": "Deleting", "status": "True", "reason": "DrainingNode",
            "message": "Drain not completed yet:\n* Pods d/p: cannot evict"}]);
        let expected = Deletion {
            machine: "m1".to_owned(),
            started_at: "2026-08-21T10:00:00Z".parse().expect("a time"),
            waits_for: [
                "deletion hook pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup",
                "finalizer machine.cluster.x-k8s.io",
                "Drain not completed yet: Pods d/p: cannot evict",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        for status in [
            json!({"conditions": deleting}),
            json!({"conditions": [{"type": "Ready", "status": "False"}], "v1beta2": {"conditions": deleting}}),
        ] {
            let machine = machine(&json!({"metadata": metadata, "status": status}));
            assert_eq!(
                Deletion::from_machine(&machine),
                Some(expected.clone()),
                "{status}"
            );
            // Until another program has removed its hook, Cluster API's own steps also wait.
            let mut metadata = metadata.clone();
            let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
            metadata["annotations"][hook] = "".into();
            let held = super::tests::machine(&json!({"metadata": metadata, "status": status}));
            let waits_for = Deletion::from_machine(&held).map(|deletion| deletion.waits_for);
            assert_eq!(waits_for, Some(vec![format!("deletion hook {hook}")]), "{status}");
        }
    }

    #[test]
    fn a_machine_that_stays_waits_for_nothing() {
        let machine = machine(&json!({
            "metadata": {"name": "m1", "finalizers": ["machine.cluster.x-k8s.io"]},
            "status": {"conditions": [{"type": "Deleting", "status": "False", "reason": "NotDeleting"}]},
        }));
        assert_eq!(Deletion::from_machine(&machine), None);
    }

    fn health_check(object: Value) -> MachineHealthCheck {
        serde_json::from_value(object).expect("a MachineHealthCheck")
    }

    #[test]
    fn a_health_check_selects_as_its_controller_does() {
        let control_plane = "cluster.x-k8s.io/control-plane";
        let machine = json!({"metadata": {"name": "m1", "labels": {control_plane: "", "tier": "gold"}}});
        let machine: Machine = serde_json::from_value(machine).expect("a Machine");
        for (selector, selected) in [
            (json!({}), true),
            (json!({"matchLabels": {control_plane: ""}}), true),
            (
                json!({"matchLabels": {control_plane: "", "tier": "silver"}}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": control_plane, "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "Resembles"}]}),
                false,
            ),
        ] {
            let spec = json!({"clusterName": "c1", "selector": selector});
            let check = health_check(json!({"metadata": {"name": "h"}, "spec": spec}));
            assert_eq!(selects(&check, &machine), selected, "{selector}");
        }
    }

    /// The minute at which the health check marks a Machine, which was created at 12:10, if its limit is ten minutes.
    #[test]
    fn the_time_until_a_node_appears_begins_with_the_last_of_four_events() {
        let time = |minute: u32| format!("2026-11-28T12:{minute:02}:00Z");
        let condition = |kind: &str, status: &str, minute: u32| json!({"type": kind, "status": status, "lastTransitionTime": time(minute)});
        let ready = |status: &str, minute| condition("InfrastructureReady", status, minute);
        let initialized = |minute| condition("ControlPlaneInitialized", "True", minute);
        let none = || json!([]);
        let skipped = json!({"annotations": {"cluster.x-k8s.io/skip-remediation": ""}});
        let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
        let joined = json!({"nodeRef": {"name": "n1"}});
        for (cluster, conditions, metadata, status, expected) in [
            (json!([ready("True", 1)]), none(), json!({}), json!({}), Some(20)),
            (json!([ready("True", 12)]), none(), json!({}), json!({}), Some(22)),
            (
                json!([ready("True", 1), initialized(13)]),
                none(),
                json!({}),
                json!({}),
                Some(23),
            ),
            (
                json!([ready("True", 1)]),
                json!([ready("True", 14)]),
                json!({}),
                json!({}),
                Some(24),
            ),
            (
                json!([ready("True", 1)]),
                json!([ready("False", 14)]),
                json!({}),
                json!({}),
                Some(20),
            ),
            (json!([ready("False", 1)]), none(), json!({}), json!({}), None),
            (none(), none(), json!({}), json!({}), None),
            (json!([ready("True", 1)]), none(), skipped, json!({}), None),
            (json!([ready("True", 1)]), none(), paused, json!({}), None),
            (json!([ready("True", 1)]), none(), json!({}), joined, None),
        ] {
            let row = format!("{cluster} {conditions} {metadata} {status}");
            let mut object = json!({"metadata": metadata, "status": status});
            object["metadata"]["name"] = json!("m1");
            object["metadata"]["creationTimestamp"] = json!(time(10));
            object["status"]["conditions"] = conditions;
            let machine = machine(&object);
            let cluster = json!({"metadata": {"name": "c1"}, "status": {"conditions": cluster}});
            let cluster = decode(&cluster.to_string()).expect("a Cluster");
            let check = HealthCheck {
                targets: ["m1".to_owned()].into(),
                node_startup_timeout: Some(Duration::from_secs(600)),
                ..HealthCheck::default()
            };
            let expected = expected.map(|minute| time(minute).parse().expect("a time"));
            assert_eq!(check.node_startup_deadline(&machine, &cluster), expected, "{row}");
        }
    }

    #[test]
    fn before_it_has_counted_its_condition_counts() {
        for (status, allowed) in [("True", Some(true)), ("False", Some(false)), ("Unknown", None)] {
            let conditions = json!([{"type": "RemediationAllowed", "status": status}]);
            let object = json!({"metadata": {"name": "h"}, "status": {"conditions": conditions}});
            assert_eq!(would_remediate(&health_check(object), 1), allowed, "{status}");
        }
    }

    /// The limit, the number of selected Machines, and the beginning of the message.
    #[test]
    fn a_limit_may_leave_the_first_failure_alone() {
        use super::RemediationTrigger::{AtMost, AtMostPercent, Between};
        let rounded = "never remediates: its limit of unhealthy Machines is";
        let later = "does not remediate the first Machine that fails";
        for (trigger, all, message, remedy) in [
            (AtMostPercent(33), Some(3), rounded, "34% or more"),
            (AtMostPercent(34), Some(3), "", ""),
            (AtMostPercent(19), Some(5), rounded, "20% or more"),
            (AtMostPercent(20), Some(5), "", ""),
            (AtMostPercent(40), Some(1), rounded, "100% or more"),
            (AtMostPercent(100), Some(1), "", ""),
            (AtMostPercent(0), Some(7), rounded, "15% or more"),
            // The selector also matches workers, and the status does not count them.
            (AtMostPercent(33), None, "", ""),
            (AtMostPercent(33), Some(0), "", ""),
            (AtMost(0), None, rounded, "to 1 or more"),
            (AtMost(1), None, "", ""),
            (Between(2, 5), None, later, "begin with 1"),
            (
                Between(0, 0),
                None,
                "never remediates: unhealthyInRange",
                "end with 1",
            ),
            (Between(1, 1), Some(3), "", ""),
            (Between(0, 2), Some(3), "", ""),
        ] {
            let (why, hint) = trigger.ignores_first_failure(all).unwrap_or_default();
            assert!(
                why.starts_with(message) && hint.contains(remedy),
                "{trigger:?} {all:?}: {why}; {hint}"
            );
            assert_eq!(why.is_empty(), message.is_empty(), "{trigger:?} {all:?}: {why}");
        }
    }

    #[test]
    fn it_starts_nothing_where_too_many_are_unhealthy() {
        let later = |trigger: Value| json!({"remediation": {"triggerIf": trigger}});
        for (spec, healthy, more, expected) in [
            // All of them may be.
            (json!({}), 3, 1, Some(true)),
            (json!({}), 0, 0, Some(true)),
            (later(json!({"unhealthyLessThanOrEqualTo": 1})), 3, 1, Some(true)),
            (later(json!({"unhealthyLessThanOrEqualTo": 1})), 2, 1, Some(false)),
            (later(json!({"unhealthyLessThanOrEqualTo": 1})), 2, 0, Some(true)),
            // Rounded down: none of three.
            (
                later(json!({"unhealthyLessThanOrEqualTo": "33%"})),
                3,
                1,
                Some(false),
            ),
            (
                later(json!({"unhealthyLessThanOrEqualTo": "34%"})),
                3,
                1,
                Some(true),
            ),
            (later(json!({"unhealthyInRange": "[2-3]"})), 3, 1, Some(false)),
            (later(json!({"unhealthyInRange": "[2-3]"})), 2, 1, Some(true)),
            (json!({"maxUnhealthy": 0}), 3, 1, Some(false)),
            (json!({"maxUnhealthy": "100%"}), 0, 0, Some(true)),
            (
                json!({"maxUnhealthy": 0, "unhealthyRange": "[1-1]"}),
                3,
                1,
                Some(true),
            ),
            (json!({"maxUnhealthy": "few"}), 3, 1, None),
            (json!({"unhealthyRange": "1-3"}), 3, 1, None),
        ] {
            let status = json!({"expectedMachines": 3, "currentHealthy": healthy});
            let object = json!({"metadata": {"name": "h"}, "spec": spec, "status": status});
            assert_eq!(
                would_remediate(&health_check(object), more),
                expected,
                "{spec} {healthy} {more}"
            );
        }
    }
}
