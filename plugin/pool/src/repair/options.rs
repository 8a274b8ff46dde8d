//! The request for a repair. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::{install_config::InstallConfig, objects::entry::Entry};

/// The default of how long a holder's cluster may be missing.
pub const GRACE: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Timestamp,
    /// How long a state has to last to be more than the moment between two writes.
    pub grace: SignedDuration,
}

impl Clock {
    /// Whether the grace period has passed since then. A missing time counts as long ago.
    pub fn is_past_grace(self, since: Option<Timestamp>) -> bool {
        since.is_none_or(|since| self.now.duration_since(since) >= self.grace)
    }
}

/// What is asked of one namespace.
#[derive(Clone, Debug)]
pub struct Options<'w> {
    /// None for all pools of the namespace.
    pub pool: Option<&'w str>,
    pub clock: Clock,
    /// Customizations to repair although their holders cannot be verified.
    pub forced: &'w [String],
    /// What missing clusters are created from; none to free their customizations.
    pub install_config: Option<&'w InstallConfig>,
}

impl Options<'_> {
    pub fn is_about(&self, pool: Option<&str>) -> bool {
        self.pool.is_none() || self.pool == pool
    }

    pub fn names(&self, entry: &Entry) -> bool {
        self.forced.iter().any(|name| name == entry.name())
    }
}

/// What is asked of every namespace.
#[derive(Clone, Copy, Debug)]
pub struct RepairRequest<'r> {
    /// None for all pools of the namespace.
    pub pool: Option<&'r str>,
    /// How long a holder's cluster may be missing.
    pub grace: SignedDuration,
    /// Customizations to repair although their holders cannot be verified.
    pub forced: &'r [String],
    /// What missing clusters are created from; none to free their customizations.
    pub install_config: Option<&'r InstallConfig>,
    /// Whether to write, or only to report.
    pub is_applied: bool,
}

impl<'r> RepairRequest<'r> {
    pub fn at(self, now: Timestamp) -> Options<'r> {
        Options {
            pool: self.pool,
            clock: Clock {
                now,
                grace: self.grace,
            },
            forced: self.forced,
            install_config: self.install_config,
        }
    }
}
