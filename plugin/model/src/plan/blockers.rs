//! The blockers of a plan's first step.
//!
//! The conditions are those of `reconcile` and `preflightChecks` in Cluster API. The controller reports only the first
//! blocker; this module returns all of them.

use kcp_api::{KubeadmControlPlaneSpec, Machine, Object as _};

use crate::{
    blocker::Blocker,
    plan::{
        simulate::Step,
        state::component_conditions,
        step::{Action, Purpose},
    },
    snapshot::{EtcdMembers, Snapshot, management::owner},
};

/// The blockers of the first step; empty if the plan has no steps.
pub fn blockers(observed: &Snapshot, desired: &KubeadmControlPlaneSpec, steps: &[Step]) -> Vec<Blocker> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut blockers = reconciliation_blockers(observed, desired);
    let first = steps.iter().find(|step| step.action != Action::Wait);
    let has_preflight =
        first.is_some_and(|step| !matches!(step.purpose, Purpose::Initialize | Purpose::Remediate));
    if has_preflight && let Some(version) = observed.topology_version(desired) {
        blockers.push(Blocker::TopologyVersion {
            version: version.to_owned(),
        });
    }
    let joins =
        first.is_some_and(|step| step.action == Action::Create && step.purpose != Purpose::Initialize);
    if joins && !observed.control_plane.is("CertificatesAvailable") {
        blockers.push(Blocker::CertificatesNotAvailable);
    }
    if first.is_some_and(|step| step.action == Action::Delete)
        && let Some(leader) = observed.members().unreachable_leader()
    {
        blockers.push(Blocker::LeaderUnreachable {
            member: leader.name.clone(),
        });
    }
    let waits = steps.iter().take_while(|step| step.action == Action::Wait);
    blockers.extend(waits.flat_map(|step| {
        let names = step.names.iter();
        names
            .flat_map(|name| machine_blockers(observed, step.purpose, name))
            .collect::<Vec<_>>()
    }));
    blockers
}

/// The reasons why the controller does not reconcile the control plane at all.
pub fn reconciliation_blockers(observed: &Snapshot, desired: &KubeadmControlPlaneSpec) -> Vec<Blocker> {
    let control_plane = &observed.control_plane;
    let cluster_paused = observed.cluster_is_paused();
    let paused = control_plane.is_paused() || (control_plane.is("Paused") && !cluster_paused);
    [
        (paused, Blocker::Paused),
        (cluster_paused, Blocker::ClusterPaused),
        (
            !observed.infrastructure_is_ready(),
            Blocker::InfrastructureNotReady,
        ),
        (!observed.has_endpoint(), Blocker::NoEndpoint),
        (observed.has_kubeconfig == Some(false), Blocker::NoKubeconfig),
        (
            observed.lacks_template(desired),
            Blocker::no_template(&desired.infrastructure_ref),
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, blocker)| is_so.then_some(blocker))
    .chain(mixed_ownership(observed))
    .collect()
}

/// The controller checks the owners only once the control plane is initialized.
fn mixed_ownership(observed: &Snapshot) -> impl Iterator<Item = Blocker> {
    let others = observed
        .others
        .iter()
        .filter(|_| observed.control_plane.status.initialized);
    others.map(|machine| Blocker::MixedOwnership {
        machine: machine.name().to_owned(),
        owner: owner(machine),
    })
}

fn machine_blockers(observed: &Snapshot, purpose: Purpose, name: &str) -> Vec<Blocker> {
    let machine = || name.to_owned();
    match purpose {
        Purpose::FinishDeletion => vec![Blocker::BeingDeleted {
            machine: machine(),
            message: None,
        }],
        Purpose::FinishUpdate => vec![Blocker::UpdatingInPlace { machine: machine() }],
        Purpose::RemoveMember => vec![Blocker::MemberWithoutMachine { member: machine() }],
        Purpose::ComeUp | Purpose::Recover => {
            let of_name = |other: &&Machine| other.name() == name;
            let etcd = observed.members();
            let stacked = etcd != EtcdMembers::External;
            match observed.machines.iter().find(of_name) {
                Some(machine) if machine.has_node() => {
                    let mut blockers = condition_blockers(machine, stacked, purpose);
                    blockers.extend(member_blocker(machine, &etcd));
                    blockers.extend(alarm_blocker(machine, &etcd));
                    blockers
                }
                _ => vec![Blocker::NoNode {
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

fn condition_blockers(machine: &Machine, stacked: bool, purpose: Purpose) -> Vec<Blocker> {
    let failed = component_conditions(stacked).filter(|kind| !machine.is(kind));
    let mut blockers: Vec<Blocker> = failed
        .map(|kind| {
            let message = machine.condition(kind).map(kcp_api::Condition::one_line);
            Blocker::condition(machine, kind, message)
        })
        .collect();
    if purpose == Purpose::ComeUp {
        let machine = machine.name().to_owned();
        blockers.insert(0, Blocker::Learner { machine });
    }
    blockers
}

fn member_blocker(machine: &Machine, etcd: &EtcdMembers) -> Option<Blocker> {
    let node = machine.node()?;
    Some(Blocker::Silent {
        member: node.to_owned(),
        machine: machine.name().to_owned(),
        why: etcd.fault(node)?.to_owned(),
    })
}

fn alarm_blocker(machine: &Machine, etcd: &EtcdMembers) -> Option<Blocker> {
    let node = machine.node()?;
    etcd.has_alarm(node).then(|| Blocker::Alarm {
        member: node.to_owned(),
        machine: machine.name().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, Unknown},
        KubeadmControlPlaneSpec,
        metadata::Time,
        names::annotation,
    };

    use super::blockers;
    use crate::{
        blocker::Blocker,
        plan::{Desired, plan},
        snapshot::{EtcdMember, EtcdMembers, Reading, Snapshot},
        testing::{
            objects::{annotate, condition, minutes_ago, pause, set},
            plan::{observed, spec, template, with_replicas, with_version},
        },
    };

    fn of(observed: &Snapshot, spec: KubeadmControlPlaneSpec) -> Vec<Blocker> {
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
        type Case = (fn(&mut Snapshot), &'static [Blocker]);
        let cases: &[Case] = &[
            (|_| {}, &[]),
            (
                |observed| pause(&mut observed.control_plane.metadata),
                &[Blocker::Paused],
            ),
            (
                |observed| observed.cluster_mut().spec.paused = true,
                &[Blocker::ClusterPaused],
            ),
            (
                |observed| observed.cluster_mut().status.infrastructure_provisioned = false,
                &[Blocker::InfrastructureNotReady],
            ),
            (
                |observed| observed.cluster_mut().spec.control_plane_endpoint = None,
                &[Blocker::NoEndpoint],
            ),
            (
                |observed| observed.has_kubeconfig = Some(false),
                &[Blocker::NoKubeconfig],
            ),
            (|observed| observed.has_kubeconfig = None, &[]),
            (
                // Another template, which the spec does not refer to.
                |observed| drop(observed.templates.insert(template("t2"), Reading::Read(false))),
                &[],
            ),
            (
                |observed| {
                    observed
                        .control_plane
                        .status
                        .conditions
                        .retain(|other| other.type_ != "CertificatesAvailable");
                },
                &[Blocker::CertificatesNotAvailable],
            ),
        ];
        for (change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(of(&observed, with_replicas(spec(), 5)), *expected);
            // Nothing to do: nothing is kept.
            assert_eq!(of(&observed, spec()), []);
        }
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
        let missing = || [Blocker::no_template(&template("t2"))];
        assert_eq!(of(&observed, with_replicas(spec(), 5)), []);
        assert_eq!(of(&observed, of_other(3)), missing());
        assert_eq!(of(&observed, of_other(1)), missing());
        // The change to a template that exists is the way out.
        observed.templates = [
            (template("t1"), Reading::Read(false)),
            (template("t2"), Reading::Read(true)),
        ]
        .into();
        assert_eq!(of(&observed, of_other(3)), []);
    }

    #[test]
    fn certificates_are_for_machines_that_join() {
        let mut observed = observed();
        observed.control_plane.status.conditions.clear();
        assert_eq!(of(&observed, with_replicas(spec(), 1)), []);
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
            let expected = expected.map(|version| Blocker::TopologyVersion {
                version: version.to_owned(),
            });
            assert_eq!(of(&observed, spec.clone()), Vec::from_iter(expected));
        }
    }

    type Case = (&'static str, fn(&mut Snapshot), Vec<Blocker>);

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn machines_are_waited_for() {
        let machine = || "m2".to_owned();
        let failed = |condition, status, message: Option<&str>| Blocker::Condition {
            machine: machine(),
            condition,
            status,
            message: message.map(str::to_owned),
        };
        let no_node = Blocker::NoNode {
            machine: machine(),
            message: None,
        };
        let being_deleted = Blocker::BeingDeleted {
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
                vec![Blocker::UpdatingInPlace { machine: machine() }],
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
                vec![Blocker::Learner { machine: machine() }],
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
                vec![Blocker::MemberWithoutMachine {
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
