//! Why a customization that is to be freed by its name is not. Pure.

use std::fmt;

use jiff::Timestamp;

use super::{
    decision::{Wanted, about_entry},
    finding::{Cause, Finding, Remedy},
    proof::{HolderState, holder_state, recorded},
};
use crate::pool::{
    objects::{entry::Entry, record::Record},
    survey::Survey,
};

/// Who may still use a customization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Use {
    /// Its holder's cluster is there.
    Cluster { namespace: String },
    /// Its holder's lease has not ended.
    Lease { until: Option<Timestamp> },
    /// It was taken within the grace time.
    Recent,
    /// It is of a pool that is not asked about.
    OtherPool,
}

/// What is told of an entry that is to be mended by its name, and of which nothing is wrong. A free one is as it was to be.
pub(super) fn kept(survey: &Survey, entry: &Entry, wanted: &Wanted<'_>) -> Option<Finding> {
    let is_taken = entry.is_reserved() || entry.cluster_deployment().is_some();
    if !wanted.names(entry) || !is_taken {
        return None;
    }
    let used = match holder_state(survey, entry, wanted.clock) {
        Some(HolderState::Alive(cluster)) => Use::Cluster {
            namespace: cluster.metadata.namespace.clone(),
        },
        Some(HolderState::Leasing) => Use::Lease {
            until: recorded(survey, entry).and_then(Record::expires),
        },
        _ if !wanted.is_about(entry.pool()) => Use::OtherPool,
        _ => Use::Recent,
    };
    Some(about_entry(entry, Cause::InUse(used), Remedy::Keep))
}

/// After who holds it.
impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { namespace } => {
                write!(f, "whose ClusterDeployment is there, in namespace {namespace}")
            }
            Self::Lease { until: Some(until) } => {
                write!(f, "whose lease ends at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
            }
            Self::Lease { until: None } => f.write_str("whose lease has not ended"),
            Self::Recent => f.write_str("which has it for less than the grace time"),
            Self::OtherPool => f.write_str("and not from this pool"),
        }
    }
}
