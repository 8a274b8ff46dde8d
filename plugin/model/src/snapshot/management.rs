//! The deletions of Machines, and the `MachineHealthChecks` that select Machines.
//!
//! Selectors and limits of a `MachineHealthCheck` are evaluated as in Cluster API v1.14
//! (`core/reconcilers/machinehealthcheck`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kcp_api::{
    Condition, ExtensionConfig, Machine, MachineHealthCheck, Object as _,
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
    /// The names of the control plane's Machines that the selector matches, except those with an annotation for which Cluster API
    /// skips the Machine.
    pub targets: BTreeSet<String>,
    /// Whether the number of unhealthy Machines permits remediation now. None if the status does not say.
    pub remediation_allowed: Option<bool>,
    /// How long a condition may have a given status before the `MachineHealthCheck` marks the Machine as
    /// unhealthy.
    pub timeouts: Vec<UnhealthyCondition>,
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
        Self {
            name: check.name().to_owned(),
            paused: check.is_paused(),
            targets: targets.map(|machine| machine.name().to_owned()).collect(),
            remediation_allowed: check.remediation_allowed(),
            timeouts: check.spec.unhealthy_conditions.clone(),
        }
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
enum RemediationTrigger {
    AtMost(u64),
    /// Remediate if at most this percentage of the selected Machines, rounded down, is unhealthy.
    AtMostPercent(u64),
    /// Remediate if the number of unhealthy Machines is between these two numbers, both included.
    Between(u64, u64),
}

impl RemediationTrigger {
    /// Returns the trigger in the spec. None if the spec does not have the documented form.
    fn from_spec(check: &MachineHealthCheck) -> Option<Self> {
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

/// Whether a `MachineHealthCheck` would remediate if `more` of its Machines became unhealthy. None if this is unknown.
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

    #[test]
    fn before_it_has_counted_its_condition_counts() {
        for (status, allowed) in [("True", Some(true)), ("False", Some(false)), ("Unknown", None)] {
            let conditions = json!([{"type": "RemediationAllowed", "status": status}]);
            let object = json!({"metadata": {"name": "h"}, "status": {"conditions": conditions}});
            assert_eq!(would_remediate(&health_check(object), 1), allowed, "{status}");
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
