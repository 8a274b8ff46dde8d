//! Whether a change may be written, and what a verb decides.

pub mod conflict;
pub mod decision;
pub mod event;
pub mod guard;
pub mod ownership;
pub mod preflight;
