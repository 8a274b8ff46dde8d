//! Machines to diagnose.

use kcp_api::{
    ConditionStatus::{False, True},
    ConditionedObject, Machine, Object as _, Reference,
    metadata::{ObjectMeta, OwnerReference, Time},
};

use crate::{
    diagnosis::{MachineRecords, RelatedObject},
    rollout_events::{EventObject, ReportedEvent},
    snapshot::{
        Failure, Reading, Snapshot,
        workload::{Component, CrashLoop},
    },
    testing::{
        objects::{condition, minutes_ago, set},
        snapshot::{failure, forbidden, lost, observed},
    },
};

/// The name of a case, and what was read about its Machine.
pub type Case = (&'static str, MachineRecords);

fn reference(group: &str, kind: &str, name: &str) -> Reference {
    Reference {
        group: group.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn related(reference: Reference, conditions: &[&str]) -> RelatedObject {
    let object = ConditionedObject {
        metadata: ObjectMeta {
            name: Some(reference.name.clone()),
            ..ObjectMeta::default()
        },
        conditions: conditions.iter().map(|kind| condition(kind, True, "")).collect(),
        ..ConditionedObject::default()
    };
    RelatedObject {
        reference,
        object: Reading::Read(Some(object)),
    }
}

fn event(kind: &str, name: &str, reason: &str, note: &str, minutes: i64) -> ReportedEvent {
    ReportedEvent {
        regarding: EventObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: None,
        },
        related: None,
        reason: reason.to_owned(),
        note: note.to_owned(),
        reporter: Some("machine-controller".to_owned()),
        is_warning: reason.starts_with("Failed"),
        first_reported: minutes_ago(minutes),
        last_reported: minutes_ago(minutes),
    }
}

/// The records of a Machine that is one of the snapshot's, if it belongs to the control plane.
fn records(observed: Snapshot, mut machine: Machine) -> MachineRecords {
    let name = machine.name().to_owned();
    let config = reference("bootstrap.cluster.x-k8s.io", "KubeadmConfig", &name);
    let infrastructure = reference("infrastructure.cluster.x-k8s.io", "DockerMachine", &name);
    machine.spec.bootstrap_config_ref = Some(config.clone());
    machine.spec.infrastructure_ref = Some(infrastructure.clone());
    machine.status.host_address = Some("10.0.0.13".to_owned());
    let owner = machine.controller().map(Reference::from);
    let mut observed = observed;
    for own in &mut observed.machines {
        if own.name() == name {
            own.clone_from(&machine);
        }
    }
    let owner = owner.map(|owner| related(owner, &["Available"]));
    let parts = [
        related(config, &["Ready", "DataSecretAvailable"]),
        related(infrastructure, &["Ready"]),
    ];
    MachineRecords {
        related: owner.into_iter().chain(parts).collect(),
        events: Reading::Read(vec![event("Machine", &name, "SuccessfulCreate", "created", 12)]),
        workload_events: Reading::Read(Vec::new()),
        control_plane: Reading::Read(Box::new(observed)),
        machine,
    }
}

/// The third Machine of the control plane.
fn third(change: impl FnOnce(&mut Snapshot)) -> MachineRecords {
    let mut observed = observed();
    change(&mut observed);
    let machine = observed.machine(3).clone();
    records(observed, machine)
}

/// The third Machine was created some minutes ago, and has no Node.
fn joins(observed: &mut Snapshot, minutes: i64) {
    observed.nodes().retain(|node| node.name != "node-m3");
    observed.pods().retain(|pod| pod.node != "node-m3");
    observed.survey().queried.truncate(2);
    observed.each_list_of(&[1, 2], |list| list.members.truncate(2));
    let machine = observed.machine(3);
    machine.metadata.creation_timestamp = Some(Time(minutes_ago(minutes)));
    machine.status.node_name = None;
    machine.status.certificates_expiry_date = None;
    machine.status.phase = Some("Provisioning".to_owned());
    machine.status.conditions = vec![
        condition("BootstrapConfigReady", True, ""),
        condition("InfrastructureReady", True, ""),
        condition("Ready", False, "the Node has not joined"),
    ];
}

fn crashes(observed: &mut Snapshot, exit: &str) {
    let pod = observed.pod(Component::ApiServer, 3);
    pod.ready = false;
    pod.ready_since = Some(minutes_ago(12));
    pod.restarts = 7;
    pod.last_exit = Some(exit.to_owned());
    pod.message = Some(format!(
        "CrashLoopBackOff: back-off 5m0s restarting failed container; restarted 7 times, last {exit}"
    ));
    pod.crash_loop = Some(CrashLoop {
        ended: Some(minutes_ago(1)),
    });
}

fn worker(change: impl FnOnce(&mut Machine, &mut Snapshot)) -> MachineRecords {
    let mut observed = observed();
    let mut machine = crate::testing::objects::machine("worker-a");
    let labels = machine.metadata.labels.get_or_insert_default();
    labels.remove(kcp_api::names::label::CONTROL_PLANE);
    machine.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "MachineSet".to_owned(),
        name: "workers".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    machine.status.certificates_expiry_date = None;
    machine.status.node_name = Some("worker-1".to_owned());
    machine.status.conditions = ["BootstrapConfigReady", "InfrastructureReady", "Ready"]
        .map(|kind| condition(kind, True, ""))
        .to_vec();
    change(&mut machine, &mut observed);
    records(observed, machine)
}

fn without_bootstrap_data() -> MachineRecords {
    third(|o| {
        joins(o, 4);
        let machine = o.machine(3);
        machine.spec.awaits_bootstrap_data = true;
        let waits = "* BootstrapConfigReady: waiting for the control plane to be initialized";
        let conditions = &mut machine.status.conditions;
        set(conditions, condition("BootstrapConfigReady", False, waits));
        set(conditions, condition("InfrastructureReady", False, "waiting"));
    })
}

fn with_failing_infrastructure() -> MachineRecords {
    let mut records = third(|o| {
        joins(o, 14);
        let failed = condition(
            "InfrastructureReady",
            False,
            "* Ready: quota of instances exceeded",
        );
        set(&mut o.machine(3).status.conditions, failed);
    });
    let infrastructure = records.related.last_mut().expect("the infrastructure");
    if let Reading::Read(Some(object)) = &mut infrastructure.object {
        object.conditions = vec![condition("Ready", False, "quota of instances exceeded")];
        object.failure_message = Some("cannot create the instance: QuotaExceeded".to_owned());
    }
    records.events = Reading::Read(vec![
        event("DockerMachine", "m3", "FailedCreate", "QuotaExceeded", 2),
        event("Machine", "m3", "SuccessfulCreate", "created", 14),
    ]);
    records
}

/// Cases for tables and for screens.
pub fn cases() -> Vec<Case> {
    let mut cases = cases_of_control_planes();
    cases.extend(cases_of_workers());
    cases
}

fn cases_of_workers() -> Vec<Case> {
    vec![
        ("worker", worker(|_, _| {})),
        ("worker_without_node", {
            let mut records = worker(|machine, _| {
                machine.status.node_name = None;
                machine.metadata.creation_timestamp = Some(Time(minutes_ago(30)));
            });
            if let Reading::Read(Some(config)) = &mut records.related[1].object {
                config.format = Some("ignition".to_owned());
            }
            records
        }),
        (
            "worker_whose_kubelet_is_silent",
            worker(|_, o| {
                let node = o.nodes().last_mut().expect("a worker");
                node.ready = None;
                node.ready_since = Some(minutes_ago(20));
                node.problems = vec![condition("Ready", False, "kubelet stopped posting node status")];
                node.taints = vec!["node.kubernetes.io/unreachable:NoExecute".to_owned()];
            }),
        ),
        ("worker_of_another_control_plane", {
            let mut records = worker(|_, _| {});
            let message = "Cluster c1 has no KubeadmControlPlane, but a RKE2ControlPlane";
            records.control_plane = Reading::Failed(failure("KubeadmControlPlane", message));
            records.workload_events = Reading::NotYet;
            records
        }),
    ]
}

fn cases_of_control_planes() -> Vec<Case> {
    vec![
        ("healthy", third(|_| {})),
        ("no_bootstrap_data", without_bootstrap_data()),
        ("infrastructure_fails", with_failing_infrastructure()),
        ("kubeadm_runs", third(|o| joins(o, 4))),
        ("no_node_for_too_long", third(|o| joins(o, 14))),
        (
            "api_server_crashes_with_a_message",
            third(|o| crashes(o, "exit code 1: unknown flag: --cloud-provider")),
        ),
        (
            "api_server_crashes_without_a_message",
            third(|o| crashes(o, "exit code 1")),
        ),
        (
            "no_api_server_pod",
            third(|o| {
                o.pods()
                    .retain(|pod| pod.node != "node-m3" || pod.component != Component::ApiServer);
            }),
        ),
        (
            "a_learner",
            third(|o| {
                o.machine(3).metadata.creation_timestamp = Some(Time(minutes_ago(4)));
                o.machine(3).status.conditions.clear();
                o.each_list(|list| list.members[2].is_learner = true);
                o.status(3).is_learner = true;
            }),
        ),
        ("a_dead_member", third(|o| o.kill(3))),
        ("api_server_unreachable", {
            let observed = lost();
            let machine = observed.machines[2].clone();
            MachineRecords {
                workload_events: Reading::NotYet,
                ..records(observed, machine)
            }
        }),
        ("no_permission_for_secrets", {
            let denied = forbidden("Secret/c1-kubeconfig", "get", "secrets", false);
            let observed = Snapshot {
                workload: Reading::Failed(denied.clone()),
                etcd: Reading::Failed(denied),
                ..observed()
            };
            let machine = observed.machines[2].clone();
            records(observed, machine)
        }),
        (
            "deleting",
            third(|o| {
                let machine = o.machine(3);
                machine.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
                machine.metadata.finalizers = Some(vec!["machine.cluster.x-k8s.io".to_owned()]);
                let mut deleting =
                    condition("Deleting", True, "Drain not completed yet:\n* Pod a/b: deletion");
                "DrainingNode".clone_into(&mut deleting.reason);
                set(&mut machine.status.conditions, deleting);
            }),
        ),
        ("infrastructure_is_gone_and_events_are_denied", {
            let mut records = third(|o| joins(o, 4));
            if let Some(infrastructure) = records.related.last_mut() {
                infrastructure.object = Reading::Read(None);
            }
            records.related[1].object = Reading::Failed(Failure {
                object: "KubeadmConfig/m3".to_owned(),
                ..forbidden("KubeadmConfig/m3", "list", "kubeadmconfigs", false)
            });
            records.events = Reading::Failed(forbidden("Event", "list", "events", false));
            records
        }),
    ]
}
