//! Asks the user a yes-or-no question.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::Context as _;

use crate::terminal::{Terminal, escape};

impl Terminal {
    /// Whether a user can answer a prompt, because stdin and stderr are both terminals.
    pub fn can_prompt() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks the user a yes-or-no question. Every answer except yes means no.
    pub async fn confirm(&self, question: &str) -> anyhow::Result<bool> {
        let answer = self.answer(question).await;
        Ok(is_yes(&answer.context("cannot read the confirmation")?))
    }

    async fn answer(&self, question: &str) -> io::Result<String> {
        self.stop_spinning();
        let mut stderr = io::stderr().lock();
        write!(stderr, "{} [y/N] ", escape(question))?;
        stderr.flush()?;
        drop(stderr);
        // Use a thread, so that Ctrl-C works while the command waits for the answer.
        let answer = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).map(|_| answer)
        });
        answer.await.map_err(io::Error::other)?
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_confirms() {
        for (answer, yes) in [
            ("y\n", true),
            ("Yes\r\n", true),
            (" YES ", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yes please\n", false),
            ("ye\n", false),
        ] {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
