//! Checks of the pauses, deletion, failures and owners of the control plane.

use jiff::Timestamp;
use kcp_api::{Cluster, Condition, Machine, Object as _, Reference};

use crate::{
    checks::{
        Check,
        actor::{Actor, Responsible},
        finding::{CheckOutcome, CheckResult, Finding, NoResult, machine_object, require},
        rollout::has_pending_change,
    },
    join_times::DEFAULT_JOIN_LIMIT,
    plan::owners::cannot_adopt,
    problem::{Problem, pauses},
    snapshot::{Reading, Snapshot},
    staleness::{DELETION_LIMIT, format_age},
    topology::{self, UNSEEN_TOPOLOGY},
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "paused",
        "The control plane or its Cluster is paused, so no controller reconciles the control plane.",
        check_paused,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
    Check::new(
        "deleting",
        "The control plane is being deleted.",
        check_deleting,
        Responsible::Step(Actor::ControlPlaneController),
    )
    .usually_within(DELETION_LIMIT)
    .effect_of(&[&[
        "paused",
        "machines-paused",
        "controller-stopped",
        "core-controllers-stopped",
        "machine-deletions-deadlocked",
        "machine-drains-blocked",
        "machine-deletions-slow",
    ]]),
    Check::new(
        "failure-reported",
        "The status of the control plane has a failure reason or a failure message.",
        check_failure_reported,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "cluster-reference-wrong",
        "The Cluster does not refer to this control plane, so the controller does not reconcile the control \
         plane.",
        check_cluster_reference_wrong,
        Responsible::Fault(Actor::Person),
    ),
    Check::new(
        "cluster-not-ready",
        "The infrastructure of the Cluster is not ready, or the Cluster has no endpoint.",
        check_cluster_not_ready,
        Responsible::Step(Actor::InfrastructureProvider),
    )
    .usually_within(DEFAULT_JOIN_LIMIT),
    Check::new(
        "infrastructure-template-missing",
        "The infrastructure template of the control plane does not exist.",
        check_infrastructure_template_missing,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
    Check::new(
        "topology-not-reconciled",
        "The topology controller cannot apply the ClusterClass to the Cluster, so it changes nothing.",
        check_topology_not_reconciled,
        Responsible::Fault(Actor::Person),
    )
    .blocking(),
    Check::new(
        "topology-upgrade-pending",
        "The topology controller has not applied the topology of the Cluster to the control plane or the workers yet.",
        check_topology_upgrade_pending,
        Responsible::StepBy(who_acts_on_topology),
    )
    .effect_of(&[&["topology-not-reconciled"]]),
    Check::new(
        "machines-not-owned",
        "A control plane Machine of the Cluster does not belong to this control plane.",
        check_machines_not_owned,
        Responsible::Fault(Actor::Person),
    ),
];

pub fn check_deleting(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let Some(started) = control_plane.deletion_timestamp() else {
        return Ok(Vec::new());
    };
    let waiting = control_plane
        .condition("Deleting")
        .map_or_else(String::new, |condition| {
            format!(": {}", condition.message_or_reason())
        });
    let message = format!("deletion began {} ago{waiting}", format_age(started, now));
    Ok(vec![
        Finding::fail(observed.object_name(), message).with_since(Some(started)),
    ])
}

pub fn check_failure_reported(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let failure = observed.control_plane.status.failure();
    Ok(failure
        .map(|failure| Finding::fail(observed.object_name(), &failure))
        .into_iter()
        .collect())
}

pub fn check_paused(observed: &Snapshot, now: Timestamp) -> CheckResult {
    let pauses = pauses(observed);
    if pauses.is_empty() {
        return Ok(Vec::new());
    }
    let control_plane = &observed.control_plane;
    let is_unfinished = |machine: &Machine| machine.is_deleting() || !machine.has_node();
    let is_pending = control_plane.is_deleting()
        || has_pending_change(observed, now)
        || observed.machines.iter().any(is_unfinished);
    let (outcome, pending) = if is_pending {
        (CheckOutcome::Fail, "; changes are pending")
    } else if matches!(observed.workload, Reading::Excluded { .. }) {
        // No controller updates the conditions that the verdict is based on.
        (CheckOutcome::Unknown, "")
    } else {
        (CheckOutcome::Warn, "")
    };
    let condition = control_plane
        .condition("Paused")
        .filter(|condition| condition.is_true());
    let since = condition.and_then(|condition| condition.last_transition_time);
    let written = observed.cluster.value().and_then(Cluster::paused_by);
    let findings = pauses.into_iter().map(|problem| {
        let is_of_cluster = matches!(problem, Problem::ClusterPaused { .. });
        let written = written.filter(|_| is_of_cluster).and_then(|(_, written)| written);
        let finding = Finding::about(&problem, outcome, control_plane)
            .with_object(observed.object_name())
            .with_since(since.or(written));
        let message = finding.message + pending;
        Finding { message, ..finding }
    });
    Ok(findings.collect())
}

pub fn check_cluster_reference_wrong(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    if control_plane.cluster().is_none() {
        return Err(NoResult::skipped("the control plane has no Cluster yet"));
    }
    let cluster = require(&observed.cluster, "the Cluster")?;
    let reference = cluster.spec.control_plane_ref.as_ref();
    let message = match reference.filter(|reference| !reference.name.is_empty()) {
        Some(_) if cluster.control_plane() == Some(control_plane.name()) => return Ok(Vec::new()),
        Some(Reference { kind, name, .. }) => format!(
            "spec.controlPlaneRef of Cluster {} refers to {kind} {name}",
            cluster.name()
        ),
        None => format!("spec.controlPlaneRef of Cluster {} is not set", cluster.name()),
    };
    Ok(vec![
        Finding::fail(format!("Cluster/{}", cluster.name()), message)
            .with_object(observed.object_name())
            .with_hint(
                "correct spec.controlPlaneRef, because the controller reconciles a control plane only if its \
                 Cluster owns it",
            ),
    ])
}

pub fn check_cluster_not_ready(observed: &Snapshot, _: Timestamp) -> CheckResult {
    require(&observed.cluster, "the Cluster")?;
    let control_plane = &observed.control_plane;
    // The infrastructure and the endpoint may be missing until the first Machine is created.
    let outcome = if control_plane.status.initialized {
        CheckOutcome::Fail
    } else {
        CheckOutcome::Info
    };
    let problems = [
        (
            !observed.is_infrastructure_ready(),
            Problem::InfrastructureNotReady,
        ),
        (!observed.has_endpoint(), Problem::NoEndpoint),
    ];
    Ok(problems
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, problem)| Finding::about(&problem, outcome, control_plane))
        .collect())
}

pub fn check_infrastructure_template_missing(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let reference = &control_plane.spec.infrastructure_ref;
    let Some(reading) = observed.templates.get(reference) else {
        return Err(NoResult::skipped("the infrastructure template was not read"));
    };
    if *require(reading, "the infrastructure template")? {
        return Ok(Vec::new());
    }
    let problem = Problem::no_template(reference);
    let finding = Finding::about(&problem, CheckOutcome::Fail, control_plane);
    Ok(vec![finding.with_object(observed.object_name())])
}

pub fn check_topology_not_reconciled(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let cluster = require(&observed.cluster, "the Cluster")?;
    let Some((error, problem)) = cluster.topology_error().zip(topology::failed(observed)) else {
        return Ok(Vec::new());
    };
    let finding = Finding::about(&problem, CheckOutcome::Fail, &observed.control_plane)
        .with_object(observed.object_name())
        .with_transition_time(error);
    Ok(vec![finding])
}

pub fn check_topology_upgrade_pending(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let version = observed.topology_version(&observed.control_plane.spec);
    let version = version.map(|version| {
        let version = version.to_owned();
        Problem::TopologyVersion { version }.message()
    });
    let mut pending: Vec<String> = version
        .into_iter()
        .chain(observed.pending_topology_values())
        .collect();
    // The condition says what the topology controller waits for.
    let cluster = observed.cluster.value().filter(|_| observed.topology().is_some());
    let condition = cluster.and_then(topology::pending_condition);
    let blocking = cluster.map_or_else(Vec::new, topology::blocking);
    let held = topology::held_workers(observed);
    let is_deferred = condition.is_some_and(topology::is_deferred);
    let why = condition.map_or_else(String::new, Condition::message_or_reason);
    let is_upgrading = condition.is_some_and(|condition| condition.reason.contains("Upgrad"));
    let is_explained = !blocking.is_empty() || (is_deferred && !held.is_empty());
    match pending.first_mut() {
        _ if is_explained => {}
        Some(first) if !why.is_empty() => *first = format!("{first}: {why}"),
        None if is_upgrading => pending.push(format!("Cluster API's topology controller is not done: {why}")),
        Some(_) | None => {}
    }
    if cluster.is_some_and(|cluster| !cluster.is_topology_seen()) {
        pending.push(UNSEEN_TOPOLOGY.to_owned());
    }
    let since = condition.and_then(|condition| condition.last_transition_time);
    let name = observed.object_name();
    let finding = |problem: &Problem| {
        Finding::about(problem, CheckOutcome::Info, &observed.control_plane).with_object(name.clone())
    };
    let pending = pending
        .into_iter()
        .map(|message| Finding::info(name.clone(), message));
    // Workers that are held are a cause only if the topology controller waits for nothing else.
    let (causes, others) = if is_deferred {
        (held, Vec::new())
    } else {
        (Vec::new(), held)
    };
    let findings = blocking.iter().chain(&causes).map(finding);
    let findings = findings.chain(pending).chain(others.iter().map(finding));
    Ok(findings.map(|finding| finding.with_since(since)).collect())
}

fn who_acts_on_topology(observed: &Snapshot, finding: &Finding, _: Timestamp) -> Actor {
    let is_it = |problem: &Problem| {
        Finding::about(problem, finding.outcome, &observed.control_plane).message == finding.message
    };
    let cluster = observed.cluster.value();
    if cluster.is_some_and(|cluster| topology::blocking(cluster).iter().any(is_it)) {
        Actor::HookOwner
    } else if topology::held_workers(observed).iter().any(is_it) {
        Actor::Person
    } else {
        Actor::TopologyController
    }
}

pub fn check_machines_not_owned(observed: &Snapshot, _: Timestamp) -> CheckResult {
    let control_plane = &observed.control_plane;
    let findings = observed.unowned_machines().map(|machine| {
        if let Some(problem) = cannot_adopt(observed, machine) {
            return Finding::about(&problem, CheckOutcome::Fail, control_plane);
        }
        let (name, namespace) = (machine.name(), control_plane.namespace());
        let message = format!(
            "is a control plane Machine of the Cluster, but {} does not own it",
            control_plane.name()
        );
        Finding::warn(machine_object(name), message).with_hint(format!(
            "the controller adopts the Machine and the Secrets of its KubeadmConfig; if the controller does not adopt \
             them, see the owners of the Machine: kubectl get machine {name} -n {namespace} -o yaml"
        ))
    });
    let others = observed.machines_of_other_owners.iter().map(|other| {
        let problem = Problem::mixed_ownership(other);
        Finding::about(&problem, CheckOutcome::Fail, control_plane)
    });
    Ok(findings.chain(others).collect())
}

#[cfg(test)]
pub(super) mod test_cases {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::{ManagedFieldsEntry, Time},
        names::annotation,
    };

    use crate::{
        checks::tests::{Case, says},
        snapshot::{Snapshot, Workers},
        testing::{
            objects::{condition, minutes_ago, pause},
            plan::worker,
        },
    };

    /// The third Machine has no owner and no bootstrap configuration.
    fn abandon(observed: &mut Snapshot) {
        observed.machine(3).metadata.owner_references = None;
    }

    fn topology_reports(observed: &mut Snapshot, reason: &str, message: &str) {
        let mut condition = condition("TopologyReconciled", False, message);
        condition.reason = reason.to_owned();
        observed.cluster_mut().status.topology_reconciled = Some(condition);
    }

    pub(crate) const CASES: &[Case] = &[
        ("infrastructure-template-missing", "deleted", |o| {
            let template = o.control_plane.spec.infrastructure_ref.clone();
            o.templates = [(template, crate::snapshot::Reading::Read(false))].into();
        }),
        ("infrastructure-template-missing", "unreadable", |o| {
            let template = o.control_plane.spec.infrastructure_ref.clone();
            let failure = crate::testing::snapshot::failure("DockerMachineTemplate/t1", "cannot connect");
            o.templates = [(template, crate::snapshot::Reading::Failed(failure))].into();
        }),
        ("infrastructure-template-missing", "listed", |o| {
            o.templates.clear();
        }),
        ("machines-not-owned", "by_another_control_plane", |o| {
            let mut other = crate::testing::objects::machine("x1");
            other.metadata.owner_references.as_mut().expect("an owner")[0].name = "c2-cp".to_owned();
            o.machines_of_other_owners.push(other);
        }),
        ("paused", "at_rest", |o| {
            pause(&mut o.control_plane().metadata);
        }),
        ("paused", "by_conditions", |o| {
            o.workload = crate::snapshot::Reading::Excluded { flag: "no NAME" };
            pause(&mut o.control_plane().metadata);
        }),
        ("paused", "with_a_change_pending", |o| {
            pause(&mut o.control_plane().metadata);
            o.control_plane().spec.replicas = Some(5);
        }),
        ("paused", "with_a_machine_out_of_date", |o| {
            pause(&mut o.control_plane().metadata);
            o.machine(1).spec.version = Some("v1.33.0".to_owned());
        }),
        ("paused", "by_its_cluster", |o| {
            o.cluster_mut().spec.paused = true;
        }),
        ("paused", "by_a_move", |o| {
            o.cluster_mut().spec.paused = true;
            o.cluster_mut().metadata.managed_fields = Some(vec![ManagedFieldsEntry {
                manager: Some("clusterctl".to_owned()),
                time: Some(Time(minutes_ago(90))),
                ..ManagedFieldsEntry::default()
            }]);
        }),
        ("paused", "says_a_condition", |o| {
            says(o, "Paused", True, "", 5);
        }),
        ("deleting", "while_the_cluster_is_paused", |o| {
            o.control_plane().metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            o.cluster_mut().spec.paused = true;
        }),
        ("deleting", "with_a_paused_machine", |o| {
            o.control_plane().metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(4)));
            pause(&mut o.machine(2).metadata);
        }),
        ("deleting", "without_quorum", |o| {
            o.control_plane().metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            o.kill(2);
            o.kill(3);
        }),
        ("paused", "while_a_machine_is_deleted", |o| {
            o.cluster_mut().spec.paused = true;
            o.machine(2).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        }),
        ("deleting", "deleting", |o| {
            o.control_plane().metadata.deletion_timestamp = Some(Time(minutes_ago(5)));
            says(o, "Deleting", True, "* waiting for 2 workers", 5);
        }),
        ("failure-reported", "reported", |o| {
            o.control_plane().status.failure_message = Some("CreateError: no quota\nleft".to_owned());
        }),
        ("cluster-reference-wrong", "another", |o| {
            o.reference().name = "other".to_owned();
        }),
        ("cluster-reference-wrong", "another_kind", |o| {
            o.reference().kind = "RKE2ControlPlane".to_owned();
        }),
        ("cluster-reference-wrong", "none", |o| {
            o.cluster_mut().spec.control_plane_ref = None;
        }),
        ("cluster-reference-wrong", "not_linked", |o| {
            o.control_plane().metadata.labels = None;
        }),
        ("cluster-not-ready", "neither", |o| {
            o.cluster_mut().status.infrastructure_provisioned = false;
            o.cluster_mut().spec.control_plane_endpoint = None;
        }),
        ("cluster-not-ready", "not_yet", |o| {
            o.cluster_mut().status.infrastructure_provisioned = false;
            o.control_plane().status.initialized = false;
        }),
        (
            "topology-not-reconciled",
            "a_template_of_the_class_is_missing",
            |o| {
                o.set_topology("v1.35.0");
                topology_reports(o, "ReconcileFailed", "StandInMachineTemplate d/c1 not found");
            },
        ),
        ("topology-not-reconciled", "a_runtime_extension_fails", |o| {
            o.set_topology("v1.35.0");
            topology_reports(
                o,
                "ReconcileFailed",
                "error computing the desired state of the Cluster topology: failed to call extension handlers for hook \
                 \"hooks.runtime.cluster.x-k8s.io/BeforeClusterUpgrade\": failed to call extension handler \
                 \"before-upgrade.backup\": got failure response with message: the disk is full",
            );
        }),
        ("topology-not-reconciled", "the_version_is_lowered", |o| {
            o.set_topology("v1.34.1-rc.1");
            topology_reports(
                o,
                "ReconcileFailed",
                "error computing the desired state of the Cluster topology: invalid ControlPlane upgrade plan: item 0; version \
                 v1.34.1-rc.1 must be greater than v1.34.1",
            );
        }),
        (
            "topology-not-reconciled",
            "the_version_is_lowered_in_a_chain",
            |o| {
                o.set_topology("v1.33.6");
                topology_reports(
                    o,
                    "ReconcileFailed",
                    "error computing the desired state of the Cluster topology: invalid ControlPlane upgrade plan: control plane \
                 upgrade plan must end with version v1.33.6, ends with v1.34.1 instead",
                );
            },
        ),
        (
            "topology-not-reconciled",
            "the_plan_of_the_workers_is_invalid",
            |o| {
                o.set_topology("v1.35.0");
                topology_reports(
                    o,
                    "ReconcileFailed",
                    "error computing the desired state of the Cluster topology: invalid workers upgrade plan, item 0; version \
                 v1.34.0 must be greater than v1.34.1",
                );
            },
        ),
        ("topology-not-reconciled", "no_upgrade_is_pending", |o| {
            topology_reports(o, "ClusterClassNotReconciled", "ClusterClass not reconciled");
        }),
        ("topology-upgrade-pending", "a_hook_delays_it", |o| {
            o.set_topology("v1.35.0");
            topology_reports(
                o,
                "ClusterUpgrading",
                "* Following hooks are blocking: BeforeClusterUpgrade",
            );
        }),
        ("topology-upgrade-pending", "goes_on", |o| {
            o.set_topology("v1.35.0");
        }),
        (
            "topology-upgrade-pending",
            "other_values_wait_for_the_version",
            |o| {
                o.set_topology("v1.35.0");
                let topology = o.cluster_mut().spec.topology.as_mut().expect("a topology");
                topology.control_plane.replicas = Some(5);
                topology.control_plane.rollout.after = Some(minutes_ago(1));
                topology_reports(o, "ClusterUpgrading", "MachineDeployment md-0 upgrading");
            },
        ),
        ("topology-upgrade-pending", "workers_are_upgraded", |o| {
            o.set_topology("v1.34.1");
            topology_reports(o, "ClusterUpgrading", "MachineDeployment md-0 upgrading");
        }),
        ("topology-upgrade-pending", "a_runtime_extension_delays_it", |o| {
            o.set_topology("v1.35.0");
            topology_reports(
                o,
                "ClusterUpgrading",
                "Cluster is upgrading to v1.35.0\n  * Following hooks are blocking upgrade: BeforeClusterUpgrade: backup \
                     runs; 3 volumes left; BeforeControlPlaneUpgrade\n  * KubeadmControlPlane pending upgrade to version v1.35.0",
            );
        }),
        ("topology-upgrade-pending", "an_annotation_delays_it", |o| {
            o.set_topology("v1.35.0");
            let annotation = "before-upgrade.hook.cluster.cluster.x-k8s.io/backup";
            let annotations = o.cluster_mut().metadata.annotations.get_or_insert_default();
            annotations.insert(annotation.to_owned(), String::new());
            topology_reports(
                o,
                "ClusterUpgrading",
                "Cluster is upgrading to v1.35.0\n  * Following hooks are blocking upgrade: BeforeClusterUpgrade: annotation \
                 before-upgrade.hook.cluster.cluster.x-k8s.io/backup is set",
            );
        }),
        ("topology-upgrade-pending", "workers_are_deferred", |o| {
            o.set_topology("v1.34.1");
            o.set_worker("md-0", &[]);
            o.set_worker("md-1", &[annotation::HOLD_UPGRADE_SEQUENCE]);
            o.set_worker("md-2", &[]);
            topology_reports(
                o,
                "MachineDeploymentsUpgradeDeferred",
                "MachineDeployments md-1, md-2 upgrade to version v1.34.1 deferred",
            );
        }),
        (
            "topology-upgrade-pending",
            "workers_are_deferred_while_others_are_upgraded",
            |o| {
                o.set_topology("v1.34.1");
                o.set_worker("md-0", &[annotation::DEFER_UPGRADE]);
                o.set_worker("md-1", &[]);
                o.workers = Some(Box::new(Workers {
                    workers: ["md-0", "md-1"].map(|name| worker(name, "v1.33.6")).into(),
                    read_failures: Vec::new(),
                }));
                topology_reports(o, "ClusterUpgrading", "MachineDeployment md-1 upgrading");
            },
        ),
        (
            "topology-upgrade-pending",
            "deferred_workers_have_the_version",
            |o| {
                o.set_topology("v1.34.1");
                o.set_worker("md-0", &[annotation::DEFER_UPGRADE]);
                o.workers = Some(Box::new(Workers {
                    workers: vec![worker("md-0", "v1.34.1")],
                    read_failures: Vec::new(),
                }));
            },
        ),
        ("topology-upgrade-pending", "the_change_is_not_seen", |o| {
            o.set_topology("v1.35.0");
            topology_reports(o, "ClusterUpgrading", "MachineDeployment md-0 upgrading");
            let cluster = o.cluster_mut();
            cluster.metadata.generation = Some(5);
            let condition = cluster.status.topology_reconciled.as_mut();
            condition.expect("a condition").observed_generation = Some(4);
        }),
        ("machines-not-owned", "to_be_adopted", |o| {
            abandon(o);
            o.machine(3).spec.bootstrap_config_ref = Some(kcp_api::Reference {
                kind: "KubeadmConfig".to_owned(),
                name: "m3".to_owned(),
                ..kcp_api::Reference::default()
            });
        }),
        ("machines-not-owned", "cannot_be_adopted", abandon),
    ];
}
