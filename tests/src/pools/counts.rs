//! The counts of randomized runs.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Declares the counts, each with its part of the line that shows all of them.
macro_rules! counts {
    ($($(#[$attribute:meta])* $name:ident: $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Counts {
            $($(#[$attribute])* pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(write!(f, $text, self.$name)?;)*
                Ok(())
            }
        }
    };
}

counts! {
    runs: "{} runs: ",
    commands: "{} commands, of which ",
    /// Commands that were killed.
    killed: "{} killed, ",
    /// Answers that were cut off.
    cut: "{} cut off, ",
    /// Answers that were replaced by a timeout.
    timed_out: "{} timed out; ",
    /// Successful leases.
    leased: "{} leases, ",
    /// Refused leases because no entry was free.
    exhausted: "{} times none free, ",
    /// Commands that could not decide.
    undecided: "{} undecided, ",
    /// Lessees that died.
    dead: "{} lessees dead; ",
    /// Commands whose wall clock was ten minutes off.
    shifted: "{} with a wrong clock, ",
    /// Entries that passed from one lessee to another because a lease had ended.
    reclaimed: "{} reclaimed, ",
    /// Renewed leases.
    renewed: "{} renewed, ",
    /// Commands that were refused because they named another lease.
    wrong_ids: "{} wrong ids refused, ",
    /// Clusters that were created.
    clusters: "{} clusters, ",
    /// Clusters that were created again within the grace period.
    recreated: "{} of them again, ",
    /// Entries that were restored without their status.
    restored: "{} entries restored; ",
    /// Clusters that lessees got by claims.
    claimed: "{} clusters claimed, ",
    /// Claims that commands left behind, and that ended at their lifetime.
    claims_left: "{} claims left until their end; ",
    /// Leases of two entries at once.
    #[serde(default)]
    sets: "{} times two entries at once; ",
    /// Times that a janitor's command cleaned an entry.
    #[serde(default)]
    cleaned: "{} entries cleaned",
}
