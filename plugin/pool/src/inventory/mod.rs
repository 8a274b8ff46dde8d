//! Decisions about a pool's inventory. Pure.
//!
//! - [`choice`]: which entry a holder gets; [`capacity`]: how many clusters a pool may have, and what its conditions say of
//!   the inventory; [`staleness`]: clusters made from an older version of the pool

pub mod capacity;
pub mod choice;
pub mod staleness;
