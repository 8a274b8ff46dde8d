//! The parts that the commands for etcd maintenance share: arguments, reads, the confirmation, and the Event.

use std::time::Duration;

use clap::Args;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    Connection,
    events::Events,
    reader::Reader,
    reads::{etcd::MemberConnection, list_limit},
};
use kcp_control_plane::{
    change::decision::{ActionEvent, ChangeEvent, ObjectReference, Refusal},
    snapshot::{Snapshot, etcd::QueriedMember},
};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    change::{arguments::FIELD_MANAGER, confirmation::ConfirmArguments, report::RefusalReport},
    commands::etcd::{
        EtcdMembers,
        report::{Collected, MaintenanceReport, MaintenanceResult},
    },
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{Terminal, table::Layout},
    verdict::Verdict,
};

/// The time limit of a call that takes no longer than an election. It equals Cluster API's time limit for etcd.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(15);

/// The time between two queries of members that do not agree yet.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The arguments of every command that maintains etcd members.
#[derive(Clone, Debug, Args)]
pub struct MaintenanceArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    #[command(flatten)]
    pub options: MaintenanceOptions,
}

/// The flags of every command that maintains etcd members.
#[derive(Clone, Debug, Args)]
pub struct MaintenanceOptions {
    /// Only check, and show what the command would do; etcd has no server-side dry run
    #[arg(long, value_name = "WHERE", value_parser = ["client"], num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub dry_run: Option<String>,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    /// The output format. If it is set, messages go to stderr.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for reading the control plane and connecting to a member, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

/// A command that maintains etcd members, while it runs.
pub(super) struct Maintenance<'m> {
    options: &'m MaintenanceOptions,
    pub(super) terminal: &'m Terminal,
    pub(super) members: EtcdMembers<'m>,
    collected: Option<&'m Collected>,
}

/// Reads the control plane and its etcd members, and runs a command on them.
pub(super) async fn maintain(
    arguments: &MaintenanceArguments,
    session: &Session,
    command: impl AsyncFnOnce(&Maintenance<'_>, Snapshot) -> anyhow::Result<Verdict>,
) -> anyhow::Result<Verdict> {
    let options = &arguments.options;
    let connection = session.connect_within(options.timeout).await?;
    let limit = list_limit(options.timeout);
    let target = MaintenanceTarget {
        connection: &connection,
        control_plane: &arguments.name.resolve(&connection, limit).await?,
        collected: None,
    };
    target.maintain(options, &session.terminal, command).await
}

/// The control plane on which a command works.
pub(super) struct MaintenanceTarget<'t> {
    /// The connection, in the namespace of the control plane.
    pub(super) connection: &'t Connection,
    pub(super) control_plane: &'t str,
    /// The documents of a command that prints them as one list. `None` for a command that prints one document.
    pub(super) collected: Option<&'t Collected>,
}

impl MaintenanceTarget<'_> {
    /// Reads the control plane and its etcd members, and runs a command on them.
    pub(super) async fn maintain(
        &self,
        options: &MaintenanceOptions,
        terminal: &Terminal,
        command: impl AsyncFnOnce(&Maintenance<'_>, Snapshot) -> anyhow::Result<Verdict>,
    ) -> anyhow::Result<Verdict> {
        let reader = Reader::discover(self.connection).await?;
        let maintenance = Maintenance {
            options,
            terminal,
            members: EtcdMembers {
                reader: &reader,
                control_plane: self.control_plane,
                timeout: options.timeout,
            },
            collected: self.collected,
        };
        let observed = maintenance.observe().await?;
        Box::pin(command(&maintenance, observed)).await
    }
}

impl Maintenance<'_> {
    /// Reads the control plane and its etcd members.
    pub(super) async fn observe(&self) -> anyhow::Result<Snapshot> {
        self.members.observe().await
    }

    /// Connects to a member. `call` is the time limit of each call.
    pub(super) async fn open(
        &self,
        observed: &Snapshot,
        member: &QueriedMember,
        call: Duration,
    ) -> anyhow::Result<MemberConnection> {
        self.members.open(observed, member, call).await
    }

    pub(super) const fn connection(&self) -> &Connection {
        self.members.reader.connection
    }

    /// The command that shows what etcd's members are now.
    pub(super) fn members_hint(&self) -> String {
        format!(
            "check with: kubectl kcp etcd members {} -n {}",
            self.members.control_plane,
            self.connection().namespace
        )
    }

    pub(super) const fn is_dry_run(&self) -> bool {
        self.options.dry_run.is_some()
    }

    /// Asks the user to confirm, unless a flag makes that unnecessary. Returns the verdict if the command must end.
    pub(super) async fn confirm(
        &self,
        observed: &Snapshot,
        goal: &str,
        not_done: &str,
    ) -> anyhow::Result<Option<Verdict>> {
        let place = self.connection().describe_target();
        let answer = self
            .options
            .confirm
            .confirm(goal, &place, self.is_dry_run(), self.terminal);
        if answer.await? {
            return Ok(None);
        }
        self.refuse(observed, not_done, &Refusal::unconfirmed()).map(Some)
    }

    /// Prints why the command does nothing.
    pub(super) fn refuse(
        &self,
        observed: &Snapshot,
        not_done: &str,
        refusal: &Refusal,
    ) -> anyhow::Result<Verdict> {
        let report = RefusalReport {
            control_plane: &observed.control_plane,
            not_done,
            refusal,
        };
        self.print(&report)?;
        for remedy in &refusal.remedies {
            self.terminal.hint(remedy);
        }
        Ok(Verdict::Negative)
    }

    /// Records an Event if the command has changed something, and prints what the command has done.
    pub(super) async fn finish(
        &self,
        observed: &Snapshot,
        event: Option<ChangeEvent>,
        result: &MaintenanceResult,
    ) -> anyhow::Result<Verdict> {
        if let Some(event) = event
            && !self.is_dry_run()
        {
            self.record_event(observed, event).await;
        }
        self.print(&MaintenanceReport {
            observed,
            is_dry_run: self.is_dry_run(),
            result,
        })?;
        Ok(Verdict::Met)
    }

    fn print(&self, report: &impl Report) -> anyhow::Result<()> {
        let output = &self.options.output;
        self.terminal.stop_spinning();
        if !output.is_text() {
            let text = anstream::adapter::strip_str(&report.table(Layout::default())).to_string();
            for line in text.lines() {
                self.terminal.note(line);
            }
        }
        match self.collected {
            Some(collected) if !output.is_text() => collected.add(report),
            _ => print(report, output, self.terminal),
        }
    }

    /// Records an Event on the control plane. A failure causes only a warning, because etcd has already changed.
    pub(super) async fn record_event(&self, observed: &Snapshot, event: ChangeEvent) {
        let regarding = ObjectReference::new(
            &observed.control_plane,
            &KUBEADM_CONTROL_PLANE,
            &self.members.reader.control_plane_resource.api_version,
        );
        let events = Events {
            connection: self.connection(),
            field_manager: FIELD_MANAGER,
        };
        if let Err(error) = events.write_action(&ActionEvent(event), &regarding).await {
            self.terminal.warning(&format!(
                "could not record an Event on the control plane: {error}"
            ));
        }
    }
}
