//! Object storage, in which snapshots of etcd are stored.
//!
//! - [`bucket`]: a bucket of S3, or of a server with the same API
//! - [`upload`]: an upload in parts, which appears under its name only when it is complete
//! - `http`: the HTTP client of the crate `object_store`, with the same TLS and HTTP crates as the rest of this repository
//! - [`error`]: what the server has refused, and what to do

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough, such as the unit, \
        what an absent value means, or the source"
)]

pub mod bucket;
pub mod error;
mod http;
pub mod upload;

pub use bucket::{Bucket, StoredObject};
pub use error::StorageError;
pub use upload::Upload;
