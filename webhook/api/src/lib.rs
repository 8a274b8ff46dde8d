//! Types for the Kubernetes kinds that this project reads. Contains no client.
//!
//! Each kind has one file: a public struct with the fields that are read, under their Kubernetes names, and private
//! types for the JSON of each API version. v1beta1 and v1beta2 decode into the same struct, which follows v1beta2.
//!
//! - Cluster API: [`control_plane`], [`machine`], [`cluster`], [`cluster_class`], [`machine_health_check`], [`kubeadm_config`],
//!   [`machine_deployment`], [`machine_drain_rule`], [`extension_config`]
//! - Hive: [`hive`]
//! - Kubernetes: [`secret`], [`webhook_configuration`]. Nodes, Pods, Deployments and `DaemonSets` use `k8s_openapi` types, because their lists
//!   are read page by page and need no compact type
//! - [`lease_record`], [`cleaning_record`]: the records of a lease, and of the cleaning after it, in the status of a Hive
//!   customization
//! - [`snapshot_record`]: the record of the last snapshot of etcd in an annotation of a control plane
//! - [`metadata`], [`condition`], [`conditioned_object`], [`reference`], [`remediation`]: types shared by several kinds
//! - [`review`]: the fields of the same kinds that admission rules read, borrowed from the JSON of a review
//! - [`syntax`]: the syntax of names, versions and durations
//! - [`field_error`]: decodes one object of a review, with an error that names the field
//! - [`decode`]: decodes objects and lists from JSON, with errors that name the object and the field
//! - [`kind`], [`names`]: groups, kinds, labels, annotations and finalizers

#![allow(
    missing_docs,
    reason = "fields have their Kubernetes names; only names that do not say enough are documented"
)]

pub mod cleaning_record;
pub mod cluster;
pub mod cluster_class;
pub mod condition;
pub mod conditioned_object;
pub mod control_plane;
pub mod decode;
pub mod extension_config;
pub mod field_error;
pub mod hive;
pub mod kind;
pub mod kubeadm_config;
pub mod lease_record;
pub mod machine;
pub mod machine_deployment;
pub mod machine_drain_rule;
pub mod machine_health_check;
pub mod metadata;
pub mod names;
pub mod reference;
pub mod remediation;
pub mod review;
pub mod secret;
pub mod snapshot_record;
pub mod syntax;
pub mod webhook_configuration;

pub use cluster::Cluster;
pub use cluster_class::ClusterClass;
pub use condition::{Condition, ConditionStatus};
pub use conditioned_object::ConditionedObject;
pub use control_plane::{KubeadmControlPlane, KubeadmControlPlaneSpec};
pub use decode::{DecodeError, List, Undecodable, decode, decode_each, decode_list};
pub use extension_config::ExtensionConfig;
pub use hive::{ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool};
pub use kind::Kind;
pub use kubeadm_config::{KubeadmConfig, KubeadmConfigSpec};
pub use machine::Machine;
pub use machine_deployment::MachineDeployment;
pub use machine_drain_rule::MachineDrainRule;
pub use machine_health_check::MachineHealthCheck;
pub use metadata::{Object, PartialObjectMetadata};
pub use reference::Reference;
pub use remediation::Remediation;
pub use secret::{CertificateSecret, Secret, SecretOwnership};
pub use webhook_configuration::WebhookConfiguration;
