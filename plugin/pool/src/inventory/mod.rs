//! What is decided about a pool's inventory: what is free and in what order, what room there is, what is stale. Pure.
//!
//! - [`model`]: the choice; [`capacity`]: the room; [`staleness`]: clusters that a pool has left behind

pub mod capacity;
pub mod inventory_conditions;
pub mod model;
pub mod staleness;
