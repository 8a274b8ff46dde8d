//! Why a customization that is to be freed by its name is not. Pure.

use crate::{
    objects::{entry::Entry, record::Record},
    repair::{
        finding::{Cause, Finding, Remedy, Use, about_entry},
        proof::{HolderState, holder_state, recorded},
        wanted::Wanted,
    },
    survey::Survey,
};

/// What is told of an entry that is to be mended by its name, and of which nothing is wrong. A free one is as it was to be.
pub fn kept(survey: &Survey, entry: &Entry, wanted: &Wanted<'_>) -> Option<Finding> {
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
