//! Cases of the rules, for the tests of this crate and of others.

pub mod case;
pub mod cases;
pub mod row;
