//! The tables in `webhook/rules/components/data`, which `webhook/rules/components/generate` derives from the sources of the
//! components. `webhook/rules/components/table/main.go` describes their format.

use std::collections::HashMap;

use super::{Absence, Answer};

/// The state of a name that a component does not know.
const UNKNOWN: &str = "-";

/// The names that a component knows in each minor version, such as flags or feature gates, with the state of each name.
#[derive(Debug)]
pub(super) struct Table {
    minors: Vec<u64>,
    rows: HashMap<&'static str, Row>,
}

/// The state of one name in each minor version.
#[derive(Debug)]
pub(super) struct Row {
    /// The states in the order of the minor versions, each with the first minor version that has it.
    changes: Vec<(u64, &'static str)>,
    pub(super) text: &'static str,
}

impl Table {
    pub(super) fn parse(text: &'static str) -> Self {
        let (header, rows) = text.split_once('\n').unwrap_or((text, ""));
        let minor = |version: &str| version.split('.').nth(1)?.parse().ok();
        Self {
            minors: header.split(' ').filter_map(minor).collect(),
            rows: rows.lines().filter_map(Row::parse).collect(),
        }
    }

    /// The oldest and the newest minor version.
    pub(super) fn range(&self) -> (u64, u64) {
        let (oldest, newest) = (self.minors.iter().min(), self.minors.iter().max());
        (
            oldest.copied().unwrap_or_default(),
            newest.copied().unwrap_or_default(),
        )
    }

    pub(super) fn covers(&self, minor: u64) -> bool {
        self.minors.contains(&minor)
    }

    pub(super) fn name(&self, name: &str) -> Option<&'static str> {
        self.rows.get_key_value(name).map(|(known, _)| *known)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, &Row)> {
        self.rows.iter().map(|(name, row)| (*name, row))
    }

    /// Applies `read` to the row and the state of a name.
    pub(super) fn answer<T>(
        &self,
        name: &str,
        minor: u64,
        read: impl Fn(&Row, &'static str) -> T,
    ) -> Answer<T> {
        if !self.covers(minor) {
            return Answer::NotCovered;
        }
        let Some(row) = self.rows.get(name) else {
            return Answer::Unknown(Absence::Always);
        };
        row.state(minor).map_or_else(
            || Answer::Unknown(row.absence(minor)),
            |state| Answer::Known(read(row, state)),
        )
    }
}

impl Row {
    fn parse(line: &'static str) -> Option<(&'static str, Self)> {
        let mut columns = line.split('\t');
        let (name, changes, text) = (columns.next()?, columns.next()?, columns.next()?);
        let change = |change: &'static str| {
            let (minor, state) = change.split_once(':')?;
            Some((minor.parse().ok()?, state))
        };
        let changes = changes.split(' ').map(change).collect::<Option<_>>()?;
        Some((name, Self { changes, text }))
    }

    /// The state in a minor version; `None` if the version does not know the name.
    pub(super) fn state(&self, minor: u64) -> Option<&'static str> {
        let (_, state) = self.changes.iter().rev().find(|(first, _)| *first <= minor)?;
        (*state != UNKNOWN).then_some(*state)
    }

    /// The state in the newest version up to `minor` that knows the name.
    pub(super) fn last_known(&self, minor: u64) -> Option<&'static str> {
        let mut earlier = self.changes.iter().rev().filter(|(first, _)| *first <= minor);
        earlier
            .find(|(_, state)| *state != UNKNOWN)
            .map(|(_, state)| *state)
    }

    /// Why a minor version does not know the name.
    pub(super) fn absence(&self, minor: u64) -> Absence {
        let (earlier, later): (Vec<_>, Vec<_>) = self.changes.iter().partition(|(first, _)| *first <= minor);
        match (earlier.last(), later.first()) {
            (Some((removed, _)), _) => Absence::RemovedIn(*removed),
            (None, Some((added, _))) => Absence::AddedIn(*added),
            (None, None) => Absence::Always,
        }
    }

    /// Returns the first of the consecutive minor versions up to `minor` whose states all satisfy `condition`.
    pub(super) fn since(&self, minor: u64, condition: impl Fn(&str) -> bool) -> u64 {
        let earlier = self.changes.iter().rev().filter(|(first, _)| *first <= minor);
        let matching = earlier.take_while(|(_, state)| condition(state));
        matching.last().map_or(minor, |(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# v1.29.6 v1.30.14 v1.31.14 v1.33.13\n\
        back\t29:a 30:- 31:b\t\n\
        new\t31:a\ttext\n\
        old\t29:a 30:b 31:-\t\n\
        same\t29:a\t\n";

    #[test]
    fn states_depend_on_the_minor_version() {
        let table = Table::parse(TEXT);
        for (name, minor, expected) in [
            ("same", 29, Answer::Known("a")),
            ("same", 33, Answer::Known("a")),
            ("same", 28, Answer::NotCovered),
            ("same", 32, Answer::NotCovered),
            ("same", 34, Answer::NotCovered),
            ("old", 30, Answer::Known("b")),
            ("old", 31, Answer::Unknown(Absence::RemovedIn(31))),
            ("old", 33, Answer::Unknown(Absence::RemovedIn(31))),
            ("new", 30, Answer::Unknown(Absence::AddedIn(31))),
            ("new", 31, Answer::Known("a")),
            ("back", 30, Answer::Unknown(Absence::RemovedIn(30))),
            ("back", 31, Answer::Known("b")),
            ("other", 31, Answer::Unknown(Absence::Always)),
        ] {
            let answer = table.answer(name, minor, |_, state| state.to_owned());
            assert_eq!(answer, expected.map(str::to_owned), "{name} at 1.{minor}");
        }
    }

    #[test]
    fn a_condition_holds_since_the_first_of_consecutive_states() {
        let (_, row) = Row::parse("name\t29:a 30:ab 32:b 33:- 34:b\t").unwrap();
        for (minor, expected) in [(30, 30), (31, 30), (32, 30), (34, 34), (35, 34)] {
            assert_eq!(
                row.since(minor, |state| state.contains('b')),
                expected,
                "1.{minor}"
            );
        }
    }

    #[test]
    fn a_row_without_three_columns_is_no_row() {
        for line in ["", "name", "name\t29:a", "name\t29\ttext", "name\tx:a\ttext"] {
            assert!(Row::parse(line).is_none(), "{line:?}");
        }
    }
}
