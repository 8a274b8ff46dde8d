//! What there is of the pools of one namespace, read at one time.

use super::{cluster_pool::Pool, copies::Copy, deployments::Deployments, entry::Entry, record::Record};

/// The pools of one namespace, what they hold and who has it.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) namespace: String,
    pub(super) pools: Vec<Pool>,
    /// The customizations of the namespace, named by a pool or not.
    pub(super) entries: Vec<Entry>,
    /// Who is recorded to hold them.
    pub(super) records: Vec<Record>,
    /// The clusters of all namespaces.
    pub(super) deployments: Deployments,
    /// The customizations that were copied into the namespaces of clusters of these pools.
    pub(super) copies: Vec<Copy>,
}

impl Survey {
    pub(super) fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name() == name)
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name() == name)
    }

    /// The record of a customization.
    pub(super) fn record(&self, customization: &str) -> Option<&Record> {
        self.records
            .iter()
            .find(|record| record.customization() == Some(customization))
    }

    /// The pools that name a customization.
    pub(super) fn pools_naming<'s>(&'s self, customization: &'s str) -> impl Iterator<Item = &'s Pool> {
        self.pools
            .iter()
            .filter(move |pool| pool.inventory().contains(&customization))
    }
}
