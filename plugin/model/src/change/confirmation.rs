//! The rule about confirmation, for all commands: a command that deletes or replaces a Machine, an etcd member or data
//! asks on a terminal. Without a terminal, the command needs `--yes`.

use crate::change::decision::{Decision, Proposal, Refusal, RefusedBy};

/// Whether a command asks before it deletes or replaces something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    NotNeeded,
    /// The user can answer a question on the terminal.
    Asked,
    /// There is no terminal on which to ask, so the command needs `--yes`.
    Missing,
}

impl Confirmation {
    pub const fn new(is_given: bool, is_dry_run: bool, can_prompt: bool) -> Self {
        match (is_given || is_dry_run, can_prompt) {
            (true, _) => Self::NotNeeded,
            (false, true) => Self::Asked,
            (false, false) => Self::Missing,
        }
    }
}

/// What the user confirms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What the command does, such as `delete Machine m1 of control plane edge`.
    pub goal: String,
    /// What else must be the same when the command writes, such as the consequences that the user has seen.
    pub details: Vec<String>,
}

/// What the user has agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// `--yes`, or a dry run.
    Any,
    /// The answer to this question; `None` if the change deletes and replaces nothing, so there was no question.
    To(Option<Question>),
}

impl Agreement {
    /// Refuses a write to which the user has not agreed, because the object has changed since the question.
    /// `question` returns what the user would be asked now.
    pub fn apply(
        &self,
        decision: Decision,
        question: impl FnOnce(&Proposal) -> Option<Question>,
    ) -> Decision {
        let (Self::To(asked), Decision::Write(proposal)) = (self, &decision) else {
            return decision;
        };
        if *asked == question(proposal) {
            return decision;
        }
        let why = match asked {
            Some(_) => "the change no longer has the consequences that you confirmed: run the command again",
            None => "the change now deletes or replaces something: run the command again",
        };
        Decision::Refused(Refusal::new(RefusedBy::Command, vec![why.to_owned()]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Agreement, Confirmation, Question};
    use crate::change::decision::{ChangeEvent, Decision, ObjectWrite, Proposal};

    #[test]
    fn who_is_asked() {
        use Confirmation::{Asked, Missing, NotNeeded};
        for (is_given, is_dry_run, can_prompt, expected) in [
            (false, false, true, Asked),
            (false, false, false, Missing),
            (true, false, true, NotNeeded),
            (true, false, false, NotNeeded),
            (false, true, true, NotNeeded),
            (false, true, false, NotNeeded),
        ] {
            let confirmation = Confirmation::new(is_given, is_dry_run, can_prompt);
            assert_eq!(confirmation, expected, "{is_given} {is_dry_run} {can_prompt}");
        }
    }

    fn write() -> Decision {
        Decision::Write(Proposal {
            write: ObjectWrite::patch(json!({})),
            outcome: String::new(),
            warnings: Vec::new(),
            consequences: Vec::new(),
            event: ChangeEvent {
                reason: "",
                action: "",
                note_verb: "",
                detail: String::new(),
            },
        })
    }

    fn question(goal: &str) -> Question {
        Question {
            goal: goal.to_owned(),
            details: Vec::new(),
        }
    }

    #[test]
    fn only_what_was_confirmed_is_written() {
        let refusal = |agreement: Agreement, now: Option<Question>| match agreement.apply(write(), |_| now) {
            Decision::Refused(refusal) => Some(refusal.why.join("; ")),
            _ => None,
        };
        assert_eq!(refusal(Agreement::Any, Some(question("a"))), None);
        assert_eq!(
            refusal(Agreement::To(Some(question("a"))), Some(question("a"))),
            None
        );
        assert_eq!(refusal(Agreement::To(None), None), None);
        assert_eq!(
            refusal(Agreement::To(Some(question("a"))), Some(question("b"))).as_deref(),
            Some("the change no longer has the consequences that you confirmed: run the command again")
        );
        assert_eq!(
            refusal(Agreement::To(None), Some(question("b"))).as_deref(),
            Some("the change now deletes or replaces something: run the command again")
        );
        let unchanged = Decision::Unchanged(String::new());
        let agreement = Agreement::To(Some(question("a")));
        assert_eq!(agreement.apply(unchanged.clone(), |_| None), unchanged);
    }
}
