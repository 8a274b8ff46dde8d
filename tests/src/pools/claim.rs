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

    /// What the lessee has after this event. None: no entry that it can rely on.
    fn after(before: Option<Self>, events: &'s LesseeEvent) -> Option<Self> {
        match &events.what {
            EventKind::Leased { entry, ends } => Some(Self {
                entry,
                ends: *ends,
                has_cluster: before.is_some_and(|held| held.entry == entry && held.has_cluster),
                is_recorded: true,
            }),
            EventKind::Renewed { ends } => before.map(|held| Self { ends: *ends, ..held }),
            EventKind::CreatedCluster => before.map(|held| Self {
                has_cluster: true,
                ..held
            }),
            EventKind::DeletesCluster => before.filter(|held| held.is_recorded).map(|held| Self {
                has_cluster: false,
                ends: held
                    .ends
                    .max(events.at.saturating_add(GRACE).unwrap_or(Timestamp::MAX)),
                ..held
            }),
            EventKind::LosesRecord => before.filter(|held| held.has_cluster).map(|held| Self {
                is_recorded: false,
                ..held
            }),
            EventKind::Releases => None,
        }
    }
}

/// All claims, and the lessees with two entries. `events` is in chronological order.
pub(super) fn claims(events: &[LesseeEvent]) -> (Vec<Claim<'_>>, Vec<Violation>) {
    let (mut claims, mut violations) = (Vec::<Claim<'_>>::new(), Vec::new());
    let mut held: BTreeMap<&str, Holding<'_>> = BTreeMap::new();
    for one in events {
        let lessee = one.lessee.as_str();
        let is_open = |claim: &&mut Claim<'_>| claim.lessee == lessee && claim.until == Revision::MAX;
        if let Some(open) = claims.iter_mut().find(is_open) {
            open.until = one.revision;
        }
        let before = held.remove(lessee);
        if let (EventKind::Leased { entry, .. }, Some(before)) = (&one.what, before)
            && before.entry != entry
            && one.at < before.before()
        {
            violations.push(Violation::TwoEntries {
                lessee: lessee.to_owned(),
                entries: [before.entry.to_owned(), entry.clone()],
            });
        }
        let Some(after) = Holding::after(before, one) else {
            continue;
        };
        claims.push(Claim {
            lessee,
            entry: after.entry,
            from: one.revision,
            since: one.at,
            until: Revision::MAX,
            before: after.before(),
            is_reported: matches!(one.what, EventKind::Leased { .. }),
            is_recorded: after.is_recorded,
        });
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
        let cases: [(&str, &[EventKind], &[&str]); 7] = [
            ("a lease ends", &[leased(9)], &["1..=end <9"]),
            ("a release", &[leased(9), Releases], &["1..=2 <9"]),
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
