//! The control plane as an object: whether it is looked after, to whom it belongs, and whether it is to go.

use jiff::Timestamp;

use crate::checks::{
    judgement::{Judgement, Unjudged, machine, need},
    rollout::has_pending_change,
    turnover::since,
};
use crate::{
    control_plane::ControlPlane,
    inspection::{Finding, Outcome},
    plan::preflight::topology_version,
    snapshot::Observed,
};

fn control_plane(observed: &Observed) -> &ControlPlane {
    &observed.management.control_plane.control_plane
}

fn object(observed: &Observed) -> String {
    format!("KubeadmControlPlane/{}", control_plane(observed).name)
}

pub fn deletion(observed: &Observed, now: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    let Some(started) = control_plane.deleting_since else {
        return Ok(Vec::new());
    };
    let waiting = control_plane
        .condition("Deleting")
        .map_or_else(String::new, |condition| format!(": {}", condition.one_line()));
    let message = format!("being deleted for {}{waiting}", since(started, now));
    Ok(vec![Finding::fail(object(observed), message)])
}

pub fn failure(observed: &Observed, _: Timestamp) -> Judgement {
    let failure = control_plane(observed).failure.as_ref();
    Ok(failure
        .map(|failure| Finding::fail(object(observed), failure))
        .into_iter()
        .collect())
}

pub fn paused(observed: &Observed, now: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    let cluster_paused = observed.management.control_plane.cluster.paused;
    let own = control_plane.paused;
    if !own && !cluster_paused && !control_plane.is("Paused") {
        return Ok(Vec::new());
    }
    let (outcome, pending) = if has_pending_change(observed, now) {
        (Outcome::Fail, ", with changes pending")
    } else {
        (Outcome::Warn, "")
    };
    let (name, namespace) = (&control_plane.name, &control_plane.namespace);
    if own {
        let message = format!("paused{pending}: no controller works on it");
        let finding = Finding::of(outcome, object(observed), message).hint(format!(
            "resume: kubectl kcp rollout resume {name} -n {namespace}"
        ));
        return Ok(vec![finding]);
    }
    let message = format!("its Cluster is paused{pending}: no controller works on it");
    let finding = Finding::of(outcome, object(observed), message);
    Ok(vec![match &control_plane.cluster {
        Some(cluster) => finding.and(format!("Cluster/{cluster}")).hint(format!(
            "resume: kubectl patch cluster {cluster} -n {namespace} --type=merge -p '{{\"spec\":{{\"paused\":false}}}}'"
        )),
        None => finding,
    }])
}

pub fn cluster_reference(observed: &Observed, _: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    if control_plane.cluster.is_none() {
        return Err(Unjudged::skipped("it is not linked to a Cluster yet"));
    }
    let cluster = need(&observed.management.cluster, "the Cluster")?;
    let kind = cluster
        .control_plane_kind
        .as_deref()
        .unwrap_or("KubeadmControlPlane");
    let message = match cluster.control_plane_name.as_deref() {
        Some(name) if kind == "KubeadmControlPlane" && name == control_plane.name => return Ok(Vec::new()),
        Some(name) => format!(
            "spec.controlPlaneRef of Cluster {} names {kind} {name}",
            cluster.name
        ),
        None => format!(
            "Cluster {} names no control plane in spec.controlPlaneRef",
            cluster.name
        ),
    };
    Ok(vec![
        Finding::fail(format!("Cluster/{}", cluster.name), message)
            .and(object(observed))
            .hint(
                "the controller works on a control plane once its Cluster owns it: mend spec.controlPlaneRef",
            ),
    ])
}

/// What the controller waits for before it does anything.
pub fn cluster_ready(observed: &Observed, _: Timestamp) -> Judgement {
    need(&observed.management.cluster, "the Cluster")?;
    let control_plane = control_plane(observed);
    let cluster = &observed.management.control_plane.cluster;
    let object = control_plane
        .cluster
        .as_ref()
        .map_or_else(|| object(observed), |name| format!("Cluster/{name}"));
    // Before the first Machine there is time for both.
    let outcome = if control_plane.initialized {
        Outcome::Fail
    } else {
        Outcome::Info
    };
    let messages = [
        (!cluster.infrastructure_ready, "its infrastructure is not ready"),
        (!cluster.has_endpoint, "has no control plane endpoint"),
    ];
    Ok(messages
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, message)| Finding::of(outcome, &object, message))
        .collect())
}

pub fn topology(observed: &Observed, _: Timestamp) -> Judgement {
    let plan = &observed.management.control_plane;
    let Some(version) = topology_version(plan, &plan.spec) else {
        return Ok(Vec::new());
    };
    let message = format!("the Cluster's topology goes to {version} before the control plane does");
    Ok(vec![Finding::info(object(observed), message)])
}

pub fn adoption(observed: &Observed, _: Timestamp) -> Judgement {
    let control_plane = control_plane(observed);
    let findings = observed.management.unowned.iter().map(|name| {
        Finding::warn(
            machine(name),
            format!(
                "is a control plane Machine of the Cluster, and {} does not own it",
                control_plane.name
            ),
        )
        .hint(format!(
            "the controller adopts it unless it is paused; see: kubectl get machine {name} -n {} -o yaml",
            control_plane.namespace
        ))
    });
    Ok(findings.collect())
}
