//! The options for the repair of one namespace. No I/O.

use jiff::SignedDuration;
use kcp_api::metadata::Object as _;

use crate::objects::entry::Entry;

/// Which pools of a namespace to repair, and how.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions<'w> {
    /// The name of the only pool to repair; `None` for all pools of the namespace.
    pub pool: Option<&'w str>,
    /// How long an entry stays reserved after a check found that its cluster no longer exists (`--grace`).
    pub grace: SignedDuration,
    /// The names of customizations to free although their holder is unknown (`--force`).
    pub forced: &'w [String],
    /// Whether to create missing clusters again (`--recreate`).
    pub recreate: bool,
}

impl RepairOptions<'_> {
    pub fn includes(&self, pool: Option<&str>) -> bool {
        self.pool.is_none() || self.pool == pool
    }

    pub fn is_forced(&self, entry: &Entry) -> bool {
        self.forced.iter().any(|name| name == entry.name())
    }
}
