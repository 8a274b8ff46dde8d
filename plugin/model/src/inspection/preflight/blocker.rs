//! What keeps the controller, as the checks that look at the same.

use crate::{
    inspection::Blocker,
    plan::{preflight as plan, remediation::Obstacle, wording},
    snapshot::Observed,
};

pub fn control_plane(observed: &Observed) -> String {
    format!(
        "KubeadmControlPlane/{}",
        observed.management.control_plane.control_plane.name
    )
}

pub fn of_controller(observed: &Observed, blocker: &plan::Blocker) -> Blocker {
    let cluster = || {
        let cluster = &observed.management.control_plane.control_plane.cluster;
        cluster
            .as_ref()
            .map_or_else(|| control_plane(observed), |name| format!("Cluster/{name}"))
    };
    let (check, object) = match blocker {
        plan::Blocker::Paused => ("not-paused", control_plane(observed)),
        plan::Blocker::ClusterPaused => ("not-paused", cluster()),
        plan::Blocker::InfrastructureNotReady | plan::Blocker::NoEndpoint => ("cluster-ready", cluster()),
        plan::Blocker::NoKubeconfig => ("secrets-present", cluster()),
        plan::Blocker::TopologyVersion { .. } => ("topology-version", cluster()),
        plan::Blocker::CertificatesNotAvailable => ("certificates-available", control_plane(observed)),
        plan::Blocker::BeingDeleted { machine } => ("machine-deletions", format!("Machine/{machine}")),
        plan::Blocker::NoNode { machine } => ("machines-joined", format!("Machine/{machine}")),
        plan::Blocker::Condition {
            machine, condition, ..
        } => (check_of(condition), format!("Machine/{machine}")),
        plan::Blocker::Learner { machine } => ("etcd-learners", format!("Machine/{machine}")),
        plan::Blocker::Silent { machine, .. } => ("etcd-members-answer", format!("Machine/{machine}")),
        plan::Blocker::Alarm { machine, .. } => ("etcd-alarms", format!("Machine/{machine}")),
        plan::Blocker::UpdatingInPlace { machine } => ("machines-up-to-date", format!("Machine/{machine}")),
        plan::Blocker::MemberWithoutMachine { member } if member.is_empty() => {
            ("etcd-members-match", control_plane(observed))
        }
        plan::Blocker::MemberWithoutMachine { member } => {
            ("etcd-members-match", format!("EtcdMember/{member}"))
        }
    };
    Blocker {
        check,
        objects: vec![object],
        message: blocker.message(),
    }
}

/// The check that looks at what a condition of a Machine tells.
fn check_of(condition: &str) -> &'static str {
    match condition {
        "APIServerPodHealthy" => "api-servers-ready",
        "ControllerManagerPodHealthy" => "controller-managers-ready",
        "SchedulerPodHealthy" => "schedulers-ready",
        "EtcdPodHealthy" => "etcd-pods-ready",
        _ => "etcd-members-answer",
    }
}

pub fn of_obstacle(observed: &Observed, machine: &str, obstacle: &Obstacle) -> Blocker {
    let of_machine = |name: &str| format!("Machine/{name}");
    let (check, object) = match obstacle {
        Obstacle::BeingDeleted => ("machine-deletions", of_machine(machine)),
        Obstacle::AnotherBeingDeleted { machine } => ("machine-deletions", of_machine(machine)),
        Obstacle::AnotherInProgress => ("remediation", control_plane(observed)),
        Obstacle::TriedRecently { .. } | Obstacle::TriedTooOften { .. } => {
            ("remediation", of_machine(machine))
        }
        Obstacle::TopologyVersion => ("topology-version", control_plane(observed)),
        Obstacle::AnotherComingUp { machine } => ("machines-joined", of_machine(machine)),
        Obstacle::NoOtherWorks => ("components-healthy", control_plane(observed)),
        Obstacle::LastMachine | Obstacle::MembersUnknown | Obstacle::Quorum => {
            ("etcd-quorum", control_plane(observed))
        }
    };
    Blocker {
        check,
        objects: vec![object],
        message: wording::obstacle(obstacle),
    }
}
