//! The management cluster: finding it, asking it, and what can go wrong with that.

mod action;
mod api_error;
#[cfg(test)]
pub(crate) mod canned;
mod connection;
mod discovery;
mod error;
mod kubeconfig;
mod proxy;
mod request;
mod written;

pub use action::Action;
pub use connection::Connection;
pub use discovery::{CLUSTER, KUBEADM_CONTROL_PLANE, Kind, MACHINE, Served};
pub use error::Error;
pub use request::Write;
pub use written::Written;
