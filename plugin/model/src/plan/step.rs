//! What the controller does next.
//!
//! In the order of its `reconcile`: etcd members without a Machine, deletions, remediation, in-place updates, rollout,
//! scaling. The simulation assumes that whatever the controller waits for happens.

use kcp_api::KubeadmControlPlaneSpec;
use serde::Serialize;

use crate::{
    plan::{
        remediation::{self, Terms},
        selection::{self, Group, Why},
        state::{Replica, State},
    },
    quorum::{Change, Votes},
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
    /// The first Machine of a control plane.
    Initialize,
    ScaleUp,
    ScaleDown,
    Rollout,
    Remediate,
    /// Wait until a Machine has joined, and its etcd member is promoted.
    ComeUp,
    /// Wait until a Machine is healthy.
    Recover,
    FinishDeletion,
    FinishUpdate,
    /// Wait until an etcd member without a Machine is removed.
    RemoveMember,
}

/// One variant of the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub action: Action,
    pub purpose: Purpose,
    /// Machines, or for [`Purpose::RemoveMember`] members.
    pub names: Vec<String>,
    pub failure_domain: Option<String>,
    pub why: Why,
    pub group: Option<Group>,
    /// The votes during the step, in the worst case; none if etcd is external.
    pub meanwhile: Option<Votes>,
    /// After the step.
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum NoPlan {
    BeingDeleted,
    /// The admission rules deny the change.
    Refused {
        /// A line each.
        why: Vec<String>,
    },
    /// Cluster API does not allow 0.
    NoReplicas,
    /// The controller cannot recover etcd.
    QuorumLost {
        votes: Votes,
    },
    /// The only Machine would be deleted, and the cluster's data with it.
    LastMachine {
        machine: String,
    },
    /// New Machines would be outdated at once.
    Endless {
        /// `certificatesExpiryDays`.
        expiry_days: i64,
        /// Of a new certificate.
        validity_days: i64,
    },
    /// The controller cannot continue by itself.
    Stuck {
        /// The Machines or etcd members that block it.
        names: Vec<String>,
    },
}

/// What decides besides the state.
#[derive(Clone, Copy, Debug)]
pub struct Context<'s> {
    pub spec: &'s KubeadmControlPlaneSpec,
    /// Failure domains of the Cluster.
    pub declared: &'s [String],
    pub terms: Terms<'s>,
}

/// The variants of the next step, all of the same action; none if nothing is left to do.
///
/// # Errors
/// When the controller cannot continue, or must not.
pub fn next(state: &State, context: Context<'_>) -> Result<Vec<Transition>, NoPlan> {
    if let Some(transition) = orphans(state)? {
        return Ok(vec![transition]);
    }
    if let Some(transition) = deletion_under_way(state)? {
        return Ok(vec![transition]);
    }
    let remediation = remediation::next_remediation(state, context.terms);
    if let Some(next) = remediation.filter(|next| next.blocked_by.is_none()) {
        let transition = state
            .replica(&next.machine)
            .map(|replica| deleted(state, replica, Purpose::Remediate, Why::Given, None));
        return Ok(transition.into_iter().collect());
    }
    if let Some(transition) = update_under_way(state) {
        return Ok(vec![transition]);
    }
    let (there, desired) = (state.replicas.len(), context.spec.size());
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
    Ok(come_up(state, &all).into_iter().collect())
}

fn orphans(state: &State) -> Result<Option<Transition>, NoPlan> {
    let orphans = state.orphans();
    // One without a name never voted: it goes first, and nothing is asked.
    let Some(first) = orphans.iter().min_by_key(|member| &member.name) else {
        return Ok(None);
    };
    let change = if first.name.is_empty() {
        Change::Unchanged
    } else {
        Change::Removed(&first.name)
    };
    if !first.name.is_empty() && !state.is_safe(change) {
        let names = || orphans.iter().map(|member| member.name.clone()).collect();
        return recovery(state, None)
            .map(Some)
            .ok_or_else(|| NoPlan::Stuck { names: names() });
    }
    let mut after = state.clone();
    if let Some(members) = &mut after.members {
        members.retain(|member| member != *first);
    }
    Ok(Some(Transition {
        names: vec![first.name.clone()],
        meanwhile: state.votes(change),
        ..waited(Purpose::RemoveMember, after)
    }))
}

fn deletion_under_way(state: &State) -> Result<Option<Transition>, NoPlan> {
    let going = state.replicas.iter().filter(|replica| replica.is_deleting());
    let Some(first) = going.min_by_key(|replica| (replica.deletion, &replica.name)) else {
        return Ok(None);
    };
    let last = || NoPlan::LastMachine {
        machine: first.name.clone(),
    };
    if state.replicas.iter().all(Replica::is_deleting) {
        return Err(last());
    }
    // The controller holds the Machine until its member can go; without a node it knows of no member.
    let is_held = first.node.is_some() && !state.is_safe(state.removal(first));
    let other_works = |replica: &Replica| replica.name != first.name && replica.runs_components();
    if is_held || !state.replicas.iter().any(other_works) {
        let stuck = || NoPlan::Stuck {
            names: vec![first.name.clone()],
        };
        return recovery(state, Some(first)).map(Some).ok_or_else(stuck);
    }
    let transition = Transition {
        action: Action::Wait,
        ..deleted(state, first, Purpose::FinishDeletion, Why::Given, None)
    };
    Ok(Some(transition))
}

fn update_under_way(state: &State) -> Option<Transition> {
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
        meanwhile: state.votes(Change::Unchanged),
        ..waited(Purpose::FinishUpdate, after)
    })
}

fn create(
    state: &State,
    Context { declared, .. }: Context<'_>,
    purpose: Purpose,
) -> Result<Vec<Transition>, NoPlan> {
    // A replacement is made beside Machines that are not healthy, as long as etcd and one API server can stand it.
    let can_stand_it = state.members.as_ref().is_none_or(|members| !members.is_empty())
        && state.replicas.iter().any(Replica::runs_components)
        && state.is_safe(Change::Added);
    if !(state.remediation_in_progress && can_stand_it)
        && let Some(transition) = recovery(state, None)
    {
        return Ok(vec![transition]);
    }
    if !state.is_safe(Change::Added) {
        return Err(stuck(state));
    }
    let choice = selection::next_to_fill(declared, &state.replicas);
    let transitions = choice.domains.into_iter().map(|domain| {
        let name = format!("(new {})", state.made + 1);
        let mut after = state.clone();
        after.add(name.clone(), domain.clone());
        Transition {
            action: Action::Create,
            purpose,
            names: vec![name],
            failure_domain: domain,
            why: choice.why,
            group: None,
            meanwhile: state.votes(Change::Added),
            state: after,
        }
    });
    Ok(transitions.collect())
}

fn delete(
    state: &State,
    Context { declared, .. }: Context<'_>,
    purpose: Purpose,
) -> Result<Vec<Transition>, NoPlan> {
    let Some(next) = selection::next_to_delete(declared, &state.replicas) else {
        return Ok(Vec::new());
    };
    if let ([only], 1) = (next.machines.as_slice(), state.replicas.len()) {
        return Err(NoPlan::LastMachine {
            machine: only.clone(),
        });
    }
    // The controller chooses anew until it has chosen one that may go. What is wrong with that one does not count.
    let may_go = |replica: &Replica| recovery(state, Some(replica)).is_none();
    // It may choose one that only we see should not go.
    let reported = state.by_conditions();
    let candidates = || next.machines.iter().filter_map(|name| state.replica(name));
    let may_be_chosen = || candidates().filter(|replica| recovery(&reported, Some(replica)).is_none());
    if may_be_chosen().count() > 1
        && !may_be_chosen().all(may_go)
        && let Some(wait) = recovery(state, None)
    {
        return Ok(vec![wait]);
    }
    let (can_go, must_wait): (Vec<&Replica>, Vec<&Replica>) =
        candidates().partition(|replica| may_go(replica));
    if can_go.is_empty() {
        let save = if must_wait.len() == 1 {
            must_wait.first().copied()
        } else {
            None
        };
        return recovery(state, save)
            .map(|transition| vec![transition])
            .ok_or_else(|| stuck(state));
    }
    let transitions = can_go.into_iter().map(|replica| {
        if replica.node.is_some() && !state.is_safe(state.removal(replica)) {
            return Err(stuck(state));
        }
        Ok(deleted(state, replica, purpose, next.why, Some(next.group)))
    });
    transitions.collect()
}

fn stuck(state: &State) -> NoPlan {
    let members = state.members.iter().flatten();
    NoPlan::Stuck {
        names: members
            .filter(|member| member.is_starting() || !member.is_healthy)
            .map(|member| member.name.clone())
            .collect(),
    }
}

/// The wait for every Machine but one that blocks the controller: Machines that start come first, Machines that are being
/// deleted last.
fn recovery(state: &State, save: Option<&Replica>) -> Option<Transition> {
    let not_saved = |replica: &&Replica| save.is_none_or(|save| save.name != replica.name);
    let (going, staying): (Vec<&Replica>, Vec<&Replica>) = state
        .replicas
        .iter()
        .filter(not_saved)
        .partition(|replica| replica.is_deleting());
    [staying, going].into_iter().find_map(|replicas| {
        come_up(state, &replicas).or_else(|| {
            let obstacles = replicas.into_iter().filter(|replica| replica.is_obstacle());
            wait_for(state, Purpose::Recover, obstacles)
        })
    })
}

fn come_up(state: &State, replicas: &[&Replica]) -> Option<Transition> {
    let is_learner = |replica: &Replica| {
        let mut members = state.members.iter().flatten();
        members.any(|member| member.is_learner && member.machine.as_deref() == Some(&replica.name))
    };
    let coming = replicas
        .iter()
        .copied()
        .filter(|replica| replica.node.is_none() || is_learner(replica));
    wait_for(state, Purpose::ComeUp, coming)
}

fn wait_for<'r>(
    state: &State,
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
        meanwhile: state.votes(Change::Unchanged),
        ..waited(purpose, after)
    })
}

fn waited(purpose: Purpose, after: State) -> Transition {
    Transition {
        action: Action::Wait,
        purpose,
        names: Vec::new(),
        failure_domain: None,
        why: Why::Given,
        group: None,
        meanwhile: None,
        state: after,
    }
}

fn deleted(state: &State, replica: &Replica, purpose: Purpose, why: Why, group: Option<Group>) -> Transition {
    let mut after = state.clone();
    after.remove(&replica.name);
    after.remediation_in_progress |= purpose == Purpose::Remediate;
    Transition {
        action: Action::Delete,
        purpose,
        names: vec![replica.name.clone()],
        failure_domain: replica.failure_domain.clone(),
        why,
        group,
        meanwhile: state.votes(state.removal(replica)),
        state: after,
    }
}
