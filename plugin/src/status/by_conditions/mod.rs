//! What `status` prints of a control plane that was judged by its conditions alone.
//!
//! - [`screen`]: the text
//! - [`document`]: the JSON

pub mod document;
pub mod screen;
