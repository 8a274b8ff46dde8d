//! `kubectl kcp rules`: lists, explains and exports the webhook's admission rules. Needs no cluster.
//!
//! - [`list`]: lists all rules
//! - [`explain`]: explains a rule, with examples from its test cases
//! - [`export`]: exports the rules that an API server can enforce, and the defaults that it can set

mod arguments;
mod explain;
mod export;
mod list;
#[cfg(test)]
mod page;

use std::path::Path;

use anyhow::bail;
use jiff::Timestamp;
use kcp_rules::{
    Configuration,
    topics::{rules, similar_rule_ids},
};

pub use arguments::RulesArguments;

use crate::{configuration, output::print, session::Session, verdict::Verdict};
use arguments::{ExplainArguments, ExportArguments, ExportFormat, RulesCommand};
use explain::{Explanation, Explanations};
use list::Rules;

/// Runs `rules`.
pub fn run(arguments: &RulesArguments, session: &Session) -> anyhow::Result<Verdict> {
    match &arguments.command {
        None => print(&Rules, &arguments.output, &session.terminal)?,
        Some(RulesCommand::Explain(explain)) => {
            print(&explanations(explain)?, &explain.output, &session.terminal)?;
        }
        Some(RulesCommand::Export(export)) => session.terminal.print(&export_text(export)?)?,
    }
    Ok(Verdict::Met)
}

fn explanations(arguments: &ExplainArguments) -> anyhow::Result<Explanations> {
    let Some(id) = &arguments.id else {
        return Ok(Explanations::All(rules().map(Explanation::new).collect()));
    };
    match rules().find(|rule| rule.id == id) {
        Some(rule) => Ok(Explanations::One(Explanation::new(rule))),
        None => match similar_rule_ids(id).as_slice() {
            [] => bail!("no rule {id:?}; list all rules with: kubectl kcp rules"),
            similar => bail!("no rule {id:?}; did you mean {}?", similar.join(", ")),
        },
    }
}

fn export_text(arguments: &ExportArguments) -> anyhow::Result<String> {
    let configuration = arguments.configuration.as_deref();
    match arguments.format {
        ExportFormat::Vap => Ok(export::admission_policies(&effective(configuration)?)?),
        ExportFormat::Map if configuration.is_some() => {
            bail!("--configuration has no effect on --format map: no setting changes the defaults")
        }
        ExportFormat::Map => Ok(export::default_policies()?),
    }
}

/// The configuration without the exemptions that have ended.
fn effective(file: Option<&Path>) -> anyhow::Result<Configuration> {
    let mut configuration = file.map(configuration::read).transpose()?.unwrap_or_default();
    let now = Timestamp::now();
    configuration.exemptions.retain(|exemption| exemption.until > now);
    Ok(configuration)
}
