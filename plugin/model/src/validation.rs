//! The validation of a workload cluster: every Node is ready, and a Pod on each Node resolves names and reaches the API server.
//!
//! - [`pod`]: the Pod that runs on a Node
//! - [`progress`]: how far a Pod has come
//! - [`judge`]: the result of each check of a Node

pub mod judge;
pub mod pod;
pub mod progress;

pub use judge::{NodeCheck, NodeFacts, NodeResult, Probe};
pub use pod::ProbePods;
pub use progress::Progress;
