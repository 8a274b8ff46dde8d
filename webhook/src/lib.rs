//! The admission webhook server. A review travels, one file a hop:
//!
//! listener -> connection -> router -> body -> review -> admission -> decision -> response
//!
//! The files, each of which uses those below it alone:
//!
//! - [`serve`]: puts the server together, runs it, ends it
//! - [`offline`]: answers reviews with neither a socket nor a cluster
//! - [`certs`]: `kcp-webhook certs issue`
//! - [`log`]: what is written to stderr, and how
//! - [`arguments`]: the command line
//! - `listener`: accepts connections, up to a number
//! - `connection`: speaks HTTP/1.1 on one connection, with deadlines
//! - `router`: paths, methods, content types
//! - `health`: `/livez`, `/readyz` and `/metrics`
//! - `handle`: what answers the requests of a connection
//! - `admission`: asks the rules
//! - `response`: writes the answer
//! - `review`: decodes an `AdmissionReview`, borrowing from the body
//! - `cluster`: live reads, for what a review does not carry
//! - `body`: reads a body, up to a size
//! - [`configuration`]: what follows from each rule, read again when its file changes
//! - `tls`: the key pair, read again when its files change
//! - `tasks`: what runs as long as the server does
//! - `metrics`: what is counted
//! - `decision`: what admission says
//! - `hook`: the two webhooks, and the path of each
//! - `shutdown`: signals, and the phases of a server's life
//! - `limits`: what one client, and all together, may take
//! - `shorten`: text cut to a length

mod admission;
pub mod arguments;
mod body;
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
