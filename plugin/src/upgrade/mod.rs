//! `kubectl kcp upgrade`: another Kubernetes version, with what it means to workers, manifests and configuration told
//! and confirmed before it is written.
//!
//! - [`kubelet_skew`]: workers that the new API servers may not serve
//! - [`removal`]: what Kubernetes has removed on the way
//! - [`image_tag`]: tags that are pinned below what the new version brings
//! - [`assessment`]: all of these
//! - [`workers`]: the workers of a cluster

pub mod assessment;
pub mod image_tag;
pub mod kubelet_skew;
pub mod removal;
pub mod workers;

mod arguments;

pub use arguments::UpgradeArguments;
