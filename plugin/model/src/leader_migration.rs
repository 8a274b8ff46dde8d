//! Leader migration (KEP-2436) in a workload cluster: which controller manager runs each controller, and under which Lease.
//!
//! - [`observed`]: what was read about the controller managers and their Leases
//! - [`served`]: what a controller manager says about itself: `/healthz?verbose`, `/configz`, `/flagz`
//! - [`locks`]: which Leases matter, whether each is held, and by which controller manager
//! - [`reason`]: the verdicts on controllers, and their reasons; [`verdict`]: the decision about each controller
//! - [`problem`]: the problems of an upgrade, and how to fix them
//! - [`permissions`]: the Role that lets controller managers use a migration lock
//! - [`step`]: a change of a control plane that can be reversed; [`steps`]: the steps of a migration
//! - [`generate`]: the patch that takes a step, or why the step is not safe now
//!
//! A Lease alone proves nothing: its holder renews the Lease even if the holder runs none of the controllers.

pub mod generate;
pub mod locks;
pub mod observed;
pub mod permissions;
pub mod problem;
pub mod reason;
pub mod served;
pub mod step;
pub mod steps;
pub mod verdict;

pub use locks::{Attribution, LockState, locks, unused_locks};
pub use observed::{
    Health, LockRole, ObservedLease, ObservedLock, ObservedManager, ObservedManagers, Settings,
    SettingsSource,
};
pub use reason::{MigrationState, Reason};
pub use verdict::{Decision, decide, overall};
