//! Maintains the etcd members of one control plane, or of several, one after the other.

use std::time::Duration;

use clap::Args;
use kcp_client::{Connection, reads};
use kcp_control_plane::snapshot::Snapshot;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    commands::etcd::{
        maintenance::{Maintenance, MaintenanceOptions, MaintenanceTarget},
        report::{Collected, ListReport, MaintenanceListDocument, UnfinishedMaintenance},
    },
    document::ObjectName,
    output::print,
    report_error,
    session::Session,
    verdict::Verdict,
};

/// Which control planes a command maintains.
#[derive(Clone, Debug, Args)]
pub struct SelectionArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane, required_unless_present_any = ["all_namespaces", "selector"],
          conflicts_with_all = ["all_namespaces", "selector"])]
    pub name: Option<ControlPlaneName>,

    /// Work on the control planes of all namespaces, one after the other
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Work on the control planes that match this label selector, such as team=edge,tier!=test, one after the other
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
}

/// Runs a command on each control plane. A control plane that fails or is refused does not affect the next ones.
/// `prints_list` says that the command prints a list of documents even for one control plane.
pub(super) async fn maintain_each(
    selection: &SelectionArguments,
    options: &MaintenanceOptions,
    session: &Session,
    prints_list: bool,
    command: impl AsyncFn(&Maintenance<'_>, Snapshot) -> anyhow::Result<Verdict>,
) -> anyhow::Result<Verdict> {
    let collected = Collected::default();
    let is_list = prints_list || selection.name.is_none();
    let Selected { verdicts, failed } = selection
        .for_each(options.timeout, session, is_list, async |connection, name| {
            let target = MaintenanceTarget {
                connection,
                control_plane: name,
                collected: is_list.then_some(&collected),
            };
            Box::pin(target.maintain(options, &session.terminal, &command)).await
        })
        .await?;
    let list = ListReport {
        document: MaintenanceListDocument {
            items: collected.documents(),
            failed,
        },
        names: collected.names(),
        is_empty: verdicts.is_empty(),
    };
    // The text of each item is printed already.
    if is_list && (!options.output.is_text() || list.is_empty) {
        print(&list, &options.output, &session.terminal)?;
    }
    Ok(Verdict::worst(verdicts))
}

/// What a command has done to the selected control planes.
pub(super) struct Selected {
    /// The verdict of each control plane.
    pub(super) verdicts: Vec<Verdict>,
    /// The control planes at which the command failed.
    pub(super) failed: Vec<UnfinishedMaintenance>,
}

impl SelectionArguments {
    /// Runs a command on each selected control plane, with a connection in its namespace. A signal ends the command. For a list, a
    /// control plane that fails does not affect the next ones.
    pub(super) async fn for_each(
        &self,
        timeout: Duration,
        session: &Session,
        is_list: bool,
        command: impl AsyncFn(&Connection, &str) -> anyhow::Result<Verdict>,
    ) -> anyhow::Result<Selected> {
        let connection = session.connect_within(timeout).await?;
        let selected = Box::pin(self.select(&connection, timeout)).await?;
        let count = selected.len();
        let (mut verdicts, mut failed) = (Vec::new(), Vec::new());
        for (index, object) in selected.into_iter().enumerate() {
            let ObjectName { name, namespace } = &object;
            if self.name.is_none() {
                session.terminal.note(&format!(
                    "control plane {name} in namespace {namespace} ({} of {count}):",
                    index + 1
                ));
            }
            let own = Connection {
                namespace: namespace.clone(),
                ..connection.clone()
            };
            let verdict = match Box::pin(command(&own, name)).await {
                Ok(verdict) => verdict,
                Err(error) if !is_list => return Err(error),
                Err(error) => {
                    let verdict = report_error(session, &error);
                    failed.push(UnfinishedMaintenance {
                        metadata: object,
                        error: format!("{error:#}"),
                    });
                    verdict
                }
            };
            verdicts.push(verdict);
            if verdict == Verdict::Interrupted {
                break;
            }
        }
        Ok(Selected { verdicts, failed })
    }

    async fn select(&self, connection: &Connection, timeout: Duration) -> anyhow::Result<Vec<ObjectName>> {
        let limit = reads::list_limit(timeout);
        if let Some(name) = &self.name {
            return Ok(vec![ObjectName {
                name: name.resolve(connection, limit).await?,
                namespace: connection.namespace.clone(),
            }]);
        }
        let reader = reads::discover(connection, limit).await?;
        let namespace = (!self.all_namespaces).then_some(connection.namespace.as_str());
        let selector = self.selector.as_deref();
        let mut objects = Vec::new();
        reads::for_each(&reader, namespace, selector, limit, |observed| {
            objects.push(ObjectName::from(&observed.control_plane));
        })
        .await?;
        Ok(objects)
    }
}
