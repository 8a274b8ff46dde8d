//! A control plane between two steps of a plan.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::blocker::Blocker;
use crate::{
    plan::observed::{Etcd, Machine, Observed, Remediation},
    quorum::{Change, Member, Votes},
};

/// Conditions of a Machine that the controller goes by, and whether they are about an etcd that runs on it; in the order
/// in which remediation looks at them.
pub const COMPONENT_CONDITIONS: &[(&str, bool)] = &[
    (ETCD_MEMBER, true),
    ("EtcdPodHealthy", true),
    ("APIServerPodHealthy", false),
    ("ControllerManagerPodHealthy", false),
    ("SchedulerPodHealthy", false),
];
const ETCD_MEMBER: &str = "EtcdMemberHealthy";
/// Of labels and taints that kubeadm sets on the node: only for which of two Machines is remediated first.
pub const LABELS: &str = "NodeKubeadmLabelsAndTaintsSet";

/// A Machine, as far as decisions look at it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "no two exclude each other")]
pub struct Replica {
    /// Its name; for one that a step makes, the name that the plan gives it.
    pub name: String,
    /// Whether a step of the plan makes it.
    pub is_new: bool,
    /// When it was made; none sorts last, as what a step makes is younger than all.
    pub created: Option<Timestamp>,
    /// Where it stands.
    pub failure_domain: Option<String>,
    /// Its node, once that has joined.
    pub node: Option<String>,
    /// Whether the rollout replaces it.
    pub is_outdated: bool,
    /// Whether it is to go.
    pub deletion: Deletion,
    /// Whether an update in place is under way on it.
    pub is_updating: bool,
    /// Whether its member of etcd takes no part, or raises an alarm. The controller asks one member only, and takes the
    /// others for well until their pods are not.
    pub is_silent: bool,
    /// What health checks have come to.
    pub health: HealthCheck,
    /// Which remediation it was made by.
    pub remediation_for: Option<Remediation>,
    /// Conditions that matter and do not hold, in the order in which remediation looks at them.
    pub faults: Vec<Fault>,
}

/// Whether a Machine is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deletion {
    /// No one has asked for it.
    Unasked,
    /// It is marked as the first to go.
    Marked,
    /// It is being deleted, since then.
    UnderWay(Timestamp),
}

/// What health checks of a Machine have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthCheck {
    /// Nothing was found, or there are none.
    Passed,
    /// It is unhealthy.
    Failed,
    /// It is unhealthy, and its control plane is asked to replace it.
    AwaitsRemediation,
    /// The same, and it is marked to come before others.
    AwaitsRemediationFirst,
}

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Its type.
    pub condition: &'static str,
    /// Whether it is known not to hold; else it is absent or unknown.
    pub is_false: bool,
}

/// A control plane between two steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// Its Machines, by name.
    pub replicas: Vec<Replica>,
    /// Members of etcd; none when it runs elsewhere.
    pub members: Option<Vec<Member>>,
    /// Whether a Machine was deleted to be replaced, and its replacement has yet to be made.
    pub remediation_in_progress: bool,
    /// Machines that steps have made.
    pub made: usize,
}

impl Replica {
    /// The older first, and of two of an age the first by name.
    pub fn age_order(&self, other: &Self) -> Ordering {
        let key = |replica: &Self| (replica.created.is_none(), replica.created);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.name.cmp(&other.name))
    }

    /// Whether it is being deleted.
    pub const fn is_deleting(&self) -> bool {
        matches!(self.deletion, Deletion::UnderWay(_))
    }

    /// Whether its control plane is asked to replace it.
    pub fn awaits_remediation(&self) -> bool {
        self.health >= HealthCheck::AwaitsRemediation
    }

    /// Whether a condition is known not to hold, or not known to hold.
    pub fn has_fault(&self, condition: &str) -> bool {
        self.faults.iter().any(|fault| fault.condition == condition)
    }

    /// Whether a component, or its member of etcd, is known not to work.
    pub fn has_failed_component(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| fault.is_false && fault.condition != LABELS)
    }

    /// Whether its components work: what the API server of the workload cluster needs of one Machine at least.
    pub fn runs_components(&self) -> bool {
        self.faults
            .iter()
            .all(|fault| fault.condition == ETCD_MEMBER || fault.condition == LABELS)
    }

    /// What of it keeps the controller from going on.
    pub fn obstacles(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.condition != LABELS)
    }

    /// Whether it keeps the controller from going on, or will as soon as that sees what we do.
    pub fn is_obstacle(&self) -> bool {
        self.node.is_none() || self.is_silent || self.obstacles().next().is_some()
    }

    /// Whether its member of etcd takes no part, and no condition tells the controller.
    pub fn fails_unseen(&self) -> bool {
        let of_etcd = COMPONENT_CONDITIONS.iter().filter(|(_, of_etcd)| *of_etcd);
        let mut of_etcd = of_etcd.map(|(condition, _)| condition);
        self.is_silent && !of_etcd.any(|condition| self.has_fault(condition))
    }

    /// Makes it as it is once it has come up and all is well.
    pub fn recover(&mut self) {
        self.node.get_or_insert_with(|| self.name.clone());
        self.faults.clear();
        self.is_silent = false;
        self.health = HealthCheck::Passed;
    }
}

fn deletion(machine: &Machine) -> Deletion {
    match machine.machine.deleting_since {
        Some(since) => Deletion::UnderWay(since),
        None if machine.to_be_deleted => Deletion::Marked,
        None => Deletion::Unasked,
    }
}

fn health(machine: &Machine) -> HealthCheck {
    match (machine.failed_health_check(), machine.awaits_remediation()) {
        (_, true) if machine.to_be_remediated => HealthCheck::AwaitsRemediationFirst,
        (_, true) => HealthCheck::AwaitsRemediation,
        (true, false) => HealthCheck::Failed,
        (false, false) => HealthCheck::Passed,
    }
}

/// The conditions that matter of a Machine.
fn conditions(stacked: bool) -> impl Iterator<Item = &'static str> {
    let components = COMPONENT_CONDITIONS
        .iter()
        .filter(move |(_, of_etcd)| stacked || !of_etcd);
    components.map(|(condition, _)| *condition).chain([LABELS])
}

impl State {
    /// The state now. `is_outdated` says which Machines the rollout replaces.
    pub fn of(observed: &Observed, is_outdated: impl Fn(&str) -> bool) -> Self {
        let stacked = observed.etcd != Etcd::External;
        let is_silent = |machine: &Machine| {
            let node = machine.machine.node.as_deref();
            node.is_some_and(|node| observed.etcd.silence(node).is_some() || observed.etcd.has_alarm(node))
        };
        let mut replicas: Vec<Replica> = observed
            .machines
            .iter()
            .map(|machine| Replica {
                name: machine.machine.name.clone(),
                is_new: false,
                created: machine.machine.created,
                failure_domain: machine.machine.failure_domain.clone(),
                node: machine.machine.node.clone(),
                is_outdated: is_outdated(&machine.machine.name),
                deletion: deletion(machine),
                is_updating: machine.updating_in_place,
                is_silent: is_silent(machine),
                health: health(machine),
                remediation_for: machine.remediation_for.clone(),
                faults: conditions(stacked)
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
            .remediation_in_progress
            .as_ref()
            .is_some_and(|remediation| {
                !replicas
                    .iter()
                    .any(|replica| replica.created.is_some() && replica.created > remediation.time)
            });
        Self {
            members: members(&observed.etcd, &replicas),
            replicas,
            remediation_in_progress,
            made: 0,
        }
    }

    /// The state as conditions tell it, by which the controller chooses: who is silent is not known, nor that a member has
    /// yet to be promoted where its Machine's condition holds.
    pub fn by_conditions(&self) -> Self {
        let mut told = self.clone();
        for replica in &mut told.replicas {
            replica.is_silent = false;
            if replica.has_fault(ETCD_MEMBER) {
                continue;
            }
            let of_replica = |member: &&mut Member| member.machine.as_deref() == Some(&replica.name);
            if let Some(member) = told.members.iter_mut().flatten().find(of_replica) {
                member.is_learner = false;
                member.is_healthy = true;
            }
        }
        told
    }

    /// The votes after a change; none when etcd runs elsewhere.
    pub fn votes(&self, change: Change<'_>) -> Option<Votes> {
        self.members.as_ref().map(|members| Votes::after(members, change))
    }

    /// Whether etcd, where it is the controller's concern, is safe after a change.
    pub fn is_safe(&self, change: Change<'_>) -> bool {
        self.votes(change).is_none_or(Votes::is_safe)
    }

    /// What blocks a change that could lose etcd's quorum.
    pub fn quorum_blocker(&self, change: Change<'_>) -> Option<Blocker> {
        let votes = self.votes(change).filter(|votes| !votes.is_safe())?;
        Some(Blocker::Quorum { votes })
    }

    /// The change of members that the deletion of a Machine brings.
    pub fn removal<'s>(&'s self, replica: &'s Replica) -> Change<'s> {
        let is_member = |node: &&String| self.members.iter().flatten().any(|member| member.name == **node);
        replica
            .node
            .as_ref()
            .filter(is_member)
            .map_or(Change::Unchanged, |node| Change::Removed(node))
    }

    /// The Machine of a name.
    pub fn replica(&self, name: &str) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.name == name)
    }

    /// Whether anything is outdated, except what goes anyhow.
    pub fn needs_rollout(&self) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.is_outdated && !replica.is_deleting())
    }

    /// Members of no Machine. While a Machine has yet to name its node the member may be its own.
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

    /// Adds a Machine that has come up.
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
            deletion: Deletion::Unasked,
            is_updating: false,
            is_silent: false,
            health: HealthCheck::Passed,
            remediation_for: None,
            faults: Vec::new(),
        });
        self.remediation_in_progress = false;
    }

    /// Takes a Machine and its member out.
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

    /// Makes a Machine and its member as they are once all is well.
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

fn members(etcd: &Etcd, replicas: &[Replica]) -> Option<Vec<Member>> {
    let of_replica = |replica: &Replica, is_learner| Member {
        name: replica.node.clone().unwrap_or_default(),
        is_learner,
        is_healthy: !replica.has_fault(ETCD_MEMBER) && !replica.is_silent,
        machine: Some(replica.name.clone()),
    };
    match etcd {
        Etcd::External => None,
        Etcd::Unread => Some(
            replicas
                .iter()
                .filter(|replica| replica.node.is_some())
                .map(|replica| of_replica(replica, false))
                .collect(),
        ),
        Etcd::Members(members) => Some(
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
                            is_healthy: !member.has_alarm && member.silence.is_none(),
                            machine: None,
                        },
                        |replica| of_replica(replica, member.is_learner),
                    )
                })
                .collect(),
        ),
    }
}
