//! Leader migration (KEP-2436) on real controller managers, beside our model of it.
//!
//! kube-controller-manager 1.36 cannot migrate, so two cloud-controller-managers stand for the two sides where a test needs
//! both. Their main locks have different names, as those of a kube-controller-manager and a cloud-controller-manager.

mod api_server_restart;
mod cloud_loops;
mod guided_start;
mod guided_upgrade;
mod handover;
mod kubernetes_code;
mod machines;
mod names;
mod node_ipam;
mod other_versions;
mod paused;
mod permissions;
mod source_rows;
mod start;
mod start_files;
mod start_rows;
mod status;
mod steps;
mod upgrade;

use std::collections::BTreeSet;

use kcp_rules::leader_migration::{Assignment, CONTROLLERS, Component, Flags, Manager};
use kcp_tests::controller_manager::Program;
use serde_json::{Value, json};

/// The minor version of the programs.
const MINOR: u64 = 36;

/// The migration lock of these tests.
const MIGRATION: &str = "migration";

/// Short leases: nothing depends on their length except the duration of a test.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=1s",
];

/// [`ELECTION`] as `extraArgs` of a `KubeadmControlPlane`.
fn election() -> Vec<Value> {
    let flags = ELECTION.iter().filter_map(|flag| {
        let (name, value) = flag.strip_prefix("--")?.split_once('=')?;
        Some(json!({"name": name, "value": value}))
    });
    flags.collect()
}

/// The names of the controllers that can migrate, from 1.28 on.
const CANONICAL: [&str; 4] = [
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
    "node-ipam-controller",
];

/// A configuration that selects these controllers, for any component.
fn configuration(names: &[&str]) -> String {
    let entries: Vec<_> = names
        .iter()
        .map(|name| format!("- {{name: {name}, component: \"*\"}}\n"))
        .collect();
    let entries = entries.concat();
    format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: {MIGRATION}\n\
         controllerLeaders:\n{entries}"
    )
}

/// Our model of a program.
fn model(program: Program, flags: &[String], file: Option<&str>) -> Manager {
    model_at(MINOR, program, flags, file)
}

/// Our model of a program of a minor version.
fn model_at(minor: u64, program: Program, flags: &[String], file: Option<&str>) -> Manager {
    let component = match program {
        Program::Kube => Component::Kube,
        Program::Cloud => Component::Cloud,
    };
    let flags = Flags::from_command(flags.iter().map(String::as_str));
    Manager::new(component, minor, flags, file)
}

/// The controllers that a program starts under these locks, according to the model. A controller that cannot migrate always
/// runs under the main lock.
fn predicted(program: Program, model: &Manager, under: &[Assignment]) -> BTreeSet<String> {
    let always = match program {
        Program::Kube => "serviceaccount-token-controller",
        Program::Cloud => "cloud-node-controller",
    };
    let started = CONTROLLERS
        .iter()
        .filter(|controller| under.contains(&model.assignment(controller)))
        .map(|controller| controller.canonical);
    started.chain([always]).map(str::to_owned).collect()
}
