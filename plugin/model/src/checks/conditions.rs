//! What the controller says of the whole control plane.

use jiff::Timestamp;

use crate::checks::{
    components::machines_without_etcd,
    etcd_quorum::votes,
    judgement::{Judgement, Unjudged},
    turnover::{STARTING_LIMIT, TURN_LIMIT, age, is_fresh, is_turning},
};
use crate::{
    control_plane::{Condition, ConditionStatus, ControlPlane},
    inspection::{Finding, Outcome},
    snapshot::Observed,
};

fn control_plane(observed: &Observed) -> &ControlPlane {
    &observed.management.control_plane.control_plane
}

fn object(observed: &Observed) -> String {
    format!("KubeadmControlPlane/{}", control_plane(observed).name)
}

/// A condition that does not hold.
fn broken<'o>(observed: &'o Observed, kind: &str) -> Option<&'o Condition> {
    control_plane(observed)
        .condition(kind)
        .filter(|condition| !condition.is_true())
}

fn finding(observed: &Observed, condition: &Condition) -> Finding {
    let outcome = match condition.status {
        ConditionStatus::Unknown => Outcome::Unknown,
        ConditionStatus::True | ConditionStatus::False => Outcome::Fail,
    };
    let message = format!(
        "{} is {}: {}",
        condition.kind,
        condition.status.as_str(),
        condition.one_line()
    );
    Finding::of(outcome, object(observed), message)
}

/// Whether the first Machine has yet to come up, and there has been little time for it.
fn is_new(observed: &Observed, now: Timestamp) -> bool {
    let control_plane = control_plane(observed);
    let created = control_plane.created;
    !control_plane.initialized && created.is_some_and(|created| age(created, now) < STARTING_LIMIT)
}

/// What no controller has looked at cannot be judged.
pub fn reported(observed: &Observed, _: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    let message = if control_plane.conditions.is_empty() {
        "no controller has reported on it yet"
    } else if control_plane.condition("Available").is_none() {
        "no controller has reported whether it is available"
    } else {
        return Ok(Vec::new());
    };
    Ok(vec![Finding::unknown(object(observed), message).hint(
        "is Cluster API's kubeadm control plane controller running?",
    )])
}

pub fn current(observed: &Observed, _: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    if control_plane.conditions.is_empty() || control_plane.is_observed() {
        return Ok(Vec::new());
    }
    let message = format!(
        "the controller has seen generation {} of the spec, not yet {}",
        control_plane.observed_generation.unwrap_or(0),
        control_plane.generation
    );
    Ok(vec![Finding::unknown(object(observed), message)])
}

pub fn available(observed: &Observed, now: Timestamp) -> Judgement {
    let Some(condition) = broken(observed, "Available") else {
        return Ok(Vec::new());
    };
    let mut finding = finding(observed, condition);
    if is_new(observed, now) {
        finding.outcome = Outcome::Unknown;
        finding.message = format!("has not come up yet: {}", condition.one_line());
    } else if is_turning(observed, now) && is_fresh(condition, now, TURN_LIMIT) {
        finding.outcome = Outcome::Info;
    }
    Ok(vec![finding])
}

pub fn certificates_available(observed: &Observed, now: Timestamp) -> Judgement {
    let Some(condition) = broken(observed, "CertificatesAvailable") else {
        return Ok(Vec::new());
    };
    let mut finding = finding(observed, condition);
    if is_new(observed, now) {
        finding.outcome = Outcome::Info;
    }
    Ok(vec![finding])
}

pub fn etcd_cluster_healthy(observed: &Observed, now: Timestamp) -> Judgement {
    // Cluster API leaves it to others, and may leave what it said before it knew.
    if control_plane(observed).external_etcd {
        return Err(Unjudged::skipped("etcd runs elsewhere"));
    }
    // What is wrong with the members is told of the members.
    let is_explained = votes(observed, now).is_some_and(|votes| votes.unhealthy > 0)
        || !machines_without_etcd(observed).is_empty();
    of_machines(observed, "EtcdClusterHealthy", is_explained, now)
}

pub fn components_healthy(observed: &Observed, now: Timestamp) -> Judgement {
    let is_explained = observed
        .workload
        .read()
        .and_then(|workload| workload.static_pods.read())
        .is_some_and(|pods| pods.iter().any(|pod| !pod.ready));
    of_machines(observed, "ControlPlaneComponentsHealthy", is_explained, now)
}

/// A condition that sums up the Machines. Cluster API counts a Machine that has yet to join, a learner, or a member whose
/// Machine has just gone as a fault of the whole: while Machines come and go it has to last before it counts.
fn of_machines(observed: &Observed, kind: &str, is_explained: bool, now: Timestamp) -> Judgement {
    let limit = if is_turning(observed, now) || crate::checks::rollout::has_pending_change(observed, now) {
        STARTING_LIMIT
    } else {
        TURN_LIMIT
    };
    let lasting = broken(observed, kind).filter(|condition| !is_fresh(condition, now, limit));
    let findings = lasting
        .filter(|_| !is_explained)
        .map(|condition| finding(observed, condition));
    Ok(findings.into_iter().collect())
}
