//! The control plane between two steps of a plan.

use std::cmp::Ordering;

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, Remediation};

use crate::{
    blocker::Blocker,
    plan::rollout_reason::Verdict,
    quorum::{Change, Member, Votes},
    snapshot::{EtcdMembers, Snapshot},
};

/// Conditions of a Machine that the controller checks, and whether they are about stacked etcd; in the order of
/// remediation.
const COMPONENT_CONDITIONS: &[(&str, bool)] = &[
    (ETCD_MEMBER, true),
    ("EtcdPodHealthy", true),
    ("APIServerPodHealthy", false),
    ("ControllerManagerPodHealthy", false),
    ("SchedulerPodHealthy", false),
];
const ETCD_MEMBER: &str = "EtcdMemberHealthy";
/// About the labels and taints that kubeadm sets on the node. Only decides which of two Machines is remediated first.
pub const LABELS: &str = "NodeKubeadmLabelsAndTaintsSet";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "no two exclude each other")]
pub struct Replica {
    /// For a Machine that a step creates, a name of the plan.
    pub name: String,
    pub is_new: bool,
    /// None for a Machine that a step creates: it is the youngest.
    pub created: Option<Timestamp>,
    pub failure_domain: Option<String>,
    pub node: Option<String>,
    pub is_outdated: bool,
    pub deletion: Deletion,
    pub is_updating: bool,
    /// Whether its etcd member does not participate, or has an alarm. The controller queries one member only, and assumes
    /// that the others are healthy while their pods are.
    pub is_silent: bool,
    pub health: HealthCheck,
    pub remediation_for: Option<Remediation>,
    /// Conditions that are not True, in the order of remediation.
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deletion {
    Unmarked,
    /// Annotated as the first to be deleted.
    Marked,
    UnderWay(Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthCheck {
    /// Or there are none.
    Passed,
    Failed,
    /// Unhealthy, and its control plane is to replace it.
    AwaitsRemediation,
    /// The same, and annotated to be replaced before others.
    AwaitsRemediationFirst,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    pub condition: &'static str,
    /// Otherwise it is Unknown or absent.
    pub is_false: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    pub replicas: Vec<Replica>,
    /// None if etcd is external.
    pub members: Option<Vec<Member>>,
    /// Whether a remediation has deleted a Machine and not yet created its replacement.
    pub remediation_in_progress: bool,
    /// The number of Machines that steps have created.
    pub made: usize,
}

impl Replica {
    /// The oldest first, then by name.
    pub fn age_order(&self, other: &Self) -> Ordering {
        let key = |replica: &Self| (replica.created.is_none(), replica.created);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.name.cmp(&other.name))
    }

    pub const fn is_deleting(&self) -> bool {
        matches!(self.deletion, Deletion::UnderWay(_))
    }

    pub fn awaits_remediation(&self) -> bool {
        self.health >= HealthCheck::AwaitsRemediation
    }

    pub fn has_fault(&self, condition: &str) -> bool {
        self.faults.iter().any(|fault| fault.condition == condition)
    }

    /// Whether a component or its etcd member is known to be unhealthy.
    pub fn has_failed_component(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| fault.is_false && fault.condition != LABELS)
    }

    /// Whether its components work. The workload cluster needs one such Machine for its API server.
    pub fn runs_components(&self) -> bool {
        self.faults
            .iter()
            .all(|fault| fault.condition == ETCD_MEMBER || fault.condition == LABELS)
    }

    /// The faults that block the controller.
    pub fn obstacles(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.condition != LABELS)
    }

    /// Whether it blocks the controller, or will once the controller sees what we see.
    pub fn is_obstacle(&self) -> bool {
        self.node.is_none() || self.is_silent || self.obstacles().next().is_some()
    }

    /// Whether its etcd member does not participate and no condition reports it.
    pub fn fails_unseen(&self) -> bool {
        let mut conditions = COMPONENT_CONDITIONS.iter();
        self.is_silent && !conditions.any(|(condition, of_etcd)| *of_etcd && self.has_fault(condition))
    }

    pub fn recover(&mut self) {
        self.node.get_or_insert_with(|| self.name.clone());
        self.faults.clear();
        self.is_silent = false;
        self.health = HealthCheck::Passed;
    }
}

fn deletion(machine: &Machine) -> Deletion {
    match machine.deletion_timestamp() {
        Some(since) => Deletion::UnderWay(since),
        None if machine.is_deleted_first() => Deletion::Marked,
        None => Deletion::Unmarked,
    }
}

fn health(machine: &Machine) -> HealthCheck {
    match (machine.failed_health_check(), machine.awaits_remediation()) {
        (_, true) if machine.is_marked_unhealthy() => HealthCheck::AwaitsRemediationFirst,
        (_, true) => HealthCheck::AwaitsRemediation,
        (true, false) => HealthCheck::Failed,
        (false, false) => HealthCheck::Passed,
    }
}

/// As [`COMPONENT_CONDITIONS`]; those about etcd only if it is stacked.
pub fn component_conditions(stacked: bool) -> impl Iterator<Item = &'static str> {
    let conditions = COMPONENT_CONDITIONS.iter();
    let conditions = conditions.filter(move |(_, of_etcd)| stacked || !of_etcd);
    conditions.map(|(condition, _)| *condition)
}

impl State {
    /// The state now. A rollout replaces the Machines whose verdict says so.
    pub fn of(observed: &Snapshot, verdicts: &[Verdict]) -> Self {
        let is_outdated = |name: &str| {
            let mut outdated = verdicts.iter().filter(|verdict| verdict.is_outdated());
            outdated.any(|verdict| verdict.machine == name)
        };
        let stacked = observed.etcd_members != EtcdMembers::External;
        let is_silent = |machine: &Machine| {
            let node = machine.node();
            node.is_some_and(|node| {
                observed.etcd_members.fault(node).is_some() || observed.etcd_members.has_alarm(node)
            })
        };
        let mut replicas: Vec<Replica> = observed
            .machines
            .iter()
            .map(|machine| Replica {
                name: machine.name().to_owned(),
                is_new: false,
                created: machine.creation_timestamp(),
                failure_domain: machine.spec.failure_domain.clone(),
                node: machine.status.node_name.clone(),
                is_outdated: is_outdated(machine.name()),
                deletion: deletion(machine),
                is_updating: machine.is_updating_in_place(),
                is_silent: is_silent(machine),
                health: health(machine),
                remediation_for: machine.remediation_for().clone(),
                faults: component_conditions(stacked)
                    .chain([LABELS])
                    .filter(|condition| !machine.is(condition))
                    .map(|condition| Fault {
                        condition,
                        is_false: machine.is_not(condition),
                    })
                    .collect(),
            })
            .collect();
        replicas.sort_by(|a, b| a.name.cmp(&b.name));
        // The note of a remediation is stale once a Machine younger than it is there.
        let remediation_in_progress = observed
            .control_plane
            .remediation_in_progress()
            .as_ref()
            .is_some_and(|remediation| {
                !replicas
                    .iter()
                    .any(|replica| replica.created.is_some() && replica.created > remediation.timestamp)
            });
        Self {
            members: members(&observed.etcd_members, &replicas),
            replicas,
            remediation_in_progress,
            made: 0,
        }
    }

    /// The state by conditions alone, as the controller sees it: without members that do not respond, and without learners
    /// whose Machine's condition is True.
    pub fn by_conditions(&self) -> Self {
        let mut reported = self.clone();
        for replica in &mut reported.replicas {
            replica.is_silent = false;
            if replica.has_fault(ETCD_MEMBER) {
                continue;
            }
            let of_replica = |member: &&mut Member| member.machine.as_deref() == Some(&replica.name);
            if let Some(member) = reported.members.iter_mut().flatten().find(of_replica) {
                member.is_learner = false;
                member.is_healthy = true;
            }
        }
        reported
    }

    /// None if etcd is external.
    pub fn votes(&self, change: Change<'_>) -> Option<Votes> {
        self.members.as_ref().map(|members| Votes::after(members, change))
    }

    /// Whether etcd keeps its quorum after a change. An external etcd is not the controller's concern.
    pub fn is_safe(&self, change: Change<'_>) -> bool {
        self.votes(change).is_none_or(Votes::is_safe)
    }

    /// What blocks a change that could lose etcd's quorum.
    pub fn quorum_blocker(&self, change: Change<'_>) -> Option<Blocker> {
        let votes = self.votes(change).filter(|votes| !votes.is_safe())?;
        Some(Blocker::Quorum { votes })
    }

    /// How the deletion of a Machine changes the members.
    pub fn removal<'s>(&'s self, replica: &'s Replica) -> Change<'s> {
        let is_member = |node: &&String| self.members.iter().flatten().any(|member| member.name == **node);
        replica
            .node
            .as_ref()
            .filter(is_member)
            .map_or(Change::Unchanged, |node| Change::Removed(node))
    }

    pub fn replica(&self, name: &str) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.name == name)
    }

    /// Whether any Machine is outdated that is not being deleted anyway.
    pub fn needs_rollout(&self) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.is_outdated && !replica.is_deleting())
    }

    /// Members without a Machine. While a Machine has no node the member may belong to it.
    pub fn orphans(&self) -> Vec<&Member> {
        if self.replicas.iter().any(|replica| replica.node.is_none()) {
            return Vec::new();
        }
        self.members
            .iter()
            .flatten()
            .filter(|member| member.machine.is_none())
            .collect()
    }

    pub fn add(&mut self, name: String, failure_domain: Option<String>) {
        self.made += 1;
        if let Some(members) = &mut self.members {
            members.push(Member {
                name: name.clone(),
                is_learner: false,
                is_healthy: true,
                machine: Some(name.clone()),
            });
        }
        self.replicas.push(Replica {
            node: Some(name.clone()),
            name,
            is_new: true,
            created: None,
            failure_domain,
            is_outdated: false,
            deletion: Deletion::Unmarked,
            is_updating: false,
            is_silent: false,
            health: HealthCheck::Passed,
            remediation_for: None,
            faults: Vec::new(),
        });
        self.remediation_in_progress = false;
    }

    pub fn remove(&mut self, name: &str) {
        self.replicas.retain(|replica| replica.name != name);
        if let Some(members) = &mut self.members {
            members.retain(|member| member.machine.as_deref() != Some(name));
            // etcd has gone with its last Machine.
            if self.replicas.is_empty() {
                members.clear();
            }
        }
    }

    pub fn recover(&mut self, name: &str) {
        let Some(replica) = self.replicas.iter_mut().find(|replica| replica.name == name) else {
            return;
        };
        replica.recover();
        let Some(members) = &mut self.members else { return };
        if let Some(member) = members
            .iter_mut()
            .find(|member| member.machine.as_deref() == Some(name))
        {
            member.is_healthy = true;
            member.is_learner = false;
        } else {
            // A member that had no name yet was its own.
            members.retain(|member| !member.name.is_empty());
            members.push(Member {
                name: replica.node.clone().unwrap_or_default(),
                is_learner: false,
                is_healthy: true,
                machine: Some(name.to_owned()),
            });
        }
    }
}

fn members(etcd: &EtcdMembers, replicas: &[Replica]) -> Option<Vec<Member>> {
    let of_replica = |replica: &Replica, is_learner| Member {
        name: replica.node.clone().unwrap_or_default(),
        is_learner,
        is_healthy: !replica.has_fault(ETCD_MEMBER) && !replica.is_silent,
        machine: Some(replica.name.clone()),
    };
    match etcd {
        EtcdMembers::External => None,
        EtcdMembers::Unread => Some(
            replicas
                .iter()
                .filter(|replica| replica.node.is_some())
                .map(|replica| of_replica(replica, false))
                .collect(),
        ),
        EtcdMembers::Known(members) => Some(
            members
                .iter()
                .map(|member| {
                    let replica = replicas
                        .iter()
                        .find(|replica| replica.node.as_ref().is_some_and(|node| *node == member.name));
                    replica.map_or_else(
                        || Member {
                            name: member.name.clone(),
                            is_learner: member.is_learner,
                            is_healthy: !member.has_alarm && member.fault.is_none(),
                            machine: None,
                        },
                        |replica| of_replica(replica, member.is_learner),
                    )
                })
                .collect(),
        ),
    }
}
