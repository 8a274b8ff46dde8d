//! The Custom Resource Definitions in `manifests/dev/crds` say what our types say, and nothing that Hive's own do
//! not say.
//!
//! `UPDATE_CRDS=1 cargo test -p kcp-rules --features schema --test crds`, or `make crds`, writes them anew.
#![cfg(feature = "schema")]

mod fields;
mod hive;
mod manifests;
