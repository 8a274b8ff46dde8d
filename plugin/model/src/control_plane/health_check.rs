//! A `MachineHealthCheck`: which Machines it looks after, and whether it has them replaced.
//!
//! As its controller in Cluster API v1.14 decides (`core/reconcilers/machinehealthcheck`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;
use serde_json::Value;

use crate::control_plane::{Condition, PAUSED_ANNOTATION, find};

/// A `MachineHealthCheck`, before it is held against Machines.
#[derive(Debug, Deserialize)]
#[serde(from = "WireHealthCheck")]
pub struct MachineHealthCheck {
    pub namespace: String,
    pub cluster: String,
    pub name: String,
    pub paused: bool,
    /// Whether it may start remediations now; none where it does not say.
    pub remediation_allowed: Option<bool>,
    /// The kind of object that it has Machines remediated by; none where their owner is to do that.
    pub external: Option<String>,
    /// How many of its Machines may be unhealthy; none where that cannot be understood.
    trigger: Option<Trigger>,
    /// Its Machines, and those of them that are healthy; none before its controller has counted.
    counts: Option<(u64, u64)>,
    /// None where it cannot be understood: it selects nothing then, as for its controller.
    selector: Option<Selector>,
}

/// How many Machines may be unhealthy for any to be remediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    AtMost(u64),
    /// Percent of all, rounded down.
    AtMostPercent(u64),
    /// Both ends among them.
    Between(u64, u64),
}

#[derive(Deserialize)]
struct WireHealthCheck {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    cluster_name: String,
    #[serde(default)]
    selector: LabelSelector,
    // v1beta2
    remediation: Option<Remediation>,
    // v1beta1
    max_unhealthy: Option<Value>,
    unhealthy_range: Option<String>,
    remediation_template: Option<Template>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remediation {
    trigger_if: Option<TriggerIf>,
    template_ref: Option<Template>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TriggerIf {
    unhealthy_less_than_or_equal_to: Option<Value>,
    unhealthy_in_range: Option<String>,
}

#[derive(Deserialize)]
struct Template {
    #[serde(default)]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    conditions: Option<Vec<Condition>>,
    expected_machines: Option<u64>,
    current_healthy: Option<u64>,
    /// v1beta1.
    v1beta2: Option<Later>,
}

/// What an object served as v1beta1 already has of v1beta2.
#[derive(Deserialize)]
struct Later {
    conditions: Option<Vec<Condition>>,
}

impl From<WireHealthCheck> for MachineHealthCheck {
    fn from(
        WireHealthCheck {
            metadata,
            spec,
            status,
        }: WireHealthCheck,
    ) -> Self {
        let later = status.v1beta2.and_then(|later| later.conditions);
        let conditions = later.or(status.conditions).unwrap_or_default();
        let allowed = find(&conditions, "RemediationAllowed");
        let remediation = spec.remediation.unwrap_or_default();
        let trigger = remediation.trigger_if.unwrap_or_default();
        let range = trigger.unhealthy_in_range.or(spec.unhealthy_range);
        let at_most = trigger.unhealthy_less_than_or_equal_to.or(spec.max_unhealthy);
        Self {
            paused: metadata.annotations.contains_key(PAUSED_ANNOTATION),
            namespace: metadata.namespace,
            name: metadata.name,
            cluster: spec.cluster_name,
            remediation_allowed: allowed.and_then(|condition| {
                match (condition.is_true(), condition.is_false()) {
                    (false, false) => None,
                    (is_true, _) => Some(is_true),
                }
            }),
            external: remediation
                .template_ref
                .or(spec.remediation_template)
                .map(|template| template.kind),
            trigger: match range.filter(|range| !range.is_empty()) {
                Some(range) => Trigger::of_range(&range),
                None => at_most.map_or(Some(Trigger::AtMostPercent(100)), |most| Trigger::of_most(&most)),
            },
            counts: status.expected_machines.zip(status.current_healthy),
            selector: spec.selector.try_into().ok(),
        }
    }
}

impl Trigger {
    /// `[1-3]`
    fn of_range(range: &str) -> Option<Self> {
        let (least, most) = range.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
        Some(Self::Between(least.parse().ok()?, most.parse().ok()?))
    }

    /// A number, or `40%`.
    fn of_most(most: &Value) -> Option<Self> {
        match most {
            Value::Number(number) => number.as_u64().map(Self::AtMost),
            Value::String(text) => Some(Self::AtMostPercent(text.strip_suffix('%')?.parse().ok()?)),
            _ => None,
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

impl MachineHealthCheck {
    /// Whether it looks after a Machine of its Cluster with such labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .as_ref()
            .is_some_and(|selector| selector.matches(labels))
    }

    /// Whether it would start remediations were so many more of its Machines unhealthy; none where that is not known.
    pub fn would_allow(&self, more: u64) -> Option<bool> {
        let Some((all, healthy)) = self.counts else {
            return self.remediation_allowed;
        };
        let unhealthy = all.saturating_sub(healthy) + more;
        self.trigger.map(|trigger| trigger.allows(unhealthy, all))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::MachineHealthCheck;

    fn health_check(object: Value) -> MachineHealthCheck {
        serde_json::from_value(object).expect("a MachineHealthCheck")
    }

    #[test]
    fn both_versions_of_a_health_check_say_the_same() {
        let metadata = json!({"name": "h", "annotations": {"cluster.x-k8s.io/paused": ""}});
        let spec = json!({"clusterName": "c1", "selector": {}});
        let of = |status: Value| health_check(json!({"metadata": metadata, "spec": spec, "status": status}));
        for (status, allowed) in [("True", Some(true)), ("False", Some(false)), ("Unknown", None)] {
            let conditions = json!([{"type": "RemediationAllowed", "status": status}]);
            for status in [
                json!({"conditions": conditions}),
                json!({"conditions": [], "v1beta2": {"conditions": conditions}}),
            ] {
                let check = of(status.clone());
                assert_eq!(check.remediation_allowed, allowed, "{status}");
                // It has not counted yet.
                assert_eq!(check.would_allow(1), allowed, "{status}");
            }
        }
        let silent = of(json!({}));
        assert_eq!((silent.remediation_allowed, silent.paused), (None, true));

        let metadata = json!({"name": "h"});
        let template = json!({"kind": "RebootTemplate", "name": "r"});
        for spec in [
            json!({"remediation": {"templateRef": template}}),
            json!({"remediationTemplate": template}),
        ] {
            let check = health_check(json!({"metadata": metadata, "spec": spec}));
            assert_eq!(check.external.as_deref(), Some("RebootTemplate"), "{spec}");
        }
    }

    #[test]
    fn a_health_check_selects_as_its_controller_does() {
        let control_plane = "cluster.x-k8s.io/control-plane";
        let labels: BTreeMap<String, String> = [(control_plane, ""), ("tier", "gold")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
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
            assert_eq!(check.selects(&labels), selected, "{selector}");
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
                health_check(object).would_allow(more),
                expected,
                "{spec} {healthy} {more}"
            );
        }
    }
}
