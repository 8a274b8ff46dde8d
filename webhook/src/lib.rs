//! The admission webhook server. A review travels, one file a hop:
//!
//! listener -> connection -> router -> body -> review -> admission -> decision -> response
//!
//! - [`arguments`]: the command line
//! - [`log`]: what is written to stderr, and how
//! - [`serve`]: puts the server together, runs it, ends it
//! - `limits`: what one client, and all together, may take
//! - `listener`: accepts connections, up to a number
//! - `tls`: the key pair, read again when its files change
//! - `connection`: speaks HTTP/1.1 on one connection, with deadlines
//! - `router`: paths, methods, content types
//! - `body`: reads a request's body, up to a size
//! - `review`: decodes an `AdmissionReview`, borrowing from the body
//! - `admission`: asks the rules
//! - [`configuration`]: what follows from each rule, read again when its file changes
//! - `cluster`: live reads, for what a review does not carry
//! - `decision`: what admission says
//! - `response`: writes the answer
//! - `health`: `/livez`, `/readyz` and `/metrics`
//! - `metrics`: what is counted
//! - `shutdown`: signals, and the phases of a server's life
//! - [`certs`]: `kcp-webhook certs issue`

mod admission;
pub mod arguments;
mod body;
pub mod certs;
mod cluster;
pub mod configuration;
mod connection;
mod decision;
mod health;
mod limits;
mod listener;
pub mod log;
mod metrics;
mod response;
mod review;
mod router;
pub mod serve;
mod shutdown;
#[cfg(test)]
mod testing;
mod tls;

pub use limits::Limits;
pub use shutdown::Stop;
