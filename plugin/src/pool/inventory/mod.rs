//! What is decided about a pool's inventory: what is free and in what order, what room there is, what is stale. Pure.
//!
//! - [`model`]: the choice; [`capacity`]: the room; [`staleness`]: clusters that a pool has left behind
//! - [`inventory_conditions`], [`entry_state`]: how it is told

pub(in crate::pool) mod capacity;
pub(in crate::pool) mod entry_state;
pub(in crate::pool) mod inventory_conditions;
pub(in crate::pool) mod model;
pub(in crate::pool) mod staleness;
