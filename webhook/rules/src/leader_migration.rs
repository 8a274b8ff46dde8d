//! Leader migration (KEP-2436): which controllers a controller manager starts, and under which lock.
//!
//! kube-controller-manager and cloud-controller-manager can both run some controllers. With leader migration,
//! each of them runs these controllers only while it holds a second Lease, the migration lock. Thus only one
//! of them runs each controller at a time.
//!
//! From the bottom up:
//!
//! - [`cloud_provider`], [`controllers`]: what each minor version of Kubernetes has
//! - [`configuration`]: the configuration file, its validation and its defaults
//! - [`component`], [`flags`], [`startup_error`], [`manager`]: a controller manager, whether it starts, and what it does with each controller
//! - [`election`]: every way in which controller managers can hold their locks
//! - [`pair`]: an upgrade, and who runs each controller before, during and after it
//! - [`finding`]: settings whose effect differs from what their name suggests
//! - [`workload`]: a cloud-controller-manager in a manifest
//! - [`generate`]: a configuration that protects an upgrade
//! - [`handover`]: how long no controller manager runs a controller

pub mod cloud_provider;
pub mod component;
pub mod configuration;
pub mod controllers;
mod election;
pub mod finding;
pub mod flags;
pub mod generate;
pub mod handover;
pub mod manager;
pub mod pair;
pub mod startup_error;
pub mod workload;

pub use component::Component;
pub use configuration::{ConfigurationProblem, Filter, LeaderMigrationConfiguration};
pub use controllers::{CONTROLLERS, Controller};
pub use finding::Caveat;
pub use flags::Flags;
pub use manager::{Assignment, Lock, Manager};
pub use pair::{ControllerManagerChange, ControllerManagers, Phase, Row, UpgradeEffect};
pub use startup_error::StartupError;
