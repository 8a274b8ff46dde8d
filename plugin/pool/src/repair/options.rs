//! What is asked of a repair. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::{install_config::InstallConfig, objects::entry::Entry};

/// How long a holder's cluster may be missing where nobody says otherwise.
pub const GRACE: SignedDuration = SignedDuration::from_mins(10);

/// The clock by which a holder is judged.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Timestamp,
    /// How long a state has to last before it is taken for more than a moment between two writes.
    pub grace: SignedDuration,
}

impl Clock {
    /// Whether the grace time has passed since then. What has no time is old.
    pub fn is_past_grace(self, since: Option<Timestamp>) -> bool {
        since.is_none_or(|since| self.now.duration_since(since) >= self.grace)
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options<'w> {
    /// None for all pools of the namespace.
    pub pool: Option<&'w str>,
    pub clock: Clock,
    /// Customizations that are to be mended although nothing proves that their holders are gone.
    pub forced: &'w [String],
    /// What missing clusters are made from; none where their customizations are freed.
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

/// What is asked of a repair, whatever the namespace.
#[derive(Clone, Copy, Debug)]
pub struct RepairRequest<'r> {
    /// None for all pools of the namespace.
    pub pool: Option<&'r str>,
    /// How long a holder's cluster may be missing.
    pub grace: SignedDuration,
    /// Customizations to repair although nothing proves that their holders are gone.
    pub forced: &'r [String],
    /// What missing clusters are made from; none where their customizations are freed.
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
