//! `kubectl kcp rules`: lists and exports the webhook's admission rules. Needs no cluster.
//!
//! - [`list`]: lists all rules
//! - [`export`]: exports the rules that an API server can enforce, and the defaults that it can set

mod arguments;
mod export;
pub(in crate::commands) mod list;

use std::path::Path;

use anyhow::bail;
use jiff::Timestamp;
use kcp_rules::Configuration;

pub use arguments::RulesArguments;

use crate::{configuration, output::print, session::Session, verdict::Verdict};
use arguments::{ExportArguments, ExportFormat, RulesCommand};
use list::Rules;

pub fn run(arguments: &RulesArguments, session: &Session) -> anyhow::Result<Verdict> {
    match &arguments.command {
        None => print(&Rules, &arguments.output, &session.terminal)?,
        Some(RulesCommand::Export(export)) => session.terminal.print(&export_text(export)?)?,
    }
    Ok(Verdict::Met)
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
