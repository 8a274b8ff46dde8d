//! The steps by which a Machine joins. A step that is done does not prove the earlier steps. But a Node or an etcd member
//! proves the bootstrap data and the host, because only kubeadm on the host creates them.

use jiff::Timestamp;
use kcp_api::{Condition, Object as _};
use serde::Serialize;

use super::Facts;
use crate::{
    checks::actor::Actor,
    join_times::joined_at,
    snapshot::{EtcdMembers, Reading},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum StepName {
    BootstrapData,
    Infrastructure,
    /// kubeadm has registered the Node. With the API server of its own host, it adds the etcd member before.
    NodeRegistered,
    EtcdMemberVotes,
    StaticPodsReady,
    NodeReady,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    Done,
    /// The first step that is not done.
    Missing,
    /// An earlier step is missing or unknown.
    Waits,
    /// What would show it could not be read.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub step: StepName,
    pub state: StepState,
    /// When the step was done, or since when it is missing. Absent if no object records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Who takes the step. Present only if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What is known about it, on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl StepName {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BootstrapData => "bootstrap data",
            Self::Infrastructure => "infrastructure",
            Self::NodeRegistered => "Node registered",
            Self::EtcdMemberVotes => "etcd member votes",
            Self::StaticPodsReady => "static Pods ready",
            Self::NodeReady => "Node ready",
        }
    }

    fn actor(self, facts: &Facts<'_>) -> Actor {
        let is_learner = || facts.member().is_none_or(|member| member.is_learner);
        match self {
            Self::BootstrapData => Actor::BootstrapProvider,
            Self::Infrastructure => Actor::InfrastructureProvider,
            Self::NodeRegistered => Actor::Kubeadm,
            Self::EtcdMemberVotes if is_learner() => Actor::Kubeadm,
            Self::EtcdMemberVotes | Self::StaticPodsReady | Self::NodeReady => Actor::Kubelet,
        }
    }
}

impl StepState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Missing => "missing",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a step is done, since when, and what is known about it.
struct Found(StepState, Option<Timestamp>, Option<String>);

impl Found {
    fn done(since: Option<Timestamp>) -> Self {
        Self(StepState::Done, since, None)
    }

    fn missing(since: Option<Timestamp>, detail: Option<String>) -> Self {
        Self(StepState::Missing, since, detail)
    }

    /// What follows if the source of a step was not read.
    fn unread<T>(reading: &Reading<T>) -> Self {
        match reading {
            Reading::Failed(failure) | Reading::OutOfReach(failure) => {
                Self(StepState::Unknown, None, Some(failure.text()))
            }
            _ => Self::missing(None, Some("the control plane is not initialized yet".to_owned())),
        }
    }
}

pub(super) fn steps(facts: &Facts<'_>) -> Vec<Step> {
    let mut found = vec![
        (StepName::BootstrapData, bootstrap_data(facts)),
        (StepName::Infrastructure, infrastructure(facts)),
        (StepName::NodeRegistered, node_registered(facts)),
    ];
    if facts.of_control_plane {
        found.extend(etcd_member(facts).map(|found| (StepName::EtcdMemberVotes, found)));
        found.push((StepName::StaticPodsReady, static_pods(facts)));
    }
    found.push((StepName::NodeReady, node_ready(facts)));
    let mut steps: Vec<Step> = Vec::new();
    let mut reached = facts.machine.creation_timestamp();
    let mut is_waiting = false;
    for (step, Found(state, since, detail)) in found {
        let is_first = state == StepState::Missing && !is_waiting;
        is_waiting |= state != StepState::Done;
        steps.push(Step {
            step,
            state: match state {
                StepState::Missing if !is_first => StepState::Waits,
                state => state,
            },
            since: if is_first { since.or(reached) } else { since },
            actor: is_first.then(|| step.actor(facts)),
            detail,
        });
        if state == StepState::Done {
            reached = reached.max(since);
        }
    }
    steps
}

/// The result of a condition of the Machine that is one of the steps.
fn of_condition(facts: &Facts<'_>, kind: &str, is_done: bool, more: Option<String>) -> Found {
    let condition = facts.machine.condition(kind);
    let since = condition.and_then(|condition| condition.last_transition_time);
    let unmet = condition.filter(|condition| !condition.is_true());
    let detail = more.or_else(|| {
        let message = unmet.map(Condition::message_or_reason);
        message.filter(|message| !message.is_empty())
    });
    if is_done || condition.is_some_and(Condition::is_true) {
        Found(StepState::Done, since.filter(|_| unmet.is_none()), detail)
    } else {
        Found::missing(since, detail)
    }
}

fn bootstrap_data(facts: &Facts<'_>) -> Found {
    let is_done = facts.has_host() || !facts.machine.spec.awaits_bootstrap_data;
    of_condition(facts, "BootstrapConfigReady", is_done, None)
}

fn infrastructure(facts: &Facts<'_>) -> Found {
    let object = facts.infrastructure();
    let failure = object.and_then(|related| match related.object.value()? {
        None => Some(format!(
            "{}/{} does not exist",
            related.reference.kind, related.reference.name
        )),
        Some(object) => object.failure_message.clone(),
    });
    of_condition(facts, "InfrastructureReady", facts.has_host(), failure)
}

fn node_registered(facts: &Facts<'_>) -> Found {
    let (machine, nodes) = (facts.machine, facts.nodes());
    let created = facts.node_object().and_then(|node| node.created);
    match (machine.node(), facts.node, &nodes) {
        (Some(_), _, _) => Found::done(created.or_else(|| joined_at(machine))),
        (None, Some(node), _) => {
            let detail = format!("Node {node} exists, but the Machine does not refer to it yet");
            Found(StepState::Done, created, Some(detail))
        }
        (None, None, Reading::Read(_)) => Found::missing(None, None),
        (None, None, unread) => Found::unread(unread),
    }
}

/// `None` if etcd does not run on the Machines.
fn etcd_member(facts: &Facts<'_>) -> Option<Found> {
    let Some(observed) = facts.observed else {
        return Some(Found::unread(&facts.records.control_plane));
    };
    Some(match (observed.members(), facts.member()) {
        (EtcdMembers::External, _) => return None,
        (EtcdMembers::Unread, _) if observed.etcd.value().is_some() => {
            let detail = "no etcd member reports a usable list of members".to_owned();
            Found(StepState::Unknown, None, Some(detail))
        }
        (EtcdMembers::Unread, _) => Found::unread(&observed.etcd),
        (EtcdMembers::Read(_), None) => Found::missing(None, None),
        (EtcdMembers::Read(_), Some(member)) if member.is_learner => Found::missing(
            None,
            Some("the member is a learner: kubeadm has not promoted it yet".to_owned()),
        ),
        (EtcdMembers::Read(_), Some(member)) => {
            let alarm = member.alarm.map(|alarm| format!("has raised the alarm {alarm}"));
            match member.fault.filter(|_| !member.is_joining).or(alarm) {
                Some(fault) => Found::missing(None, Some(format!("the member {fault}"))),
                None => Found::done(None),
            }
        }
    })
}

fn static_pods(facts: &Facts<'_>) -> Found {
    let pods = facts.pods();
    let Reading::Read(_) = &pods else {
        return Found::unread(&pods);
    };
    if facts.node.is_none() {
        return Found::missing(None, None);
    }
    let (mut since, mut faults) = (None, Vec::new());
    for component in facts.components() {
        let name = component.as_str();
        match facts.static_pod(component) {
            None => faults.push(format!("{name} has no Pod")),
            Some(pod) if !pod.ready => {
                since = since.max(pod.ready_since);
                let why = pod
                    .message
                    .as_ref()
                    .map_or_else(|| "not ready".to_owned(), Clone::clone);
                faults.push(format!("{name}: {why}"));
            }
            Some(pod) if faults.is_empty() => since = since.max(pod.ready_since),
            Some(_) => {}
        }
    }
    if faults.is_empty() {
        Found::done(since)
    } else {
        Found::missing(since, Some(faults.join("; ")))
    }
}

fn node_ready(facts: &Facts<'_>) -> Found {
    let nodes = facts.nodes();
    let Reading::Read(_) = &nodes else {
        return Found::unread(&nodes);
    };
    match (facts.node_object(), facts.node) {
        (Some(node), _) if node.ready == Some(true) => Found::done(node.ready_since),
        (Some(node), _) => {
            let mut problems = node.problems.iter();
            let ready = problems.find(|problem| problem.type_ == "Ready");
            Found::missing(node.ready_since, ready.map(Condition::message_or_reason))
        }
        (None, Some(node)) => Found::missing(None, Some(format!("Node {node} does not exist"))),
        (None, None) => Found::missing(None, None),
    }
}
