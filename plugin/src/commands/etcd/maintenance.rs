//! What the commands share that maintain etcd members: arguments, reads, the confirmation, and the Event.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    events::Events,
    reader::Reader,
    reads::{Excluded, Target, etcd::MemberConnection, observe},
};
use kcp_control_plane::{
    change::decision::{ActionEvent, ChangeEvent, ObjectReference, Refusal},
    snapshot::{Snapshot, etcd::QueriedMember},
};

use crate::{
    arguments::{parse_control_plane, parse_timeout},
    change::arguments::{FIELD_MANAGER, WriteArguments},
    change::engine::Engine,
    commands::etcd::report::{MaintenanceReport, MaintenanceResult, RefusalReport},
    output::{OutputArguments, Report, print},
    terminal::{Terminal, table::Layout},
    verdict::Verdict,
};

/// The arguments of every command that maintains etcd members.
#[derive(Clone, Debug, Args)]
pub struct MaintenanceArguments {
    /// Control plane, as NAME or kcp/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: String,

    /// Only check, and show what would be done; etcd has no dry run on the server
    #[arg(long, value_name = "WHERE", value_parser = ["client"], num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub dry_run: Option<String>,

    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,

    /// The output format. If it is set, messages go to stderr.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading the control plane and connecting to a member, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

/// A command that maintains etcd members, while it runs.
pub(super) struct Maintenance<'m> {
    pub(super) arguments: &'m MaintenanceArguments,
    pub(super) terminal: &'m Terminal,
    pub(super) reader: &'m Reader<'m>,
}

impl Maintenance<'_> {
    /// Reads the control plane and its etcd members.
    ///
    /// # Errors
    /// The control plane cannot be read.
    pub(super) async fn observe(&self) -> anyhow::Result<Snapshot> {
        let end = Instant::now() + self.arguments.timeout;
        let namespace = &self.reader.connection.namespace;
        let name = &self.arguments.name;
        let observed = observe(self.reader, namespace, name, Excluded::default(), end);
        Ok(Box::pin(observed).await?)
    }

    /// Connects to a member. `call` is the time limit of each call.
    ///
    /// # Errors
    /// The member cannot be reached.
    pub(super) async fn open(
        &self,
        observed: &Snapshot,
        member: &QueriedMember,
        call: Duration,
    ) -> anyhow::Result<MemberConnection> {
        let end = Instant::now() + self.arguments.timeout;
        let target = Target::new(&observed.control_plane).context("the control plane has no Cluster yet")?;
        let opened = MemberConnection::open(self.reader.connection, &target, member, call, end);
        Ok(Box::pin(opened).await?)
    }

    pub(super) const fn is_dry_run(&self) -> bool {
        self.arguments.dry_run.is_some()
    }

    /// Asks the user to confirm, unless a flag makes that unnecessary. Returns the verdict if the command must end.
    ///
    /// # Errors
    /// The answer cannot be read.
    pub(super) async fn confirm(
        &self,
        observed: &Snapshot,
        goal: &str,
        not_done: &str,
    ) -> anyhow::Result<Option<Verdict>> {
        if self.is_dry_run() || self.arguments.yes {
            return Ok(None);
        }
        if !Terminal::can_prompt() {
            let error = anyhow!("cannot {goal}: no terminal to ask for confirmation");
            self.terminal.error(&error, Some("confirm with --yes"));
            return Ok(Some(Verdict::Undecided));
        }
        let write = WriteArguments {
            dry_run: None,
            output: OutputArguments::default(),
            field_manager: FIELD_MANAGER.to_owned(),
        };
        let engine = Engine {
            reader: self.reader,
            terminal: self.terminal,
            arguments: &write,
            configuration: None,
        };
        let answer = self
            .terminal
            .confirm(&format!("{goal} {}?", engine.place()))
            .await;
        if answer.context("cannot read the confirmation")? {
            return Ok(None);
        }
        self.refuse(observed, not_done, &Refusal::unconfirmed()).map(Some)
    }

    /// Prints why the command does nothing.
    ///
    /// # Errors
    /// Writing to stdout fails.
    pub(super) fn refuse(
        &self,
        observed: &Snapshot,
        not_done: &str,
        refusal: &Refusal,
    ) -> anyhow::Result<Verdict> {
        let report = RefusalReport {
            observed,
            not_done,
            refusal,
        };
        self.print(&report)?;
        for remedy in &refusal.remedies {
            self.terminal.hint(remedy);
        }
        Ok(Verdict::Negative)
    }

    /// Prints what the command has done.
    ///
    /// # Errors
    /// Writing to stdout fails.
    pub(super) fn report(&self, observed: &Snapshot, result: &MaintenanceResult) -> anyhow::Result<()> {
        self.print(&MaintenanceReport {
            observed,
            is_dry_run: self.is_dry_run(),
            result,
        })
    }

    fn print(&self, report: &impl Report) -> anyhow::Result<()> {
        let output = &self.arguments.output;
        self.terminal.stop_spinning();
        if !output.is_text() {
            let text = anstream::adapter::strip_str(&report.table(Layout::default())).to_string();
            for line in text.lines() {
                self.terminal.note(line);
            }
        }
        print(report, output, self.terminal)
    }

    /// Records an Event on the control plane. A failure is only a warning, because etcd has changed already.
    pub(super) async fn record(&self, observed: &Snapshot, event: ChangeEvent) {
        let regarding = ObjectReference::new(
            &observed.control_plane,
            &KUBEADM_CONTROL_PLANE,
            &self.reader.control_planes.api_version,
        );
        let events = Events {
            connection: self.reader.connection,
            field_manager: FIELD_MANAGER,
        };
        if let Err(error) = events.write_action(&ActionEvent(event), &regarding).await {
            self.terminal.warning(&format!(
                "could not record an Event on the control plane: {error}"
            ));
        }
    }
}
