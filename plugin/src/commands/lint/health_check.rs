//! Checks a `MachineHealthCheck` beside the control plane that is in the same files. No admission rule reviews this kind.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use kcp_api::{Cluster, KubeadmControlPlane, Machine, MachineHealthCheck, Object as _, names::label};
use kcp_control_plane::snapshot::management::{RemediationTrigger, selects};
use serde_json::{Value, json};

use crate::commands::lint::{
    finding::{Fault, LintRule},
    object::Object,
    subject::{LintRole, Subject},
};

/// The fields of both API versions that limit the remediation. If several are set, the first one in this list wins.
const LIMITS: [&str; 4] = [
    "spec.remediation.triggerIf.unhealthyInRange",
    "spec.unhealthyRange",
    "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo",
    "spec.maxUnhealthy",
];

/// Where a topology has the health check of its control plane: in v1beta2 and v1beta1, with the field that turns it off.
const IN_TOPOLOGY: [(&str, &str); 2] = [("healthCheck", "enabled"), ("machineHealthCheck", "enable")];

/// What the files say about the Machines of one control plane.
#[derive(Clone, Debug)]
struct DeclaredMachines {
    /// The Cluster of the control plane. `None` if no file says which Cluster it is.
    cluster: Option<String>,
    replicas: u64,
    /// The labels that Cluster API sets on each Machine of the control plane, apart from the name of the Cluster.
    labels: BTreeMap<String, String>,
}

/// The control planes in files, by namespace.
#[derive(Debug, Default)]
pub(super) struct ControlPlanes(HashMap<String, Vec<DeclaredMachines>>);

impl ControlPlanes {
    pub(super) fn new(objects: &[Object], namespace: &str) -> Self {
        let clusters: Vec<(&str, Cluster)> = objects
            .iter()
            .filter(|object| object.role == LintRole::Subject(Subject::Cluster))
            .filter_map(|object| {
                let cluster = serde_json::from_str(&object.text).ok()?;
                Some((object.namespace_or(namespace), cluster))
            })
            .collect();
        let mut found = Self::default();
        for object in objects {
            let Some(mut machines) = DeclaredMachines::new(object) else {
                continue;
            };
            let namespace = object.namespace_or(namespace);
            let mut clusters = clusters.iter().filter(|(other, _)| *other == namespace);
            let named = clusters.find(|(_, cluster)| cluster.control_plane() == object.name.name.as_deref());
            if let (None, Some((_, cluster))) = (&machines.cluster, named) {
                machines.cluster = Some(cluster.name().to_owned());
            }
            found.0.entry(namespace.to_owned()).or_default().push(machines);
        }
        found
    }

    /// The control plane of a Cluster. If the files do not name the Cluster of a control plane, the only control plane of the
    /// namespace counts.
    fn of_cluster(&self, namespace: &str, cluster: &str) -> Option<&DeclaredMachines> {
        let declared = self.0.get(namespace)?;
        let own = declared
            .iter()
            .find(|machines| machines.cluster.as_deref() == Some(cluster));
        own.or(match declared.as_slice() {
            [only] if only.cluster.is_none() => Some(only),
            _ => None,
        })
    }

    /// The problems of a `MachineHealthCheck`. `None` if it is another kind, or if no file has its control plane.
    pub(super) fn check(&self, object: &Object, namespace: &str) -> Option<Vec<Fault>> {
        if object.role != LintRole::HealthCheck {
            return None;
        }
        let check: MachineHealthCheck = serde_json::from_str(&object.text).ok()?;
        let machines = self.of_cluster(object.namespace_or(namespace), &check.spec.cluster_name)?;
        if !selects(&check, &machines.machine(&check)) {
            return None;
        }
        // Without the labels of a control plane, the Machine is a worker. If the check also selects workers, it is unknown how many
        // Machines it selects.
        let worker = DeclaredMachines {
            labels: BTreeMap::new(),
            ..machines.clone()
        };
        let all = (!selects(&check, &worker.machine(&check))).then_some(machines.replicas);
        Some(idle(&check, all, limit_field(&object.text)).into_iter().collect())
    }
}

/// The problem of the health check that the topology of a Cluster defines for its control plane.
pub(super) fn check_of_topology(object: &Object) -> Option<Fault> {
    let cluster: Value = serde_json::from_str(&object.text).ok()?;
    let control_plane = cluster.pointer("/spec/topology/controlPlane")?;
    let mut places = IN_TOPOLOGY.iter();
    let (name, spec) = places.find_map(|(name, switch)| {
        let spec = control_plane.get(name)?;
        (spec.get(switch) != Some(&Value::Bool(false))).then_some((name, spec))
    })?;
    let check = json!({"apiVersion": cluster.get("apiVersion"), "kind": "MachineHealthCheck", "metadata": {}, "spec": spec});
    let text = check.to_string();
    let replicas = control_plane.get("replicas").and_then(Value::as_u64);
    let field = limit_field(&text).replacen("spec", &format!("spec.topology.controlPlane.{name}"), 1);
    idle(&serde_json::from_str(&text).ok()?, replicas, field)
}

/// The problem of a `MachineHealthCheck` that does not remediate the first of `all` selected Machines.
fn idle(check: &MachineHealthCheck, all: Option<u64>, field: impl Into<Cow<'static, str>>) -> Option<Fault> {
    let (why, remedy) = RemediationTrigger::from_spec(check)?.ignores_first_failure(all)?;
    let message = format!("Invalid value: the MachineHealthCheck {why}; {remedy}");
    Some(Fault::from_lint(LintRule::HealthCheckIdle, field, &message))
}

impl DeclaredMachines {
    /// The Machines that a control plane declares. `None` if the object is no control plane, or cannot be decoded.
    fn new(object: &Object) -> Option<Self> {
        if object.role != LintRole::Subject(Subject::ControlPlane) {
            return None;
        }
        let control_plane: KubeadmControlPlane = serde_json::from_str(&object.text).ok()?;
        let object: Value = serde_json::from_str(&object.text).ok()?;
        let labels = object.pointer("/spec/machineTemplate/metadata/labels");
        let labels = labels.and_then(Value::as_object).into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let own = [
            (label::CONTROL_PLANE.to_owned(), String::new()),
            (
                label::CONTROL_PLANE_NAME.to_owned(),
                control_plane.name().to_owned(),
            ),
        ];
        Some(Self {
            cluster: control_plane.cluster().map(str::to_owned),
            replicas: u64::try_from(control_plane.spec.replicas.unwrap_or(1)).unwrap_or_default(),
            labels: labels.chain(own).collect(),
        })
    }

    /// A Machine with the labels that its Cluster gives it.
    fn machine(&self, check: &MachineHealthCheck) -> Machine {
        let mut machine = Machine::default();
        let mut labels = self.labels.clone();
        labels.insert(label::CLUSTER_NAME.to_owned(), check.spec.cluster_name.clone());
        machine.metadata.labels = Some(labels);
        machine
    }
}

/// The field that limits the remediation.
fn limit_field(text: &str) -> &'static str {
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    let is_set = |field: &&str| {
        let value = object.pointer(&format!("/{}", field.replace('.', "/")));
        value.is_some_and(|value| !value.is_null() && value != "")
    };
    LIMITS.into_iter().find(is_set).unwrap_or("spec")
}
