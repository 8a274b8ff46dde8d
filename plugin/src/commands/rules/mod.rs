//! `kubectl kcp rules`: what the webhook holds a manifest to. Needs no cluster.
//!
//! - [`list`]: all rules, a line each
//! - [`explain`]: one rule, with its own test rows as examples
//! - [`export`]: the rules that an API server can apply itself

mod arguments;
mod explain;
mod export;
mod list;

use anyhow::bail;
use kcp_rules::topics::{rules, similar};

pub use arguments::RulesArguments;

use crate::{configuration, session::Session, verdict::Verdict};
use arguments::{ExplainArguments, ExportArguments, ExportFormat, RulesCommand, RulesOutput};

/// Runs `rules`.
///
/// # Errors
/// When no rule has the id, the configuration cannot be read, or the result cannot be shown.
pub fn run(arguments: &RulesArguments, session: &Session) -> anyhow::Result<Verdict> {
    let text = match (&arguments.command, arguments.output) {
        (None, RulesOutput::Text) => list::text(),
        (None, RulesOutput::Json) => list::json()?,
        (Some(RulesCommand::Explain(explain)), _) => explained(explain)?,
        (Some(RulesCommand::Export(export)), _) => exported(export)?,
    };
    session.terminal.print(&text)?;
    Ok(Verdict::Met)
}

fn explained(arguments: &ExplainArguments) -> anyhow::Result<String> {
    let Some(id) = &arguments.id else {
        return Ok(rules().map(explain::text).collect::<Vec<_>>().join("\n"));
    };
    match rules().find(|rule| rule.id == id) {
        Some(rule) => Ok(explain::text(rule)),
        None => match similar(id).as_slice() {
            [] => bail!("no rule is called {id:?}; list them with: kubectl kcp rules"),
            similar => bail!("no rule is called {id:?}; did you mean {}?", similar.join(", ")),
        },
    }
}

fn exported(arguments: &ExportArguments) -> anyhow::Result<String> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration
        .map(configuration::read)
        .transpose()?
        .unwrap_or_default();
    match arguments.format {
        ExportFormat::Vap => Ok(export::admission_policies(&configuration)?),
    }
}
