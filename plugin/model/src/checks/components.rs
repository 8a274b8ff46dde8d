//! The components of the control plane on each node.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::checks::{
    judgement::{Judgement, Unjudged, machine, need, node, or_else},
    turnover::{Phase, is_turning, machine_of_node, machines, machines_read, phase_of_node},
};
use crate::{
    inspection::{Finding, Outcome},
    plan::observed::Machine,
    snapshot::{
        Observed,
        workload::{Component, StaticPod},
    },
};

/// The workload cluster, in words.
pub const WORKLOAD: &str = "the workload cluster";

/// The Machine conditions that tell of a component when the pods themselves are not read.
const fn condition_of(component: Component) -> (&'static str, &'static str) {
    match component {
        Component::ApiServer => ("APIServerPodHealthy", "API server"),
        Component::ControllerManager => ("ControllerManagerPodHealthy", "controller manager"),
        Component::Scheduler => ("SchedulerPodHealthy", "scheduler"),
        Component::Etcd => ("EtcdPodHealthy", "etcd pod"),
    }
}

/// The static pods, without those that a node has left behind: they stay until somebody collects them.
fn pods(observed: &Observed) -> Result<Vec<&StaticPod>, Unjudged> {
    let workload = need(&observed.workload, WORKLOAD)?;
    let pods = need(&workload.static_pods, "static pods")?;
    let is_there = |pod: &&StaticPod| {
        let nodes = workload.nodes.read();
        nodes.is_none_or(|nodes| nodes.iter().any(|node| node.name == pod.node))
    };
    Ok(pods.iter().filter(is_there).collect())
}

/// What the controller has written into a condition of each Machine that has settled.
pub fn by_conditions(observed: &Observed, kind: &str, about: &str, now: Timestamp) -> Vec<Finding> {
    let external = observed.management.control_plane.control_plane.external_etcd;
    if external && kind.starts_with("Etcd") {
        return Vec::new();
    }
    let settled = machines(observed)
        .iter()
        .filter(|of| of.has_node() && Phase::of(of, now) == Phase::Settled);
    settled
        .filter_map(|of| {
            let condition = of
                .machine
                .condition(kind)
                .filter(|condition| !condition.is_true())?;
            let doubt = if condition.is_false() { "" } else { "unknown: " };
            let message = format!("{about}: {doubt}{}", condition.one_line());
            Some(Finding::fail(machine(&of.machine.name), message).hint(describe(of)))
        })
        .collect()
}

/// Machines on whose node the pod of etcd is not ready; none where pods are not read.
pub fn machines_without_etcd(observed: &Observed) -> BTreeSet<&str> {
    let pods = pods(observed).unwrap_or_default();
    let not_ready = pods
        .into_iter()
        .filter(|pod| pod.component == Component::Etcd && !pod.ready && !pod.deleting);
    not_ready
        .filter_map(|pod| machine_of_node(observed, &pod.node))
        .map(|of| of.machine.name.as_str())
        .collect()
}

/// How to see more of a Machine.
pub fn describe(of: &Machine) -> String {
    format!(
        "see: kubectl describe machine {} -n {}",
        of.machine.name, of.machine.namespace
    )
}

pub fn api_servers_match(observed: &Observed, now: Timestamp) -> Judgement {
    let pods = pods(observed)?;
    machines_read(observed)?;
    let with_pod: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| pod.component == Component::ApiServer)
        .map(|pod| pod.node.as_str())
        .collect();
    let is_turning = is_turning(observed, now);
    let without_pod = machines(observed).iter().filter_map(|of| {
        let on = of
            .machine
            .node
            .as_deref()
            .filter(|node| !with_pod.contains(node))?;
        let message = format!("node {on} has no API server pod");
        match Phase::of(of, now) {
            Phase::Leaving => None,
            Phase::Starting => Some(Finding::info(machine(&of.machine.name), format!("{message} yet"))),
            Phase::Settled => Some(Finding::fail(machine(&of.machine.name), message).hint(describe(of))),
        }
    });
    let without_machine = with_pod
        .iter()
        .filter(|on| machine_of_node(observed, on).is_none())
        .map(|on| {
            if is_turning {
                return Finding::info(
                    node(on),
                    "has an API server pod and belongs to no Machine yet, or no longer",
                );
            }
            Finding::fail(
                node(on),
                "has an API server pod and belongs to no Machine: Cluster API does not know it",
            )
        });
    Ok(without_pod.chain(without_machine).collect())
}

pub fn api_servers_ready(observed: &Observed, now: Timestamp) -> Judgement {
    ready(observed, Component::ApiServer, now)
}

pub fn controller_managers_ready(observed: &Observed, now: Timestamp) -> Judgement {
    ready(observed, Component::ControllerManager, now)
}

pub fn schedulers_ready(observed: &Observed, now: Timestamp) -> Judgement {
    ready(observed, Component::Scheduler, now)
}

pub fn etcd_pods_ready(observed: &Observed, now: Timestamp) -> Judgement {
    if observed.management.control_plane.control_plane.external_etcd {
        return Err(Unjudged::skipped("etcd runs elsewhere"));
    }
    ready(observed, Component::Etcd, now)
}

fn ready(observed: &Observed, component: Component, now: Timestamp) -> Judgement {
    let (kind, about) = condition_of(component);
    let pods = match pods(observed) {
        Ok(pods) => pods,
        Err(unjudged) => return or_else(unjudged, by_conditions(observed, kind, about, now)),
    };
    let of_component = || pods.iter().filter(|pod| pod.component == component);
    let not_ready = of_component()
        .filter(|pod| !pod.ready && !pod.deleting)
        .filter_map(|pod| {
            let phase = match pod.phase.as_str() {
                "Running" => String::new(),
                phase => format!(", {}", phase.to_lowercase()),
            };
            let why = pod
                .message
                .as_ref()
                .map_or_else(String::new, |message| format!(": {message}"));
            let message = format!("{about} is not ready{phase}{why}");
            of_node(observed, &pod.node, &message, now).map(|finding| finding.hint(pod_hint(pod)))
        });
    // Whether each Machine has an API server is a check of its own.
    let expected = machines(observed)
        .iter()
        .filter(|_| component != Component::ApiServer);
    let absent = expected
        .filter_map(|machine| machine.machine.node.as_deref())
        .filter(|on| !of_component().any(|pod| pod.node == *on))
        .filter_map(|on| of_node(observed, on, &format!("there is no {about} pod"), now));
    Ok(not_ready.chain(absent).collect())
}

/// Commands for the workload cluster say so: `-n` alone would send them to the management cluster.
fn pod_hint(StaticPod { component, node, .. }: &StaticPod) -> String {
    format!(
        "in the workload cluster: kubectl describe pod {}-{node} -n kube-system",
        component.as_str()
    )
}

/// What is wrong on a node: of no weight while its Machine comes up, and nothing once that goes.
pub fn of_node(observed: &Observed, on: &str, message: &str, now: Timestamp) -> Option<Finding> {
    let outcome = match phase_of_node(observed, on, now) {
        Phase::Leaving => return None,
        Phase::Starting => Outcome::Info,
        Phase::Settled => Outcome::Fail,
    };
    let finding = match machine_of_node(observed, on) {
        Some(of) => Finding::of(outcome, machine(&of.machine.name), message).and(node(on)),
        None => Finding::of(outcome, node(on), message),
    };
    Some(finding)
}
