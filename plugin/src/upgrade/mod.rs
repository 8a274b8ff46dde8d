//! `kubectl kcp upgrade`: another Kubernetes version, with what it means to workers, manifests and configuration told
//! and confirmed before it is written.
//!
//! - [`kubelet_skew`]: workers that the new API servers may not serve
//! - [`removal`]: what Kubernetes has removed on the way
//! - [`image_tag`]: tags that are pinned below what the new version brings

pub mod image_tag;
pub mod kubelet_skew;
pub mod removal;
