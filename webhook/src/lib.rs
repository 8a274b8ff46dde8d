//! The admission webhook server. The path of a review through the code, one file per step:
//!
//! listener -> connection -> router -> body -> review -> admission -> decision -> response
//!
//! All modules, in layers. Each module uses only modules below it in this list, which a test checks.
//!
//! - [`serve`]: starts the server, runs it, and shuts it down
//! - [`offline`]: responds to reviews without sockets and without API access
//! - [`certs`]: `kcp-webhook certs issue`
//! - [`log`]: the log on stderr
//! - [`arguments`]: command-line arguments
//! - `probes`: serves the health port on a thread of its own
//! - `listener`: accepts connections up to a limit
//! - `connection`: serves HTTP/1.1 on one connection, with timeouts
//! - `router`: routes requests to the webhooks by path, method and content type
//! - `health`: serves `/livez`, `/readyz` and `/metrics`
//! - `handle`: the interface between a connection and the code that responds to its requests
//! - `places`: the open connections, and the choice of the one to evict for a new one
//! - `panics`: catches panics
//! - `admission`: decides on reviews
//! - `response`: writes the response to a review
//! - `review`: decodes an `AdmissionReview`, borrowing from the body
//! - `cluster`: objects that a review does not contain: caches and live reads
//! - `body`: reads an HTTP body up to a size limit
//! - `buffers`: the memory for bodies, and the choice of the one to evict when memory is short
//! - [`configuration`]: the action of each rule, reloaded when the file changes
//! - `tls`: TLS with a key pair that is reloaded when its files change
//! - `tasks`: background tasks that run as long as the server does
//! - `metrics`: Prometheus metrics
//! - `decision`: the decision on one review
//! - `hook`: the two webhooks and their paths
//! - `shutdown`: signals, and the phases of a shutdown
//! - `limits`: limits on what one client, and all clients together, may use
//! - `shorten`: shortens text to a limit

mod admission;
pub mod arguments;
mod body;
mod buffers;
pub mod certs;
mod cluster;
pub mod configuration;
mod connection;
mod decision;
mod handle;
mod health;
mod hook;
mod limits;
mod listener;
pub mod log;
mod metrics;
pub mod offline;
mod panics;
mod places;
mod probes;
mod response;
mod review;
mod router;
pub mod serve;
mod shorten;
mod shutdown;
mod tasks;
#[cfg(test)]
mod testing;
mod tls;

pub use limits::Limits;
pub use shutdown::Stop;
