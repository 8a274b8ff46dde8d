//! `leader-migration status`: shows which controller manager runs each controller now, and under which lock.
//!
//! - [`document`], [`screen`]: the JSON and the text; [`changes`]: the lines of `--watch`

mod changes;
mod document;
mod screen;
#[cfg(test)]
mod tests;

use std::time::Instant;

use anyhow::bail;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    Action, Connection,
    reader::Reader,
    reads::{self, leader_migration::read_leader_migration},
};
use kcp_control_plane::leader_migration::{Decision, MigrationState, ObservedManagers, decide, overall};
use serde::Serialize;

use crate::{
    commands::leader_migration::arguments::StatusArguments,
    document::{Versioned, resource_name},
    output::{Report, print},
    session::Session,
    terminal::{Size, table::Layout},
    verdict::Verdict,
};

/// The leader migration of one control plane, as it was observed.
pub(crate) struct Status {
    namespace: String,
    name: String,
    observed: ObservedManagers,
    decisions: Vec<Decision>,
}

pub(super) async fn run(arguments: &StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if arguments.watch && !arguments.output.is_text() {
        bail!("--watch prints text only: omit --output, or set it to wide");
    }
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    if arguments.watch {
        let poll = async || {
            let end = Instant::now() + arguments.timeout;
            Box::pin(read(&connection, arguments, end)).await
        };
        let draw = |status: &Status, _, size: Size| {
            let text = status.table(arguments.output.layout(Some(size.width)));
            let lines: Vec<&str> = text.lines().take(size.lines().saturating_sub(1)).collect();
            lines.join("\n")
        };
        return Box::pin(crate::watch::watch(&session.terminal, poll, draw)).await;
    }
    let status = Box::pin(read(&connection, arguments, end)).await?;
    print(&status, &arguments.output, &session.terminal)?;
    Ok(status.outcome())
}

async fn read(connection: &Connection, arguments: &StatusArguments, end: Instant) -> anyhow::Result<Status> {
    let remaining = || end.saturating_duration_since(Instant::now());
    let reader = reads::discover(connection, reads::list_limit(remaining())).await?;
    let namespace = &connection.namespace;
    let limit = reads::limit_per_control_plane(remaining());
    let name = match &arguments.name {
        Some(name) => name.read(&reader, limit).await?,
        None => only_control_plane(&reader, namespace, end).await?,
    };
    let action = Action::new("get", &reader.control_plane_resource)
        .in_namespace(namespace)
        .with_name(&name);
    let read = reader.read_control_plane(namespace, &name);
    let (_, control_plane) = connection.run_with_limit(limit, &action, read).await?;
    let observed = read_leader_migration(connection, &control_plane, &arguments.ccm_namespace, end).await;
    Ok(Status::new(namespace, &name, observed))
}

/// The name of the control plane, if the namespace has only one.
async fn only_control_plane(reader: &Reader<'_>, namespace: &str, end: Instant) -> anyhow::Result<String> {
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let listed = reads::list(reader, Some(namespace), None, limit).await?;
    let names: Vec<&str> = listed
        .iter()
        .map(|snapshot| snapshot.control_plane.name())
        .collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => bail!("the namespace {namespace} has no control plane"),
        names => bail!(
            "the namespace {namespace} has {} control planes; specify one of them: {}",
            names.len(),
            names.join(", ")
        ),
    }
}

impl Status {
    fn new(namespace: &str, name: &str, observed: ObservedManagers) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            decisions: decide(&observed),
            observed,
        }
    }

    fn verdict(&self) -> MigrationState {
        overall(&self.decisions)
    }

    fn outcome(&self) -> Verdict {
        match self.verdict() {
            MigrationState::Protected | MigrationState::NothingToMigrate => Verdict::Met,
            MigrationState::Unknown => Verdict::Undecided,
            MigrationState::Unprotected
            | MigrationState::Stale
            | MigrationState::Orphaned
            | MigrationState::RunsTwice => Verdict::Negative,
        }
    }
}

impl Report for Status {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(document::LeaderMigrationStatus::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.name)]
    }
}
