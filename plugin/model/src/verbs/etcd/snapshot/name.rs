//! The names of snapshots in a folder, and which of them to delete.

use std::{
    cmp::Reverse,
    fmt::{self, Display},
    num::NonZeroUsize,
    str::FromStr,
};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// The time in a name, in UTC.
const TIME: &str = "%Y%m%dT%H%M%SZ";

const EXTENSION: &str = ".db";

/// The name of a snapshot in a folder, such as `default_edge_20261123T120000Z.db`. The names of objects have no `_`, so that each
/// name belongs to one control plane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName {
    pub namespace: String,
    pub control_plane: String,
    /// In whole seconds, so that a name that was read equals the one that was written.
    began: Timestamp,
}

impl SnapshotName {
    pub fn new(namespace: &str, control_plane: &str, now: Timestamp) -> Self {
        Self {
            namespace: namespace.to_owned(),
            control_plane: control_plane.to_owned(),
            began: Timestamp::from_second(now.as_second()).unwrap_or(now),
        }
    }

    /// When the snapshot began.
    pub const fn began(&self) -> Timestamp {
        self.began
    }

    /// Whether this is a snapshot of the same control plane.
    pub fn is_of(&self, namespace: &str, control_plane: &str) -> bool {
        self.namespace == namespace && self.control_plane == control_plane
    }
}

impl Display for SnapshotName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            control_plane,
            began,
        } = self;
        write!(
            formatter,
            "{namespace}_{control_plane}_{}{EXTENSION}",
            began.strftime(TIME)
        )
    }
}

impl FromStr for SnapshotName {
    type Err = ();

    /// Reads a name. Fails for each name that this program would not write.
    fn from_str(text: &str) -> Result<Self, ()> {
        let stem = text.strip_suffix(EXTENSION).ok_or(())?;
        let mut parts = stem.split('_');
        let (Some(namespace), Some(control_plane), Some(time), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let time = DateTime::strptime(TIME, time).map_err(drop)?;
        let began = TimeZone::UTC.to_timestamp(time).map_err(drop)?;
        let name = Self {
            namespace: namespace.to_owned(),
            control_plane: control_plane.to_owned(),
            began,
        };
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        };
        let is_ours = is_name(namespace) && is_name(control_plane) && name.to_string() == text;
        is_ours.then_some(name).ok_or(())
    }
}

/// The snapshots of a control plane to delete from a folder, oldest first, so that `kept` snapshots are left. They never include
/// `newest`, which has just been saved, even if the clock of another machine was ahead, so that its snapshots look newer. Empty if
/// `newest` is not in the folder.
pub fn superseded<'n>(
    stored: impl IntoIterator<Item = &'n SnapshotName>,
    newest: &SnapshotName,
    kept: NonZeroUsize,
) -> Vec<&'n SnapshotName> {
    let own = stored
        .into_iter()
        .filter(|name| name.is_of(&newest.namespace, &newest.control_plane));
    let (found, mut others): (Vec<_>, Vec<_>) = own.partition(|name| *name == newest);
    if found.is_empty() {
        return Vec::new();
    }
    others.sort_by_key(|name| Reverse(name.began));
    // The newest is one of those that are kept.
    let mut superseded = others.split_off(others.len().min(kept.get() - 1));
    superseded.reverse();
    superseded
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use jiff::SignedDuration;

    use super::{SnapshotName, superseded};
    use crate::testing::objects::now;

    #[test]
    fn only_older_snapshots_of_the_same_control_plane_are_superseded() {
        let name = |text: &str| text.parse::<SnapshotName>().expect(text);
        let stored = [
            "d_edge_20260102T000000Z.db",
            "d_edge_20260104T000000Z.db",
            "d_edge_20260101T000000Z.db",
            "d_edge_20260103T000000Z.db",
            "d_other_20250101T000000Z.db",
            "other_edge_20250101T000000Z.db",
        ]
        .map(name);
        for (newest, kept, expected) in [
            (4, 1, &["20260101", "20260102", "20260103"][..]),
            (4, 2, &["20260101", "20260102"]),
            (4, 3, &["20260101"]),
            (4, 4, &[]),
            (4, 9, &[]),
            // The clock of another machine was ahead.
            (1, 1, &["20260102", "20260103", "20260104"]),
            (1, 2, &["20260102", "20260103"]),
            // It is not in the folder.
            (5, 1, &[]),
        ] {
            let newest = name(&format!("d_edge_2026010{newest}T000000Z.db"));
            let kept = NonZeroUsize::new(kept).expect("not zero");
            let found: Vec<String> = superseded(&stored, &newest, kept)
                .iter()
                .map(ToString::to_string)
                .collect();
            let expected: Vec<String> = expected
                .iter()
                .map(|day| format!("d_edge_{day}T000000Z.db"))
                .collect();
            assert_eq!(found, expected, "{newest} {kept}");
        }
    }

    #[test]
    fn a_name_is_written_and_read() {
        let name = SnapshotName::new("d", "c1-cp", now());
        assert_eq!(name.to_string(), "d_c1-cp_20260821T120000Z.db");
        assert_eq!(name.to_string().parse(), Ok(name.clone()));
        let later = SnapshotName::new("d", "c1-cp", now() + SignedDuration::from_millis(999));
        assert_eq!(later, name, "a name has whole seconds");
        for (namespace, control_plane, expected) in
            [("d", "c1-cp", true), ("d", "c1", false), ("d-c1", "cp", false)]
        {
            assert_eq!(name.is_of(namespace, control_plane), expected);
        }
    }

    #[test]
    fn a_name_that_this_program_does_not_write_is_none() {
        for text in [
            "",
            "edge.db",
            "d_c1-cp_20260821T120000Z",
            "d_c1-cp_20260821T120000Z.db.age",
            "d_c1-cp_20260821T120000.db",
            "d_c1-cp_20261321T120000Z.db",
            "d_c1-cp_2026-08-21T12:00:00Z.db",
            "d_c1_cp_20260821T120000Z.db",
            "_c1-cp_20260821T120000Z.db",
            "d__20260821T120000Z.db",
            "D_c1-cp_20260821T120000Z.db",
            "d_../c1_20260821T120000Z.db",
            "old/d_c1-cp_20260821T120000Z.db",
        ] {
            assert_eq!(text.parse::<SnapshotName>(), Err(()), "{text}");
        }
    }
}
