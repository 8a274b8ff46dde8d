//! Decides the controller's next step.

use jiff::Timestamp;
use kcp_api::KubeadmControlPlaneSpec;
use serde::Serialize;

use crate::{
    controller_release::Behaviour,
    plan::{
        remediation::{self, NextRemediation, RemediationContext},
        selection::{self, FailureDomainReason, Group},
        state::{PlanState, Replica},
    },
    problem::Problem,
    quorum::{Change, EtcdRefusal, Votes},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Create,
    Delete,
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Create the first Machine of a control plane.
    Initialize,
    ScaleUp,
    ScaleDown,
    Rollout,
    Remediate,
    /// Wait until a Machine has joined and its etcd member has been promoted.
    ComeUp,
    /// Wait until a Machine is healthy.
    Recover,
    FinishDeletion,
    FinishUpdate,
    /// Wait until the controller may remediate a Machine again.
    RetryPeriod,
    /// Wait until an etcd member without a Machine is removed.
    RemoveMember,
}

/// One variant of the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub action: Action,
    pub purpose: Purpose,
    /// The names of the Machines, or of the etcd members for [`Purpose::RemoveMember`].
    pub names: Vec<String>,
    pub failure_domain: Option<String>,
    pub why: FailureDomainReason,
    pub group: Option<Group>,
    /// The time until which the step waits. `None` if it does not wait for a time.
    pub waits_until: Option<Timestamp>,
    /// Whether the controller may update the Machine in place instead of deleting it.
    pub may_update_in_place: bool,
    /// Why the step never ends: etcd refuses the change of its members that the step needs. `None` if it ends.
    pub refusal: Option<EtcdRefusal>,
    /// etcd's votes in the worst case during the step. `None` if etcd is external.
    pub votes_during: Option<Votes>,
    /// The state of the control plane after the step. If the step never ends: the state in which the control plane stays.
    pub state: PlanState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum NoPlan {
    BeingDeleted,
    /// The admission rules deny the change.
    Refused {
        /// Why the rules deny the change: one line for each rule.
        why: Vec<String>,
    },
    /// The desired number of Machines is 0, which Cluster API does not allow.
    NoReplicas,
    /// The desired number of Machines is too large for a plan.
    TooManyReplicas {
        replicas: usize,
        max: usize,
    },
    /// etcd has no quorum, and the controller cannot recover it.
    QuorumLost {
        votes: Votes,
    },
    /// Several Machines are being deleted, and the controller ends none of the deletions: it counts the Machines that are being
    /// deleted and their etcd members as unhealthy, so too few are healthy.
    HoldEachOther {
        machines: Vec<String>,
    },
    /// All Machines are being deleted. The controller holds each deletion, because no other Machine would remain.
    AllHeld {
        machines: Vec<String>,
    },
    /// The step would delete the only Machine.
    LastMachine {
        machine: String,
    },
    /// `maxSurge` is 0, and the controller cannot move etcd's leadership away from the only Machine.
    OnlyLeader {
        machine: String,
    },
    /// New Machines would be outdated immediately, so that the rollout would never end.
    Endless {
        /// The value of `certificatesExpiryDays`.
        expiry_days: i64,
        /// How long a new certificate is valid, in days.
        validity_days: i64,
    },
    /// The controller cannot continue without manual repair.
    Stuck {
        /// The names of the Machines or etcd members that block the controller.
        names: Vec<String>,
    },
}

/// The inputs of the simulation that do not change from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Context<'s> {
    pub spec: &'s KubeadmControlPlaneSpec,
    /// The failure domains that the Cluster declares for control plane Machines.
    pub declared: &'s [String],
    pub remediation: RemediationContext<'s>,
}

/// Returns all variants of the next step, which have the same action. Empty if the desired state is reached.
pub fn next(state: &PlanState, context: Context<'_>) -> Result<Vec<Transition>, NoPlan> {
    if let Some(transition) = remove_orphans(state, context.remediation.now)? {
        return Ok(vec![transition]);
    }
    if let Some(transition) = finish_deletion(state)? {
        return Ok(vec![transition]);
    }
    let remediation = remediation::next_remediation(state, context.remediation);
    if let Some(next) = remediation.as_ref().filter(|next| next.blocked_by.is_none()) {
        let transition = state.replica(&next.machine).map(|replica| {
            let transition = delete_transition(
                state,
                replica,
                Purpose::Remediate,
                FailureDomainReason::Given,
                None,
            );
            refuse(transition, state, state.refused_removal(replica))
        });
        return Ok(transition.into_iter().collect());
    }
    let other = rollout_or_scaling(state, context);
    let wait = remediation.and_then(|next| retry_wait(state, &next, &other));
    wait.map_or(other, |wait| Ok(vec![wait]))
}

/// Returns the step that waits until the controller may remediate a Machine again. `None` if the controller has
/// something else to do first.
fn retry_wait(
    state: &PlanState,
    next: &NextRemediation,
    other: &Result<Vec<Transition>, NoPlan>,
) -> Option<Transition> {
    let Some(Problem::TriedRecently { until } | Problem::TriedTooOften { until, .. }) = next.blocked_by
    else {
        return None;
    };
    let waits_for_it = |transition: &Transition| {
        transition.purpose == Purpose::Recover && transition.names.contains(&next.machine)
    };
    let is_next = match other {
        Ok(transitions) => transitions.iter().all(waits_for_it),
        Err(no_plan) => matches!(no_plan, NoPlan::Stuck { .. }),
    };
    is_next.then(|| Transition {
        names: vec![next.machine.clone()],
        waits_until: Some(until),
        votes_during: state.votes(Change::Unchanged),
        ..wait_transition(
            Purpose::RetryPeriod,
            PlanState {
                waited_until: Some(until),
                ..state.clone()
            },
        )
    })
}

/// Returns what the controller does if it remediates no Machine.
fn rollout_or_scaling(state: &PlanState, context: Context<'_>) -> Result<Vec<Transition>, NoPlan> {
    if let Some(transition) = finish_in_place_update(state) {
        return Ok(vec![transition]);
    }
    let (there, desired) = (state.replicas.len(), context.spec.replica_count());
    if state.needs_rollout() {
        return if there < desired + context.spec.max_surge {
            create(state, context, Purpose::Rollout)
        } else {
            delete(state, context, Purpose::Rollout)
        };
    }
    if there < desired {
        let purpose = if there == 0 {
            Purpose::Initialize
        } else {
            Purpose::ScaleUp
        };
        return create(state, context, purpose);
    }
    if there > desired {
        return delete(state, context, Purpose::ScaleDown);
    }
    let all: Vec<&Replica> = state.replicas.iter().collect();
    Ok(wait_for_join(state, &all).into_iter().collect())
}

fn remove_orphans(state: &PlanState, now: Timestamp) -> Result<Option<Transition>, NoPlan> {
    let orphans = state.orphans();
    // The controller first removes a member without a name. It does not check the quorum, because the member has never voted.
    let Some(first) = orphans.iter().min_by_key(|member| &member.name) else {
        return Ok(None);
    };
    let now = state.waited_until.map_or(now, |clock| clock.max(now));
    if first.name.is_empty()
        && let Some(machine) = state.machine_of_unnamed_member(now)
    {
        return Ok(wait_for_named_join(state, machine));
    }
    let change = if first.name.is_empty() {
        Change::Unchanged
    } else {
        Change::Removed(&first.name)
    };
    if !first.name.is_empty() && !state.is_safe(change) {
        let names = || orphans.iter().map(|member| member.name.clone()).collect();
        return wait_for_recovery(state, None)
            .map(Some)
            .ok_or_else(|| NoPlan::Stuck { names: names() });
    }
    let mut after = state.clone();
    if let Some(members) = &mut after.members {
        members.retain(|member| member != *first);
    }
    Ok(Some(Transition {
        names: vec![first.name.clone()],
        votes_during: state.votes(change),
        ..wait_transition(Purpose::RemoveMember, after)
    }))
}

fn finish_deletion(state: &PlanState) -> Result<Option<Transition>, NoPlan> {
    let going = state.replicas.iter().filter(|replica| replica.is_deleting());
    let Some(first) = going.min_by_key(|replica| (replica.deletion, &replica.name)) else {
        return Ok(None);
    };
    let last = || NoPlan::LastMachine {
        machine: first.name.clone(),
    };
    if state.replicas.iter().all(Replica::is_deleting) {
        return Err(if state.holds_deletions() && state.replicas.len() > 1 {
            NoPlan::AllHeld {
                machines: state
                    .replicas
                    .iter()
                    .map(|replica| replica.name.clone())
                    .collect(),
            }
        } else {
            last()
        });
    }
    // The controller delays the deletion until it can remove the member. If no node belongs to the Machine, the controller finds
    // no member to remove.
    let refusal = state.refused_removal(first);
    let mut reported = state.as_seen_by_controller();
    if state.holds_deletions() {
        reported.count_deleting_as_unhealthy(&first.name);
    }
    let is_safe = reported.is_safe(reported.removal(first))
        && (refusal.is_some() || state.is_safe(state.removal(first)));
    let is_held = first.member.is_some() && !is_safe;
    if state.holds_deletions() && (is_held || !state.works_without(first)) {
        let names = state.replicas.iter().filter(|replica| replica.is_deleting());
        let names: Vec<String> = names.map(|replica| replica.name.clone()).collect();
        let held = || match names.len() {
            1 => NoPlan::Stuck { names },
            _ => NoPlan::HoldEachOther { machines: names },
        };
        return wait_for_recovery(state, Some(first)).map(Some).ok_or_else(held);
    }
    let transition = Transition {
        action: Action::Wait,
        ..delete_transition(
            state,
            first,
            Purpose::FinishDeletion,
            FailureDomainReason::Given,
            None,
        )
    };
    Ok(Some(refuse(transition, state, refusal)))
}

/// Returns the transition. If etcd refuses the change of its members, the returned transition leaves the state as it is.
fn refuse(transition: Transition, state: &PlanState, refusal: Option<EtcdRefusal>) -> Transition {
    if refusal.is_none() {
        return transition;
    }
    Transition {
        refusal,
        votes_during: state.votes(Change::Unchanged),
        state: state.clone(),
        ..transition
    }
}

fn finish_in_place_update(state: &PlanState) -> Option<Transition> {
    let names: Vec<String> = state
        .replicas
        .iter()
        .filter(|replica| replica.is_updating)
        .map(|replica| replica.name.clone())
        .collect();
    let mut after = state.clone();
    for replica in &mut after.replicas {
        if replica.is_updating {
            replica.is_updating = false;
            replica.is_outdated = false;
        }
    }
    (!names.is_empty()).then(|| Transition {
        names,
        votes_during: state.votes(Change::Unchanged),
        ..wait_transition(Purpose::FinishUpdate, after)
    })
}

fn create(
    state: &PlanState,
    Context { declared, .. }: Context<'_>,
    purpose: Purpose,
) -> Result<Vec<Transition>, NoPlan> {
    // The controller creates a replacement despite unhealthy Machines if etcd stays safe and one Machine works.
    let tolerates_unhealthy = state.members.as_ref().is_none_or(|members| !members.is_empty())
        && state.replicas.iter().any(Replica::has_healthy_components)
        && state.is_safe(Change::Added);
    let tolerates_unhealthy = tolerates_unhealthy && state.release.has(Behaviour::ReplacesDespiteUnhealthy);
    if !(state.has_remediation_in_progress && tolerates_unhealthy)
        && let Some(transition) = wait_for_recovery(state, None)
    {
        return Ok(vec![transition]);
    }
    if !state.is_safe(Change::Added) {
        return Err(stuck_members(state));
    }
    let choice = selection::domain_to_create_in(declared, &state.replicas);
    let refusal = state.refused_join();
    let transitions = choice.domains.into_iter().map(|domain| {
        let name = format!("(new {})", state.created_count + 1);
        let mut after = state.clone();
        if refusal.is_some() {
            after.add_unjoined(name.clone(), domain.clone());
        } else {
            after.add(name.clone(), domain.clone());
        }
        let change = if refusal.is_some() {
            Change::Unchanged
        } else {
            Change::Added
        };
        Transition {
            action: Action::Create,
            purpose,
            names: vec![name],
            failure_domain: domain,
            why: choice.why,
            group: None,
            waits_until: None,
            may_update_in_place: false,
            refusal: refusal.clone(),
            votes_during: state.votes(change),
            state: after,
        }
    });
    Ok(transitions.collect())
}

fn delete(
    state: &PlanState,
    Context { declared, spec, .. }: Context<'_>,
    purpose: Purpose,
) -> Result<Vec<Transition>, NoPlan> {
    // The controller updates no Machine in place once enough Machines are up to date.
    let up_to_date = state
        .replicas
        .iter()
        .filter(|replica| !replica.is_outdated)
        .count();
    let Some(next) = selection::next_to_delete(declared, &state.replicas) else {
        return Ok(Vec::new());
    };
    if let ([only], 1) = (next.machines.as_slice(), state.replicas.len()) {
        let machine = only.clone();
        return Err(if state.keeps_only_leader() {
            NoPlan::OnlyLeader { machine }
        } else {
            NoPlan::LastMachine { machine }
        });
    }
    // At each reconciliation, the controller chooses again, until the other Machines are healthy. It ignores problems
    // of the chosen Machine.
    let may_go = |replica: &Replica| wait_for_recovery(state, Some(replica)).is_none();
    // The controller may choose a Machine whose deletion is unsafe because of a fault that only the plugin detects.
    let reported = state.as_seen_by_controller();
    let candidates = || next.machines.iter().filter_map(|name| state.replica(name));
    let may_be_chosen =
        || candidates().filter(|replica| wait_for_recovery(&reported, Some(replica)).is_none());
    if may_be_chosen().count() > 1
        && !may_be_chosen().all(may_go)
        && let Some(wait) = wait_for_recovery(state, None)
    {
        return Ok(vec![wait]);
    }
    let (can_go, must_wait): (Vec<&Replica>, Vec<&Replica>) =
        candidates().partition(|replica| may_go(replica));
    if can_go.is_empty() {
        let except = if must_wait.len() == 1 {
            must_wait.first().copied()
        } else {
            None
        };
        return wait_for_recovery(state, except)
            .map(|transition| vec![transition])
            .ok_or_else(|| stuck_members(state));
    }
    let transitions = can_go.into_iter().map(|replica| {
        if replica.member.is_some() && !state.is_safe(state.removal(replica)) {
            return Err(stuck_members(state));
        }
        let transition = delete_transition(state, replica, purpose, next.why, Some(next.group));
        Ok(Transition {
            may_update_in_place: purpose == Purpose::Rollout
                && replica.may_update_in_place
                && up_to_date < spec.replica_count(),
            ..transition
        })
    });
    transitions.collect()
}

fn stuck_members(state: &PlanState) -> NoPlan {
    let members = state.members.iter().flatten();
    NoPlan::Stuck {
        names: members
            .filter(|member| member.is_starting() || !member.is_healthy)
            .map(|member| member.name.clone())
            .collect(),
    }
}

/// Returns the next step that waits for Machines that block the controller: first for starting Machines, last
/// for Machines that are being deleted. Does not wait for `except`.
fn wait_for_recovery(state: &PlanState, except: Option<&Replica>) -> Option<Transition> {
    let is_included = |replica: &&Replica| except.is_none_or(|except| except.name != replica.name);
    let (going, staying): (Vec<&Replica>, Vec<&Replica>) = state
        .replicas
        .iter()
        .filter(is_included)
        .partition(|replica| replica.is_deleting());
    [staying, going].into_iter().find_map(|replicas| {
        wait_for_join(state, &replicas).or_else(|| {
            let obstacles = replicas.into_iter().filter(|replica| replica.blocks_controller());
            wait_for(state, Purpose::Recover, obstacles)
        })
    })
}

fn wait_for_named_join(state: &PlanState, machine: &str) -> Option<Transition> {
    wait_for(state, Purpose::ComeUp, state.replica(machine).into_iter())
}

fn wait_for_join(state: &PlanState, replicas: &[&Replica]) -> Option<Transition> {
    let is_learner = |replica: &Replica| {
        let mut members = state.members.iter().flatten();
        members.any(|member| member.is_learner && member.machine.as_deref() == Some(&replica.name))
    };
    let coming = replicas
        .iter()
        .copied()
        .filter(|replica| replica.node.is_none() || is_learner(replica));
    let is_unlisted = |replica: &Replica| replica.node.is_none() && replica.member.is_none();
    let must_be_added = coming.clone().any(is_unlisted) && !state.has_joining_member();
    let transition = wait_for(state, Purpose::ComeUp, coming)?;
    let refusal = state.refused_join().filter(|_| must_be_added);
    Some(refuse(transition, state, refusal))
}

fn wait_for<'r>(
    state: &PlanState,
    purpose: Purpose,
    replicas: impl Iterator<Item = &'r Replica>,
) -> Option<Transition> {
    let names: Vec<String> = replicas.map(|replica| replica.name.clone()).collect();
    let mut after = state.clone();
    for name in &names {
        after.recover(name);
    }
    (!names.is_empty()).then(|| Transition {
        names,
        votes_during: state.votes(Change::Unchanged),
        ..wait_transition(purpose, after)
    })
}

fn wait_transition(purpose: Purpose, after: PlanState) -> Transition {
    Transition {
        action: Action::Wait,
        purpose,
        names: Vec::new(),
        failure_domain: None,
        why: FailureDomainReason::Given,
        group: None,
        waits_until: None,
        may_update_in_place: false,
        refusal: None,
        votes_during: None,
        state: after,
    }
}

fn delete_transition(
    state: &PlanState,
    replica: &Replica,
    purpose: Purpose,
    why: FailureDomainReason,
    group: Option<Group>,
) -> Transition {
    let mut after = state.clone();
    after.remove(&replica.name);
    after.has_remediation_in_progress |= purpose == Purpose::Remediate;
    Transition {
        action: Action::Delete,
        purpose,
        names: vec![replica.name.clone()],
        failure_domain: replica.failure_domain.clone(),
        why,
        group,
        waits_until: None,
        may_update_in_place: false,
        refusal: None,
        votes_during: state.votes(state.removal(replica)),
        state: after,
    }
}
