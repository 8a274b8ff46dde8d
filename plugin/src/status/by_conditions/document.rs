//! The JSON of `status`: `kubectl-kcp.dev/v1alpha1`.

use jiff::Timestamp;
use serde::Serialize;

use crate::status::{
    finding::Finding,
    health::{Assessment, Health},
};
use crate::{
    control_plane::{Condition, Machine, Snapshot},
    document::API_VERSION,
};

/// Several control planes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatusList {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<ControlPlaneStatus>,
}

/// One control plane.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectName,
    /// The Cluster it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    desired: Desired,
    observed: Observed,
    machines: Vec<MachineStatus>,
    conditions: Vec<Condition>,
    verdict: Health,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct ObjectName {
    name: String,
    namespace: String,
}

/// What the spec asks for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Desired {
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_after: Option<Timestamp>,
}

/// What the controller has reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    replicas: i64,
    ready_replicas: i64,
    available_replicas: i64,
    up_to_date_replicas: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    initialized: bool,
    paused: bool,
    /// Whether the report is about the spec as it stands.
    current: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// Null while no controller has said.
    ready: Option<bool>,
    /// Null while no controller has said.
    up_to_date: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    conditions: Vec<Condition>,
}

impl ControlPlaneStatusList {
    /// The document of several.
    pub fn of(assessed: &[(Snapshot, Assessment)]) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "ControlPlaneStatusList",
            items: assessed
                .iter()
                .map(|(snapshot, assessment)| ControlPlaneStatus::of(snapshot, assessment))
                .collect(),
        }
    }
}

impl ControlPlaneStatus {
    /// The document of one.
    pub fn of(
        Snapshot {
            control_plane,
            machines,
        }: &Snapshot,
        assessment: &Assessment,
    ) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "ControlPlaneStatus",
            metadata: ObjectName {
                name: control_plane.name.clone(),
                namespace: control_plane.namespace.clone(),
            },
            cluster: control_plane.cluster.clone(),
            desired: Desired {
                replicas: control_plane.desired_replicas,
                version: control_plane.desired_version.clone(),
                rollout_after: control_plane.rollout_after,
            },
            observed: Observed {
                replicas: control_plane.replicas,
                ready_replicas: control_plane.ready_replicas,
                available_replicas: control_plane.available_replicas,
                up_to_date_replicas: control_plane.up_to_date_replicas,
                version: control_plane.version.clone(),
                initialized: control_plane.initialized,
                paused: control_plane.paused || control_plane.is("Paused"),
                current: control_plane.is_observed(),
            },
            machines: machines.iter().map(MachineStatus::of).collect(),
            conditions: control_plane.conditions.clone(),
            verdict: assessment.health,
            findings: assessment.findings.clone(),
        }
    }
}

impl MachineStatus {
    fn of(machine: &Machine) -> Self {
        Self {
            name: machine.name.clone(),
            node: machine.node.clone(),
            version: machine.version.clone(),
            failure_domain: machine.failure_domain.clone(),
            phase: machine.phase.clone(),
            ready: machine.ready(),
            up_to_date: machine.up_to_date(),
            creation_timestamp: machine.created,
            deletion_timestamp: machine.deleting_since,
            conditions: machine.conditions.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlPlaneStatus, ControlPlaneStatusList};
    use crate::status::{by_conditions::screen::tests::mid_rollout, health::assess};

    #[test]
    fn one_control_plane() {
        let (snapshot, now) = mid_rollout();
        let document = ControlPlaneStatus::of(&snapshot, &assess(&snapshot, now));
        insta::assert_snapshot!(serde_json::to_string_pretty(&document).expect("serializes"));
    }

    #[test]
    fn no_control_plane_is_an_empty_list() {
        let document = serde_json::to_string(&ControlPlaneStatusList::of(&[])).expect("serializes");
        assert_eq!(
            document,
            r#"{"apiVersion":"kubectl-kcp.dev/v1alpha1","kind":"ControlPlaneStatusList","items":[]}"#
        );
    }
}
