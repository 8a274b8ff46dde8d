//! The simulated state of a control plane between two steps of a plan.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use kcp_api::{
    Machine, Object as _, Remediation,
    machine::{Bootstrap, Infrastructure},
};

use crate::{
    controller_release::{Behaviour, Release},
    plan::rollout_reason::{MachineDifference, Reason},
    problem::Problem,
    quorum::{Change, EtcdRefusal, Member, Votes},
    snapshot::{EtcdMembers, Snapshot},
};

/// The Machine conditions that the controller checks, and whether each condition concerns a stacked etcd. If
/// several Machines have failed, the controller first remediates the Machine whose failed condition comes
/// first in this list.
const COMPONENT_CONDITIONS: &[(&str, bool)] = &[
    (ETCD_MEMBER_HEALTHY, true),
    (ETCD_POD_HEALTHY, true),
    ("APIServerPodHealthy", false),
    ("ControllerManagerPodHealthy", false),
    ("SchedulerPodHealthy", false),
];
const ETCD_MEMBER_HEALTHY: &str = "EtcdMemberHealthy";
const ETCD_POD_HEALTHY: &str = "EtcdPodHealthy";
/// The condition that reports the labels and taints that kubeadm sets on a node. It affects only the order of remediations.
pub const LABELS_AND_TAINTS: &str = "NodeKubeadmLabelsAndTaintsSet";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct Replica {
    /// The name of the Machine, or a placeholder such as `(new 1)` for a Machine that a step creates.
    pub name: String,
    pub is_new: bool,
    /// When the Machine was created. `None` for a Machine that a step creates, which counts as the newest.
    pub created: Option<Timestamp>,
    pub failure_domain: Option<String>,
    pub node: Option<String>,
    /// The name of the Machine's etcd member. It equals the name of the node, and is known even while the
    /// Machine does not reference the node.
    pub member: Option<String>,
    pub is_outdated: bool,
    pub deletion: Deletion,
    pub is_updating: bool,
    /// Whether a rollout may update the Machine in place instead of deleting it.
    pub may_update_in_place: bool,
    /// Whether the etcd member does not respond, has no leader, has an alarm or is not in the list of
    /// members. The controller queries only one member, and assumes that every voter in its list is healthy unless the voter
    /// has an alarm.
    pub has_unhealthy_member: bool,
    pub health: HealthCheck,
    pub remediation_for: Option<Remediation>,
    /// The Machine's conditions that are not True, in the order of [`COMPONENT_CONDITIONS`].
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deletion {
    Unmarked,
    /// The Machine has the annotation `cluster.x-k8s.io/delete-machine`, and its deletion has not begun.
    Marked,
    InProgress(Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthCheck {
    /// No `MachineHealthCheck` reports the Machine as unhealthy.
    Passed,
    Failed,
    /// A `MachineHealthCheck` reports the Machine as unhealthy, and the control plane is responsible for replacing it.
    AwaitsRemediation,
    /// Like [`Self::AwaitsRemediation`], with the annotation `cluster.x-k8s.io/remediate-machine`.
    AwaitsRemediationFirst,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    pub condition: &'static str,
    /// Whether the condition is False. If not, the condition is Unknown or absent.
    pub is_false: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanState {
    pub replicas: Vec<Replica>,
    /// The release of the controller.
    pub release: Release,
    /// The etcd members. `None` if etcd is external.
    pub members: Option<Vec<Member>>,
    /// The name of etcd's leader if the leader does not respond. `None` if it responds.
    pub unreachable_leader: Option<String>,
    /// Why the controller cannot read the etcd members, although they have responded. `None` if it can read them.
    pub unread_by_controller: Option<String>,
    /// The Machine whose Node is the newest, if the Machine is not being deleted. `None` if no Node's age is known.
    pub newest_node: Option<NewestNode>,
    /// Whether a remediation has deleted a Machine whose replacement does not exist yet.
    pub has_remediation_in_progress: bool,
    /// Whether the annotation that records the remediation in progress cannot be decoded.
    pub has_malformed_remediation: bool,
    /// The time until which an earlier step waits. `None` if no step waits for a time.
    pub waited_until: Option<Timestamp>,
    /// How many Machines earlier steps have created.
    pub created_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewestNode {
    pub created: Timestamp,
    pub machine: String,
}

impl NewestNode {
    /// For this long after the creation of a Node, the controller assumes that a member without a name belongs to the Node
    /// (`etcdMemberStartupGracePeriod`).
    const GRACE: SignedDuration = SignedDuration::from_secs(20);

    fn new(observed: &Snapshot) -> Option<Self> {
        let nodes = observed.workload.value()?.nodes.value()?;
        let of_machine = observed.machines.iter().filter_map(|machine| {
            let node = nodes.iter().find(|node| machine.node() == Some(&node.name))?;
            Some(Self {
                created: node.created?,
                machine: (!machine.is_deleting()).then(|| machine.name().to_owned())?,
            })
        });
        of_machine.max()
    }

    fn is_new(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) < Self::GRACE
    }
}

impl Replica {
    /// Orders Machines by age, the oldest first, then by name.
    pub fn age_order(&self, other: &Self) -> Ordering {
        let key = |replica: &Self| (replica.created.is_none(), replica.created);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.name.cmp(&other.name))
    }

    pub const fn is_deleting(&self) -> bool {
        matches!(self.deletion, Deletion::InProgress(_))
    }

    pub fn awaits_remediation(&self) -> bool {
        self.health >= HealthCheck::AwaitsRemediation
    }

    pub fn has_fault(&self, condition: &str) -> bool {
        self.faults.iter().any(|fault| fault.condition == condition)
    }

    /// Whether a component of the Machine or its etcd member is known to be unhealthy.
    pub fn has_failed_component(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| fault.is_false && fault.condition != LABELS_AND_TAINTS)
    }

    /// Whether all components of the Machine except the etcd member are healthy. The workload cluster needs at least
    /// one such Machine.
    pub fn has_healthy_components(&self) -> bool {
        self.faults
            .iter()
            .all(|fault| fault.condition == ETCD_MEMBER_HEALTHY || fault.condition == LABELS_AND_TAINTS)
    }

    pub fn blocking_faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults
            .iter()
            .filter(|fault| fault.condition != LABELS_AND_TAINTS)
    }

    /// Whether the Machine blocks the controller now, or will block it once the controller detects the same problems as the
    /// plugin.
    pub fn blocks_controller(&self) -> bool {
        self.node.is_none() || self.has_unhealthy_member || self.blocking_faults().next().is_some()
    }

    /// Whether the Machine's etcd member is unhealthy, but no condition reports it.
    pub fn has_unreported_failure(&self) -> bool {
        let mut conditions = COMPONENT_CONDITIONS.iter();
        self.has_unhealthy_member
            && !conditions.any(|(condition, of_etcd)| *of_etcd && self.has_fault(condition))
    }

    pub fn recover(&mut self) {
        let node = self.node.take().or_else(|| self.member.take());
        let node = node.unwrap_or_else(|| self.name.clone());
        self.member = Some(node.clone());
        self.node = Some(node);
        self.faults.clear();
        self.has_unhealthy_member = false;
        self.health = HealthCheck::Passed;
    }
}

fn deletion_state(machine: &Machine) -> Deletion {
    match machine.deletion_timestamp() {
        Some(since) => Deletion::InProgress(since),
        None if machine.is_deleted_first() => Deletion::Marked,
        None => Deletion::Unmarked,
    }
}

fn health_state(machine: &Machine) -> HealthCheck {
    match (machine.failed_health_check(), machine.awaits_remediation()) {
        (_, true) if machine.is_marked_unhealthy() => HealthCheck::AwaitsRemediationFirst,
        (_, true) => HealthCheck::AwaitsRemediation,
        (true, false) => HealthCheck::Failed,
        (false, false) => HealthCheck::Passed,
    }
}

/// Whether a rollout may update an outdated Machine in place: an extension is registered, and the Machine is eligible
/// (`EligibleForInPlaceUpdate` and `canUpdateMachine` of Cluster API). It is unknown whether the controller's feature
/// gate `InPlaceUpdates` is on, and what the extension answers.
fn may_update(observed: &Snapshot, verdict: &MachineDifference) -> bool {
    let handlers = observed.in_place_handlers.value();
    let is_registered = handlers.is_some_and(|handlers| !handlers.is_empty());
    let mut machines = observed.machines.iter();
    let machine = machines.find(|machine| machine.name() == verdict.machine);
    let is_eligible = |machine: &Machine| {
        !machine.is_deleted_first()
            && !machine.is_marked_unhealthy()
            && matches!(machine.infrastructure, Infrastructure::ClonedFrom(_))
            && matches!(machine.bootstrap, Bootstrap::Config(_))
    };
    is_registered
        && observed.release().has(Behaviour::UpdatesInPlace)
        && verdict.is_outdated()
        && machine.is_some_and(is_eligible)
        && !verdict.reasons.iter().any(Reason::is_time_based)
}

/// The condition types in [`COMPONENT_CONDITIONS`]. Those that concern etcd are included only if etcd is stacked.
pub fn component_conditions(stacked: bool) -> impl Iterator<Item = &'static str> {
    let conditions = COMPONENT_CONDITIONS.iter();
    let conditions = conditions.filter(move |(_, of_etcd)| stacked || !of_etcd);
    conditions.map(|(condition, _)| *condition)
}

impl PlanState {
    /// Returns the state of the snapshot. `verdicts` say which Machines are outdated.
    pub fn new(observed: &Snapshot, verdicts: &[MachineDifference]) -> Self {
        let is_outdated = |name: &str| {
            let mut outdated = verdicts.iter().filter(|verdict| verdict.is_outdated());
            outdated.any(|verdict| verdict.machine == name)
        };
        let may_update_in_place = |name: &str| {
            verdicts
                .iter()
                .any(|verdict| verdict.machine == name && may_update(observed, verdict))
        };
        let etcd = observed.members();
        let stacked = etcd != EtcdMembers::External;
        let unreachable_leader = etcd.unreachable_leader().map(|leader| leader.name.clone());
        let has_unhealthy_member = |machine: &Machine| {
            let node = machine.node();
            let has_fault =
                |node: &str| etcd.fault(node).is_some() && unreachable_leader.as_deref() != Some(node);
            node.is_some_and(|node| {
                has_fault(node) || etcd.alarm(node).is_some() || etcd.lacks_member_on(node)
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
                member: observed.node_of(machine).map(str::to_owned),
                is_outdated: is_outdated(machine.name()),
                deletion: deletion_state(machine),
                is_updating: machine.is_updating_in_place(),
                may_update_in_place: may_update_in_place(machine.name()),
                has_unhealthy_member: has_unhealthy_member(machine),
                health: health_state(machine),
                remediation_for: machine.remediation_for().clone(),
                faults: component_conditions(stacked)
                    .chain([LABELS_AND_TAINTS])
                    .filter(|condition| !machine.is_condition_true(condition))
                    .map(|condition| Fault {
                        condition,
                        is_false: machine.is_condition_false(condition),
                    })
                    .collect(),
            })
            .collect();
        replicas.sort_by(|a, b| a.name.cmp(&b.name));
        let malformed_remediation = observed
            .control_plane
            .remediation_in_progress()
            .is_some_and(|remediation| remediation.is_malformed);
        Self {
            release: observed.release(),
            members: initial_members(&etcd, &replicas),
            unread_by_controller: unread_by_controller(observed, &etcd),
            newest_node: NewestNode::new(observed),
            unreachable_leader,
            replicas,
            has_remediation_in_progress: observed.remediation_in_progress().is_some(),
            has_malformed_remediation: malformed_remediation,
            waited_until: None,
            created_count: 0,
        }
    }

    /// Returns the state as the controller sees it, from conditions only: a member or learner is healthy if the
    /// condition of its Machine is True.
    pub fn as_seen_by_controller(&self) -> Self {
        let mut reported = self.clone();
        for replica in &mut reported.replicas {
            replica.has_unhealthy_member = false;
            if replica.has_fault(ETCD_MEMBER_HEALTHY) {
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

    /// Counts the members of all Machines that are being deleted as unhealthy, except that of Machine `except`. The controller
    /// counts in this way before it finishes the deletion of `except` (`canSafelyRemediateMachine`).
    pub fn count_deleting_as_unhealthy(&mut self, except: &str) {
        let deleting = self.replicas.iter().filter(|replica| replica.is_deleting());
        let names: Vec<&str> = deleting.map(|replica| replica.name.as_str()).collect();
        for member in self.members.iter_mut().flatten() {
            let is_deleting = |machine: &str| machine != except && names.contains(&machine);
            if member.machine.as_deref().is_some_and(is_deleting) {
                member.is_healthy = false;
            }
        }
    }

    /// Whether at least one other Machine has healthy components and is not being deleted.
    pub fn works_without(&self, machine: &Replica) -> bool {
        let mut others = self.replicas.iter();
        others
            .any(|other| other.name != machine.name && !other.is_deleting() && other.has_healthy_components())
    }

    /// etcd's votes after a change of its members. `None` if etcd is external.
    pub fn votes(&self, change: Change<'_>) -> Option<Votes> {
        self.members.as_ref().map(|members| Votes::after(members, change))
    }

    /// Whether the controller considers a change of the etcd members safe. Always true for an external etcd.
    pub fn is_safe(&self, change: Change<'_>) -> bool {
        self.votes(change).is_none_or(Votes::is_safe)
    }

    /// Returns the blocker if etcd could lose quorum with a change of its members.
    pub fn quorum_blocker(&self, change: Change<'_>) -> Option<Problem> {
        let votes = self.votes(change).filter(|votes| !votes.is_safe())?;
        Some(Problem::Quorum { votes })
    }

    /// Why etcd admits no new member. `None` if it admits one, if it has lost its quorum, or if its members were not read.
    pub fn refused_join(&self) -> Option<EtcdRefusal> {
        EtcdRefusal::of_join(self.members.as_deref()?)
    }

    /// Why etcd refuses to remove the member of the Machine. `None` if it removes the member.
    pub fn refused_removal(&self, replica: &Replica) -> Option<EtcdRefusal> {
        EtcdRefusal::of_removal(self.members.as_deref()?, replica.member.as_deref()?)
    }

    /// Whether a listed member may belong to a Machine that is joining.
    pub fn has_joining_member(&self) -> bool {
        let mut members = self.members.iter().flatten();
        members.any(|member| member.machine.is_none() && (member.is_joining || member.is_starting()))
    }

    /// How the etcd members change when the Machine is deleted.
    pub fn removal<'s>(&'s self, replica: &'s Replica) -> Change<'s> {
        let is_member = |node: &&String| self.members.iter().flatten().any(|member| member.name == **node);
        replica
            .member
            .as_ref()
            .filter(is_member)
            .map_or(Change::Unchanged, |node| Change::Removed(node))
    }

    /// The blocker if the controller cannot delete the Machine, because it cannot move the leadership of etcd.
    pub fn leader_blocker(&self, replica: &Replica) -> Option<Problem> {
        let member = self.unreachable_leader.clone()?;
        if !self.release.has(Behaviour::LearnsLeaderFromFollowers) {
            return Some(Problem::LeaderUnreachable {
                member,
                machine: None,
            });
        }
        (replica.node.as_ref() == Some(&member)).then(|| Problem::LeaderUnreachable {
            member,
            machine: Some(replica.name.clone()),
        })
    }

    /// Whether the controller refuses to delete the Machine of the only etcd member.
    pub fn keeps_only_leader(&self) -> bool {
        self.members.is_some() && self.release.has(Behaviour::KeepsOnlyLeader)
    }

    /// Whether the controller holds the deletion of a Machine until etcd and the control plane work without it.
    pub fn holds_deletions(&self) -> bool {
        self.release.has(Behaviour::HoldsUnsafeDeletions)
    }

    /// The Machine to which a member without a name may belong, because its Node has just registered. The controller then
    /// removes no member.
    pub fn machine_of_unnamed_member(&self, now: Timestamp) -> Option<&str> {
        let newest = self.newest_node.as_ref()?;
        let may_belong = self.release.has(Behaviour::SparesUnnamedMembers) && newest.is_new(now);
        may_belong.then_some(newest.machine.as_str())
    }

    pub fn replica(&self, name: &str) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.name == name)
    }

    /// Whether any Machine is outdated and not being deleted.
    pub fn needs_rollout(&self) -> bool {
        self.replicas
            .iter()
            .any(|replica| replica.is_outdated && !replica.is_deleting())
    }

    /// The etcd members without a Machine that the controller removes. Empty while any Machine has no node, because the member
    /// could belong to that Machine.
    pub fn orphans(&self) -> Vec<&Member> {
        if self.replicas.iter().any(|replica| replica.node.is_none()) {
            return Vec::new();
        }
        self.members
            .iter()
            .flatten()
            .filter(|member| member.machine.is_none())
            .filter(|member| !member.name.is_empty() || self.release.has(Behaviour::RemovesUnnamedMembers))
            .collect()
    }

    /// Adds a Machine that joins at once.
    pub fn add(&mut self, name: String, failure_domain: Option<String>) {
        if let Some(members) = &mut self.members {
            members.push(Member {
                name: name.clone(),
                is_healthy: true,
                machine: Some(name.clone()),
                ..Member::default()
            });
        }
        self.add_unjoined(name.clone(), failure_domain);
        if let Some(added) = self.replicas.last_mut() {
            added.node = Some(name.clone());
            added.member = Some(name);
        }
    }

    /// Adds a Machine that has no node and no etcd member.
    pub fn add_unjoined(&mut self, name: String, failure_domain: Option<String>) {
        self.created_count += 1;
        self.replicas.push(Replica {
            node: None,
            member: None,
            name,
            is_new: true,
            created: None,
            failure_domain,
            is_outdated: false,
            deletion: Deletion::Unmarked,
            is_updating: false,
            may_update_in_place: false,
            has_unhealthy_member: false,
            health: HealthCheck::Passed,
            remediation_for: None,
            faults: Vec::new(),
        });
        self.has_remediation_in_progress = false;
    }

    pub fn remove(&mut self, name: &str) {
        self.replicas.retain(|replica| replica.name != name);
        if let Some(members) = &mut self.members {
            members.retain(|member| member.machine.as_deref() != Some(name));
            // The deletion of the last Machine also deletes etcd.
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
        self.unreachable_leader = self
            .unreachable_leader
            .take()
            .filter(|leader| replica.node.as_ref() != Some(leader));
        let Some(members) = &mut self.members else { return };
        let recovered = Member {
            name: replica.node.clone().unwrap_or_default(),
            is_healthy: true,
            machine: Some(name.to_owned()),
            ..Member::default()
        };
        let own = members
            .iter()
            .position(|member| member.machine.as_deref() == Some(name))
            .or_else(|| joining_member(members, name));
        match own.and_then(|own| members.get_mut(own)) {
            Some(own) if own.name.is_empty() => *own = recovered,
            Some(own) => {
                replica.node = Some(own.name.clone());
                replica.member.clone_from(&replica.node);
                let name = std::mem::take(&mut own.name);
                *own = Member { name, ..recovered };
            }
            None => members.push(recovered),
        }
    }
}

/// The message of condition `EtcdMemberHealthy` if the members have responded, but the condition is Unknown on every Machine that
/// has joined. The controller sets this status if it can read no member list (`updateManagedEtcdConditions`).
fn unread_by_controller(observed: &Snapshot, etcd: &EtcdMembers) -> Option<String> {
    let EtcdMembers::Read(_) = etcd else { return None };
    let joined = || {
        let machines = observed.machines.iter();
        machines.filter(|machine| machine.has_node() && !machine.is_deleting())
    };
    let unknown = |machine: &Machine| {
        let condition = machine.condition(ETCD_MEMBER_HEALTHY)?;
        let is_unknown = !condition.is_true() && !condition.is_false();
        is_unknown.then(|| condition.message_or_reason())
    };
    let is_unread = observed.etcd.value().is_some() && joined().all(|machine| unknown(machine).is_some());
    joined().find_map(unknown).filter(|_| is_unread)
}

/// The index of the member that a joining Machine has started: the member with the Machine's name, or a member that may
/// be joining.
fn joining_member(members: &[Member], machine: &str) -> Option<usize> {
    let unmatched = || {
        members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.machine.is_none())
    };
    let named = unmatched().find(|(_, member)| member.name == machine);
    let starting = || unmatched().find(|(_, member)| member.is_joining || member.name.is_empty());
    named.or_else(starting).map(|(index, _)| index)
}

fn initial_members(etcd: &EtcdMembers, replicas: &[Replica]) -> Option<Vec<Member>> {
    match etcd {
        EtcdMembers::External => None,
        EtcdMembers::Unread => Some(
            replicas
                .iter()
                .filter_map(|replica| {
                    let is_reported = |fault: &Fault| {
                        fault.is_false && [ETCD_MEMBER_HEALTHY, ETCD_POD_HEALTHY].contains(&fault.condition)
                    };
                    let is_healthy = !replica.has_fault(ETCD_MEMBER_HEALTHY) && !replica.has_unhealthy_member;
                    Some(Member {
                        name: replica.node.clone()?,
                        is_healthy,
                        is_unknown: !is_healthy
                            && !replica.has_unhealthy_member
                            && !replica.faults.iter().any(is_reported),
                        machine: Some(replica.name.clone()),
                        ..Member::default()
                    })
                })
                .collect(),
        ),
        EtcdMembers::Read(members) => Some(
            members
                .iter()
                .map(|member| {
                    let of_member = |replica: &&Replica| replica.member.as_ref() == Some(&member.name);
                    let replica = replicas.iter().find(of_member);
                    // The controller reads the condition of a Machine only if the Machine references its node.
                    let is_reported_unhealthy =
                        |replica: &Replica| replica.node.is_some() && replica.has_fault(ETCD_MEMBER_HEALTHY);
                    Member {
                        is_reported_unhealthy: replica.is_some_and(is_reported_unhealthy),
                        ..member.voter(replica.map(|replica| replica.name.as_str()))
                    }
                })
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::PlanState;
    use crate::{
        quorum::{Change, Votes},
        snapshot::Snapshot,
        testing::snapshot::observed,
    };

    /// The third Machine does not reference its node, which has this provider id.
    fn unreferenced(provider_id: &str) -> Snapshot {
        let mut observed = observed();
        observed.machine(3).status.node_name = None;
        observed.survey().queried[2].machine = None;
        observed.nodes()[2].provider_id = Some(provider_id.to_owned());
        observed
    }

    #[test]
    fn the_member_of_a_machine_without_node_is_found_by_provider_id() {
        let removal = |observed: &Snapshot| {
            let state = PlanState::new(observed, &[]);
            let replica = state.replica("m3").expect("m3").clone();
            let removed = matches!(state.removal(&replica), Change::Removed("node-m3"));
            (
                removed,
                state.votes(state.removal(&replica)).map(|votes| votes.voters),
            )
        };
        assert_eq!(removal(&unreferenced("p://m3")), (true, Some(2)));
        assert_eq!(removal(&unreferenced("p://other")), (false, Some(3)));
        // Cluster API does not choose between two nodes.
        let mut twice = unreferenced("p://m3");
        twice.nodes()[3].provider_id = Some("p://m3".to_owned());
        assert_eq!(removal(&twice), (false, Some(3)));
    }

    #[test]
    fn the_quorum_without_that_member_is_checked() {
        let mut observed = unreferenced("p://m3");
        observed.kill(2);
        let state = PlanState::new(&observed, &[]);
        let replica = state.replica("m3").expect("m3");
        assert!(!state.is_safe(state.removal(replica)));
        assert_eq!(
            state.votes(state.removal(replica)),
            Some(Votes {
                voters: 2,
                unhealthy: 1,
                starting: 0
            })
        );
    }
}
