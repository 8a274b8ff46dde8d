//! The resources that policies cover.

use crate::{api::control_plane::Shape, change::Operation};

/// The name and the expression of a match condition.
type MatchCondition = (&'static str, &'static str);

/// A match condition that exempts objects that are being deleted, so that controllers can always finish the deletion.
const NOT_BEING_DELETED: MatchCondition = (
    "not-being-deleted",
    "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp)",
);
const SPEC_CHANGES: MatchCondition = (
    "spec-changes",
    "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec \
     || ['kubectl-kcp.dev/override-rules', 'cluster.x-k8s.io/paused', 'clusterctl.cluster.x-k8s.io/delete-for-move'].exists(key, \
     object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key]) \
     || object.metadata.?labels[?'cluster.x-k8s.io/cluster-name'] != oldObject.metadata.?labels[?'cluster.x-k8s.io/cluster-name'] \
     || object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences",
);
/// A match condition for defaults. An object without a spec is left to the schema, which denies it.
const SPEC_DIFFERS: MatchCondition = (
    "spec-differs",
    "has(object.spec) && (request.operation == 'CREATE' || !has(oldObject.spec) || object.spec != oldObject.spec)",
);
const POOL_REFERENCE_CHANGES: MatchCondition = (
    "pool-reference-changes",
    "has(object.spec) && (request.operation == 'CREATE' || !has(oldObject.spec) \
     ? has(object.spec.clusterPoolRef) \
     : has(object.spec.clusterPoolRef) != has(oldObject.spec.clusterPoolRef) \
     || has(object.spec.clusterPoolRef) && object.spec.clusterPoolRef != oldObject.spec.clusterPoolRef \
     || object.metadata.?annotations[?'kubectl-kcp.dev/override-rules'] \
     != oldObject.metadata.?annotations[?'kubectl-kcp.dev/override-rules'])",
);
/// A match condition that excludes v1beta1, which has its own policies.
const NOT_V1BETA1: MatchCondition = ("not-v1beta1", "request.requestResource.version != 'v1beta1'");

/// A resource in one API version, and how policies match it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyTarget {
    pub(super) kind: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    /// The plural name of the resource, with the subresource if there is one.
    pub(super) resource: &'static str,
    pub(super) operations: &'static [Operation],
    pub(super) shape: Shape,
    /// Whether the policy also covers writes in other API versions, which the API server converts first.
    pub(super) matches_equivalent: bool,
    pub(super) failure_policy: &'static str,
    pub(super) conditions: &'static [MatchCondition],
    /// A CEL expression for the inputs of object rules: the new object and, for an update, the old object.
    pub(super) object_inputs: &'static str,
    /// The path of `spec`, and a CEL expression for the inputs of the rules that control planes and templates share.
    pub(super) spec_inputs: Option<(&'static str, &'static str)>,
}

const ON_WRITE: &[Operation] = &[Operation::Create, Operation::Update];
const OBJECTS: &str = "request.operation == 'CREATE' ? [object] : [object, oldObject]";

const CONTROL_PLANE: PolicyTarget = PolicyTarget {
    kind: "KubeadmControlPlane",
    group: "controlplane.cluster.x-k8s.io",
    version: "v1beta2",
    resource: "kubeadmcontrolplanes",
    operations: ON_WRITE,
    shape: Shape::V1Beta2,
    matches_equivalent: true,
    failure_policy: "Fail",
    conditions: &[NOT_BEING_DELETED, SPEC_CHANGES, NOT_V1BETA1],
    object_inputs: OBJECTS,
    spec_inputs: Some(("spec", "variables.objects.map(it, it.spec)")),
};

const TEMPLATE: PolicyTarget = PolicyTarget {
    kind: "KubeadmControlPlaneTemplate",
    resource: "kubeadmcontrolplanetemplates",
    spec_inputs: Some((
        "spec.template.spec",
        // The spec of a template is optional.
        "variables.objects.map(it, dyn(it).spec.?template.?spec.orValue({}))",
    )),
    ..CONTROL_PLANE
};

const POOL: PolicyTarget = PolicyTarget {
    kind: "ClusterPool",
    group: "hive.openshift.io",
    version: "v1",
    resource: "clusterpools",
    failure_policy: "Ignore",
    conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
    spec_inputs: None,
    ..CONTROL_PLANE
};

pub(super) const TARGETS: &[PolicyTarget] = &[
    CONTROL_PLANE,
    PolicyTarget {
        conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
        ..of_v1beta1(CONTROL_PLANE)
    },
    PolicyTarget {
        resource: "kubeadmcontrolplanes/scale",
        operations: &[Operation::Update],
        conditions: &[],
        // A Scale object omits `replicas` if it is 0.
        object_inputs: "[object, oldObject].map(it, {'spec': {'replicas': it.spec.?replicas.orValue(0)}})",
        spec_inputs: None,
        ..CONTROL_PLANE
    },
    TEMPLATE,
    PolicyTarget {
        conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
        ..of_v1beta1(TEMPLATE)
    },
    POOL,
    PolicyTarget {
        kind: "ClusterDeploymentCustomization",
        resource: "clusterdeploymentcustomizations",
        ..POOL
    },
    PolicyTarget {
        kind: "ClusterDeployment",
        resource: "clusterdeployments",
        conditions: &[NOT_BEING_DELETED, POOL_REFERENCE_CHANGES],
        ..POOL
    },
];

/// The resources with defaults.
pub(super) const DEFAULTED: &[PolicyTarget] = &[
    PolicyTarget {
        conditions: &[NOT_BEING_DELETED, SPEC_DIFFERS, NOT_V1BETA1],
        ..CONTROL_PLANE
    },
    PolicyTarget {
        conditions: &[NOT_BEING_DELETED, SPEC_DIFFERS],
        ..of_v1beta1(CONTROL_PLANE)
    },
];

const fn of_v1beta1(target: PolicyTarget) -> PolicyTarget {
    PolicyTarget {
        version: "v1beta1",
        shape: Shape::V1Beta1,
        matches_equivalent: false,
        ..target
    }
}
