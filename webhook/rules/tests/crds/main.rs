//! The Custom Resource Definitions in `manifests/dev/crds` say what our types say, and nothing that Hive's own do
//! not say.
//!
//! `UPDATE_CRDS=1 cargo test -p kcp-rules --features schema --test crds`, or `make crds`, writes them anew.
#![cfg(feature = "schema")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: they may panic"
)]

mod fields;
mod hive;
mod manifests;
