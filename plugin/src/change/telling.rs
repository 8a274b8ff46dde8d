//! Saying what came of a change: to people on stdout, or a document for scripts there and the text on stderr.

use anyhow::Context as _;

use crate::change::output::ChangeOutput;
use crate::{
    arguments::DryRun,
    edit::{Edited, Outcome},
    terminal::Terminal,
    verdict::Verdict,
};
use kcp_client::reader::Reader;

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
    /// When nothing can be written to stdout.
    pub async fn tell(&self, edited: &Edited, text: &str) -> anyhow::Result<Verdict> {
        for warning in &edited.warnings {
            self.terminal.warning(warning);
        }
        self.aside(text)?;
        if let Some(format) = self.output {
            let now = match (&edited.outcome, self.dry_run) {
                (Outcome::Made, None) => self.read_back(&edited.before.name).await,
                _ => None,
            };
            let document = edited.output(format, now.as_deref(), self.is_configured)?;
            self.terminal.print(&document).context("cannot write to stdout")?;
        }
        if let Outcome::Refused(refusal) = &edited.outcome {
            for hint in refusal.hints(self.is_configured) {
                self.terminal.hint(hint);
            }
        }
        Ok(verdict(&edited.outcome))
    }

    /// The control plane as it is now. The write is made, whether that can be read or not.
    async fn read_back(&self, name: &str) -> Option<String> {
        let namespace = &self.reader.connection.namespace;
        match self.reader.control_plane(namespace, name).await {
            Ok((object, _)) => Some(object),
            Err(error) => {
                let warning = format!("what is shown was not read back after the write: {error}");
                self.terminal.warning(&warning);
                None
            }
        }
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
    use kcp_rules::case::{Base, V1BETA2};
    use serde_json::json;

    use super::{Telling, verdict};
    use crate::{
        arguments::global::ColorWhen,
        change::output::ChangeOutput,
        edit::{Edited, Outcome},
        terminal::Terminal,
        verdict::Verdict::{Met, Negative},
    };
    use kcp_client::{Connection, canned::failure, reader::Reader};
    use kcp_control_plane::change::{
        decision::{Refusal, RefusedBy},
        example::situation,
    };

    #[tokio::test]
    async fn what_is_written_stays_so_though_it_cannot_be_read_back() {
        for (code, reason) in [(200, ""), (403, "Forbidden"), (500, "InternalError")] {
            let connection = Connection::canned(move |_, path| {
                if path == "/apis" {
                    let group = |name: &str| {
                        let version =
                            json!({"groupVersion": format!("{name}/v1beta2"), "version": "v1beta2"});
                        json!({"name": name, "versions": [version], "preferredVersion": version})
                    };
                    let names = ["cluster.x-k8s.io", "controlplane.cluster.x-k8s.io"];
                    return (200, json!({"groups": names.map(group)}));
                }
                if code == 200 {
                    return (200, Base::ControlPlane(V1BETA2).object());
                }
                failure(code, reason, "no")
            });
            let reader = Reader::discover(&connection).await.unwrap();
            let terminal = Terminal::new(ColorWhen::Never);
            let telling = Telling {
                reader: &reader,
                terminal: &terminal,
                output: Some(ChangeOutput::Name),
                dry_run: None,
                is_configured: false,
            };
            let edited = Edited::without_write(situation(), Outcome::Made);
            let told = telling.tell(&edited, "done\n").await;
            assert_eq!(told.expect("what is known is told"), Met, "{code}");
        }
    }

    #[test]
    fn what_came_of_it_decides() {
        let refusal = Refusal::new(RefusedBy::Rules, Vec::new());
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
