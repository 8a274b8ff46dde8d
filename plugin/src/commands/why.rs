//! `kubectl kcp why`: says why nothing happens on a control plane: who acts next, since when, and what to do.
//!
//! - [`document`], [`screen`]: the output
//! - [`list`]: the output for several control planes

pub mod document;
mod list;
pub mod screen;

use std::time::{Duration, Instant};

use clap::Args;
use document::ExplanationDocument;
use jiff::Timestamp;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{
    Connection,
    reads::{self, Excluded, webhook::read_switched_off},
};
use kcp_control_plane::{
    inspection::{Basis, inspect},
    snapshot::Snapshot,
    why::{Explanation, WhyState, explain},
};
use list::{Answer, WhyListReport};
use serde::Serialize;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    commands::status::{StatusArguments, WAITING_FOR_MANAGEMENT, poll, read_one, waiting_for},
    document::{Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};
use kcp_api::Object as _;

/// Show why nothing happens on control planes: who acts next, since when, and what to do.
#[derive(Debug, Args)]
#[command(
    after_help = "Without NAME, the command lists each control plane that is not well, with who acts next and why, and counts the \
                  others.

Exits with 0 if no action is needed, or if a controller acts and has not taken longer than usual. Exits with 1 if a person \
    must act. Exits with 2 if the command could not read something that the answer depends on.

Examples:
  kubectl kcp why edge
  kubectl kcp why cluster/edge
  kubectl kcp why -A
  kubectl kcp why -A -l team=a -o name
  kubectl kcp why edge -o jsonpath={.actor}"
)]
pub struct WhyArguments {
    /// Control plane to explain, as NAME, kcp/NAME or cluster/NAME [default: all in the namespace that are not well]
    #[arg(value_parser = parse_control_plane, conflicts_with_all = ["all_namespaces", "selector", "deep"])]
    pub name: Option<ControlPlaneName>,

    /// Explain the control planes of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Explain the control planes that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Query the workload cluster and etcd of each control plane, even if there are more than 32 control planes
    #[arg(long)]
    pub deep: bool,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m; in a list, for the reads of each control plane
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub async fn run(arguments: WhyArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let Some(name) = &arguments.name else {
        return explain_each(&connection, &arguments, end, session).await;
    };
    let remaining = end.saturating_duration_since(Instant::now());
    let discovering = reads::discover(&connection, reads::list_limit(remaining));
    let reader = session
        .terminal
        .spin_while(WAITING_FOR_MANAGEMENT, discovering)
        .await?;
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let reading = futures_util::future::join(
        read_one(&reader, name, Excluded::default(), end),
        read_switched_off(&connection, limit),
    );
    let what = waiting_for(name);
    let reading = Box::pin(session.terminal.spin_while(&what, reading));
    let (observed, webhook_off) = reading.await;
    let observed = observed?;
    let now = connection.now();
    let inspection = inspect(&observed, now);
    let explanation = explain(&observed, &inspection, now);
    let report = WhyReport {
        observed: &observed,
        basis: inspection.basis,
        explanation: &explanation,
        webhook_off: webhook_off.as_deref(),
        now,
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(Verdict::from(explanation.state))
}

/// Explains the control planes of a list, which are read as `status` reads them.
async fn explain_each(
    connection: &Connection,
    arguments: &WhyArguments,
    end: Instant,
    session: &Session,
) -> anyhow::Result<Verdict> {
    let listed = StatusArguments {
        all_namespaces: arguments.all_namespaces,
        selector: arguments.selector.clone(),
        deep: arguments.deep,
        timeout: arguments.timeout,
        ..StatusArguments::default()
    };
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let (subject, webhook_off) = futures_util::future::join(
        Box::pin(poll(connection, &listed, end, &session.terminal)),
        read_switched_off(connection, limit),
    )
    .await;
    let now = connection.now();
    let answers = subject?
        .into_inspected()
        .into_iter()
        .map(|inspected| Answer::new(inspected.observed, &inspected.inspection, now))
        .collect();
    let report = WhyListReport {
        namespace: (!arguments.all_namespaces).then(|| connection.namespace.clone()),
        answers,
        webhook_off,
        now,
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(report.verdict())
}

impl From<WhyState> for Verdict {
    fn from(state: WhyState) -> Self {
        match state {
            WhyState::NothingToDo | WhyState::Working => Self::Met,
            WhyState::PersonNeeded => Self::Negative,
            WhyState::Unknown => Self::Undecided,
        }
    }
}

/// What `why` prints. Ages in it are relative to the time `now`.
#[derive(Clone, Copy, Debug)]
pub struct WhyReport<'w> {
    pub observed: &'w Snapshot,
    pub basis: Basis,
    pub explanation: &'w Explanation,
    /// A text that says that kcp-webhook is disabled, and since when. `None` if it is enabled, or if the user has no permission to
    /// read the webhook configurations.
    pub webhook_off: Option<&'w str>,
    pub now: Timestamp,
}

impl Report for WhyReport<'_> {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(ExplanationDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(
            &KUBEADM_CONTROL_PLANE,
            self.observed.control_plane.name(),
        )]
    }
}

#[cfg(test)]
mod tests;
