//! Deletion of a control plane that worker Machines still need.

use crate::{
    action::{Action, DowngradeReason},
    api::KubeadmControlPlane,
    cel::{Cel, NoCel},
    change::Change,
    fault::{CauseReason, Fault, Faults},
    rule::{Check, ON_DELETE, Rule, Scope},
    topics::Topic,
    view::{Cluster, Part},
};
use kcp_api::names::annotation;

pub(super) const TOPIC: Topic = Topic {
    name: "deletion",
    rules: RULES,
};

const RULES: &[Rule] = &[Rule {
    id: "control-plane-in-use",
    summary: "a control plane must not be deleted while its Cluster has worker Machines",
    why: "A deletion cannot be undone. Cluster API keeps the Machines of the control plane until all workers are deleted, but no \
          longer scales, upgrades or repairs the control plane.",
    operations: ON_DELETE,
    scope: Scope::Cluster(&[Part::Cluster, Part::WorkerMachines, Part::NamespaceTerminating]),
    overridable: true,
    source: "KubeadmControlPlane proposal, Delete: blocked until all the worker nodes are deleted",
    check: Check::ControlPlane(deleted_with_workers),
    cel: Cel::None(NoCel::OtherObjects),
    ..Rule::USUAL
}];

fn deleted_with_workers(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let control_plane = change.new;
    let is_moved = control_plane.metadata.has_annotation(annotation::DELETE_FOR_MOVE);
    if control_plane.metadata.is_deleting() || is_moved && !change.context.authorizes_overrides {
        return;
    }
    let Some(view) = change.context.view else {
        return faults.unread();
    };
    let (cluster, workers) = (view.cluster.as_ref(), view.worker_machines.as_ref());
    let terminating = view.namespace_terminating;
    let without_cluster = cluster.map(|cluster| cluster.as_ref().is_none_or(|cluster| cluster.is_deleting));
    if [without_cluster, workers.map(Vec::is_empty), terminating].contains(&Some(true)) {
        return;
    }
    let (Some(Some(Cluster { name, .. })), Some(workers), Some(_)) = (cluster, workers, terminating) else {
        return faults.unread();
    };
    if let Some(worker) = workers.first() {
        let fault = Fault {
            field: "spec".into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "Cluster {name} still has workers, such as {worker}; the deletion cannot be undone, and until the workers are \
                 deleted, Cluster API would keep the control plane without scaling, upgrading or repairing it"
            )
            .into(),
            remedy: format!(
                "delete the Cluster instead, which deletes the workers first: kubectl delete cluster {name}{}",
                control_plane.metadata.namespace_flag()
            )
            .into(),
        };
        if is_moved {
            faults.push_downgraded(DowngradeReason::Moved, Action::Deny, fault);
        } else {
            faults.push(fault);
        }
    }
}
