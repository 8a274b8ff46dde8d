//! The fields that rules read. Decoding skips all other fields and never fails on an unknown one. No field is
//! lost, because all writes are patches.

pub mod cluster;
pub mod control_plane;
pub mod control_plane_spec;
pub mod control_plane_template;
pub mod kubeadm_config;
pub mod machine_setup;
pub mod machine_template;
pub mod metadata;
mod pools;
pub mod scalar;
pub mod verbatim;

pub use crate::{
    field_error::{DecodeError, decode},
    hive,
};
pub use cluster::Cluster;
pub use control_plane::KubeadmControlPlane;
pub use control_plane_spec::ControlPlaneSpec;
pub use control_plane_template::KubeadmControlPlaneTemplate;
pub use metadata::Metadata;
pub use pools::{ClusterDeployment, ClusterDeploymentCustomization, ClusterPool};
pub use scalar::{IntOrString, Redacted, RedactedText, Text};
pub use verbatim::Verbatim;
