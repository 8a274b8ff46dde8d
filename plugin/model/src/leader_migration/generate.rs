//! `leader-migration generate`: the change of a control plane that takes a step of a migration, or why the step is not
//! safe now. Nothing is written.
//!
//! - [`migration`]: how far a migration has come, according to the control plane and its Machines
//! - [`gates`]: why the controller managers that run are not ready for a step
//! - [`record`]: how the last step is reversed
//! - [`start`], [`upgrade`], [`finish`], [`rollback`]: one step each

pub mod finish;
mod gates;
pub mod migration;
pub mod record;
pub mod rollback;
pub mod start;
pub mod upgrade;

use kcp_api::Machine;
use kcp_rules::leader_migration::{LeaderMigrationConfiguration, Lock, Manager};
use serde_json::{Value, json};

use self::{migration::Migration, record::Record, start::StartOptions};
use super::{
    ObservedManagers,
    problem::MigrationProblem,
    step::{MigrationStep, operations},
    steps::Manifest,
};

/// A step of a migration.
#[derive(Clone, Copy, Debug)]
pub enum StepRequest<'r> {
    Start(StartOptions<'r>),
    Upgrade {
        /// The version after the upgrade, with the leading `v`.
        version: &'r str,
        manifest: Option<CloudManifest<'r>>,
    },
    Finish {
        manifest: Option<CloudManifest<'r>>,
    },
    Rollback,
}

/// A manifest of cloud-controller-manager that a step installs as a static Pod.
#[derive(Clone, Copy, Debug)]
pub struct CloudManifest<'m> {
    /// The text of the manifest.
    pub content: &'m str,
    /// The cloud-controller-manager that the manifest starts.
    pub manager: &'m Manager,
}

/// What was read about a control plane and its controller managers.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    pub control_plane: &'f Value,
    pub machines: &'f [Machine],
    pub observed: &'f ObservedManagers,
}

/// The change that takes a step, and the leader migration configuration that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// A JSON patch (RFC 6902) of the control plane. It changes nothing if the step has already been taken.
    pub patch: Vec<Value>,
    /// The leader migration configuration; `None` if the control plane has none before and after the step.
    pub configuration: Option<String>,
    /// The migration lock of that configuration.
    pub lock: Option<Lock>,
}

/// How a step changes the control plane.
#[derive(Clone, Debug)]
struct Change {
    step: MigrationStep,
    /// How to reverse the step; `None` if nothing reverses it.
    record: Option<Record>,
}

/// Generates the change that takes a step. Fails if the step would harm the cluster, or it is unknown whether it would.
pub fn generate(request: StepRequest<'_>, facts: Facts<'_>) -> Result<Generated, Vec<MigrationProblem>> {
    let migration = Migration::new(facts)?;
    let change = match request {
        StepRequest::Start(options) => start::change(&migration, options)?,
        StepRequest::Upgrade { version, manifest } => upgrade::change(&migration, version, manifest)?,
        StepRequest::Finish { manifest } => finish::change(&migration, manifest)?,
        StepRequest::Rollback => rollback::change(&migration)?,
    };
    let before = facts.control_plane;
    let after = change.map_or_else(
        || before.clone(),
        |change| Record::set(change.record.as_ref(), change.step.taken(before)),
    );
    let configuration = [&after, before].into_iter().find_map(migration::configuration);
    let lock = configuration.and_then(|text| LeaderMigrationConfiguration::parse(text, None).ok());
    let lock = lock.map(|configuration| Lock {
        namespace: migration.managers.kube.main_lock().namespace,
        name: configuration.leader_name,
    });
    Ok(Generated {
        patch: preconditions(before).chain(operations(before, &after)).collect(),
        configuration: configuration.map(str::to_owned),
        lock,
    })
}

/// The operations that make the API server reject the patch if the control plane is no longer the one that was judged. For a
/// stale resourceVersion, the API server reports a conflict; for a `test` operation, it does not say which test failed. The
/// patch needs the test of `apiVersion`, because the positions in the patch depend on it.
fn preconditions(control_plane: &Value) -> impl Iterator<Item = Value> {
    let operations = [
        ("test", "/apiVersion"),
        ("test", "/metadata/uid"),
        ("replace", "/metadata/resourceVersion"),
    ];
    operations.into_iter().filter_map(|(operation, path)| {
        let value = control_plane.pointer(path)?;
        Some(json!({"op": operation, "path": path, "value": value}))
    })
}

/// A problem for each message, all with the same fix.
fn refusals(messages: Vec<String>, fix: &str) -> Vec<MigrationProblem> {
    let problem = |message| MigrationProblem {
        message,
        fix: fix.to_owned(),
        is_harmful: true,
    };
    messages.into_iter().map(problem).collect()
}

fn refused(message: impl Into<String>, fix: impl AsRef<str>) -> Vec<MigrationProblem> {
    refusals(vec![message.into()], fix.as_ref())
}

/// Fails if `messages` is not empty.
fn blocked(messages: Vec<String>, fix: &str) -> Result<(), Vec<MigrationProblem>> {
    none(refusals(messages, fix))
}

/// Fails if `problems` is not empty.
fn none(problems: Vec<MigrationProblem>) -> Result<(), Vec<MigrationProblem>> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// Where the manifest goes: in place of the static Pod in `files`, or at the default path.
fn at_path<'m>(manifest: Option<CloudManifest<'m>>, path: &'m str) -> Option<Manifest<'m>> {
    manifest.map(|manifest| Manifest {
        path,
        content: manifest.content,
    })
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
