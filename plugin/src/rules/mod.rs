//! `kubectl kcp rules`: what the webhook holds a manifest to. Needs no cluster.
//!
//! - [`list`]: all rules, a line each
//! - [`explain`]: one rule, with its own test rows as examples

mod arguments;
mod explain;
mod list;

use anyhow::bail;
use kcp_rules::topics::rules;

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
        None => match near(id).as_slice() {
            [] => bail!("no rule is called {id:?}; list them with: kubectl kcp rules"),
            near => bail!("no rule is called {id:?}; did you mean {}?", near.join(", ")),
        },
    }
}

/// The ids that may be meant, nearest first.
fn near(id: &str) -> Vec<&'static str> {
    const SHOWN: usize = 3;
    /// As clap has it for flags.
    const SIMILAR: f64 = 0.7;
    let mut similar: Vec<_> = rules()
        .map(|rule| (strsim::jaro_winkler(rule.id, id), rule.id))
        .filter(|(similarity, known)| *similarity > SIMILAR || known.contains(id))
        .collect();
    similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    similar.into_iter().take(SHOWN).map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn wrong_ids_suggest_near_ones() {
        for (id, suggested) in [
            ("replica-even", &["replicas-even"][..]),
            ("max-surge", &["max-surge-unsupported"]),
            ("inventory", &["inventory-empty"]),
            ("even", &["replicas-even"]),
            ("zzz", &[]),
        ] {
            let near = near(id);
            assert!(
                suggested.iter().all(|suggested| near.contains(suggested))
                    && near.is_empty() == suggested.is_empty(),
                "{id}: {near:?}"
            );
        }
    }
}
