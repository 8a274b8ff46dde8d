//! `kubectl kcp status`: control planes, their Machines, what is wrong with them, and a verdict.
//!
//! - [`observed`]: what was read, [`inspection`]: what is decided
//! - [`report`]: what is printed, in which format; [`screen`]: the text; [`document`]: the JSON and YAML
//! - [`watch`]: staying with it
//! - [`health`], [`condition_health`], [`machine_health`], [`finding`], [`by_conditions`]: the verdict from conditions
//!   and counts alone, and how it is printed

pub mod by_conditions;
mod condition_health;
pub mod document;
pub mod finding;
pub mod health;
pub mod inspection;
mod machine_health;
pub mod observed;
pub mod report;
pub mod screen;
pub mod watch;

#[cfg(test)]
mod schema;

mod arguments;

use anyhow::Context as _;
pub use arguments::{StatusArguments, StatusOutput};
use jiff::Timestamp;

use crate::{
    arguments::ControlPlaneName,
    control_plane::{Reader, Snapshot},
    document::text,
    session::Session,
    verdict::Verdict,
};
use by_conditions::document::{ControlPlaneStatus, ControlPlaneStatusList};
use health::{Assessment, assess};

/// Runs `status`.
///
/// # Errors
/// When the cluster cannot be read or the result not be written.
pub async fn run(arguments: StatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let (text, verdict) =
        if let Some(ControlPlaneName::Own(name) | ControlPlaneName::OfCluster(name)) = &arguments.name {
            one(&reader, name, arguments.output).await?
        } else {
            let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
            several(&reader, namespace, arguments.output).await?
        };
    session.terminal.print(&text).context("cannot write to stdout")?;
    Ok(verdict)
}

async fn one(
    reader: &Reader<'_>,
    name: &str,
    output: Option<StatusOutput>,
) -> anyhow::Result<(String, Verdict)> {
    let snapshot = reader.snapshot(&reader.connection.namespace, name).await?;
    let now = Timestamp::now();
    let assessment = assess(&snapshot, now);
    let text = match output {
        Some(StatusOutput::Json) => text(&ControlPlaneStatus::of(&snapshot, &assessment))?,
        _ => by_conditions::screen::one(&snapshot, &assessment, now),
    };
    Ok((text, assessment.health.verdict()))
}

/// `namespace` is none for all of them.
async fn several(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    output: Option<StatusOutput>,
) -> anyhow::Result<(String, Verdict)> {
    let snapshots = reader.snapshots(namespace).await?;
    let now = Timestamp::now();
    let assessed: Vec<(Snapshot, Assessment)> = snapshots
        .into_iter()
        .map(|snapshot| {
            let assessment = assess(&snapshot, now);
            (snapshot, assessment)
        })
        .collect();
    let text = match output {
        Some(StatusOutput::Json) => text(&ControlPlaneStatusList::of(&assessed))?,
        _ => by_conditions::screen::list(&assessed, namespace, now),
    };
    let verdicts = assessed.iter().map(|(_, assessment)| assessment.health.verdict());
    Ok((text, Verdict::worst(verdicts)))
}
