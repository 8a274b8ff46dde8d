//! `Cluster`, group `cluster.x-k8s.io`, reduced to the fields that rules read.

use serde::Deserialize;

use super::{Metadata, Text, control_plane::Rollout, machine_template::ObjectMeta};

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Cluster<'a> {
    #[serde(borrow, default)]
    pub metadata: Metadata<'a>,
    #[serde(default)]
    pub spec: Option<ClusterSpec<'a>>,
}

/// The `spec` of a [`Cluster`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec<'a> {
    #[serde(borrow)]
    pub control_plane_ref: Option<ControlPlaneRef<'a>>,
    /// Whether Cluster API's controllers leave the Cluster alone.
    pub paused: Option<bool>,
    /// What the topology controller writes to the objects of the Cluster. `None` if the Cluster has no class.
    pub topology: Option<ClusterTopology<'a>>,
}

/// The `spec.topology` of a [`Cluster`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterTopology<'a> {
    /// The name of the class. Only v1beta1 has this field.
    #[serde(borrow)]
    pub class: Option<Text<'a>>,
    /// The namespace of the class. Only v1beta1 has this field.
    pub class_namespace: Option<Text<'a>>,
    /// Only v1beta2 has this field.
    pub class_ref: Option<ClassRef<'a>>,
    /// The Kubernetes version of the control plane and of the workers.
    pub version: Option<Text<'a>>,
    pub control_plane: Option<ControlPlaneTopology<'a>>,
}

/// A reference to a `ClusterClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClassRef<'a> {
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    pub namespace: Option<Text<'a>>,
}

/// The values of a topology for the control plane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControlPlaneTopology<'a> {
    /// The labels and annotations of the control plane and of its Machines.
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    /// `None` if something else sets the number of Machines.
    pub replicas: Option<i64>,
    /// The rollout of the control plane, of which a topology sets only the time `after`.
    pub rollout: Option<Rollout<'a>>,
}

impl ClusterTopology<'_> {
    /// The namespace and the name of the class; the namespace is `None` if the topology names none, and is then that of the Cluster.
    pub fn class(&self) -> Option<(Option<&str>, &str)> {
        let by_ref = self
            .class_ref
            .as_ref()
            .and_then(|class| Some((class.namespace.as_deref(), class.name.as_deref()?)));
        let by_name = || Some((self.class_namespace.as_deref(), self.class.as_deref()?));
        by_ref.or_else(by_name)
    }
}

/// A reference to the control plane object of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneRef<'a> {
    /// The kind of the control plane object, such as `KubeadmControlPlane`.
    #[serde(borrow)]
    pub kind: Option<Text<'a>>,
    /// The name of the control plane object, in the namespace of the Cluster.
    pub name: Option<Text<'a>>,
}

impl<'a> Cluster<'a> {
    /// What the topology controller writes; `None` if the Cluster has no class.
    pub fn topology(&self) -> Option<&ClusterTopology<'a>> {
        self.spec.as_ref()?.topology.as_ref()
    }

    /// Whether Cluster API's controllers leave the Cluster alone.
    pub fn is_paused(&self) -> bool {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.paused).unwrap_or(false)
    }

    /// Whether a new Cluster looks like a copy that `clusterctl move` makes: it is paused, and has the references of the
    /// original.
    pub fn is_moved(&self) -> bool {
        self.is_paused() && self.control_plane_name().is_some()
    }

    /// Whether the Cluster has a control plane of another kind, such as an `RKE2ControlPlane`.
    pub fn has_other_control_plane(&self) -> bool {
        let reference = self
            .spec
            .as_ref()
            .and_then(|spec| spec.control_plane_ref.as_ref());
        let kind = reference.and_then(|reference| reference.kind.as_deref());
        kind.is_some_and(|kind| kind != "KubeadmControlPlane")
    }

    /// The name of the Cluster's control plane; `None` unless it is a `KubeadmControlPlane`.
    pub fn control_plane_name(&self) -> Option<&Text<'a>> {
        let reference = self.spec.as_ref()?.control_plane_ref.as_ref()?;
        reference
            .name
            .as_ref()
            .filter(|_| reference.kind.as_deref() == Some("KubeadmControlPlane"))
    }
}
