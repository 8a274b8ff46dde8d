//! The fields that rules read. Decoding skips all other fields and never fails on an unknown one. No field is
//! lost, because all writes are patches.
//!
//! The types of the same kinds at the root of this crate serve other readers. They have one shape for all API versions, whereas a
//! rule names the field that the user wrote. They also decode fields that no rule reads, and report an error if such a field has
//! a wrong type, whereas the webhook leaves such an error to the CRD schema. These types borrow their text, because a review is
//! decoded while a client waits.

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
