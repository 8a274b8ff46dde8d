//! The periods in which an entry belongs to a lessee, from the messages to the lessee and the events of its cluster. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::invariant::Violation;
use super::version::Revision;

/// How long an entry must stay reserved after its cluster was deleted. Repairs during a run use this grace period.
pub const GRACE: SignedDuration = SignedDuration::from_secs(3);

/// A message between a command and a lessee, or an event of the lessee's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LesseeEvent {
    /// etcd's revision at that moment.
    pub revision: Revision,
    /// The API server's time, whose clock is the test's.
    pub at: Timestamp,
    pub lessee: String,
    pub what: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A command reported that the lessee has this entry until this time. That was true at this revision.
    Leased { entry: String, ends: Timestamp },
    /// A command reported that the lessee has these entries, each until its time. That was true at this revision.
    LeasedSet { entries: Vec<(String, Timestamp)> },
    /// A command reported that the lessee now has its entry until this time.
    Renewed { ends: Timestamp },
    /// The lessee's cluster is stored, and uses the lessee's entry.
    CreatedCluster,
    /// The lessee's cluster is about to be deleted.
    DeletesCluster,
    /// The lessee's entry is about to be restored without its status.
    LosesRecord,
    /// The lessee is about to release its entry, which it still has at this revision.
    Releases,
}

/// A period in which an entry belongs to a lessee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim<'s> {
    pub(super) lessee: &'s str,
    pub(super) entry: &'s str,
    pub(super) from: Revision,
    /// The time of `from`.
    pub(super) since: Timestamp,
    /// The last revision; [`Revision::MAX`] for the lessee's last claim.
    pub(super) until: Revision,
    /// The time before which the entry must be the lessee's.
    pub(super) before: Timestamp,
    /// Whether the version of the entry at `from` must name the lessee too.
    pub(super) is_reported: bool,
    /// Whether each version must name the lessee. An entry without a record is reserved only after a command has seen its
    /// cluster; until then, no other lessee may get a message that it has the entry.
    pub(super) is_recorded: bool,
}

/// What a lessee has.
#[derive(Clone, Copy, Debug)]
struct Holding<'s> {
    entry: &'s str,
    ends: Timestamp,
    has_cluster: bool,
    is_recorded: bool,
}

impl<'s> Holding<'s> {
    fn before(&self) -> Timestamp {
        if self.has_cluster {
            Timestamp::MAX
        } else {
            self.ends
        }
    }

    /// What the lessee has after this event. Empty: no entry that it can rely on.
    fn after(before: Vec<Self>, events: &'s LesseeEvent) -> Vec<Self> {
        let leased = |(entry, ends): (&'s str, Timestamp)| Self {
            entry,
            ends,
            has_cluster: before.iter().any(|held| held.entry == entry && held.has_cluster),
            is_recorded: true,
        };
        if let EventKind::LeasedSet { entries } = &events.what {
            let entries = entries.iter().map(|(entry, ends)| (entry.as_str(), *ends));
            return entries.map(leased).collect();
        }
        if let EventKind::Leased { entry, ends } = &events.what {
            return vec![leased((entry, *ends))];
        }
        let before = before.into_iter();
        before.filter_map(|held| held.after_change(events)).collect()
    }

    /// The entry after an event other than a lease.
    fn after_change(self, events: &LesseeEvent) -> Option<Self> {
        match &events.what {
            EventKind::Leased { .. } | EventKind::LeasedSet { .. } | EventKind::Releases => None,
            EventKind::Renewed { ends } => Some(Self { ends: *ends, ..self }),
            EventKind::CreatedCluster => Some(Self {
                has_cluster: true,
                ..self
            }),
            EventKind::DeletesCluster => self.is_recorded.then(|| Self {
                has_cluster: false,
                ends: self
                    .ends
                    .max(events.at.saturating_add(GRACE).unwrap_or(Timestamp::MAX)),
                ..self
            }),
            EventKind::LosesRecord => self.has_cluster.then_some(Self {
                is_recorded: false,
                ..self
            }),
        }
    }
}

/// All claims, and the lessees with two entries. `events` is in chronological order.
pub(super) fn claims(events: &[LesseeEvent]) -> (Vec<Claim<'_>>, Vec<Violation>) {
    let (mut claims, mut violations) = (Vec::<Claim<'_>>::new(), Vec::new());
    let mut held: BTreeMap<&str, Vec<Holding<'_>>> = BTreeMap::new();
    for one in events {
        let lessee = one.lessee.as_str();
        let is_open = |claim: &&mut Claim<'_>| claim.lessee == lessee && claim.until == Revision::MAX;
        for open in claims.iter_mut().filter(is_open) {
            open.until = one.revision;
        }
        let before = held.remove(lessee).unwrap_or_default();
        if let EventKind::Leased { entry, .. } = &one.what {
            let others = before
                .iter()
                .filter(|held| held.entry != entry && one.at < held.before());
            violations.extend(others.map(|held| Violation::TwoEntries {
                lessee: lessee.to_owned(),
                entries: [held.entry.to_owned(), entry.clone()],
            }));
        }
        let after = Holding::after(before, one);
        claims.extend(after.iter().map(|after| Claim {
            lessee,
            entry: after.entry,
            from: one.revision,
            since: one.at,
            until: Revision::MAX,
            before: after.before(),
            is_reported: matches!(one.what, EventKind::Leased { .. } | EventKind::LeasedSet { .. }),
            is_recorded: after.is_recorded,
        }));
        held.insert(lessee, after);
    }
    (claims, violations)
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{EventKind, LesseeEvent, claims};
    use crate::pools::version::Revision;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    /// Each message at the revision and the second of its position, from 1. Returns `FROM..=UNTIL <BEFORE`, and `?`
    /// without a record.
    fn found(events: &[EventKind]) -> Vec<String> {
        let events: Vec<_> = (1..)
            .zip(events)
            .map(|(second, what)| LesseeEvent {
                revision: Revision::try_from(second).unwrap(),
                at: at(second),
                lessee: "a".to_owned(),
                what: what.clone(),
            })
            .collect();
        let (claims, violations) = claims(&events);
        assert_eq!(violations, []);
        let claims = claims.into_iter().map(|claim| {
            let until = if claim.until == Revision::MAX {
                "end".to_owned()
            } else {
                claim.until.to_string()
            };
            let before = if claim.before == Timestamp::MAX {
                "ever".to_owned()
            } else {
                claim.before.as_second().to_string()
            };
            let unknown = if claim.is_recorded { "" } else { "?" };
            format!("{}..={until} <{before}{unknown}", claim.from)
        });
        claims.collect()
    }

    fn leased(ends: i64) -> EventKind {
        EventKind::Leased {
            entry: "x".to_owned(),
            ends: at(ends),
        }
    }

    #[test]
    fn what_a_lessee_may_rely_on() {
        use EventKind::{CreatedCluster, DeletesCluster, LosesRecord, Releases, Renewed};
        let two = EventKind::LeasedSet {
            entries: vec![("x".to_owned(), at(9)), ("y".to_owned(), at(8))],
        };
        let cases: [(&str, &[EventKind], &[&str]); 8] = [
            ("a lease ends", &[leased(9)], &["1..=end <9"]),
            ("a release", &[leased(9), Releases], &["1..=2 <9"]),
            (
                "a release of two entries",
                &[two, Releases],
                &["1..=2 <9", "1..=2 <8"],
            ),
            (
                "a renewal",
                &[leased(9), Renewed { ends: at(20) }],
                &["1..=2 <9", "2..=end <20"],
            ),
            (
                "a cluster outlives the lease, and the entry its grace period",
                &[leased(4), CreatedCluster, DeletesCluster],
                &["1..=2 <4", "2..=3 <ever", "3..=end <6"],
            ),
            (
                "a longer lease outlives the grace period",
                &[leased(9), CreatedCluster, DeletesCluster, CreatedCluster],
                &["1..=2 <9", "2..=3 <ever", "3..=4 <9", "4..=end <ever"],
            ),
            (
                "a restored entry",
                &[
                    leased(9),
                    CreatedCluster,
                    LosesRecord,
                    leased(9),
                    LosesRecord,
                    DeletesCluster,
                ],
                &[
                    "1..=2 <9",
                    "2..=3 <ever",
                    "3..=4 <ever?",
                    "4..=5 <ever",
                    "5..=6 <ever?",
                ],
            ),
            (
                "a restored entry without a cluster",
                &[leased(9), LosesRecord],
                &["1..=2 <9"],
            ),
        ];
        for (case, events, expected) in cases {
            assert_eq!(found(events), expected, "{case}");
        }
    }
}
