//! The admission webhook server. The path of a review through the code:
//!
//! `net` (listener, connection, body) -> `review` (router, decode, admission) -> `decision` -> `review` (response)
//!
//! All modules, in layers. Each module uses only modules below it in this list, which a test checks.
//!
//! - [`manager`]: certificates, registration, static Pods: everything through which no review passes
//! - [`serve`]: starts the server, runs it, and shuts it down
//! - [`review`]: one review, from its HTTP request to its response
//! - `health`: serves `/livez`, `/readyz` and `/metrics`
//! - `cluster`: reads objects that a review does not contain, from caches and the API server
//! - `net`: connections, bodies and TLS, within limits for each client
//! - [`arguments`]: command-line arguments
//! - [`configuration`]: the action of each rule, reloaded when the file changes
//! - `tasks`: background tasks that run as long as the server does
//! - `metrics`: Prometheus metrics
//! - `decision`: the decision on one review
//! - `hook`: the two webhooks and their paths
//! - `shutdown`: signals, and the phases of a shutdown
//! - `limits`: limits on memory, connections and time, for each client and for all clients together

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough"
)]

pub mod arguments;
mod cluster;
pub mod configuration;
mod decision;
mod health;
mod hook;
mod limits;
pub mod manager;
mod metrics;
mod net;
pub mod review;
pub mod serve;
mod shutdown;
mod tasks;
#[cfg(test)]
mod testing;

pub use limits::Limits;
pub use shutdown::Stop;
