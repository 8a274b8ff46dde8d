//! Acquires, checks and renews leases. The page "The model of leases" of the book describes the whole model.
//!
//! - [`access`]: the reads and writes of leases
//! - [`usage`]: finds the clusters that use an entry; [`rule`]: decides when a lease
//!   changes or ends; no other code decides that
//! - [`reuse`]: decides whether an entry must be cleaned between two holders
//! - [`choice`]: decides which entry a holder gets; [`queue`]: who waits for an entry; [`order`]: whose turn it is
//! - [`write`]: writes an entry's status, until the result is certain
//! - [`attempt`]: one attempt to lease an entry; [`renewal`]: renews a lease, once or until it is lost
//! - [`generated_name`]: generates names of holders, and ids of leases

pub mod access;
pub mod attempt;
pub mod choice;
pub mod generated_name;
pub mod order;
pub mod queue;
pub mod renewal;
pub mod reuse;
pub mod rule;
pub mod usage;
pub mod write;

use std::time::Duration;

use jiff::Timestamp;
use kcp_client::{Error, ServerTime};

use crate::objects::record::LeaseRecord;

/// How long a lease lasts if the request does not say.
pub const DEFAULT_TTL: Duration = Duration::from_secs(24 * 3600);

/// How long a lease lasts if it is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    For(Duration),
    /// The lease lasts until it is released.
    Never,
}

impl Ttl {
    /// The end of a lease that begins now; `None` if the lease never ends.
    pub fn deadline(self, now: ServerTime) -> Option<Timestamp> {
        match self {
            Self::For(duration) => {
                let deadline = now.latest.checked_add(duration).unwrap_or(Timestamp::MAX);
                Some(LeaseRecord::round_up_to_second(deadline))
            }
            Self::Never => None,
        }
    }

    /// The new end of a lease that has this end, and lasts at least for the ttl from now on. It is never earlier, because another
    /// process under the holder's name may have been told the old end.
    pub fn extend(self, before: Option<Timestamp>, now: ServerTime) -> Option<Timestamp> {
        Some(before?.max(self.deadline(now)?))
    }
}

/// A request for a lease failed. For some errors, it is unknown whether the lease was written.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("it is unknown whether {customization} is leased (to find out, run the same command again)")]
    InDoubt {
        customization: String,
        source: Box<Error>,
    },
    #[error("{}", unfinished_message(customization, cluster_deployment))]
    ClusterNotCreated {
        customization: String,
        cluster_deployment: String,
        source: Box<Error>,
    },
}

impl LeaseError {
    pub fn cause(&self) -> &Error {
        match self {
            Self::Api(cause) => cause,
            Self::InDoubt { source, .. } | Self::ClusterNotCreated { source, .. } => source,
        }
    }

    pub fn into_cause(self) -> Error {
        match self {
            Self::Api(cause) => cause,
            Self::InDoubt { source, .. } | Self::ClusterNotCreated { source, .. } => *source,
        }
    }

    /// The error's message and its cause, on one line.
    pub fn full_message(&self) -> String {
        match self {
            Self::Api(cause) => cause.to_string(),
            Self::InDoubt { source, .. } | Self::ClusterNotCreated { source, .. } => {
                format!("{self}: {source}")
            }
        }
    }
}

/// The message for a lease whose cluster was not created.
pub fn unfinished_message(customization: &str, cluster_deployment: &str) -> String {
    format!(
        "{customization} is leased, but cluster {cluster_deployment} has not been created (to continue, run \
         the same command again)"
    )
}
