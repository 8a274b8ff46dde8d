//! What policies are about.

use crate::{api::control_plane::Shape, change::Operation};

/// A match condition: its name and its expression.
pub(super) type Condition = (&'static str, &'static str);

/// A controller must always be able to finish: what is being deleted passes.
const NOT_BEING_DELETED: Condition = (
    "not-being-deleted",
    "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp)",
);
const SPEC_CHANGES: Condition = (
    "spec-changes",
    "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec",
);
const POOL_REFERENCE_CHANGES: Condition = (
    "pool-reference-changes",
    "has(object.spec) && (request.operation == 'CREATE' || !has(oldObject.spec) \
     ? has(object.spec.clusterPoolRef) \
     : has(object.spec.clusterPoolRef) != has(oldObject.spec.clusterPoolRef) \
     || has(object.spec.clusterPoolRef) && object.spec.clusterPoolRef != oldObject.spec.clusterPoolRef)",
);
/// v1beta1 has policies of its own.
const NOT_V1BETA1: Condition = ("not-v1beta1", "request.requestResource.version != 'v1beta1'");

/// What a policy is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) kind: &'static str,
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    /// The plural, and the subresource where it is one.
    pub(super) resource: &'static str,
    pub(super) operations: &'static [Operation],
    pub(super) shape: Shape,
    /// Whether a write in another version is converted and judged too.
    pub(super) equivalent: bool,
    pub(super) failure_policy: &'static str,
    pub(super) conditions: &'static [Condition],
    /// The list of what object rules judge: the object, and on an update the old one behind it.
    pub(super) judged: &'static str,
    /// The same for rules that templates have too, and where `spec` stands.
    pub(super) specs: Option<(&'static str, &'static str)>,
}

const ON_WRITE: &[Operation] = &[Operation::Create, Operation::Update];
const OBJECTS: &str = "request.operation == 'CREATE' ? [object] : [object, oldObject]";

const CONTROL_PLANE: Subject = Subject {
    kind: "KubeadmControlPlane",
    group: "controlplane.cluster.x-k8s.io",
    version: "v1beta2",
    resource: "kubeadmcontrolplanes",
    operations: ON_WRITE,
    shape: Shape::V1Beta2,
    equivalent: true,
    failure_policy: "Fail",
    conditions: &[NOT_BEING_DELETED, SPEC_CHANGES, NOT_V1BETA1],
    judged: OBJECTS,
    specs: Some(("spec", "variables.judged.map(it, it.spec)")),
};

const TEMPLATE: Subject = Subject {
    kind: "KubeadmControlPlaneTemplate",
    resource: "kubeadmcontrolplanetemplates",
    specs: Some((
        "spec.template.spec",
        // The spec of a template may be left out.
        "variables.judged.map(it, dyn(it).spec.?template.?spec.orValue({}))",
    )),
    ..CONTROL_PLANE
};

const POOL: Subject = Subject {
    kind: "ClusterPool",
    group: "hive.openshift.io",
    version: "v1",
    resource: "clusterpools",
    failure_policy: "Ignore",
    conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
    specs: None,
    ..CONTROL_PLANE
};

pub(super) const SUBJECTS: &[Subject] = &[
    CONTROL_PLANE,
    Subject {
        conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
        ..of_v1beta1(CONTROL_PLANE)
    },
    Subject {
        resource: "kubeadmcontrolplanes/scale",
        operations: &[Operation::Update],
        conditions: &[],
        // A Scale leaves 0 out.
        judged: "[object, oldObject].map(it, {'spec': {'replicas': it.spec.?replicas.orValue(0)}})",
        specs: None,
        ..CONTROL_PLANE
    },
    TEMPLATE,
    Subject {
        conditions: &[NOT_BEING_DELETED, SPEC_CHANGES],
        ..of_v1beta1(TEMPLATE)
    },
    POOL,
    Subject {
        kind: "ClusterDeploymentCustomization",
        resource: "clusterdeploymentcustomizations",
        ..POOL
    },
    Subject {
        kind: "ClusterDeployment",
        resource: "clusterdeployments",
        conditions: &[NOT_BEING_DELETED, POOL_REFERENCE_CHANGES],
        ..POOL
    },
];

const fn of_v1beta1(subject: Subject) -> Subject {
    Subject {
        version: "v1beta1",
        shape: Shape::V1Beta1,
        equivalent: false,
        ..subject
    }
}
