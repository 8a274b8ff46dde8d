//! Prints the changes since the last poll of `leader-migration status --watch`.

use super::Status;
use crate::{
    commands::leader_migration::status::screen::{state, title},
    verdict::Verdict,
    watch::Observation,
};

impl Observation for Status {
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String> {
        let Some(before) = before else {
            let verdict = title(after.verdict());
            let controllers = after.controllers().into_iter().map(|(_, line)| line);
            return std::iter::once(verdict.to_owned()).chain(controllers).collect();
        };
        let mut lines = Vec::new();
        if before.verdict() != after.verdict() {
            lines.push(format!(
                "{} -> {}",
                title(before.verdict()),
                title(after.verdict())
            ));
        }
        lines.extend(changed_lines(&before.controllers(), after.controllers()));
        lines.extend(changed_lines(&before.leases(), after.leases()));
        lines
    }

    fn verdict(&self) -> Verdict {
        self.outcome()
    }
}

/// Returns the lines in `after` that are new, or that differ from the line about the same subject in
/// `before`.
fn changed_lines(before: &[(String, String)], after: Vec<(String, String)>) -> Vec<String> {
    let changed = after.into_iter().filter(|line| !before.contains(line));
    changed.map(|(_, line)| line).collect()
}

impl Status {
    /// One line for each controller that some controller manager runs or can run. Ages are left out, because they change
    /// with every poll.
    fn controllers(&self) -> Vec<(String, String)> {
        let decisions = self.decisions.iter();
        decisions
            .map(|decision| {
                let name = decision.controller.canonical;
                let runners = match decision.runners.as_slice() {
                    [] => "no Pod".to_owned(),
                    runners => runners.join(", "),
                };
                let line = format!("{name}: {}, run by {runners}", title(decision.verdict()));
                (name.to_owned(), line)
            })
            .collect()
    }

    fn leases(&self) -> Vec<(String, String)> {
        let locks = self.observed.locks.iter();
        locks
            .map(|lock| {
                let name = lock.lock.name.clone();
                let holder = lock.holder().unwrap_or("no holder");
                let line = format!(
                    "Lease {name}: {}, {holder}",
                    state(&lock.state(self.observed.now))
                );
                (name, line)
            })
            .collect()
    }
}
