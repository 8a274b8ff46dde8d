//! What each verb says of a Machine.

use kcp_control_plane::change::decision::{Refusal, RefusedBy};

/// What a verb says of what it has done.
#[derive(Clone, Copy)]
pub(super) struct Wording {
    /// What is done to a Machine: `replace`.
    pub(super) verb: &'static str,
    /// That it was done.
    pub(super) done: &'static str,
    /// That it was not.
    pub(super) undone: &'static str,
    /// What `--force` does where the preflight refuses; none where it never does.
    forced: Option<&'static str>,
}

pub(super) const REPLACED: Wording = Wording {
    verb: "replace",
    done: "deleted: its control plane replaces it",
    undone: "not replaced",
    forced: Some("with --force it is deleted now, and another is made only when the above has passed"),
};

pub(super) const PREFERRED: Wording = Wording {
    verb: "prefer the deletion of",
    done: "is preferred for deletion",
    undone: "not preferred for deletion",
    forced: None,
};

pub(super) const CLEARED: Wording = Wording {
    verb: "no more prefer the deletion of",
    done: "is preferred for deletion no more",
    undone: "still preferred for deletion",
    forced: None,
};

pub(super) const REMEDIATED: Wording = Wording {
    verb: "remediate",
    done: "marked for remediation",
    undone: "not marked for remediation",
    forced: Some("with --force it is marked now, and replaced only when the above has passed"),
};

impl Wording {
    /// What to try next.
    pub(super) fn hint(&self, refusal: &Refusal) -> Option<&'static str> {
        self.forced.filter(|_| refusal.by == RefusedBy::Preflight)
    }
}

#[cfg(test)]
mod tests {
    use super::{PREFERRED, REMEDIATED, REPLACED};
    use kcp_control_plane::change::decision::{Refusal, RefusedBy};

    #[test]
    fn force_is_offered_where_it_helps_and_for_what_it_does() {
        let deleted = "with --force it is deleted now, and another is made only when the above has passed";
        let marked = "with --force it is marked now, and replaced only when the above has passed";
        for (wording, by, expected) in [
            (REPLACED, RefusedBy::Preflight, Some(deleted)),
            (REPLACED, RefusedBy::Command, None),
            (REMEDIATED, RefusedBy::Preflight, Some(marked)),
            (REMEDIATED, RefusedBy::Command, None),
            (PREFERRED, RefusedBy::Command, None),
        ] {
            let why = Vec::new();
            let hint = wording.hint(&Refusal::new(by, why));
            assert_eq!(hint, expected, "{} {by:?}", wording.verb);
        }
    }
}
