//! The kinds that rules check: their names, and how the webhook decodes them.

use kcp_api::kind;
use kcp_rules::{
    HasRules,
    api::{
        ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, DecodeError, KubeadmControlPlane,
        KubeadmControlPlaneTemplate, decode,
    },
    defaulting::SetDefaults,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A kind that rules check.
pub(super) trait Kind<'a>: HasRules + SetDefaults + Deserialize<'a> {
    const KIND: kind::Kind;

    /// Decodes the stored object of an update.
    fn decode_old(old: &'a RawValue, _new: &Self) -> Result<Self, DecodeError> {
        decode(old.get())
    }
}

macro_rules! kind {
    ($type:ident, $kind:ident) => {
        impl<'a> Kind<'a> for $type<'a> {
            const KIND: kind::Kind = kind::$kind;
        }
    };
}

impl<'a> Kind<'a> for KubeadmControlPlane<'a> {
    const KIND: kind::Kind = kind::KUBEADM_CONTROL_PLANE;

    /// Decodes an unchanged `kubeadmConfigSpec` only once.
    fn decode_old(old: &'a RawValue, new: &Self) -> Result<Self, DecodeError> {
        decode::<KubeadmControlPlane<'a, &'a RawValue>>(old.get())?.decode_config(new)
    }
}

kind!(KubeadmControlPlaneTemplate, KUBEADM_CONTROL_PLANE_TEMPLATE);
kind!(ClusterPool, CLUSTER_POOL);
kind!(ClusterDeploymentCustomization, CLUSTER_DEPLOYMENT_CUSTOMIZATION);
kind!(ClusterDeployment, CLUSTER_DEPLOYMENT);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    #[test]
    fn the_old_control_plane_has_its_own_configuration() {
        let new = testing::control_plane();
        let mut other = new.clone();
        other["spec"]["kubeadmConfigSpec"]["files"] = json!([{"path": "/old", "content": ""}]);
        let new = new.to_string();
        let new: KubeadmControlPlane<'_> = decode(&new).unwrap();
        for old in [other, testing::control_plane()] {
            let text = RawValue::from_string(old.to_string()).unwrap();
            let old = KubeadmControlPlane::decode_old(&text, &new).unwrap();
            let expected: KubeadmControlPlane<'_> = decode(text.get()).unwrap();
            // Compare the Debug text, because `==` ignores differences such as default values.
            assert_eq!(format!("{old:?}"), format!("{expected:?}"));
        }
    }
}
