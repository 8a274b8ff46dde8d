//! Changes while the second etcd member joins (kubernetes-sigs/cluster-api#11772).

use kcp_api::names::annotation;

use crate::{
    action::Action,
    api::KubeadmControlPlane,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    progress,
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{Topic, scale_with_upgrade::starts_rollout},
    view::{Machine, Part},
};

pub(super) const TOPIC: Topic = Topic {
    name: "joining",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "joining-machine-outdated",
    summary: "a change must not make the second control plane Machine outdated while it joins",
    why: "The second etcd member can vote before its Machine has a Node. If the Machine is outdated by then, Cluster API deletes \
          the Machine but not the member, and etcd loses quorum. The rule also denies the topology controller, which tries \
          again.",
    operations: ON_UPDATE,
    scope: Scope::Cluster(&[Part::Machines, Part::Cluster]),
    overridable: true,
    topology: InTopology::Judged,
    source: "Cluster API issue 11772; scale.go, selectMachineForInPlaceUpdateOrScaleDown: an outdated Machine with \
             unhealthy components goes first",
    check: Check::ControlPlane(joining_machine_outdated),
    cel: Cel::None(NoCel::OtherObjects),
    ..Rule::USUAL
}];

fn joining_machine_outdated(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let Some(old) = change.old.filter(|old| !old.has_external_etcd()) else {
        return;
    };
    let Some(what) = starts_rollout(change, old) else {
        return;
    };
    faults.request();
    let Some(machines) = progress::machines(change) else {
        return progress::unread_unless_paused(change, faults, Action::Deny);
    };
    let Some(machine) = joining_second_member(machines) else {
        return;
    };
    if returns_to_version_of(machine, change, old) {
        return;
    }
    let joining = &machine.name;
    let metadata = &change.new.metadata;
    let control_plane = format!(
        "{}{}",
        metadata.name.as_deref().unwrap_or("NAME"),
        metadata.namespace_flag()
    );
    progress::push_unless_paused(
        change,
        faults,
        Action::Deny,
        Fault {
            field: path(change.new, what).into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "Machine {joining} has no Node yet, but its etcd member may already vote; this change makes the Machine outdated, \
                 so Cluster API would delete the Machine but not its etcd member, and etcd would lose its quorum"
            )
            .into(),
            remedy: remedy(change, &control_plane).into(),
        },
    );
}

/// How to make the change. If a user writes the control plane, a pause permits the change. If the topology controller writes it,
/// a pause does not help, because a pause of the Cluster also stops the topology controller.
fn remedy(change: &Change<'_, KubeadmControlPlane<'_>>, control_plane: &str) -> String {
    let wait = "wait until the Machine has a Node; if it never gets a Node,";
    let remove = "remove the Machine's member from etcd, if there is one;";
    if change.context.topology.is_some() || change.context.is_written_by_cluster_api() {
        return format!(
            "{wait} {remove} then annotate the control plane, so that the topology controller may write it: kubectl annotate kcp \
             {control_plane} {}={ID}=TIME, where TIME has the format of RFC 3339 and is at most 24 hours ahead",
            annotation::OVERRIDE_RULES
        );
    }
    format!(
        "{wait} pause the control plane: kubectl kcp rollout pause {control_plane}; {remove} make this change; then resume the \
         control plane: kubectl kcp rollout resume {control_plane}"
    )
}

/// The Machine without a Node whose etcd member may be the second voter. `None` in three cases: the first Machine has not joined
/// yet; at least two Machines have a Node and are not being deleted; or kubeadm cannot run yet, because the bootstrap data does
/// not exist.
fn joining_second_member(machines: &[Machine]) -> Option<&Machine> {
    let joined = || machines.iter().filter(|machine| machine.has_node);
    let staying = joined().filter(|machine| !machine.is_deleting);
    let is_second = joined().next().is_some() && staying.count() <= 1;
    let may_vote =
        |machine: &&Machine| !machine.has_node && !machine.is_deleting && !machine.awaits_bootstrap_data;
    machines.iter().find(may_vote).filter(|_| is_second)
}

/// Whether the write only sets the version that the Machine has, so that the Machine is up to date again.
fn returns_to_version_of(
    machine: &Machine,
    change: &Change<'_, KubeadmControlPlane<'_>>,
    old: &KubeadmControlPlane<'_>,
) -> bool {
    let mut reverted = change.new.clone();
    reverted.spec.version.clone_from(&old.spec.version);
    let others = Change {
        new: &reverted,
        ..*change
    };
    change.new.spec.version.as_deref() == machine.version.as_deref() && starts_rollout(&others, old).is_none()
}

/// The path of a field that [`starts_rollout`] names.
fn path(control_plane: &KubeadmControlPlane<'_>, what: &str) -> String {
    match what {
        "infrastructureRef" => control_plane.infrastructure_ref_path().to_owned(),
        "rolloutAfter" | "rollout.after" => control_plane.rollout_after_path().to_owned(),
        field => format!("spec.{field}"),
    }
}

pub(crate) const ID: &str = "joining-machine-outdated";
