//! What keeps the controller from the first step.
//!
//! As the beginning of its `reconcile` and `preflightChecks` of Cluster API; all of it, where the controller tells the
//! first only.

use serde::Serialize;

use crate::plan::{
    course::Step,
    observed::{Etcd, Machine, Observed},
    spec::Spec,
    state::COMPONENT_CONDITIONS,
    step::{Action, Purpose},
};

/// Something that keeps the controller from the first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Blocker {
    /// The control plane is paused.
    Paused,
    /// Its Cluster is paused.
    ClusterPaused,
    /// The Cluster's infrastructure is not there yet.
    InfrastructureNotReady,
    /// The Cluster does not say yet where its control plane is to be reached.
    NoEndpoint,
    /// The Secret with the workload cluster's kubeconfig is not there.
    NoKubeconfig,
    /// The managed topology has yet to come to the version asked for.
    TopologyVersion {
        /// The version it is at, or goes to.
        version: String,
    },
    /// The cluster's certificates are not there, or not known to be.
    CertificatesNotAvailable,
    /// A Machine is being deleted.
    BeingDeleted {
        /// Which.
        machine: String,
    },
    /// A Machine has no node yet.
    NoNode {
        /// Which.
        machine: String,
    },
    /// A condition of a Machine does not hold.
    Condition {
        /// Which Machine.
        machine: String,
        /// Which condition.
        condition: &'static str,
        /// `False`, `Unknown` or `absent`.
        status: &'static str,
        /// What the controller says of it.
        message: Option<String>,
    },
    /// A Machine's member of etcd has yet to be promoted.
    Learner {
        /// Which Machine.
        machine: String,
    },
    /// A member of etcd was asked and takes no part.
    Silent {
        /// Its name.
        member: String,
        /// The Machine that it runs on.
        machine: String,
        /// What it, or the way to it, says.
        why: String,
    },
    /// A member of etcd raises an alarm.
    Alarm {
        /// Its name.
        member: String,
        /// The Machine that it runs on.
        machine: String,
    },
    /// A Machine is being updated in place.
    UpdatingInPlace {
        /// Which.
        machine: String,
    },
    /// A member of etcd has no Machine, and is to be removed.
    MemberWithoutMachine {
        /// Its name; empty while it has not started.
        member: String,
    },
}

/// Whether a managed topology goes to another version first, and to which.
pub fn topology_version<'o>(observed: &'o Observed, asked: &Spec) -> Option<&'o String> {
    let cluster = &observed.cluster;
    let step = cluster
        .topology_upgrade_step
        .as_ref()
        .filter(|step| !step.is_empty());
    let version = cluster.topology_version.as_ref()?;
    let is_there = *version == asked.version || step == Some(&asked.version);
    (!is_there).then(|| step.unwrap_or(version))
}

/// What keeps the controller from the first of the steps; nothing where there are none.
pub fn blockers(observed: &Observed, asked: &Spec, steps: &[Step]) -> Vec<Blocker> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut blockers = surroundings(observed);
    let first = steps.iter().find(|step| step.action != Action::Wait);
    let has_preflight =
        first.is_some_and(|step| !matches!(step.purpose, Purpose::Initialize | Purpose::Remediate));
    if has_preflight && let Some(version) = topology_version(observed, asked) {
        blockers.push(Blocker::TopologyVersion {
            version: version.clone(),
        });
    }
    let joins =
        first.is_some_and(|step| step.action == Action::Create && step.purpose != Purpose::Initialize);
    if joins && !observed.control_plane.is("CertificatesAvailable") {
        blockers.push(Blocker::CertificatesNotAvailable);
    }
    let waits = steps.iter().take_while(|step| step.action == Action::Wait);
    blockers.extend(waits.flat_map(|step| {
        let names = step.names.iter();
        names
            .flat_map(|name| of_machine(observed, step.purpose, name))
            .collect::<Vec<_>>()
    }));
    blockers
}

fn surroundings(
    Observed {
        control_plane,
        cluster,
        ..
    }: &Observed,
) -> Vec<Blocker> {
    let paused = control_plane.paused || (control_plane.is("Paused") && !cluster.paused);
    [
        (paused, Blocker::Paused),
        (cluster.paused, Blocker::ClusterPaused),
        (!cluster.infrastructure_ready, Blocker::InfrastructureNotReady),
        (!cluster.has_endpoint, Blocker::NoEndpoint),
        (cluster.has_kubeconfig == Some(false), Blocker::NoKubeconfig),
    ]
    .into_iter()
    .filter_map(|(is_so, blocker)| is_so.then_some(blocker))
    .collect()
}

fn of_machine(observed: &Observed, purpose: Purpose, name: &str) -> Vec<Blocker> {
    let machine = || name.to_owned();
    match purpose {
        Purpose::FinishDeletion => vec![Blocker::BeingDeleted { machine: machine() }],
        Purpose::FinishUpdate => vec![Blocker::UpdatingInPlace { machine: machine() }],
        Purpose::RemoveMember => vec![Blocker::MemberWithoutMachine { member: machine() }],
        Purpose::ComeUp | Purpose::Recover => {
            let of_name = |other: &&Machine| other.machine.name == name;
            let stacked = observed.etcd != Etcd::External;
            match observed.machines.iter().find(of_name) {
                Some(machine) if machine.has_node() => {
                    let mut blockers = conditions(machine, stacked, purpose);
                    blockers.extend(silent(machine, &observed.etcd));
                    blockers.extend(alarm(machine, &observed.etcd));
                    blockers
                }
                _ => vec![Blocker::NoNode { machine: machine() }],
            }
        }
        Purpose::Initialize
        | Purpose::ScaleUp
        | Purpose::ScaleDown
        | Purpose::Rollout
        | Purpose::Remediate => Vec::new(),
    }
}

fn conditions(machine: &Machine, stacked: bool, purpose: Purpose) -> Vec<Blocker> {
    let name = || machine.machine.name.clone();
    let failed = COMPONENT_CONDITIONS
        .iter()
        .filter(|(_, of_etcd)| stacked || !of_etcd)
        .filter(|(condition, _)| !machine.is(condition));
    let mut blockers: Vec<Blocker> = failed
        .map(|(kind, _)| {
            let condition = machine.machine.condition(kind);
            Blocker::Condition {
                machine: name(),
                condition: kind,
                status: condition.map_or("absent", |condition| condition.status.as_str()),
                message: condition.map(crate::control_plane::Condition::one_line),
            }
        })
        .collect();
    if purpose == Purpose::ComeUp {
        blockers.insert(0, Blocker::Learner { machine: name() });
    }
    blockers
}

fn silent(machine: &Machine, etcd: &Etcd) -> Option<Blocker> {
    let node = machine.machine.node.as_deref()?;
    Some(Blocker::Silent {
        member: node.to_owned(),
        machine: machine.machine.name.clone(),
        why: etcd.silence(node)?.to_owned(),
    })
}

fn alarm(machine: &Machine, etcd: &Etcd) -> Option<Blocker> {
    let node = machine.machine.node.as_deref()?;
    etcd.has_alarm(node).then(|| Blocker::Alarm {
        member: node.to_owned(),
        machine: machine.machine.name.clone(),
    })
}

impl Blocker {
    /// Whether no controller works on the control plane because of it: not a matter of what is to be done.
    pub const fn is_standstill(&self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::ClusterPaused
                | Self::InfrastructureNotReady
                | Self::NoEndpoint
                | Self::NoKubeconfig
        )
    }

    /// For people.
    pub fn message(&self) -> String {
        match self {
            Self::Paused => "the control plane is paused: no controller works on it".to_owned(),
            Self::ClusterPaused => "the Cluster is paused: no controller works on it".to_owned(),
            Self::InfrastructureNotReady => "the Cluster's infrastructure is not ready".to_owned(),
            Self::NoEndpoint => "the Cluster has no control plane endpoint yet".to_owned(),
            Self::NoKubeconfig => "the Secret with the workload cluster's kubeconfig is not there".to_owned(),
            Self::TopologyVersion { version } => {
                format!("the Cluster's topology goes to {version} first")
            }
            Self::CertificatesNotAvailable => {
                "the cluster's certificates are not known to be there: no Machine can join".to_owned()
            }
            Self::BeingDeleted { machine } => format!("Machine {machine} is being deleted"),
            Self::NoNode { machine } => format!("Machine {machine} has no node yet"),
            Self::Condition {
                machine,
                condition,
                status,
                message,
            } => {
                let message = message.as_ref().filter(|message| !message.is_empty());
                let message = message.map_or_else(String::new, |message| format!(": {message}"));
                format!("{condition} of Machine {machine} is {status}{message}")
            }
            Self::Learner { machine } => {
                format!("the etcd member of Machine {machine} has yet to be promoted")
            }
            Self::Silent { member, machine, why } => {
                format!("etcd member {member} of Machine {machine} takes no part: {why}")
            }
            Self::Alarm { member, machine } => {
                format!("etcd member {member} of Machine {machine} raises an alarm")
            }
            Self::UpdatingInPlace { machine } => format!("Machine {machine} is being updated in place"),
            Self::MemberWithoutMachine { member } if member.is_empty() => {
                "an etcd member that has not started has no Machine".to_owned()
            }
            Self::MemberWithoutMachine { member } => format!("etcd member {member} has no Machine"),
        }
    }

    /// What to do about it; none where waiting is all.
    pub fn hint(&self, namespace: &str, name: &str) -> Option<String> {
        match self {
            Self::Paused => Some(format!(
                "resume it with: kubectl kcp rollout resume {name} -n {namespace}"
            )),
            Self::ClusterPaused => Some("set spec.paused of the Cluster to false".to_owned()),
            Self::TopologyVersion { .. } => {
                Some("change spec.topology.version of the Cluster instead".to_owned())
            }
            Self::CertificatesNotAvailable => Some(format!(
                "see condition CertificatesAvailable of kcp {name} in {namespace}"
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocker, blockers, topology_version};
    use crate::{
        control_plane::{
            ConditionStatus::{False, Unknown},
            example::{condition, minutes_ago, set},
        },
        plan::{
            example::{observed, spec},
            observed::{Etcd, EtcdMember, Observed},
            outlook::{Asked, plan},
            spec::Spec,
        },
    };

    fn of(observed: &Observed, spec: Spec) -> Vec<Blocker> {
        let asked = Asked {
            spec,
            changes: vec![],
            denials: vec![],
        };
        let plan = plan(observed, &asked, crate::control_plane::example::now());
        let steps = plan.steps.expect("there is a plan");
        blockers(observed, &asked.spec, &steps)
    }

    #[test]
    fn what_surrounds_a_control_plane_may_keep_every_step() {
        type Case = (fn(&mut Observed), &'static [Blocker]);
        let cases: &[Case] = &[
            (|_| {}, &[]),
            (
                |observed| observed.control_plane.paused = true,
                &[Blocker::Paused],
            ),
            (
                |observed| observed.cluster.paused = true,
                &[Blocker::ClusterPaused],
            ),
            (
                |observed| observed.cluster.infrastructure_ready = false,
                &[Blocker::InfrastructureNotReady],
            ),
            (
                |observed| observed.cluster.has_endpoint = false,
                &[Blocker::NoEndpoint],
            ),
            (
                |observed| observed.cluster.has_kubeconfig = Some(false),
                &[Blocker::NoKubeconfig],
            ),
            (|observed| observed.cluster.has_kubeconfig = None, &[]),
            (
                |observed| {
                    observed
                        .control_plane
                        .conditions
                        .retain(|other| other.kind != "CertificatesAvailable");
                },
                &[Blocker::CertificatesNotAvailable],
            ),
        ];
        for (change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(of(&observed, spec().with_replicas(5)), *expected);
            // Nothing to do: nothing is kept.
            assert_eq!(of(&observed, spec()), []);
        }
    }

    #[test]
    fn certificates_are_for_machines_that_join() {
        let mut observed = observed();
        observed.control_plane.conditions.clear();
        assert_eq!(of(&observed, spec().with_replicas(1)), []);
        observed.machines.clear();
        assert_eq!(of(&observed, spec()), []);
    }

    #[test]
    fn a_topology_comes_to_its_version_first() {
        let spec = spec().with_version("v1.35.0");
        for (version, step, expected) in [
            (None, None, None),
            (Some("v1.35.0"), None, None),
            (Some("v1.34.1"), None, Some("v1.34.1")),
            (Some("v1.36.0"), Some("v1.35.0"), None),
            (Some("v1.36.0"), Some("v1.34.1"), Some("v1.34.1")),
            (Some("v1.36.0"), Some(""), Some("v1.36.0")),
        ] {
            let mut observed = observed();
            observed.cluster.topology_version = version.map(str::to_owned);
            observed.cluster.topology_upgrade_step = step.map(str::to_owned);
            assert_eq!(
                topology_version(&observed, &spec).map(String::as_str),
                expected,
                "{version:?} {step:?}"
            );
            let expected = expected.map(|version| Blocker::TopologyVersion {
                version: version.to_owned(),
            });
            assert_eq!(of(&observed, spec.clone()), Vec::from_iter(expected));
        }
    }

    #[test]
    fn machines_are_waited_for() {
        type Case = (&'static str, fn(&mut Observed), Vec<Blocker>);
        let machine = || "m2".to_owned();
        let failed = |condition, status, message: Option<&str>| Blocker::Condition {
            machine: machine(),
            condition,
            status,
            message: message.map(str::to_owned),
        };
        let cases: Vec<Case> = vec![
            (
                "no_node",
                |o| o.machines[1].machine.node = None,
                vec![Blocker::NoNode { machine: machine() }],
            ),
            (
                "being_deleted",
                |o| o.machines[1].machine.deleting_since = Some(minutes_ago(1)),
                vec![Blocker::BeingDeleted { machine: machine() }],
            ),
            (
                "updating",
                |o| o.machines[1].updating_in_place = true,
                vec![Blocker::UpdatingInPlace { machine: machine() }],
            ),
            (
                "false_and_unknown",
                |o| {
                    let conditions = &mut o.machines[1].machine.conditions;
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
                        .machine
                        .conditions
                        .retain(|other| other.kind != "APIServerPodHealthy");
                },
                vec![failed("APIServerPodHealthy", "absent", None)],
            ),
            // Of no matter to the controller.
            (
                "labels_and_ready",
                |o| {
                    o.machines[1].machine.conditions.retain(|other| {
                        other.kind != "NodeKubeadmLabelsAndTaintsSet" && other.kind != "Ready"
                    });
                },
                vec![],
            ),
            (
                "etcd_elsewhere",
                |o| {
                    o.etcd = Etcd::External;
                    o.machines[1]
                        .machine
                        .conditions
                        .retain(|other| !other.kind.starts_with("Etcd"));
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
                    o.etcd = Etcd::Members(vec![member("m1"), member("m2"), member("m3")]);
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
                    o.etcd = Etcd::Members(["node-m1", "node-m2", "node-m3", "old"].map(member).to_vec());
                },
                vec![Blocker::MemberWithoutMachine {
                    member: "old".to_owned(),
                }],
            ),
        ];
        for (name, change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(of(&observed, spec().with_replicas(5)), expected, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_machine_that_goes_does_not_count() {
        let mut observed = observed();
        let oldest = &mut observed.machines[0];
        oldest.to_be_deleted = true;
        set(
            &mut oldest.machine.conditions,
            condition("SchedulerPodHealthy", False, "crashed"),
        );
        assert_eq!(of(&observed, spec().with_replicas(1)), []);
        assert_eq!(of(&observed, spec().with_replicas(5)).len(), 1);
    }
}
