//! Control planes of a `ClusterClass`, which Cluster API's topology controller writes.

use std::cmp::Ordering;

use crate::{
    action::Action,
    api::{KubeadmControlPlane, control_plane::Shape},
    cel::{Cel, NoCel},
    change::Change,
    context::TOPOLOGY_MANAGER,
    fault::{CauseReason, Fault, Faults, quote},
    rule::{Check, InTopology, ON_UPDATE, Rule, Scope},
    topics::{
        Topic,
        version::{VersionChange, version_change},
    },
};

pub(super) const TOPIC: Topic = Topic {
    name: "topology",
    rules: RULES,
};

const RULES: &[Rule] = &[
    Rule {
        id: "topology-version-lowered",
        summary: "a Cluster's topology must not lower the version",
        why: "The topology controller cannot plan a downgrade, so each of its reconciles fails. Cluster API's webhook admits some \
              downgrades, such as from v1.34.2 to v1.34.2-rc.1, but then denies the way back.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        overridable: true,
        topology: InTopology::Only,
        source: "Cluster API, exp/topology/desiredstate/upgrade_plan.go: invalid ControlPlane upgrade plan",
        check: Check::ControlPlane(lowered_in_topology),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "topology-rollout-unsupported",
        summary: "a topology must not set rollout.after with a v1beta1 control plane template",
        why: "The topology controller writes the time to spec.rollout.after, in the API version that it last used for the control \
              plane. v1beta1 has no such field, so each reconcile fails until you remove the time from the Cluster.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        overridable: true,
        topology: InTopology::Only,
        source: "Cluster API, internal/contract/controlplane.go: ControlPlane().Rollout().After()",
        check: Check::ControlPlane(rollout_in_v1beta1),
        cel: Cel::None(NoCel::OtherObjects),
        ..Rule::USUAL
    },
    Rule {
        id: "version-owned-by-topology",
        summary: "only the topology that owns a control plane may raise its version",
        why: "The topology controller does not set the version back. Each of its reconciles fails while the control plane has a higher \
              version than the Cluster. Cluster API then denies each write that raises the Cluster's version.",
        operations: ON_UPDATE,
        scope: Scope::Transition,
        overridable: true,
        source: "Cluster API, exp/topology/desiredstate/upgrade_plan.go: invalid ControlPlane upgrade plan; cluster-api issue 7395",
        check: Check::ControlPlane(raised_beside_topology),
        cel: Cel::None(NoCel::Writer),
        ..Rule::USUAL
    },
    Rule {
        id: "field-owned-by-topology",
        summary: "fields that a Cluster's topology owns should be changed in the Cluster",
        why: "The topology controller applies its own values again within seconds. The change then has no effect, or starts a \
              rollout that the controller's next write reverts.",
        operations: ON_UPDATE,
        action: Action::Warn,
        scope: Scope::Transition,
        source: "cluster-api issues 5442 and 7395",
        check: Check::ControlPlane(changed_beside_topology),
        cel: Cel::None(NoCel::Writer),
        ..Rule::USUAL
    },
];

fn lowered_in_topology(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let is_lower = |change: &VersionChange<'_>| change.order_in_topology().is_some_and(Ordering::is_lt);
    let Some(version_change) = version_change(change).filter(is_lower) else {
        return;
    };
    faults.push(version_change.fault(
        format!(
            "this version is below {}: every reconcile of the topology controller would fail, and Cluster API would deny the way \
             back",
            version_change.old
        ),
        format!("keep {}, or set a higher version", version_change.old),
    ));
}

fn rollout_in_v1beta1(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let topology = change.context.topology;
    let is_v1beta1 = topology.and_then(|topology| topology.written_shape) == Some(Shape::V1Beta1);
    let after = change.new.rollout_after();
    let was = change.old.and_then(KubeadmControlPlane::rollout_after);
    let Some(after) = after.filter(|after| is_v1beta1 && Some(*after) != was) else {
        return;
    };
    let metadata = &change.new.metadata;
    let cluster = metadata.cluster_name().unwrap_or("NAME");
    faults.push(Fault {
        field: change.new.rollout_after_path().into(),
        reason: CauseReason::Forbidden,
        value: Some(format!("\"{after}\"")),
        detail: "the topology controller last applied the control plane in v1beta1, which has no field for this time, so each of its \
                 reconciles would fail"
            .into(),
        remedy: format!(
            "in the ClusterClass, refer to the template as controlplane.cluster.x-k8s.io/v1beta2, and wait until the topology \
             controller has applied it; or remove this time, and run: kubectl kcp rollout start cluster/{cluster}{}",
            metadata.namespace_flag()
        )
        .into(),
    });
}

fn raised_beside_topology(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    let owned = change.old.filter(|old| is_owned(old));
    let Some((owned, version_change)) = owned.zip(version_change(change)) else {
        return;
    };
    let is_raised = version_change.order_in_topology().is_some_and(Ordering::is_gt);
    if !is_raised || change.context.is_written_by_cluster_api() {
        return;
    }
    let cluster = owned.metadata.cluster_name().unwrap_or("NAME");
    let mut remedy = format!(
        "set spec.topology.version of Cluster {cluster} to {}",
        quote(version_change.new)
    );
    let mut action = Action::Deny;
    if change.context.is_untrusted_topology_controller() {
        // If the writer is the real topology controller under another user, a denial would strand the Cluster. Another client
        // that claims this field manager gains no more than with an override. So the rule denies only if overrides need a
        // permission.
        if !change.context.authorizes_overrides {
            action = Action::Warn;
        }
        remedy += ", or list the user of Cluster API's controllers in trustedUsers of kcp-webhook's AdmissionConfiguration";
    }
    faults.push_at_most(
        action,
        version_change.fault(
            format!(
                "the topology of Cluster {cluster} owns the version, and the topology controller fails while the control plane \
                 is ahead of the Cluster"
            ),
            remedy,
        ),
    );
}

/// Whether a topology owns the version. Somebody may have removed the label, but the topology controller still owns the field.
fn is_owned(control_plane: &KubeadmControlPlane<'_>) -> bool {
    let metadata = &control_plane.metadata;
    metadata.is_owned_by_topology() || metadata.has_applied(TOPOLOGY_MANAGER, "f:version")
}

fn changed_beside_topology(change: &Change<'_, KubeadmControlPlane<'_>>, faults: &mut Faults) {
    // For a Scale, the webhook knows the control plane from a cache, without the owners of its fields.
    let old = change.old.filter(|_| change.subresource.is_none());
    let owned = old.filter(|old| old.metadata.is_owned_by_topology());
    let Some(old) = owned.filter(|_| !change.context.is_written_by_cluster_api()) else {
        return;
    };
    let (was, is) = (&old.spec, &change.new.spec);
    let cluster = old.metadata.cluster_name().unwrap_or("NAME");
    let class = format!("change the ClusterClass of Cluster {cluster}, or a variable of the Cluster");
    let replicas = format!("set spec.topology.controlPlane.replicas of Cluster {cluster}");
    let fields = [
        ("replicas", was.replicas != is.replicas, replicas),
        (
            "kubeadmConfigSpec",
            was.kubeadm_config_spec != is.kubeadm_config_spec,
            class.clone(),
        ),
        (
            "machineTemplate",
            was.machine_template != is.machine_template,
            class,
        ),
    ];
    let is_owned = |field: &str| old.metadata.has_applied(TOPOLOGY_MANAGER, &format!("f:{field}"));
    for (field, _, remedy) in fields
        .into_iter()
        .filter(|(field, changes, _)| *changes && is_owned(field))
    {
        faults.push(Fault {
            field: format!("spec.{field}").into(),
            reason: CauseReason::Forbidden,
            value: None,
            detail: format!(
                "the topology of Cluster {cluster} owns this field or parts of it, and the topology controller restores these \
                 values within seconds"
            )
            .into(),
            remedy: remedy.into(),
        });
    }
}
