//! The management cluster: finding it, asking it, and what can go wrong with that.

mod action;
mod api_error;
#[cfg(test)]
pub(crate) mod canned;
mod connection;
mod creation;
mod deletion;
mod discovery;
mod error;
pub(crate) mod kubeconfig;
mod limit;
pub(crate) mod proxy;
mod request;
mod written;

pub use action::Action;
pub use connection::Connection;
pub(crate) use connection::{shown, while_busy};
pub use creation::{Create, Created};
pub use deletion::Delete;
pub use discovery::{
    CLUSTER, EVENT, KUBEADM_CONFIG, KUBEADM_CONTROL_PLANE, Kind, MACHINE, MACHINE_HEALTH_CHECK, SECRET,
    SELF_SUBJECT_REVIEW, Served,
};
pub use error::Error;
pub use limit::ReadLimit;
pub use request::Write;
pub use written::Written;
