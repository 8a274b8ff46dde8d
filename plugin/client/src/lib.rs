//! Reads and writes objects of the management cluster, and reads a workload cluster and its etcd. Writes fail if the
//! object has changed since it was read. Contains no command line and no terminal.
//!
//! Each module uses only modules below it in this list, which a test checks.
//!
//! - [`validation`]: runs the Pods of a validation
//! - [`reads`]: reads the facts on which the commands decide
//! - [`update`]: reads an object, decides, and writes, again after a conflict
//! - [`reader`]: reads control planes and their Machines
//! - [`events`]: Events about changes
//! - `creation`, `deletion`: create objects that may exist, and delete objects
//! - `limit`: the time limits of reads
//! - `flags`: kubectl's connection flags
//! - `error`: errors of connections and requests, each with a hint
//! - `connection`: the connection to a cluster
//! - `published_schema`: whether a server keeps a field
//! - [`workload`]: the connection to a workload cluster, and through it to etcd
//! - `request`: reads objects into compact types, and sends merge patches
//! - `written`: whether a write was stored
//! - [`kubeconfig`]: kubeconfigs of workload clusters
//! - [`retry`]: how often and when requests are retried
//! - [`proxy`]: the proxies through which connections go
//! - [`clock`]: the clock of the API server
//! - [`ca_rotation`], [`bootstrap_token`]: the Secrets of CAs, and the tokens with which hosts join
//! - `api_error`: the client library's errors as ours
//! - `discovery`: the API versions that a cluster serves
//! - `action`: a request, for error messages

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough, such as the unit, what \
        an absent value means, or the source"
)]

mod action;
mod api_error;
pub mod bootstrap_token;
pub mod ca_rotation;
pub mod clock;
mod connection;
mod creation;
mod deletion;
mod discovery;
mod error;
pub mod events;
mod flags;
pub mod kubeconfig;
mod limit;
pub mod proxy;
mod published_schema;
pub mod reader;
pub mod reads;
mod request;
pub mod retry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod update;
pub mod validation;
pub mod workload;
mod written;

pub use action::Action;
pub use clock::{ServerClock, ServerTime};
pub use connection::{Connection, RequestLog, parse_namespace, redact_url};
pub use creation::{CreateRequest, CreateResult};
pub use deletion::DeleteRequest;
pub use discovery::ServedVersions;
pub use error::Error;
pub use flags::{ConnectionFlags, Token};
pub use limit::ReadLimit;
pub use reader::Reader;
pub use request::PatchRequest;
pub use retry::{retry_after_lost_server, retry_while_busy};
pub use written::Written;
