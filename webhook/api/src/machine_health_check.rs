//! Decodes `MachineHealthCheck` from v1beta1 and v1beta2 of Cluster API.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, ObjectMeta},
    util::intstr::IntOrString,
};
use serde::Deserialize;

use crate::{
    Condition, ConditionStatus, Reference,
    condition::{self, V1Beta2Status},
    decode::null_as_default,
    metadata,
    syntax::parse_go_duration,
};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct MachineHealthCheck {
    pub metadata: ObjectMeta,
    pub spec: MachineHealthCheckSpec,
    pub status: MachineHealthCheckStatus,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineHealthCheckSpec {
    pub cluster_name: String,
    pub selector: LabelSelector,
    /// `spec.remediation.triggerIf.unhealthyLessThanOrEqualTo` (`maxUnhealthy` in v1beta1): remediation is allowed
    /// while at most this number or percentage of the selected Machines is unhealthy.
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// `spec.remediation.triggerIf.unhealthyInRange` (`unhealthyRange` in v1beta1): an inclusive range such as `[1-3]`,
    /// which overrides `unhealthyLessThanOrEqualTo`. Never empty.
    pub unhealthy_in_range: Option<String>,
    /// The condition statuses that make a Machine count as unhealthy. Entries with an invalid timeout are
    /// left out.
    pub unhealthy_conditions: Vec<UnhealthyCondition>,
    /// `spec.checks.nodeStartupTimeoutSeconds` (`spec.nodeStartupTimeout` in v1beta1): a Machine that has no Node after this time
    /// counts as unhealthy. Ten minutes if the field is unset, as in Cluster API; `None` if the field is zero, which means no
    /// limit.
    pub node_startup_timeout: Option<Duration>,
    /// `spec.remediation.templateRef`: the external remediation template. `None` if the Machine's owner remediates the Machine.
    pub template_ref: Option<Reference>,
}

/// Source: Cluster API v1.14, `DefaultNodeStartupTimeoutSeconds`.
const DEFAULT_NODE_STARTUP_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// A Machine counts as unhealthy if a condition has had this status for this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyCondition {
    /// Whether this is a condition of the Machine's node. If not, it is a condition of the Machine itself.
    pub is_node_condition: bool,
    pub type_: String,
    pub status: ConditionStatus,
    pub timeout: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineHealthCheckStatus {
    /// How many Machines the selector matches. `None` until the controller has reported it.
    pub expected_machines: Option<u64>,
    pub current_healthy: Option<u64>,
    pub conditions: Vec<Condition>,
}

impl MachineHealthCheck {
    /// Whether the condition `RemediationAllowed` is True. `None` if the condition is absent or Unknown.
    pub fn remediation_allowed(&self) -> Option<bool> {
        let allowed = condition::find(&self.status.conditions, "RemediationAllowed")?;
        (allowed.is_true() || allowed.is_false()).then(|| allowed.is_true())
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(deserialize_with = "metadata::without_managed_fields")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "null_as_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    cluster_name: String,
    #[serde(default)]
    selector: LabelSelector,
    // v1beta2
    remediation: Option<WireRemediation>,
    checks: Option<WireChecks>,
    // v1beta1
    unhealthy_conditions: Option<Vec<WireCondition>>,
    unhealthy_machine_conditions: Option<Vec<WireCondition>>,
    max_unhealthy: Option<IntOrString>,
    unhealthy_range: Option<String>,
    node_startup_timeout: Option<String>,
    remediation_template: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireChecks {
    unhealthy_node_conditions: Option<Vec<WireCondition>>,
    unhealthy_machine_conditions: Option<Vec<WireCondition>>,
    node_startup_timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    r#type: String,
    status: ConditionStatus,
    // v1beta2
    timeout_seconds: Option<u64>,
    // v1beta1
    timeout: Option<String>,
}

impl WireCondition {
    fn decode(self, is_of_node: bool) -> Option<UnhealthyCondition> {
        let timeout = match (self.timeout_seconds, &self.timeout) {
            (Some(seconds), _) => Duration::from_secs(seconds),
            (None, Some(text)) => parse_go_duration(text)?,
            (None, None) => Duration::ZERO,
        };
        Some(UnhealthyCondition {
            is_node_condition: is_of_node,
            type_: self.r#type,
            status: self.status,
            timeout,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRemediation {
    trigger_if: Option<WireTrigger>,
    template_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTrigger {
    unhealthy_less_than_or_equal_to: Option<IntOrString>,
    unhealthy_in_range: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    conditions: Option<Vec<Condition>>,
    expected_machines: Option<u64>,
    current_healthy: Option<u64>,
    v1beta2: Option<V1Beta2Status>,
}

impl From<Wire> for MachineHealthCheck {
    fn from(wire: Wire) -> Self {
        let Wire {
            metadata,
            spec,
            status,
        } = wire;
        let remediation = spec.remediation.unwrap_or_default();
        let trigger = remediation.trigger_if.unwrap_or_default();
        let checks = spec.checks.unwrap_or_default();
        let startup = checks.node_startup_timeout_seconds.map(Duration::from_secs);
        let startup = startup.or_else(|| parse_go_duration(spec.node_startup_timeout.as_deref()?));
        let of_nodes = checks.unhealthy_node_conditions.or(spec.unhealthy_conditions);
        let of_machines = checks
            .unhealthy_machine_conditions
            .or(spec.unhealthy_machine_conditions);
        let of_nodes = of_nodes.into_iter().flatten().map(|entry| (entry, true));
        let of_machines = of_machines.into_iter().flatten().map(|entry| (entry, false));
        let unhealthy_conditions = of_nodes
            .chain(of_machines)
            .filter_map(|(condition, is_of_node)| condition.decode(is_of_node))
            .collect();
        let range = trigger.unhealthy_in_range.or(spec.unhealthy_range);
        Self {
            metadata,
            spec: MachineHealthCheckSpec {
                cluster_name: spec.cluster_name,
                selector: spec.selector,
                unhealthy_less_than_or_equal_to: trigger
                    .unhealthy_less_than_or_equal_to
                    .or(spec.max_unhealthy),
                unhealthy_in_range: range.filter(|range| !range.is_empty()),
                unhealthy_conditions,
                node_startup_timeout: Some(startup.unwrap_or(DEFAULT_NODE_STARTUP_TIMEOUT))
                    .filter(|timeout| !timeout.is_zero()),
                template_ref: remediation.template_ref.or(spec.remediation_template),
            },
            status: MachineHealthCheckStatus {
                expected_machines: status.expected_machines,
                current_healthy: status.current_healthy,
                conditions: condition::conditions_of(status.conditions, status.v1beta2),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use serde_json::{Value, json};

    use std::time::Duration;

    use super::{MachineHealthCheck, UnhealthyCondition};
    use crate::{ConditionStatus, decode, metadata::Object as _};

    fn health_check(object: &Value) -> MachineHealthCheck {
        decode(&object.to_string()).expect("decodes")
    }

    #[test]
    fn both_versions_decode_to_the_same() {
        let metadata = json!({"name": "h", "namespace": "d", "annotations": {"cluster.x-k8s.io/paused": ""}});
        let selector = json!({"matchLabels": {"cluster.x-k8s.io/control-plane": ""}});
        let conditions = json!([{"type": "RemediationAllowed", "status": "True"}]);
        let v1beta2 = health_check(&json!({"metadata": metadata,
            "spec": {"clusterName": "c1", "selector": selector,
                "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}],
                    "unhealthyMachineConditions": [{"type": "EtcdMemberHealthy", "status": "False", "timeoutSeconds": 60}]},
                "remediation": {
                "triggerIf": {"unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-3]"},
                "templateRef": {"apiVersion": "g/v1", "kind": "RebootTemplate", "name": "r"}}},
            "status": {"expectedMachines": 3, "currentHealthy": 2, "conditions": conditions}}));
        let v1beta1 = health_check(&json!({"metadata": metadata,
            "spec": {"clusterName": "c1", "selector": selector, "maxUnhealthy": "40%", "unhealthyRange": "[1-3]",
                "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "5m0s"}],
                "unhealthyMachineConditions": [{"type": "EtcdMemberHealthy", "status": "False", "timeout": "1m"}],
                "remediationTemplate": {"apiVersion": "g/v1", "kind": "RebootTemplate", "name": "r"}},
            "status": {"expectedMachines": 3, "currentHealthy": 2, "conditions": [], "v1beta2": {"conditions": conditions}}}));
        assert_eq!(v1beta2, v1beta1);
        let unhealthy = |is_of_node, type_: &str, status, seconds| UnhealthyCondition {
            is_node_condition: is_of_node,
            type_: type_.to_owned(),
            status,
            timeout: Duration::from_secs(seconds),
        };
        assert_eq!(
            v1beta2.spec.unhealthy_conditions,
            [
                unhealthy(true, "Ready", ConditionStatus::Unknown, 300),
                unhealthy(false, "EtcdMemberHealthy", ConditionStatus::False, 60),
            ]
        );

        assert!(v1beta2.is_paused());
        assert_eq!(v1beta2.remediation_allowed(), Some(true));
        let percent = IntOrString::String("40%".to_owned());
        assert_eq!(v1beta2.spec.unhealthy_less_than_or_equal_to, Some(percent));
        let template = v1beta2.spec.template_ref.map(|template| template.kind);
        assert_eq!(template.as_deref(), Some("RebootTemplate"));
    }

    #[test]
    fn the_startup_timeout_has_a_default_and_zero_means_no_limit() {
        for (spec, seconds) in [
            (json!({}), Some(600)),
            (json!({"checks": {}}), Some(600)),
            (json!({"checks": {"nodeStartupTimeoutSeconds": 30}}), Some(30)),
            (json!({"checks": {"nodeStartupTimeoutSeconds": 0}}), None),
            (json!({"nodeStartupTimeout": "20m0s"}), Some(1200)),
            (json!({"nodeStartupTimeout": "0s"}), None),
        ] {
            let check = health_check(&json!({"metadata": {"name": "h"}, "spec": &spec}));
            let timeout = check.spec.node_startup_timeout;
            assert_eq!(timeout, seconds.map(Duration::from_secs), "{spec}");
        }
    }

    #[test]
    fn a_health_check_without_status_decodes() {
        for (spec, limit) in [
            (json!({"clusterName": "c1", "selector": {}}), None),
            (
                json!({"clusterName": "c1", "selector": {}, "maxUnhealthy": 0, "unhealthyRange": ""}),
                Some(0),
            ),
        ] {
            let check = health_check(&json!({"metadata": {"name": "h"}, "spec": spec}));
            assert_eq!((check.remediation_allowed(), check.is_paused()), (None, false));
            assert_eq!(
                check.spec.unhealthy_less_than_or_equal_to,
                limit.map(IntOrString::Int)
            );
            assert_eq!(
                (check.spec.unhealthy_in_range, check.status.expected_machines),
                (None, None)
            );
        }
    }

    #[test]
    fn what_its_condition_leaves_open_is_none() {
        for (status, allowed) in [("True", Some(true)), ("False", Some(false)), ("Unknown", None)] {
            let conditions = json!([{"type": "RemediationAllowed", "status": status}]);
            let check =
                health_check(&json!({"metadata": {"name": "h"}, "status": {"conditions": conditions}}));
            assert_eq!(check.remediation_allowed(), allowed, "{status}");
        }
    }
}
