//! Leader migration (KEP-2436): which controllers a controller manager starts, and under which lock.
//!
//! kube-controller-manager and cloud-controller-manager can both run some controllers. With leader migration, both run
//! these only while they hold a second Lease, the migration lock, so that one of them runs each controller at a time.
//!
//! - [`controllers`]: the controllers that can migrate, with their names by minor version
//! - [`configuration`]: the configuration file, its validation and its defaults

pub mod configuration;
pub mod controllers;

pub use configuration::{LeaderMigrationConfiguration, Problem};
pub use controllers::{CONTROLLERS, Controller};
