//! Decisions of `kubectl kcp upgrade`.

pub mod assessment;
pub mod decision;
pub mod image_tag;
pub mod removal;
pub mod workers;
