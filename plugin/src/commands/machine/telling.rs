//! Saying what came of a change of a Machine: to people on stdout, or a document for scripts there and the text on stderr.

use anyhow::Context as _;

use crate::commands::machine::{
    change::{Changed, MachineChange, Outcome},
    output::output,
    screen,
    wording::Wording,
};
use crate::{
    change::{output::ChangeOutput, telling::Telling},
    document::ObjectName,
    terminal::Terminal,
    verdict::Verdict,
};
use kcp_client::{Error, reader::Reader};
use kcp_control_plane::verbs::machine::object::MachineObject;

/// How what came of a change of a Machine is told.
#[derive(Clone, Copy)]
pub(super) struct MachineTelling<'t> {
    /// Where the Machine is.
    pub(super) reader: &'t Reader<'t>,
    /// Where it is told.
    pub(super) terminal: &'t Terminal,
    /// In which format; none for people.
    pub(super) output: Option<ChangeOutput>,
    /// What was wanted.
    pub(super) change: &'t MachineChange<'t>,
    /// What its verb says.
    pub(super) wording: Wording,
}

impl MachineTelling<'_> {
    /// Tells it, with what else to try where it was refused, and what it means.
    ///
    /// # Errors
    /// When nothing can be written to stdout.
    pub(super) async fn tell(&self, changed: &Changed, otherwise: Option<&str>) -> anyhow::Result<Verdict> {
        for warning in &changed.warnings {
            self.terminal.warning(warning);
        }
        let telling = Telling {
            reader: self.reader,
            terminal: self.terminal,
            output: self.output,
            dry_run: self.change.dry_run,
            is_configured: crate::commands::machine::IS_CONFIGURED,
        };
        telling.aside(&self.text(changed))?;
        let hints: Vec<&str> = match &changed.outcome {
            Outcome::Refused(refusal) => self.wording.hint(refusal).into_iter().chain(otherwise).collect(),
            Outcome::Unchanged { .. } | Outcome::Rejected(_) | Outcome::Made { .. } => Vec::new(),
        };
        if let Some(format) = self.output {
            let now = match &changed.outcome {
                Outcome::Made { object, .. } if self.change.dry_run.is_none() => self.read_back(object).await,
                _ => None,
            };
            let machine = ObjectName {
                name: self.change.name.to_owned(),
                namespace: self.reader.connection.namespace.clone(),
            };
            let document = output(changed, machine, now.as_deref(), &hints, format)?;
            self.terminal.print(&document).context("cannot write to stdout")?;
        }
        for hint in hints {
            self.terminal.hint(hint);
        }
        Ok(match &changed.outcome {
            Outcome::Unchanged { .. } | Outcome::Made { .. } => Verdict::Met,
            Outcome::Refused(_) | Outcome::Rejected(_) => Verdict::Negative,
        })
    }

    /// For people.
    fn text(&self, changed: &Changed) -> String {
        let MachineChange { name, dry_run, .. } = *self.change;
        let Wording { done, undone, .. } = self.wording;
        match &changed.outcome {
            Outcome::Unchanged { why, .. } => screen::unchanged(name, why),
            Outcome::Made { .. } => screen::made(name, done, dry_run, &changed.consequences),
            Outcome::Refused(refusal) => screen::refused(
                name,
                undone,
                refusal.by(crate::commands::machine::IS_CONFIGURED),
                &refusal.why,
            ),
            Outcome::Rejected(why) => screen::refused(name, undone, "the server", why),
        }
    }

    /// The Machine as it is now; none where it is gone. The write is made, whether that can be read or not.
    async fn read_back(&self, before: &str) -> Option<String> {
        let Reader {
            connection, machines, ..
        } = self.reader;
        match connection
            .get_text(machines, &connection.namespace, self.change.name)
            .await
        {
            Ok(now) => is_same(before, &now).then_some(now),
            Err(Error::NotFound { .. }) => None,
            Err(error) => {
                let warning = format!("what is shown was not read back after the write: {error}");
                self.terminal.warning(&warning);
                None
            }
        }
    }
}

/// Whether two reads are of one Machine, not of one and a later one of its name.
fn is_same(before: &str, now: &str) -> bool {
    let uid = |text| MachineObject::decode(text).ok().map(|machine| machine.uid);
    uid(before) == uid(now)
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_later_machine_of_the_name_is_another() {
        let machine = |uid: &str, version: &str| {
            format!(r#"{{"metadata":{{"name":"m1","uid":"{uid}","resourceVersion":"{version}"}}}}"#)
        };
        assert!(is_same(&machine("u", "1"), &machine("u", "2")));
        assert!(!is_same(&machine("u", "1"), &machine("v", "1")));
    }
}
