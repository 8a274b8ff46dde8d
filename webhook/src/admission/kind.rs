//! The kinds that rules check: their names, how the webhook decodes them, and their defaults.

use kcp_rules::{
    Change, HasRules,
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, KubeadmControlPlane,
        KubeadmControlPlaneTemplate,
    },
    defaulting::{Defaulted, default_control_plane, default_customization, set_control_plane_defaults},
};
use serde::Deserialize;

/// The API group of `KubeadmControlPlane`s and their templates.
pub(super) const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
/// The API group of `ClusterPool`s, `ClusterDeploymentCustomization`s and `ClusterDeployment`s.
pub(super) const HIVE: &str = "hive.openshift.io";

/// A kind that rules check.
pub(super) trait Kind<'a>: HasRules + Deserialize<'a> {
    const GROUP: &'static str;
    const KIND: &'static str;
}

macro_rules! kind {
    ($type:ident, $group:expr) => {
        impl<'a> Kind<'a> for $type<'a> {
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($type);
        }
    };
}

kind!(KubeadmControlPlane, CONTROL_PLANE_GROUP);
kind!(KubeadmControlPlaneTemplate, CONTROL_PLANE_GROUP);
kind!(ClusterPool, HIVE);
kind!(ClusterDeploymentCustomization, HIVE);
kind!(ClusterDeployment, HIVE);

/// A kind with defaults, which the mutating webhook sets.
pub(super) trait Defaulting<'a>: Kind<'a> {
    /// The same kind, decoded from text whose lifetime differs from the review's.
    type WithLifetime<'b>: Defaulting<'b>;

    fn defaults(change: &Change<'_, Self>) -> Defaulted;

    /// Sets the defaults in the decoded object. `false` if the object must be decoded from its patched text instead.
    fn set_defaults(&mut self, _old: Option<&Self>) -> bool {
        false
    }
}

impl<'a> Defaulting<'a> for KubeadmControlPlane<'a> {
    type WithLifetime<'b> = KubeadmControlPlane<'b>;

    fn defaults(change: &Change<'_, Self>) -> Defaulted {
        default_control_plane(change)
    }

    fn set_defaults(&mut self, old: Option<&Self>) -> bool {
        set_control_plane_defaults(self, old);
        true
    }
}

macro_rules! defaulting {
    ($type:ident, $defaults:path) => {
        impl<'a> Defaulting<'a> for $type<'a> {
            type WithLifetime<'b> = $type<'b>;

            fn defaults(change: &Change<'_, Self>) -> Defaulted {
                $defaults(change)
            }
        }
    };
}

defaulting!(ClusterDeploymentCustomization, default_customization);
defaulting!(KubeadmControlPlaneTemplate, no_defaults);
defaulting!(ClusterPool, no_defaults);
defaulting!(ClusterDeployment, no_defaults);

fn no_defaults<T>(_: &Change<'_, T>) -> Defaulted {
    Defaulted::default()
}
