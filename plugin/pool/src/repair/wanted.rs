//! What is asked of a repair. Pure.

use crate::{
    install_config::InstallConfig,
    objects::entry::Entry,
    repair::{finding::Remedy, proof::Clock},
};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted<'w> {
    /// None for all pools of the namespace.
    pub pool: Option<&'w str>,
    pub clock: Clock,
    /// Customizations that are to be mended although nothing proves that their holders are gone.
    pub forced: &'w [String],
    /// What missing clusters are made from; none where their customizations are freed.
    pub install_config: Option<&'w InstallConfig>,
}

impl Wanted<'_> {
    pub fn is_about(&self, pool: Option<&str>) -> bool {
        self.pool.is_none() || self.pool == pool
    }

    pub fn names(&self, entry: &Entry) -> bool {
        self.forced.iter().any(|name| name == entry.name())
    }

    /// What is done with an entry whose holder nobody can tell to be gone.
    pub fn freeing(&self, entry: &Entry) -> Remedy {
        if self.names(entry) {
            Remedy::Free
        } else {
            Remedy::FreeByName
        }
    }
}
