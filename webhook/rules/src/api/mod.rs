//! The fields that rules read. Everything else is skipped while decoding, and a field that we do not know never
//! fails it: writes are patches, so nothing that is missing here is ever lost.

pub mod cluster;
pub mod control_plane;
pub mod control_plane_spec;
pub mod control_plane_template;
pub mod decode;
pub mod hive;
pub mod json;
pub mod kubeadm_config;
pub mod machine_setup;
pub mod machine_template;
pub mod metadata;
pub mod scalar;
pub mod verbatim;

pub use cluster::Cluster;
pub use control_plane::KubeadmControlPlane;
pub use control_plane_spec::ControlPlaneSpec;
pub use control_plane_template::KubeadmControlPlaneTemplate;
pub use decode::{DecodeError, decode, decode_part};
pub use hive::{ClusterDeployment, ClusterDeploymentCustomization, ClusterPool};
pub use metadata::Metadata;
pub use scalar::{IntOrString, Text, Withheld};
pub use verbatim::Verbatim;
