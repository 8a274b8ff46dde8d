//! The request for a repair. No I/O.

use jiff::SignedDuration;
use kcp_api::metadata::Object as _;

use crate::objects::entry::Entry;

/// The request to repair the pools of one namespace.
#[derive(Clone, Copy, Debug)]
pub struct Options<'w> {
    /// The pool; none for all pools of the namespace.
    pub pool: Option<&'w str>,
    /// How long an entry stays reserved after a check found that its cluster no longer exists.
    pub grace: SignedDuration,
    /// Customizations to free although their holder is unknown.
    pub forced: &'w [String],
    /// Whether missing clusters are created again.
    pub recreate: bool,
}

impl Options<'_> {
    pub fn is_about(&self, pool: Option<&str>) -> bool {
        self.pool.is_none() || self.pool == pool
    }

    pub fn is_forced(&self, entry: &Entry) -> bool {
        self.forced.iter().any(|name| name == entry.name())
    }
}
