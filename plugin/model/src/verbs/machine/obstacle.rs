//! What is in the way of a write to a Machine.

use crate::change::decision::{Refusal, RefusedBy};

/// What keeps a Machine from being replaced, a line each.
#[derive(Debug, Default)]
pub struct Obstacles {
    /// Until somebody does something.
    pub lasting: Vec<String>,
    /// For a while: by force it is written all the same, and the controller waits.
    pub passing: Vec<String>,
}

impl Obstacles {
    /// What is warned of where it is written in spite of them, a line each.
    ///
    /// # Errors
    /// Why it is not written.
    pub fn warnings(self, force: bool) -> Result<Vec<String>, Refusal> {
        let Self { lasting, passing } = self;
        if lasting.is_empty() && (force || passing.is_empty()) {
            return Ok(passing);
        }
        let by = if lasting.is_empty() {
            RefusedBy::Preflight
        } else {
            RefusedBy::Command
        };
        Err(Refusal::new(by, [lasting, passing].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Obstacles, Refusal, RefusedBy};

    #[test]
    fn force_overcomes_what_passes_and_nothing_else() {
        let lines = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let refused = |by, why| Err(Refusal::new(by, lines(why)));
        for (lasting, passing, force, expected) in [
            ("", "", false, Ok(Vec::new())),
            ("", "", true, Ok(Vec::new())),
            ("", "busy", false, refused(RefusedBy::Preflight, "busy")),
            ("", "busy", true, Ok(lines("busy"))),
            ("gone", "", true, refused(RefusedBy::Command, "gone")),
            ("gone", "busy", false, refused(RefusedBy::Command, "gone busy")),
            ("gone", "busy", true, refused(RefusedBy::Command, "gone busy")),
        ] {
            let obstacles = Obstacles {
                lasting: lines(lasting),
                passing: lines(passing),
            };
            assert_eq!(obstacles.warnings(force), expected, "{lasting} {passing} {force}");
        }
    }
}
