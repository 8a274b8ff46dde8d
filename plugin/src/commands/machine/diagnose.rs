//! `kubectl kcp machine diagnose`: shows all that is known about one Machine.

mod screen;

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use kcp_api::{Object as _, kind::MACHINE};
use kcp_client::reads::{self, diagnosis::read_diagnosis};
use kcp_control_plane::{
    diagnosis::{Diagnosis, diagnose},
    snapshot::Snapshot,
};
use serde::Serialize;

use crate::{
    arguments::{parse_machine, parse_timeout},
    change::engine::into_error,
    commands::why::document::CauseDocument,
    document::{Document, ObjectName, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 0 if no action is needed, or if a program acts and has not taken longer than usual. Exits with 1 if a \
        person must act. Exits with 2 if something could not be read.

Examples:
  kubectl kcp machine diagnose edge-9hng4
  kubectl kcp machine diagnose edge-9hng4 -o wide
  kubectl kcp machine diagnose edge-9hng4 -o jsonpath={.nextCommand.command}"
)]
pub struct DiagnoseArguments {
    /// Machine of a control plane or of workers, as NAME or machine/NAME
    #[arg(value_parser = parse_machine)]
    pub name: String,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub(super) async fn run(arguments: &DiagnoseArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
    let reader = reads::discover(&connection, limit).await?;
    let read = Box::pin(read_diagnosis(&reader, &arguments.name, end)).await;
    let records = read.map_err(into_error)?;
    let now = connection.now();
    let diagnosis = diagnose(&records, now);
    let report = DiagnosisReport {
        machine: ObjectName {
            name: records.machine.name().to_owned(),
            namespace: records.machine.namespace().to_owned(),
        },
        observed: records.control_plane.value().map(AsRef::as_ref),
        diagnosis: &diagnosis,
        now,
    };
    print(&report, &arguments.output, &session.terminal)?;
    Ok(Verdict::from(diagnosis.state))
}

/// What `machine diagnose` prints. Ages in it are relative to the time `now`.
struct DiagnosisReport<'d> {
    machine: ObjectName,
    /// `None` if the control plane could not be read.
    observed: Option<&'d Snapshot>,
    diagnosis: &'d Diagnosis,
    now: Timestamp,
}

/// All that is known about one Machine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineDiagnosis<'d> {
    metadata: &'d ObjectName,
    #[serde(flatten)]
    facts: &'d Diagnosis,
    /// What the checks of `status` found about the Machine and its Node. Absent if they found nothing, and for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseDocument<'d>>,
    /// The effects of the cause, and other problems and changes.
    also: Vec<CauseDocument<'d>>,
}

impl Document for MachineDiagnosis<'_> {
    const KIND: &'static str = "MachineDiagnosis";
}

impl DiagnosisReport<'_> {
    fn content(&self) -> MachineDiagnosis<'_> {
        let explanation = &self.diagnosis.explanation;
        MachineDiagnosis {
            metadata: &self.machine,
            facts: self.diagnosis,
            cause: explanation.cause.as_ref().map(CauseDocument::new),
            also: explanation.other_causes.iter().map(CauseDocument::new).collect(),
        }
    }
}

impl Report for DiagnosisReport<'_> {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.content())
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&MACHINE, &self.machine.name)]
    }
}

#[cfg(test)]
mod tests;
