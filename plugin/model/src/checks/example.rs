//! What each check finds, for example, and what else is known about it without a control plane.
//!
//! A test writes `examples.json` from the cases of the checks.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::{Deserialize, Serialize};

use crate::{
    checks::{Check, UsualTime, actor::Actor, finding::Finding},
    duration::format_duration,
    join_times::DEFAULT_JOIN_LIMIT,
};

/// Example findings by the id of their check.
pub type Examples = BTreeMap<String, CheckExample>;

/// What a check finds in its test cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckExample {
    /// Who can act next because of a finding.
    pub actors: Vec<Actor>,
    /// The first of the most severe findings, preferably one with a hint.
    pub finding: Finding,
}

static EXAMPLES: LazyLock<Examples> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// The example of the check with this id.
pub fn example(id: &str) -> Option<&'static CheckExample> {
    EXAMPLES.get(id)
}

/// What a check declares, each fact with its name. `actors` are those who can act next because of a finding.
pub fn facts(check: &Check, actors: &[Actor]) -> Vec<(&'static str, String)> {
    let names: Vec<&str> = actors.iter().map(|actor| actor.name()).collect();
    let mut facts = vec![("who acts next", names.join("; "))];
    if let Some(time) = check.usual_time {
        let limit = match time {
            UsualTime::Fixed(limit) => format_duration(limit),
            UsualTime::JoinLimit => format!(
                "the join limit, which is {} by default",
                format_duration(DEFAULT_JOIN_LIMIT)
            ),
        };
        facts.push(("usual time", format!("at most {limit}")));
    }
    let mut mark = |is_set: bool, name, text: &str| {
        if is_set {
            facts.push((name, text.to_owned()));
        }
    };
    mark(
        check.is_preflight,
        "preflight",
        "while the check fails, status allows neither scaling nor rollouts",
    );
    mark(check.is_blocking, "verdict", "Blocked, if the check fails");
    mark(
        check.is_summary,
        "summary",
        "its findings come last, because other checks may report the same problem in detail",
    );
    facts
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLES, example};
    use crate::checks::all;

    #[test]
    fn every_check_has_an_example_and_every_example_a_check() {
        let ids: Vec<&str> = all()
            .map(|check| check.id)
            .filter(|id| example(id).is_some())
            .collect();
        assert_eq!((ids.len(), EXAMPLES.len()), (all().count(), all().count()));
    }
}
