//! What the management cluster says.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_api::{Cluster, Condition, Machine, MachineHealthCheck, Object as _};

use crate::{
    control_plane::health_check::selects,
    plan::observed as plan,
    snapshot::{Failure, Reading},
};

/// The management cluster, as far as it is about one control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Management {
    /// The control plane, its spec, its Machines with their configuration and infrastructure, and its Cluster. Etcd's
    /// members in it are those of the survey, if there is one.
    pub control_plane: plan::Observed,
    /// Why its Cluster could not be read.
    pub cluster_failure: Option<Failure>,
    /// Machines of the Cluster's control plane that nothing owns: to be adopted, or left behind.
    pub unowned: Vec<String>,
    /// The Machines that wait for a deletion hook or a finalizer, and what for.
    pub deletions: Vec<Deletion>,
    /// `MachineHealthChecks` of the Cluster.
    pub health_checks: Reading<Vec<HealthCheck>>,
    /// Names of the Cluster's Secrets that are there, of those that are looked for. Where one could not be read and
    /// others could, it is in `unread`.
    pub secrets: Reading<BTreeSet<String>>,
    /// What else could not be read: Machines, infrastructure, bootstrap configurations, single Secrets, or, when it was
    /// listed before, the control plane itself.
    pub unread: Vec<Failure>,
}

impl Management {
    pub fn cluster(&self) -> Reading<&Cluster> {
        match (&self.control_plane.cluster, &self.cluster_failure) {
            (Some(cluster), _) => Reading::Read(cluster),
            (None, Some(failure)) => Reading::Failed(failure.clone()),
            (None, None) => Reading::NotYet,
        }
    }
}

/// A Machine that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub machine: String,
    /// Since when.
    pub since: Timestamp,
    /// Deletion hooks, finalizers and what the condition `Deleting` says, one line each.
    pub waits_for: Vec<String>,
}

/// A `MachineHealthCheck`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    pub name: String,
    pub paused: bool,
    /// The Machines of the control plane that its selector matches.
    pub targets: BTreeSet<String>,
    /// Whether it may start remediations now; none where it does not say.
    pub remediation_allowed: Option<bool>,
}

impl Deletion {
    /// None for a Machine that is not being deleted.
    pub fn of(machine: &Machine) -> Option<Self> {
        let since = machine.deletion_timestamp()?;
        let condition = machine
            .condition("Deleting")
            .filter(|condition| condition.is_true());
        let waits_for = machine
            .deletion_hooks()
            .map(|hook| format!("deletion hook {hook}"))
            .chain(
                machine
                    .finalizers()
                    .iter()
                    .map(|name| format!("finalizer {name}")),
            )
            .chain(condition.map(Condition::one_line));
        Some(Self {
            machine: machine.name().to_owned(),
            since,
            waits_for: waits_for.collect(),
        })
    }
}

impl HealthCheck {
    /// A `MachineHealthCheck` of the Cluster, and those of the control plane's Machines that it selects.
    pub fn of(check: &MachineHealthCheck, machines: &[Machine]) -> Self {
        let targets = machines.iter().filter(|machine| selects(check, machine));
        Self {
            name: check.name().to_owned(),
            paused: check.is_paused(),
            targets: targets.map(|machine| machine.name().to_owned()).collect(),
            remediation_allowed: check.remediation_allowed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{Machine, decode};
    use serde_json::{Value, json};

    use super::Deletion;

    fn machine(object: &Value) -> Machine {
        decode(&object.to_string()).expect("a Machine")
    }

    #[test]
    fn both_versions_of_a_machine_tell_what_its_deletion_waits_for() {
        let metadata = json!({
            "name": "m1", "deletionTimestamp": "2026-08-21T10:00:00Z",
            "finalizers": ["machine.cluster.x-k8s.io"],
            "annotations": {
                "a": "b",
                "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "",
                "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup": "",
            },
        });
        let deleting = json!([{"type": "Deleting", "status": "True", "reason": "DrainingNode",
            "message": "Drain not completed yet:\n* Pods d/p: cannot evict"}]);
        let expected = Deletion {
            machine: "m1".to_owned(),
            since: "2026-08-21T10:00:00Z".parse().expect("a time"),
            waits_for: [
                "deletion hook pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
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
            assert_eq!(Deletion::of(&machine), Some(expected.clone()), "{status}");
        }
    }

    #[test]
    fn a_machine_that_stays_waits_for_nothing() {
        let machine = machine(&json!({
            "metadata": {"name": "m1", "finalizers": ["machine.cluster.x-k8s.io"]},
            "status": {"conditions": [{"type": "Deleting", "status": "False", "reason": "NotDeleting"}]},
        }));
        assert_eq!(Deletion::of(&machine), None);
    }
}
