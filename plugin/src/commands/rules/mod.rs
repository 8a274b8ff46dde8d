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

use crate::{configuration, output::print, session::Session, verdict::Verdict};
use arguments::{ExplainArguments, ExportArguments, ExportFormat, RulesCommand};
use explain::{Explanation, Explanations};
use list::Rules;

/// Runs `rules`.
///
/// # Errors
/// When no rule has the id, the configuration cannot be read, or the result cannot be shown.
pub fn run(arguments: &RulesArguments, session: &Session) -> anyhow::Result<Verdict> {
    match &arguments.command {
        None => print(&Rules, &arguments.output, &session.terminal)?,
        Some(RulesCommand::Explain(explain)) => {
            print(&explained(explain)?, &explain.output, &session.terminal)?;
        }
        Some(RulesCommand::Export(export)) => session.terminal.print(&exported(export)?)?,
    }
    Ok(Verdict::Met)
}

fn explained(arguments: &ExplainArguments) -> anyhow::Result<Explanations> {
    let Some(id) = &arguments.id else {
        return Ok(Explanations::All(rules().map(Explanation::of).collect()));
    };
    match rules().find(|rule| rule.id == id) {
        Some(rule) => Ok(Explanations::One(Explanation::of(rule))),
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
