//! Saying what came of a change: to people on stdout, or a document for scripts there and the text on stderr.

use anyhow::Context as _;

use super::output::ChangeOutput;
use crate::{
    arguments::DryRun,
    control_plane::Reader,
    edit::{Edited, Outcome},
    terminal::Terminal,
    verdict::Verdict,
};

/// How what came of a change is told.
#[derive(Clone, Copy)]
pub struct Telling<'t> {
    /// Where the control plane is.
    pub reader: &'t Reader<'t>,
    /// Where it is told.
    pub terminal: &'t Terminal,
    /// In which format; none for people.
    pub output: Option<ChangeOutput>,
    /// Where the change ended, if it was to change nothing.
    pub dry_run: Option<DryRun>,
    /// Whether the server's configuration is known.
    pub is_configured: bool,
}

impl Telling<'_> {
    /// Tells it, with `text` for people, and what it means.
    ///
    /// # Errors
    /// When the control plane cannot be read after the write, or nothing be written to stdout.
    pub async fn tell(&self, edited: &Edited, text: &str) -> anyhow::Result<Verdict> {
        for warning in &edited.warnings {
            self.terminal.warning(warning);
        }
        self.aside(text)?;
        if let Some(format) = self.output {
            let now = match (&edited.outcome, self.dry_run) {
                (Outcome::Made, None) => {
                    let namespace = &self.reader.connection.namespace;
                    let read = self.reader.control_plane(namespace, &edited.before.name);
                    Some(read.await?.0)
                }
                _ => None,
            };
            let document = edited.output(format, now.as_deref(), self.is_configured)?;
            self.terminal.print(&document).context("cannot write to stdout")?;
        }
        if let Outcome::Refused(refusal) = &edited.outcome
            && let Some(hint) = refusal.hint(self.is_configured)
        {
            self.terminal.hint(hint);
        }
        Ok(verdict(&edited.outcome))
    }

    /// Prints a text for people: on stdout, unless a document goes there.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub fn aside(&self, text: &str) -> anyhow::Result<()> {
        if self.output.is_none() {
            return self.terminal.print(text).context("cannot write to stdout");
        }
        // What goes to stderr is escaped once more, its colours too.
        for line in anstream::adapter::strip_str(text).to_string().lines() {
            self.terminal.note(line);
        }
        Ok(())
    }
}

const fn verdict(outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Made | Outcome::Unchanged => Verdict::Met,
        Outcome::Refused(_) | Outcome::Rejected(_) | Outcome::Overtaken(_) => Verdict::Negative,
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;
    use crate::{
        edit::{Outcome, Refusal, RefusedBy},
        verdict::Verdict::{Met, Negative},
    };

    #[test]
    fn what_came_of_it_decides() {
        let refusal = Refusal {
            why: Vec::new(),
            by: RefusedBy::Rules,
        };
        for (outcome, expected) in [
            (Outcome::Made, Met),
            (Outcome::Unchanged, Met),
            (Outcome::Refused(refusal), Negative),
            (Outcome::Rejected(Vec::new()), Negative),
            (Outcome::Overtaken(Vec::new()), Negative),
        ] {
            assert_eq!(verdict(&outcome), expected, "{outcome:?}");
        }
    }
}
