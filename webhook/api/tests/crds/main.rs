//! The `CustomResourceDefinition`s in `manifests/dev/crds` match our types and contain only fields of Hive's CRDs.
//!
//! `make crds`, or `UPDATE_CRDS=1 cargo test -p kcp-api --features schema --test crds`, regenerates them.
#![cfg(feature = "schema")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

mod definitions;
mod fields;
mod hive;
mod manifests;
