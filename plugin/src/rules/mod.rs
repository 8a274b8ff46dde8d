//! `kubectl kcp rules`: what the webhook holds a manifest to. Needs no cluster.
//!
//! - [`list`]: all rules, a line each
//! - [`explain`]: one rule, with its own test rows as examples

mod arguments;
mod explain;
mod list;

use anyhow::bail;
use kcp_rules::topics::{rules, similar};

pub use arguments::RulesArguments;

use crate::{session::Session, verdict::Verdict};
use arguments::{ExplainArguments, RulesCommand, RulesOutput};

/// Runs `rules`.
///
/// # Errors
/// When no rule has the id, or the result cannot be shown.
pub fn run(arguments: &RulesArguments, session: &Session) -> anyhow::Result<Verdict> {
    let text = match (&arguments.command, arguments.output) {
        (None, RulesOutput::Text) => list::text(),
        (None, RulesOutput::Json) => list::json()?,
        (Some(RulesCommand::Explain(explain)), _) => explained(explain)?,
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
