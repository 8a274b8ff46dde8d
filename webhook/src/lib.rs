//! The admission webhook server. The path of a review through the code, one file per step:
//!
//! listener -> connection -> router -> body -> review -> admission -> decision -> response
//!
//! All modules, in layers. Each module uses only modules below it in this list, which a test checks.
//!
//! - [`serve`]: starts the server, runs it, and shuts it down
//! - [`anchor`]: `kcp-webhook anchor`, which runs the webhook as a static Pod beside an API server
//! - [`manage`]: `kcp-webhook manage`, which creates the certificates and registers the webhook
//! - [`api_proxy`]: `kcp-webhook api-proxy`, which updates the list of API servers in the local proxy of a node
//! - `reconciler`: what `manage`, `anchor` and `api-proxy` have in common
//! - [`offline`]: responds to reviews without sockets and without API access
//! - [`certs`]: `kcp-webhook certs issue`
//! - [`node_probe`]: `kcp-webhook probe`
//! - `self_test`: reviews that a server must answer before an API server may call it
//! - `tls_client`: connects to a server as the API server does
//! - `authority`: creates certificate authorities and serving certificates, and reads certificates
//! - `api_servers`: reads the addresses of all API servers
//! - `request`: one request to the API server, with a time limit
//! - `replace_file`: replaces a file at once, so that a reader gets the old or the new content
//! - [`log`]: the log on stderr
//! - [`arguments`]: command-line arguments
//! - `probes`: serves the health port on a thread of its own
//! - `listener`: accepts connections up to a limit
//! - `connection`: serves HTTP/1.1 on one connection, with timeouts
//! - `router`: routes requests to the webhooks by path, method and content type
//! - `health`: serves `/livez`, `/readyz` and `/metrics`
//! - `handle`: the interface between a connection and the code that responds to its requests
//! - `connection_slots`: the slots for open connections, and which connection is evicted for a new one
//! - `panics`: catches panics
//! - `admission`: decides on reviews
//! - `denial_events`: records denials as Events
//! - `response`: writes the response to a review
//! - `review`: decodes an `AdmissionReview`, borrowing from the body
//! - `cluster`: reads objects that a review does not contain, from caches and the API server
//! - `body`: reads an HTTP body up to a size limit
//! - [`configuration`]: the action of each rule, reloaded when the file changes
//! - `tls`: TLS with a key pair that is reloaded when its files change
//! - `shares`: what clients share, such as memory, and how much of it one client gets
//! - `tasks`: background tasks that run as long as the server does
//! - `metrics`: Prometheus metrics
//! - `decision`: the decision on one review
//! - `hook`: the two webhooks and their paths
//! - `shutdown`: signals, and the phases of a shutdown
//! - `limits`: limits on memory, connections and time, for each client and for all clients together
//! - `rate_limit`: limits how often the server does what any client can cause
//! - `shorten`: shortens text to a limit

#![allow(
    missing_docs,
    reason = "fields and variants are documented only where the name does not say enough"
)]

mod admission;
pub mod anchor;
pub mod api_proxy;
mod api_servers;
pub mod arguments;
mod authority;
mod body;
pub mod certs;
mod cluster;
pub mod configuration;
mod connection;
mod connection_slots;
mod decision;
mod denial_events;
mod handle;
mod health;
mod hook;
mod limits;
mod listener;
pub mod log;
pub mod manage;
mod metrics;
pub mod node_probe;
pub mod offline;
mod panics;
mod probes;
mod rate_limit;
mod reconciler;
mod replace_file;
mod request;
mod response;
mod review;
mod router;
mod self_test;
pub mod serve;
mod shares;
mod shorten;
mod shutdown;
mod tasks;
#[cfg(test)]
mod testing;
mod tls;
mod tls_client;

pub use limits::Limits;
pub use shutdown::Stop;
