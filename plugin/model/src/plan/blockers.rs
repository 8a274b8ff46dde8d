//! Finds what blocks the first step of a plan.
//!
//! The conditions are those of `reconcile` and `preflightChecks` in Cluster API. The controller reports only the first
//! blocker; this module returns all of them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kcp_api::{Condition, KubeadmControlPlaneSpec, Machine, Object as _};

use crate::{
    controller_release::Behaviour,
    etcd_upgrade,
    plan::{
        owners,
        remediation::{RemediationContext, next_remediation},
        simulate::{Choice, PlanStep},
        state::{PlanState, component_conditions},
        step::{Action, Purpose},
    },
    problem::{Problem, pauses},
    snapshot::{EtcdMembers, Snapshot, etcd::EtcdSurvey},
    topology,
};

/// The reason in a condition while the controller cannot connect to the workload cluster.
const CONNECTION_DOWN: &str = "ConnectionDown";

/// What keeps the topology controller from setting the version or the replicas of a plan.
fn topology_blockers(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Vec<Problem> {
    let spec = &observed.control_plane.spec;
    let Some((cluster, topology)) = observed.cluster.value().zip(observed.topology()) else {
        return Vec::new();
    };
    let is_upgrade = desired.version() != spec.version();
    let owned = &topology.control_plane;
    let is_scaled = owned.replicas.is_some() && desired.replicas != spec.replicas;
    let is_restarted = owned.rollout.after.is_some() && desired.rollout_after != spec.rollout_after;
    let is_changed = is_upgrade || is_scaled || is_restarted;
    if let Some(failed) = topology::failed(observed).filter(|_| is_changed) {
        return vec![failed];
    }
    let hooks = topology::blocking(cluster);
    if is_upgrade && !hooks.is_empty() {
        return hooks;
    }
    let version = observed.topology_version(desired).map(str::to_owned);
    let version = version.map(|version| Problem::TopologyVersion { version });
    version.into_iter().collect()
}

/// The blockers of the first step. Empty if the plan has no steps.
pub fn blockers(observed: &Snapshot, desired: &KubeadmControlPlaneSpec, steps: &[PlanStep]) -> Vec<Problem> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut blockers = reconciliation_blockers(observed, desired);
    let first = steps.iter().find(|step| step.action != Action::Wait);
    let has_preflight =
        first.is_some_and(|step| !matches!(step.purpose, Purpose::Initialize | Purpose::Remediate));
    if has_preflight {
        blockers.extend(topology_blockers(observed, desired));
    }
    let joins =
        first.is_some_and(|step| step.action == Action::Create && step.purpose != Purpose::Initialize);
    blockers.extend(unusable_secret(observed));
    blockers.extend(unreachable_workload(observed));
    if first.is_some_and(|step| step.purpose != Purpose::Initialize) {
        blockers.extend(malformed_record(observed, desired));
    }
    if joins || first.is_some_and(|step| step.purpose == Purpose::Rollout) {
        blockers.extend(unusable_kubeadm_config(observed));
    }
    // Cluster API creates the Secrets before the first Machine.
    if joins && observed.control_plane.status.initialized && observed.has_etcd_ca == Some(false) {
        let cluster = observed.control_plane.cluster().unwrap_or_default();
        blockers.push(Problem::NoKey {
            secret: format!("{cluster}-etcd"),
        });
    }
    if joins
        && observed.release().has(Behaviour::RequiresCertificates)
        && !observed.control_plane.is_condition_true("CertificatesAvailable")
    {
        blockers.push(Problem::CertificatesNotAvailable);
    }
    blockers.extend(leader_blocker(observed, steps));
    blockers.extend(disputed_members(observed));
    let unsafe_etcd = etcd_upgrade::obstacle(observed, desired);
    blockers.extend(unsafe_etcd.map(|why| Problem::UnsafeEtcdUpgrade { why }));
    blockers.extend(paused_machines(observed, steps));
    let waits = steps.iter().take_while(|step| step.action == Action::Wait);
    blockers.extend(waits.flat_map(|step| {
        let names = step.names.iter();
        names
            .flat_map(|name| match &step.refusal {
                Some(refusal) => vec![Problem::RefusedByEtcd {
                    machine: name.clone(),
                    refusal: refusal.clone(),
                }],
                None => machine_blockers(observed, step.purpose, name),
            })
            .chain(step.waits_until.map(|until| Problem::TriedRecently { until }))
            .collect::<Vec<_>>()
    }));
    blockers
}

/// The reasons why the controller does not reconcile the control plane at all.
pub fn reconciliation_blockers(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Vec<Problem> {
    let missing_ca = observed.missing_ca();
    let without_kubeconfig = missing_ca.map(|ca| Problem::NoKubeconfig { ca });
    let others = [
        (
            !observed.is_infrastructure_ready(),
            Problem::InfrastructureNotReady,
        ),
        (!observed.has_endpoint(), Problem::NoEndpoint),
        (
            observed.lacks_template(desired),
            Problem::no_template(&desired.infrastructure_ref),
        ),
    ];
    let others = others
        .into_iter()
        .filter_map(|(is_so, blocker)| is_so.then_some(blocker));
    pauses(observed)
        .into_iter()
        .chain(others)
        .chain(without_kubeconfig)
        .chain(owners::blockers(observed))
        .collect()
}

/// Why the controller does not process the spec, although the controller is running. Empty if it has
/// processed the spec, or if no reason is known.
pub fn processing_blockers(observed: &Snapshot) -> Vec<Problem> {
    let control_plane = &observed.control_plane;
    if control_plane.is_observed() {
        return Vec::new();
    }
    // If a Cluster is not ready yet, the controller processes the spec without an error.
    let is_failure = |blocker: &Problem| {
        !matches!(
            blocker,
            Problem::InfrastructureNotReady | Problem::NoEndpoint | Problem::NoKubeconfig { .. }
        )
    };
    let stops = reconciliation_blockers(observed, &control_plane.spec).into_iter();
    stops
        .filter(is_failure)
        .chain(unusable_secret(observed))
        .chain(unreachable_workload(observed))
        .chain(malformed_record(observed, &control_plane.spec))
        .collect()
}

/// The problems of a control plane that are visible in the inputs of a plan. A plan without steps has no
/// blockers, and lists these problems instead.
pub fn problems(observed: &Snapshot, spec: &KubeadmControlPlaneSpec, state: &PlanState) -> Vec<Problem> {
    let unhealthy = state
        .replicas
        .iter()
        .filter(|replica| replica.blocks_controller());
    reconciliation_blockers(observed, spec)
        .into_iter()
        .chain(unusable_secret(observed))
        .chain(unreachable_workload(observed))
        .chain(malformed_record(observed, spec))
        .chain(disputed_members(observed))
        .chain(topology::failed(observed))
        .chain(unhealthy.flat_map(|replica| machine_blockers(observed, Purpose::Recover, &replica.name)))
        .collect()
}

/// The blocker if the controller cannot move the leadership of etcd before it deletes a Machine, or before it removes the member of
/// a Machine that is being deleted.
fn leader_blocker(observed: &Snapshot, steps: &[PlanStep]) -> Option<Problem> {
    let state = PlanState::new(observed, &[]);
    let is_deletion =
        |step: &&PlanStep| step.action == Action::Delete || step.purpose == Purpose::FinishDeletion;
    let waits = steps.iter().take_while(|step| step.action == Action::Wait);
    let first = steps.iter().find(|step| step.action != Action::Wait);
    waits.chain(first).filter(is_deletion).find_map(|step| {
        let replicas = step.names.iter().filter_map(|name| state.replica(name));
        let blocked: Vec<Option<Problem>> = replicas.map(|replica| state.leader_blocker(replica)).collect();
        // If the controller chooses among several Machines, it may choose another one.
        blocked
            .into_iter()
            .reduce(|one, other| one.filter(|_| other.is_some()))
            .flatten()
    })
}

/// The paused Machines that the controller waits for, or that the first step after the waits certainly deletes.
fn paused_machines(observed: &Snapshot, steps: &[PlanStep]) -> Vec<Problem> {
    let is_paused = |name: &String| {
        let mut machines = observed.machines.iter();
        machines.any(|machine| machine.name() == name && machine.is_paused())
    };
    let first = steps.iter().find(|step| step.action != Action::Wait);
    let is_certain = |step: &&PlanStep| step.choice == Choice::None || step.names.iter().all(is_paused);
    let deletes = first
        .filter(|step| step.action == Action::Delete)
        .filter(is_certain);
    let waits = steps.iter().take_while(|step| step.action == Action::Wait);
    let needed: BTreeSet<&str> = waits
        .chain(deletes)
        .flat_map(|step| step.names.iter().map(String::as_str))
        .collect();
    let is_needed = |machine: &&Machine| machine.is_paused() && needed.contains(machine.name());
    let paused = observed.machines.iter().filter(is_needed);
    paused
        .map(|machine| Problem::MachinePaused {
            machine: machine.name().to_owned(),
        })
        .collect()
}

/// The blocker if the etcd members contradict each other: it is then unknown which of them have the data.
fn disputed_members(observed: &Snapshot) -> Option<Problem> {
    let survey = observed.etcd.value()?;
    (survey.stacked && survey.is_disputed()).then_some(Problem::MembersDisputed)
}

/// The blocker if the content of a Secret that the controller also uses is unusable: the kubeconfig, or the CA of etcd.
fn unusable_secret(observed: &Snapshot) -> Option<Problem> {
    let survey = observed.etcd.value();
    let (check, failure) = [
        ("workload-unreachable", observed.workload.failure()),
        ("etcd-unreachable", observed.etcd.failure()),
        (
            "etcd-members-unresponsive",
            survey.and_then(EtcdSurvey::common_cause),
        ),
    ]
    .into_iter()
    .filter_map(|(check, failure)| Some((check, failure?)))
    .find(|(_, failure)| failure.is_unusable_secret)?;
    Some(Problem::UnusableSecret {
        secret: failure.object.clone(),
        why: failure.message.clone(),
        remedy: failure.hint.clone(),
        check,
    })
}

/// The blocker if the controller reports that it cannot connect to the workload cluster. The controller then
/// fails before it takes any other step (`reconcileControlPlaneAndMachinesConditions`).
pub fn unreachable_workload(observed: &Snapshot) -> Option<Problem> {
    // Before the control plane is initialized, there is no API server to connect to.
    if !observed.control_plane.status.initialized {
        return None;
    }
    // The core controllers report the probe, but the control plane controller has a connection of its own. So if the workload
    // cluster responds to the plugin, only the condition of the control plane counts.
    let probe = failed_probe(observed).filter(|_| observed.workload.value().is_none());
    let of_control_plane = || {
        let condition = observed
            .control_plane
            .condition("ControlPlaneComponentsHealthy")?;
        (condition.reason == CONNECTION_DOWN).then_some(condition)
    };
    let condition = probe.or_else(of_control_plane)?;
    Some(Problem::WorkloadUnreachable {
        message: condition.message_or_reason(),
    })
}

/// The Cluster's condition `RemoteConnectionProbe` if it is False: the core controllers cannot connect to the workload cluster.
pub fn failed_probe(observed: &Snapshot) -> Option<&Condition> {
    let cluster = observed.cluster.value()?;
    let probe = cluster.status.remote_connection.as_ref()?;
    (probe.is_false() && observed.control_plane.status.initialized).then_some(probe)
}

/// The blocker if the controller cannot update `kubeadm-config` (`UpdateClusterConfiguration`).
pub fn unusable_kubeadm_config(observed: &Snapshot) -> Option<Problem> {
    let workload = observed.workload.value()?;
    let why = workload.kubeadm_config.value()?.problem()?;
    Some(Problem::NoKubeadmConfig { why })
}

/// The blocker if the controller cannot decode the record of a remediation. Unlike other blockers of a remediation, it
/// also stops rollouts and scaling (`reconcileUnhealthyMachines`).
pub fn malformed_record(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Option<Problem> {
    let state = PlanState::new(observed, &[]);
    if state.has_malformed_remediation {
        return Some(Problem::MalformedRemediation { machine: None });
    }
    // The controller decodes the record of the next Machine before it compares times, so any time gives the same result.
    let terms = RemediationContext::new(observed, desired, Timestamp::MIN);
    let blocked_by = next_remediation(&state, terms)?.blocked_by;
    blocked_by.filter(|blocker| matches!(blocker, Problem::MalformedRemediation { .. }))
}

fn machine_blockers(observed: &Snapshot, purpose: Purpose, name: &str) -> Vec<Problem> {
    let machine = || name.to_owned();
    match purpose {
        Purpose::FinishDeletion => vec![Problem::BeingDeleted {
            machine: machine(),
            message: None,
        }],
        Purpose::FinishUpdate => vec![Problem::UpdatingInPlace { machine: machine() }],
        Purpose::RemoveMember => vec![Problem::MemberWithoutMachine { member: machine() }],
        Purpose::ComeUp | Purpose::Recover | Purpose::RetryPeriod => {
            let of_name = |other: &&Machine| other.name() == name;
            let etcd = observed.members();
            let stacked = etcd != EtcdMembers::External;
            match observed.machines.iter().find(of_name) {
                Some(machine) if machine.has_node() => {
                    let mut blockers = condition_blockers(machine, stacked, purpose);
                    blockers.extend(member_blocker(machine, &etcd));
                    blockers.extend(alarm_blocker(machine, &etcd));
                    if machine.node().is_some_and(|node| etcd.lacks_member_on(node)) {
                        let machine = machine.name().to_owned();
                        blockers.push(Problem::NoMember { machine });
                    }
                    blockers
                }
                _ => vec![Problem::NoNode {
                    machine: machine(),
                    message: None,
                }],
            }
        }
        Purpose::Initialize
        | Purpose::ScaleUp
        | Purpose::ScaleDown
        | Purpose::Rollout
        | Purpose::Remediate => Vec::new(),
    }
}

fn condition_blockers(machine: &Machine, stacked: bool, purpose: Purpose) -> Vec<Problem> {
    let failed = component_conditions(stacked).filter(|kind| !machine.is_condition_true(kind));
    let mut blockers: Vec<Problem> = failed
        .map(|kind| {
            let message = machine.condition(kind).map(kcp_api::Condition::message_or_reason);
            Problem::from_condition(machine, kind, message)
        })
        .collect();
    if purpose == Purpose::ComeUp {
        let machine = machine.name().to_owned();
        blockers.insert(0, Problem::Learner { machine });
    }
    blockers
}

fn member_blocker(machine: &Machine, etcd: &EtcdMembers) -> Option<Problem> {
    let node = machine.node()?;
    Some(Problem::Silent {
        member: node.to_owned(),
        machine: machine.name().to_owned(),
        why: etcd.fault(node)?.to_owned(),
    })
}

fn alarm_blocker(machine: &Machine, etcd: &EtcdMembers) -> Option<Problem> {
    let node = machine.node()?;
    Some(Problem::Alarm {
        member: node.to_owned(),
        machine: machine.name().to_owned(),
        alarm: etcd.alarm(node)?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use kcp_api::{
        ConditionStatus::{self, False, True, Unknown},
        KubeadmControlPlaneSpec,
        metadata::Time,
        names::annotation,
    };

    use super::blockers;
    use crate::{
        plan::{Desired, plan},
        problem::{Problem, TopologyError},
        snapshot::{EtcdMember, EtcdMembers, Reading, Snapshot, workload::KubeadmConfigMap},
        testing::{
            objects::{annotate, condition, minutes_ago, pause, set},
            plan::{observed, spec, template, with_replicas, with_version},
            snapshot::failure,
        },
    };

    fn of(observed: &Snapshot, spec: KubeadmControlPlaneSpec) -> Vec<Problem> {
        let desired = Desired {
            spec,
            changes: vec![],
            denials: vec![],
        };
        let plan = plan(observed, &desired, crate::testing::objects::now());
        let steps = plan.steps.expect("there is a plan");
        blockers(observed, &desired.spec, &steps)
    }

    #[test]
    fn what_surrounds_a_control_plane_may_keep_every_step() {
        type Case = (fn(&mut Snapshot), Vec<Problem>);
        let cases: Vec<Case> = vec![
            (|_| {}, vec![]),
            (
                |observed| pause(&mut observed.control_plane.metadata),
                vec![Problem::Paused],
            ),
            (
                |observed| observed.cluster_mut().spec.paused = true,
                vec![Problem::ClusterPaused {
                    cluster: "c1".to_owned(),
                    paused_by: None,
                }],
            ),
            (
                |observed| observed.cluster_mut().status.infrastructure_provisioned = false,
                vec![Problem::InfrastructureNotReady],
            ),
            (
                |observed| observed.cluster_mut().spec.control_plane_endpoint = None,
                vec![Problem::NoEndpoint],
            ),
            (
                // The controller creates the Secret again.
                |observed| observed.has_kubeconfig = Some(false),
                vec![],
            ),
            (|observed| observed.has_kubeconfig = None, vec![]),
            (|observed| observed.has_etcd_ca = Some(true), vec![]),
            (
                // Another template, to which the spec does not refer.
                |observed| drop(observed.templates.insert(template("t2"), Reading::Read(false))),
                vec![],
            ),
            (
                |observed| {
                    observed
                        .control_plane
                        .status
                        .conditions
                        .retain(|other| other.type_ != "CertificatesAvailable");
                },
                vec![Problem::CertificatesNotAvailable],
            ),
        ];
        for (change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(of(&observed, with_replicas(spec(), 5)), expected);
            // Without a pending change, there is no blocker.
            assert_eq!(of(&observed, spec()), []);
        }
    }

    #[test]
    fn without_its_ca_the_kubeconfig_is_not_created_again() {
        let mut observed = observed();
        observed.has_kubeconfig = Some(false);
        observed.secrets = Reading::Read(["c1-etcd".to_owned()].into());
        let ca = "c1-ca".to_owned();
        assert_eq!(
            of(&observed, with_replicas(spec(), 5)),
            [Problem::NoKubeconfig { ca: ca.clone() }]
        );
        observed.failed_reads = vec![failure(&format!("Secret/{ca}"), "no answer within 2 s")];
        assert_eq!(of(&observed, with_replicas(spec(), 5)), []);
        observed.failed_reads.clear();
        observed.secrets = Reading::Read([ca].into());
        assert_eq!(of(&observed, with_replicas(spec(), 5)), []);
    }

    #[test]
    fn a_paused_machine_blocks_the_steps_that_need_it() {
        // A rollout first creates a Machine.
        assert_stops(
            &Problem::MachinePaused {
                machine: "m1".to_owned(),
            },
            &[(
                "paused",
                |o| o.machines.iter_mut().for_each(|entry| pause(&mut entry.metadata)),
                [false, true, false],
            )],
        );
    }

    #[test]
    fn a_missing_template_blocks_every_step_of_a_spec_that_refers_to_it() {
        let mut observed = observed();
        observed.templates = [
            (template("t1"), Reading::Read(true)),
            (template("t2"), Reading::Read(false)),
        ]
        .into();
        let of_other = |replicas| KubeadmControlPlaneSpec {
            infrastructure_ref: template("t2"),
            ..with_replicas(spec(), replicas)
        };
        let missing = || [Problem::no_template(&template("t2"))];
        assert_eq!(of(&observed, with_replicas(spec(), 5)), []);
        assert_eq!(of(&observed, of_other(3)), missing());
        assert_eq!(of(&observed, of_other(1)), missing());
        // A change to a template that exists solves the problem.
        observed.templates = [
            (template("t1"), Reading::Read(false)),
            (template("t2"), Reading::Read(true)),
        ]
        .into();
        assert_eq!(of(&observed, of_other(3)), []);
    }

    /// A change, and the blockers if the number of Machines grows, shrinks, or the version changes.
    type Stop = (&'static str, fn(&mut Snapshot), [bool; 3]);

    fn assert_stops(blocker: &Problem, cases: &[Stop]) {
        for (name, change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            let specs = [
                with_replicas(spec(), 5),
                with_replicas(spec(), 1),
                with_version(spec(), "v1.34.2"),
            ];
            let is_stopped = specs.map(|spec| of(&observed, spec).contains(blocker));
            assert_eq!(is_stopped, *expected, "{name}");
            // Without a step, nothing is blocked.
            assert_eq!(of(&observed, spec()), [], "{name}");
        }
    }

    fn record_in_progress(observed: &mut Snapshot, value: &str) {
        let metadata = &mut observed.control_plane.metadata;
        annotate(metadata, annotation::REMEDIATION_IN_PROGRESS, value);
    }

    #[test]
    fn a_record_of_a_remediation_that_cannot_be_decoded_stops_rollouts_and_scaling() {
        assert_stops(
            &Problem::MalformedRemediation { machine: None },
            &[
                ("none", |_| {}, [false; 3]),
                ("garbage", |o| record_in_progress(o, "{"), [true; 3]),
                ("without_a_field", |o| record_in_progress(o, "{}"), [false; 3]),
            ],
        );
        // The controller decodes the record of a Machine only if it remediates that Machine next.
        let mut observed = observed();
        annotate(
            &mut observed.machines[1].metadata,
            annotation::REMEDIATION_FOR,
            "{",
        );
        let of_machine = [Problem::MalformedRemediation {
            machine: Some("m2".to_owned()),
        }];
        assert_eq!(of(&observed, with_version(spec(), "v1.34.2")), []);
        let conditions = &mut observed.machines[1].status.conditions;
        set(conditions, condition("HealthCheckSucceeded", False, "sick"));
        set(conditions, condition("OwnerRemediated", False, "waiting"));
        assert_eq!(of(&observed, with_version(spec(), "v1.34.2")), of_machine);
        assert_eq!(of(&observed, with_replicas(spec(), 1)), of_machine);
    }

    #[test]
    fn without_a_connection_to_the_workload_cluster_the_controller_changes_no_machine() {
        const MESSAGE: &str = "probe last succeeded at 2026-08-21T11:00:00Z";
        fn probe(o: &mut Snapshot, status: ConditionStatus) {
            o.cluster_mut().status.remote_connection =
                Some(condition("RemoteConnectionProbe", status, MESSAGE));
        }
        assert_stops(
            &Problem::WorkloadUnreachable {
                message: MESSAGE.to_owned(),
            },
            &[
                ("not_reported", |_| {}, [false; 3]),
                ("connected", |o| probe(o, True), [false; 3]),
                ("not_connected", |o| probe(o, False), [true; 3]),
                (
                    "before_the_first_machine",
                    |o| {
                        o.control_plane.status.initialized = false;
                        probe(o, False);
                    },
                    [false; 3],
                ),
                (
                    "by_the_control_plane",
                    |o| {
                        let mut down = condition("ControlPlaneComponentsHealthy", Unknown, MESSAGE);
                        down.reason = "ConnectionDown".to_owned();
                        set(&mut o.control_plane.status.conditions, down);
                    },
                    [true; 3],
                ),
            ],
        );
    }

    #[test]
    fn the_probe_of_the_core_controllers_does_not_count_if_the_workload_cluster_responds() {
        let mut observed = observed();
        observed.workload = crate::testing::snapshot::observed().workload;
        observed.cluster_mut().status.remote_connection =
            Some(condition("RemoteConnectionProbe", False, "probe failed"));
        assert_eq!(of(&observed, with_replicas(spec(), 1)), []);
        let mut down = condition("ControlPlaneComponentsHealthy", Unknown, "no connection");
        down.reason = "ConnectionDown".to_owned();
        set(&mut observed.control_plane.status.conditions, down);
        let message = "no connection".to_owned();
        assert_eq!(
            of(&observed, with_replicas(spec(), 1)),
            [Problem::WorkloadUnreachable { message }]
        );
    }

    #[test]
    fn an_unusable_kubeadm_config_stops_rollouts_and_machines_that_join() {
        fn has(o: &mut Snapshot, config: KubeadmConfigMap) {
            o.workload = crate::testing::snapshot::observed().workload;
            o.workload().kubeadm_config = Reading::Read(config);
        }
        for (config, why) in [
            (KubeadmConfigMap::Absent, "does not exist"),
            (KubeadmConfigMap::WithoutKey, "has no key ClusterConfiguration"),
            (
                KubeadmConfigMap::Undecodable,
                "has a key ClusterConfiguration that cannot be decoded",
            ),
        ] {
            let mut observed = observed();
            has(&mut observed, config);
            let blockers = [Problem::NoKubeadmConfig { why }];
            assert_eq!(of(&observed, with_replicas(spec(), 5)), blockers);
            assert_eq!(of(&observed, with_version(spec(), "v1.34.2")), blockers);
            // The controller deletes a Machine even without the template.
            assert_eq!(of(&observed, with_replicas(spec(), 1)), []);
        }
        let mut observed = observed();
        has(&mut observed, KubeadmConfigMap::Usable { version: None });
        assert_eq!(of(&observed, with_version(spec(), "v1.34.2")), []);
    }

    #[test]
    fn certificates_are_for_machines_that_join() {
        let mut observed = observed();
        observed.control_plane.status.conditions.clear();
        observed.has_etcd_ca = Some(false);
        assert_eq!(of(&observed, with_replicas(spec(), 1)), []);
        let missing = Problem::NoKey {
            secret: "c1-etcd".to_owned(),
        };
        let blockers = of(&observed, with_replicas(spec(), 5));
        assert_eq!(blockers, [missing, Problem::CertificatesNotAvailable]);
        observed.machines.clear();
        assert_eq!(of(&observed, spec()), []);
    }

    #[test]
    fn a_topology_comes_to_its_version_first() {
        let spec = with_version(spec(), "v1.35.0");
        for (version, step, expected) in [
            (None, None, None),
            (Some("v1.35.0"), None, None),
            (Some("v1.34.1"), None, Some("v1.34.1")),
            (Some("v1.36.0"), Some("v1.35.0"), None),
            (Some("v1.36.0"), Some("v1.34.1"), Some("v1.34.1")),
            (Some("v1.36.0"), Some(""), Some("v1.36.0")),
        ] {
            let mut observed = observed();
            if let Some(version) = version {
                observed.set_topology(version);
            }
            if let Some(step) = step {
                let metadata = &mut observed.cluster_mut().metadata;
                annotate(metadata, annotation::TOPOLOGY_UPGRADE_STEP, step);
            }
            assert_eq!(observed.topology_version(&spec), expected, "{version:?} {step:?}");
            let expected = expected.map(|version| Problem::TopologyVersion {
                version: version.to_owned(),
            });
            assert_eq!(of(&observed, spec.clone()), Vec::from_iter(expected));
        }
    }

    #[test]
    fn a_hook_holds_the_next_version() {
        let mut observed = observed();
        observed.set_topology("v1.35.0");
        let message = "Following hooks are blocking upgrade: BeforeControlPlaneUpgrade: not approved";
        let mut reported = condition("TopologyReconciled", False, message);
        reported.reason = "ClusterUpgrading".to_owned();
        observed.cluster_mut().status.topology_reconciled = Some(reported);
        let hook = Problem::LifecycleHook {
            hook: "BeforeControlPlaneUpgrade".to_owned(),
            message: Some("not approved".to_owned()),
        };
        let version = Problem::TopologyVersion {
            version: "v1.35.0".to_owned(),
        };
        for (spec, expected) in [
            (with_version(spec(), "v1.35.0"), hook),
            (with_replicas(spec(), 5), version),
        ] {
            assert_eq!(of(&observed, spec), [expected]);
        }
    }

    #[test]
    fn a_topology_that_fails_holds_what_it_owns() {
        let mut observed = observed();
        observed.set_topology("v1.35.0");
        let mut reported = condition("TopologyReconciled", False, "no template");
        reported.reason = "ReconcileFailed".to_owned();
        observed.cluster_mut().status.topology_reconciled = Some(reported);
        let failed = Problem::TopologyFailed {
            message: "no template".to_owned(),
            cause: TopologyError::Other,
        };
        let version = Problem::TopologyVersion {
            version: "v1.35.0".to_owned(),
        };
        let scaled = || with_replicas(spec(), 5);
        assert_eq!(of(&observed, with_version(spec(), "v1.35.0")), from_ref(&failed));
        assert_eq!(of(&observed, scaled()), from_ref(&version));
        let topology = observed.cluster_mut().spec.topology.as_mut();
        topology.expect("set above").control_plane.replicas = Some(5);
        assert_eq!(of(&observed, scaled()), from_ref(&failed));

        let restarted = || KubeadmControlPlaneSpec {
            rollout_after: Some(minutes_ago(1)),
            ..spec()
        };
        assert_eq!(of(&observed, restarted()), [version]);
        let topology = observed.cluster_mut().spec.topology.as_mut();
        topology.expect("set above").control_plane.rollout.after = Some(minutes_ago(1));
        assert_eq!(of(&observed, restarted()), [failed]);
    }

    type Case = (&'static str, fn(&mut Snapshot), Vec<Problem>);

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn machines_are_waited_for() {
        let machine = || "m2".to_owned();
        let failed = |condition, status, message: Option<&str>| Problem::Condition {
            machine: machine(),
            condition,
            status,
            message: message.map(str::to_owned),
        };
        let no_node = Problem::NoNode {
            machine: machine(),
            message: None,
        };
        let being_deleted = Problem::BeingDeleted {
            machine: machine(),
            message: None,
        };
        let cases: Vec<Case> = vec![
            (
                "no_node",
                |o| o.machines[1].status.node_name = None,
                vec![no_node],
            ),
            (
                "being_deleted",
                |o| o.machines[1].metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                vec![being_deleted],
            ),
            (
                "updating",
                |o| annotate(&mut o.machines[1].metadata, annotation::UPDATE_IN_PROGRESS, ""),
                vec![Problem::UpdatingInPlace { machine: machine() }],
            ),
            (
                "false_and_unknown",
                |o| {
                    let conditions = &mut o.machines[1].status.conditions;
                    set(conditions, condition("SchedulerPodHealthy", False, "crashed"));
                    set(conditions, condition("EtcdPodHealthy", Unknown, ""));
                },
                vec![
                    failed("EtcdPodHealthy", "Unknown", Some("Reason")),
                    failed("SchedulerPodHealthy", "False", Some("crashed")),
                ],
            ),
            (
                "absent",
                |o| {
                    o.machines[1]
                        .status
                        .conditions
                        .retain(|other| other.type_ != "APIServerPodHealthy");
                },
                vec![failed("APIServerPodHealthy", "absent", None)],
            ),
            // The controller does not check these.
            (
                "labels_and_ready",
                |o| {
                    o.machines[1].status.conditions.retain(|other| {
                        other.type_ != "NodeKubeadmLabelsAndTaintsSet" && other.type_ != "Ready"
                    });
                },
                vec![],
            ),
            (
                "etcd_elsewhere",
                |o| {
                    o.etcd_members = EtcdMembers::External;
                    o.machines[1]
                        .status
                        .conditions
                        .retain(|other| !other.type_.starts_with("Etcd"));
                },
                vec![],
            ),
            (
                "learner",
                |o| {
                    let member = |machine: &str| EtcdMember {
                        name: format!("node-{machine}"),
                        is_learner: machine == "m2",
                        ..EtcdMember::default()
                    };
                    o.etcd_members = EtcdMembers::Read(vec![member("m1"), member("m2"), member("m3")]);
                },
                vec![Problem::Learner { machine: machine() }],
            ),
            (
                "member_without_machine",
                |o| {
                    let member = |name: &str| EtcdMember {
                        name: name.to_owned(),
                        ..EtcdMember::default()
                    };
                    o.etcd_members =
                        EtcdMembers::Read(["node-m1", "node-m2", "node-m3", "old"].map(member).to_vec());
                },
                vec![Problem::MemberWithoutMachine {
                    member: "old".to_owned(),
                }],
            ),
        ];
        for (name, change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(of(&observed, with_replicas(spec(), 5)), expected, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_machine_that_goes_does_not_count() {
        let mut observed = observed();
        let oldest = &mut observed.machines[0];
        annotate(&mut oldest.metadata, annotation::DELETE_MACHINE, "");
        set(
            &mut oldest.status.conditions,
            condition("SchedulerPodHealthy", False, "crashed"),
        );
        assert_eq!(of(&observed, with_replicas(spec(), 1)), []);
        assert_eq!(of(&observed, with_replicas(spec(), 5)).len(), 1);
    }
}
