//! Scaling and upgrading at the same time (2019 proposal, Scale Up and Scale Down).

use crate::{
    action::Action,
    api::{KubeadmControlPlane, Verbatim, control_plane::Shape},
    cel::{Cel, NoCel},
    change::Change,
    context::TOPOLOGY_MANAGER,
    fault::{CauseReason, Fault, Faults},
    progress::{self, Stage, UnobservedChange},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::Topic,
    view::Part,
};

pub(super) const TOPIC: Topic = Topic {
    name: "scale-with-upgrade",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "replicas-with-upgrade",
        summary: "replicas must not change in a write that also starts a rollout",
        why: "Scaling and a rollout both add and remove etcd members. One change at a time keeps the order clear \
              and lets you stop between the two changes.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal of 2019, Scale Up: not in conjunction with an upgrade, enforced by \
                 a validation webhook",
        check: Check::ControlPlane(scales_with_upgrade),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "replicas-during-rollout",
        summary: "replicas must not change while a rollout is, or may be, in progress",
        why: "Scaling and a rollout both add and remove etcd members. During a rollout, Cluster API scales \
              while it replaces Machines, so the order is hard to predict. A change that Cluster API has not \
              compared with the Machines yet may start a rollout.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposal of 2019, Scale Up and Scale Down: not in conjunction with an \
                 upgrade operation",
        check: Check::ControlPlane(scales_during_rollout),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "replicas-while-adopting",
        summary: "replicas must not change while the control plane adopts Machines",
        why: "Cluster API counts a Machine only after the control plane has adopted it. Once the control plane has adopted all \
              Machines, Cluster API compares their number with the new replicas, and deletes the surplus Machines.",
        operations: ON_UPDATE,
        scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
        overridable: true,
        topology: InTopology::Judged,
        source: "KubeadmControlPlane proposals of 2019 and 2021, Scale Up and Scale Down: not in conjunction \
                 with adopting Machines",
        check: Check::ControlPlane(scales_while_adopting),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
];

pub(crate) const FIELD: &str = "spec.replicas";

/// The fields of `kubeadmConfigSpec` whose change does not replace Machines. Cluster API writes them into the workload
/// cluster, or only new Machines use them (Cluster API, `matchesKubeadmConfig`).
const FIELDS_WITHOUT_ROLLOUT: &[&str] = &[
    "clusterConfiguration.controlPlaneEndpoint",
    "clusterConfiguration.dns",
    "clusterConfiguration.apiServer.timeoutForControlPlane",
    "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
    "joinConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
    "joinConfiguration.discovery",
];

fn scales_with_upgrade(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    if progress::is_before_first_machine(change, faults) {
        return;
    }
    let Some(what) = starts_rollout(change, old) else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "this write scales from {from} and changes {what}, which starts a rollout; both operations \
                 change etcd members"
            )
            .into(),
            remedy: format!("change {what} first, wait for the rollout, then scale").into(),
        },
    );
}

/// The path of a changed field that starts a rollout; `None` if the write starts none.
pub(super) fn starts_rollout(
    change: &Change<'_, KubeadmControlPlane<'_>>,
    old: &KubeadmControlPlane<'_>,
) -> Option<&'static str> {
    let (was, is) = (&old.spec, &change.new.spec);
    if was.version != is.version {
        return Some("version");
    }
    let same_template = match (old.infrastructure_ref(), change.new.infrastructure_ref()) {
        (Some(was), Some(is)) => was.is_same(is),
        (was, is) => was.is_some() == is.is_some(),
    };
    if !same_template {
        return Some("infrastructureRef");
    }
    let (was, is) = (was.kubeadm_config_spec.as_ref(), is.kubeadm_config_spec.as_ref());
    if !Verbatim::differences_except(was, is, FIELDS_WITHOUT_ROLLOUT).is_empty() {
        return Some("kubeadmConfigSpec");
    }
    progress::immediate_rollout_time(change).map(|_| match change.new.shape() {
        Shape::V1Beta1 => "rolloutAfter",
        Shape::V1Beta2 => "rollout.after",
    })
}

fn scales_during_rollout(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((old, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    let place = format!("{}{}", name(change.new), change.new.metadata.namespace_flag());
    let (action, detail, remedy) = if let Some(rolling) = progress::rollout_evidence(old) {
        let why = format!("a rollout is in progress ({rolling})");
        (
            Action::Deny,
            changes_members(&why, from),
            wait_for_rollout(&place),
        )
    } else if let Some(unobserved) = progress::unobserved_change(change, faults) {
        unobserved_fault(unobserved, from, &place)
    } else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change).min(action),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: detail.into(),
            remedy: remedy.into(),
        },
    );
}

fn changes_members(why: &str, from: i64) -> String {
    format!("{why}, and scaling from {from} would add or remove etcd members at the same time")
}

fn wait_for_rollout(place: &str) -> String {
    format!("wait for the rollout, then scale: kubectl kcp rollout status {place}")
}

/// The severest action, the detail and the remedy for a scale while `status.observedGeneration` does not include the last
/// change.
fn unobserved_fault(
    UnobservedChange {
        generation,
        observed,
        stage,
    }: UnobservedChange,
    from: i64,
    place: &str,
) -> (Action, String, String) {
    let observed = observed.map_or_else(|| "none".to_owned(), |observed| observed.to_string());
    let generations = format!("(generation {generation}, observed {observed})");
    match stage {
        Stage::Waiting => {
            let why = format!(
                "Cluster API has not yet compared the Machines with the last change {generations}, which may start a rollout"
            );
            (Action::Deny, changes_members(&why, from), wait_for_rollout(place))
        }
        Stage::Ignored => (
            Action::Warn,
            format!(
                "for more than five minutes, Cluster API has not compared the Machines with the last change {generations}; the \
                 last change may start a rollout while this write scales"
            ),
            format!("check that Cluster API's controller is running: kubectl kcp why {place}"),
        ),
        Stage::Compared => (
            Action::Warn,
            format!(
                "Cluster API may be unable to scale now, because a reconcile of the last change failed: the last change has generation \
                 {generation}, but status.observedGeneration is still {observed}. Cluster API has found no outdated Machine, so the \
                 last change starts no rollout"
            ),
            format!("find the cause: kubectl kcp why {place}"),
        ),
    }
}

fn scales_while_adopting(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some((_, from, to)) = replica_change(change) else {
        return;
    };
    faults.request();
    let Some(machines) = progress::machines(change) else {
        return progress::unread_unless_paused(change, faults, severity(change));
    };
    let Some(machine) = machines.iter().find(|machine| !machine.has_controller) else {
        return;
    };
    progress::push_unless_paused(
        change,
        faults,
        severity(change),
        Fault {
            field: FIELD.into(),
            reason: CauseReason::Forbidden,
            value: Some(to.to_string()),
            detail: format!(
                "no controller owns Machine {}, so the control plane is about to adopt it; until then, the current \
                 number of replicas, {from}, does not include this Machine",
                machine.name
            )
            .into(),
            remedy: "wait until the control plane has adopted every Machine, then scale".into(),
        },
    );
}

fn name<'c>(control_plane: &'c KubeadmControlPlane<'_>) -> &'c str {
    control_plane.metadata.name.as_deref().unwrap_or("NAME")
}

/// The old object, the old replicas and the new replicas; `None` if the write does not change replicas.
fn replica_change<'c, 'a>(
    change: &Change<'c, KubeadmControlPlane<'a>>,
) -> Option<(&'c KubeadmControlPlane<'a>, i64, i64)> {
    let old = change.old?;
    let (from, to) = (old.spec.replicas?, change.new.spec.replicas?);
    (from != to).then_some((old, from, to))
}

/// The severest action for a change of replicas.
fn severity(change: &Change<'_, KubeadmControlPlane<'_>>) -> Action {
    if is_topology_controller(change) {
        Action::Audit
    } else {
        Action::Deny
    }
}

/// Whether the topology controller writes replicas that it owns before or after this write. It owns them only after the write if
/// the topology sets the replicas for the first time, or takes them back from `kubectl scale`. Labels and the field manager of
/// the request do not show this, because any client can set them.
fn is_topology_controller(change: &Change<'_, KubeadmControlPlane<'_>>) -> bool {
    let owns_replicas =
        |object: &KubeadmControlPlane<'_>| object.metadata.has_applied(TOPOLOGY_MANAGER, "f:replicas");
    change.context.is_written_by_cluster_api()
        && (owns_replicas(change.new) || change.old.is_some_and(owns_replicas))
}
