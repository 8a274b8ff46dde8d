//! Decides which of the free entries of a pool a lessee may take, while others wait. No I/O.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use kcp_api::metadata::Object as _;
use kcp_client::ServerTime;

use crate::{
    lease::{
        choice::Availability,
        queue::{KEPT, Place},
        reuse::Reuse,
        rule::{DEFAULT_GRACE, Rule},
    },
    objects::{
        entry::{Entry, EntryStatus as _, Reservation},
        record::LeaseState,
    },
};

/// How long a lessee waits for each lessee ahead that does not take a free entry, before it overtakes that lessee.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a lessee stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// How many lessees are ahead.
    pub ahead: usize,
    /// How many lessees wait, including this one if it has a place.
    pub waiting: usize,
}

/// The position in words, such as `3rd of 12 in the queue`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.ahead + 1;
        if number > self.waiting {
            return write!(f, "the queue is full: {} lessees wait in it", self.waiting);
        }
        let ending = match (number % 100, number % 10) {
            (11..=13, _) => "th",
            (_, 1) => "st",
            (_, 2) => "nd",
            (_, 3) => "rd",
            _ => "th",
        };
        write!(f, "{number}{ending} of {} in the queue", self.waiting)
    }
}

/// Since when each version of an entry has been free, by its name and resourceVersion; `None` before the first look.
#[derive(Debug, Default)]
pub struct Unused(Option<BTreeMap<(String, String), Timestamp>>);

impl Unused {
    /// How long each of these entries has been free. An entry that is free at the first look has been so since its condition
    /// changed, so that a short wait can continue an earlier one; but at most since `joined`, when the lessee got its place, and
    /// for [`KEPT`], because an entry that was cordoned has not been free for as long as its condition says.
    pub fn update<'e>(
        &mut self,
        free: &[&'e Entry],
        joined: Option<Timestamp>,
        now: ServerTime,
    ) -> Vec<(&'e Entry, Duration)> {
        let version = |entry: &Entry| (entry.name().to_owned(), entry.resource_version().to_owned());
        let earliest = now.latest.saturating_sub(KEPT).unwrap_or(now.latest);
        let since = |entry: &Entry| match &self.0 {
            None => freed_at(entry)
                .zip(joined)
                .map(|(freed, joined)| freed.max(joined).max(earliest)),
            Some(before) => before.get(&version(entry)).copied(),
        };
        let since = |entry: &Entry| since(entry).unwrap_or(now.latest);
        let found: Vec<_> = free.iter().map(|entry| (*entry, since(entry))).collect();
        let versions = found.iter().map(|(entry, since)| (version(entry), *since));
        self.0 = Some(versions.collect());
        let unused_for = |since| Duration::try_from(now.earliest.duration_since(since)).unwrap_or_default();
        let found = found.into_iter();
        found.map(|(entry, since)| (entry, unused_for(since))).collect()
    }
}

/// When an entry that is free became free; `None` if its status does not say so.
fn freed_at(entry: &Entry) -> Option<Timestamp> {
    match entry.status.reservation() {
        Reservation::Leased(record) => record.deadline,
        _ => entry.since(),
    }
}

/// Whether a listed entry looks free. `reported` is what an earlier attempt has found. If the attempt found that the lease of
/// an entry has ended, the entry keeps its record, with the past deadline, until it is leased again.
pub fn looks_free(entry: &Entry, reported: &Availability, now: ServerTime) -> bool {
    if entry.is_deleting() || entry.cordoned().is_some() {
        return false;
    }
    let rule = Rule {
        now,
        grace: DEFAULT_GRACE,
        reuse: Reuse::Free,
    };
    match (reported, entry.status.reservation()) {
        (Availability::Free | Availability::Held { .. } | Availability::Cleaning(_), Reservation::Free) => {
            true
        }
        (Availability::Free, Reservation::Leased(record)) => {
            rule.has_ended(record.deadline) && !matches!(record.state, LeaseState::InUse { .. })
        }
        _ => false,
    }
}

/// The lessees ahead of a holder, in order: all that wait, if the holder has no place.
pub fn ahead<'p>(waiting: &'p [Place], holder: &str) -> Vec<&'p Place> {
    let others = waiting.iter();
    others.take_while(|place| place.holder != holder).collect()
}

/// The free entries that a lessee may take: of the `candidates`, those that are left if each lessee ahead gets as many entries as
/// it wants, of those that it accepts. Empty if fewer than `wanted` are left. `others` are free, too, but this lessee does not
/// accept them.
///
/// A lessee that wants several entries takes none before all are free, so this function also keeps those that it cannot take
/// yet. Otherwise lessees of one entry would take each entry that is freed.
pub fn offered<'e>(
    candidates: &[&'e Entry],
    others: &[&Entry],
    ahead: &[&Place],
    wanted: usize,
) -> Vec<&'e Entry> {
    let others = others.iter().map(|entry| (true, entry.name()));
    let mut left: Vec<_> = candidates
        .iter()
        .map(|entry| (false, entry.name()))
        .chain(others)
        .collect();
    // The same order for each request, and first what this lessee does not accept.
    left.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let mut wanted_of_any = 0_usize;
    for place in ahead {
        let Some(accepted) = &place.entries else {
            wanted_of_any = wanted_of_any.saturating_add(place.count);
            continue;
        };
        let mut kept = 0;
        left.retain(|(_, name)| {
            let is_kept = kept < place.count && accepted.contains(name);
            kept += usize::from(is_kept);
            !is_kept
        });
    }
    let is_left = |entry: &&&Entry| left.contains(&(false, entry.name()));
    let offered: Vec<_> = candidates.iter().filter(is_left).copied().collect();
    if left.len() < wanted_of_any.saturating_add(wanted) || offered.len() < wanted {
        return Vec::new();
    }
    offered
}

/// The first lessees ahead that a lessee may overtake so that it gets the entries that it wants, because they have not taken them
/// for too long; `None` if it must still wait. `candidates` are the free entries that it accepts, each with the time for which it
/// has been unused. A lessee ahead that wants more entries than have been unused waits for the others, so it is not overtaken.
pub fn may_overtake<'p>(
    candidates: &[(&Entry, Duration)],
    others: &[&Entry],
    ahead: &[&'p Place],
    wanted: usize,
) -> Option<Vec<&'p Place>> {
    let longest = candidates.iter().map(|(_, unused_for)| *unused_for).max()?;
    let most = longest.as_secs() / PATIENCE.as_secs();
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(ahead.len());
    (1..=most).find_map(|count| {
        let needed = PATIENCE.saturating_mul(u32::try_from(count).ok()?);
        let unused = candidates.iter().filter(|(_, unused_for)| *unused_for >= needed);
        let unused: Vec<_> = unused.map(|(entry, _)| *entry).collect();
        let could_take = |place: &Place| {
            let accepted = |entry: &&&Entry| {
                let set = place.entries.as_ref();
                set.is_none_or(|set| set.contains(entry.name()))
            };
            place.count <= 1 || unused.iter().filter(accepted).count() >= place.count
        };
        let mut overtaken = Vec::new();
        let mut left = ahead.to_vec();
        left.retain(|place| {
            let is_overtaken = overtaken.len() < count && could_take(place);
            if is_overtaken {
                overtaken.push(*place);
            }
            !is_overtaken
        });
        (overtaken.len() == count && !offered(&unused, others, &left, wanted).is_empty()).then_some(overtaken)
    })
}

/// How long a lessee pauses before it looks at the queue again. Several entries may be freed at once, so a pause that grew faster
/// with the number of lessees ahead would leave entries unused.
pub fn pause(ahead: usize) -> Duration {
    const FIRST: Duration = Duration::from_millis(300);
    const FOR_EACH: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(15);
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    FIRST.saturating_add(FOR_EACH.saturating_mul(ahead)).min(MOST)
}

/// How long it took on average until a lessee ahead was gone, from how many have gone in the time that this lessee has waited;
/// `None` if none has.
pub fn time_for_each(first_ahead: usize, ahead: usize, waited: Duration) -> Option<Duration> {
    let gone = u32::try_from(first_ahead.checked_sub(ahead)?).ok()?;
    waited.checked_div(gone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use kcp_api::metadata::Object as _;
    use kcp_client::ServerTime;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Position, Unused, ahead, looks_free, may_overtake, offered, pause, time_for_each};
    use crate::{
        lease::{
            choice::{Availability, UnusableReason},
            queue::{EntrySet, Place, Queue},
        },
        objects::{ClusterName, entry::Entry},
        testing::objects::{
            JUST_NOW, NOW, being_cleaned, cleaning, entry, entry_since, in_use, lease, leased, named, read,
        },
    };

    fn now() -> ServerTime {
        let now = NOW.parse().unwrap();
        ServerTime {
            earliest: now,
            latest: now,
            is_certain: true,
        }
    }

    fn entries(entries: &[Value]) -> Vec<Entry> {
        entries.iter().map(read).collect()
    }

    fn free(names: &[&str]) -> Vec<Entry> {
        let all: Vec<_> = names
            .iter()
            .map(|name| named(name, entry("True", None)))
            .collect();
        entries(&all)
    }

    fn names<'e>(entries: &[&'e Entry]) -> Vec<&'e str> {
        entries.iter().map(|entry| entry.name()).collect()
    }

    fn place(holder: &str, entries: Option<&[&str]>) -> Place {
        Place {
            since: now().latest,
            holder: holder.to_owned(),
            until: now().latest + SignedDuration::from_secs(90),
            entries: entries.map(|entries| EntrySet::new(entries.iter().copied())),
            count: 1,
            part: 0,
        }
    }

    fn any() -> Place {
        place("any", None)
    }

    #[test]
    fn a_lessee_takes_what_is_left_for_it() {
        for (case, candidates, others, ahead, expected) in [
            (
                "nobody is ahead",
                &["b", "a"][..],
                &[][..],
                vec![],
                &["b", "a"][..],
            ),
            ("one is ahead", &["a"], &[], vec![any()], &[]),
            ("there are enough", &["a", "b"], &[], vec![any()], &["a", "b"]),
            (
                "another entry is wanted",
                &["a"],
                &[],
                vec![place("x", Some(&["b"]))],
                &["a"],
            ),
            (
                "the entry is wanted",
                &["a", "b"],
                &[],
                vec![place("x", Some(&["b"]))],
                &["a"],
            ),
            (
                "one of two is wanted, in the order of their names",
                &["b", "a"],
                &[],
                vec![place("x", Some(&["b", "a"]))],
                &["b"],
            ),
            (
                "both are wanted",
                &["a", "b"],
                &[],
                vec![any(), place("x", Some(&["b"]))],
                &[],
            ),
            (
                "one accepts none",
                &["a"],
                &[],
                vec![place("x", Some(&[])), place("y", Some(&["b"]))],
                &["a"],
            ),
            ("another one is free", &["a"], &["b"], vec![any()], &["a"]),
            ("two are ahead", &["a"], &["b"], vec![any(), any()], &[]),
            (
                "the other one is wanted",
                &["a"],
                &["b"],
                vec![any(), place("x", Some(&["a", "b"]))],
                &[],
            ),
        ] {
            let (candidates, others) = (free(candidates), free(others));
            let (candidates, others): (Vec<_>, Vec<_>) =
                (candidates.iter().collect(), others.iter().collect());
            let ahead: Vec<_> = ahead.iter().collect();
            assert_eq!(
                names(&offered(&candidates, &others, &ahead, 1)),
                expected,
                "{case}"
            );
        }
    }

    fn of_count(count: usize, entries: Option<&[&str]>) -> Place {
        Place {
            count,
            ..place("x", entries)
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn the_entries_of_a_lessee_that_wants_several_are_kept_until_it_can_take_all() {
        for (case, wanted, candidates, others, ahead, expected) in [
            (
                "enough for both",
                1,
                &["a", "b", "c"][..],
                &[][..],
                vec![of_count(2, None)],
                &["a", "b", "c"][..],
            ),
            (
                "enough for the first",
                1,
                &["a", "b"],
                &[],
                vec![of_count(2, None)],
                &[],
            ),
            (
                "not even enough for the first",
                1,
                &["a"],
                &[],
                vec![of_count(2, None)],
                &[],
            ),
            (
                "it accepts others",
                1,
                &["a", "c"],
                &[],
                vec![of_count(2, Some(&["b", "c"]))],
                &["a"],
            ),
            (
                "it accepts these",
                1,
                &["a", "b", "c"],
                &[],
                vec![of_count(2, Some(&["a", "b", "c"]))],
                &["c"],
            ),
            (
                "it accepts none",
                1,
                &["a"],
                &[],
                vec![of_count(2, Some(&[]))],
                &["a"],
            ),
            ("two are wanted", 2, &["a", "b"], &[], vec![], &["a", "b"]),
            ("three are wanted", 3, &["a", "b"], &[], vec![], &[]),
            ("one is ahead of two", 2, &["a", "b"], &[], vec![any()], &[]),
            (
                "one is ahead of two of three",
                2,
                &["a", "b", "c"],
                &[],
                vec![any()],
                &["a", "b", "c"],
            ),
            (
                "another one is free",
                2,
                &["a", "b"],
                &["c"],
                vec![any()],
                &["a", "b"],
            ),
            ("two others are free", 2, &["a"], &["b", "c"], vec![], &[]),
            (
                "two of two",
                2,
                &["a", "b", "c"],
                &[],
                vec![of_count(2, None)],
                &[],
            ),
            (
                "two of two, and two more",
                2,
                &["a", "b"],
                &["c", "d"],
                vec![of_count(2, None)],
                &["a", "b"],
            ),
            (
                "a wrong number",
                1,
                &["a"],
                &[],
                vec![of_count(usize::MAX, None), any()],
                &[],
            ),
            ("no number", 1, &["a"], &[], vec![of_count(0, None)], &["a"]),
        ] {
            let (candidates, others) = (free(candidates), free(others));
            let (candidates, others): (Vec<_>, Vec<_>) =
                (candidates.iter().collect(), others.iter().collect());
            let ahead: Vec<_> = ahead.iter().collect();
            let offered = offered(&candidates, &others, &ahead, wanted);
            assert_eq!(names(&offered), expected, "{case}");
        }
    }

    #[test]
    fn a_lessee_that_waits_for_several_entries_is_not_overtaken_while_too_few_are_free() {
        let two = || of_count(2, None);
        for (wanted, unused, ahead, expected) in [
            (1, &[("a", 900)][..], vec![two()], None),
            (1, &[("a", 900), ("b", 4)], vec![two()], None),
            (1, &[("a", 900), ("b", 5)], vec![two()], Some(&[2][..])),
            // It accepts only one of the two.
            (
                1,
                &[("a", 900), ("b", 900)],
                vec![of_count(2, Some(&["a", "c"]))],
                None,
            ),
            // The lessee behind it has not taken the third entry.
            (1, &[("a", 5), ("b", 5), ("c", 5)], vec![two(), any()], Some(&[2])),
            (1, &[("a", 5), ("b", 0), ("c", 0)], vec![two(), any()], None),
            (1, &[("a", 10)], vec![any(), two()], None),
            (1, &[("a", 10), ("b", 10)], vec![any(), two()], Some(&[1, 2])),
            (2, &[("a", 5)], vec![any()], None),
            (2, &[("a", 5), ("b", 4)], vec![any()], None),
            (2, &[("a", 5), ("b", 5)], vec![any()], Some(&[1])),
            (2, &[("a", 9), ("b", 9), ("c", 9)], vec![two()], Some(&[2])),
        ] {
            let listed = free(&unused.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            let times = unused.iter().map(|(_, seconds)| Duration::from_secs(*seconds));
            let candidates: Vec<_> = listed.iter().zip(times).collect();
            let ahead: Vec<_> = ahead.iter().collect();
            let overtaken = may_overtake(&candidates, &[], &ahead, wanted);
            let counts = overtaken.map(|places| places.iter().map(|place| place.count).collect::<Vec<_>>());
            assert_eq!(counts.as_deref(), expected, "{wanted} {unused:?} {ahead:?}");
        }
    }

    #[test]
    fn a_lessee_overtakes_those_who_leave_an_entry_unused() {
        let three = ["x", "y", "z"].map(|holder| place(holder, None));
        let three: Vec<_> = three.iter().collect();
        for (unused, expected) in [
            (&[("a", 0)][..], None),
            (&[("a", 14)], None),
            (&[("a", 15)], Some(3)),
            (&[("a", 900)], Some(3)),
            (&[("a", 14), ("b", 14)], Some(2)),
            // The time of one entry says nothing about another one.
            (&[("a", 10), ("b", 0)], None),
            (&[], None),
        ] {
            let listed = free(&unused.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            let times = unused.iter().map(|(_, seconds)| Duration::from_secs(*seconds));
            let unused: Vec<_> = listed.iter().zip(times).collect();
            let overtaken = may_overtake(&unused, &[], &three, 1);
            assert_eq!(overtaken.map(|places| places.len()), expected, "{unused:?}");
        }
    }

    #[test]
    fn an_entry_is_unused_from_when_this_version_of_it_was_free() {
        let mut unused = Unused::default();
        let all = free(&["a", "b"]);
        let (a, b) = (&all[0], &all[1]);
        let mut again = all[1].clone();
        again.metadata.resource_version = Some("2".to_owned());
        for (second, free, expected) in [
            (1, vec![a], &[0][..]),
            (3, vec![a, b], &[2, 0]),
            (4, vec![b], &[1]),
            (6, vec![a, b], &[0, 3]),
            (8, vec![a, &again], &[2, 0]),
        ] {
            assert_eq!(unused_for(&mut unused, &free, None, second), expected, "{second}");
        }
    }

    #[test]
    fn at_the_first_look_an_entry_is_unused_since_its_condition_changed() {
        let is_free = |since: &str| -> Entry { read(&entry_since("True", None, since)) };
        let freed = is_free("2026-11-21T05:00:10Z");
        let ended = read(&leased(&lease("paris", Some("2026-11-21T05:00:12Z"))));
        let mut never_used = entry("True", None);
        never_used["status"] = json!({});
        let never_used = read(&never_used);
        for (free, joined, expected) in [
            (&freed, Some(0), 10),
            (&freed, Some(13), 7),
            (&freed, None, 0),
            (&ended, Some(0), 8),
            (&never_used, Some(0), 0),
            // A lessee that has waited for an hour does not overtake all others when an entry is uncordoned.
            (&is_free("2026-11-21T04:00:00Z"), Some(0), 15),
            // The clock that wrote the condition is ahead.
            (&is_free("2026-11-21T05:01:00Z"), Some(0), 0),
        ] {
            let found = unused_for(&mut Unused::default(), &[free], joined, 20);
            assert_eq!(found, [expected], "{free:?} {joined:?}");
        }
        // Whoever has already looked knows since when an entry has been free.
        let mut unused = Unused::default();
        assert!(unused_for(&mut unused, &[], Some(0), 18).is_empty());
        assert_eq!(unused_for(&mut unused, &[&freed], Some(0), 20), [0]);
    }

    /// How many seconds each entry has been unused, at a second.
    fn unused_for(unused: &mut Unused, free: &[&Entry], joined: Option<u64>, second: u64) -> Vec<u64> {
        let after = |second| now().latest + Duration::from_secs(second);
        let now = ServerTime {
            earliest: after(second),
            latest: after(second),
            is_certain: true,
        };
        let found = unused.update(free, joined.map(after), now).into_iter();
        found.map(|(_, unused_for)| unused_for.as_secs()).collect()
    }

    #[test]
    fn an_entry_also_looks_free_if_its_lease_has_ended() {
        let held = || Availability::Held {
            cluster_deployment: None,
            pool: None,
            until: None,
        };
        let cordoned = Availability::Unusable(UnusableReason::Cordoned("why".to_owned()));
        let referenced = Availability::Referenced {
            by: ClusterName::new("oslo", "oslo"),
        };
        let is_free = entry("True", None);
        let ended = leased(&lease("paris", Some(JUST_NOW)));
        let renewed = leased(&lease("paris", Some("2026-11-21T06:00:00Z")));
        let for_ever = leased(&lease("paris", None));
        let used = leased(&in_use("paris", JUST_NOW, "u"));
        let mut is_cordoned = is_free.clone();
        is_cordoned["metadata"]["annotations"]["kubectl-kcp.dev/cordoned"] = "why".into();
        let dirty = being_cleaned(&cleaning(None, 0));
        let mut deleting = is_free.clone();
        deleting["metadata"]["deletionTimestamp"] = NOW.into();
        for (case, listed, reported, expected) in [
            ("free", &is_free, Availability::Free, true),
            ("released since", &is_free, held(), true),
            ("unusable", &is_free, cordoned, false),
            ("used by another cluster", &is_free, referenced, false),
            ("cordoned since", &is_cordoned, Availability::Free, false),
            ("deleted since", &deleting, Availability::Free, false),
            (
                "cleaned since",
                &is_free,
                Availability::Cleaning(cleaning(None, 0)),
                true,
            ),
            (
                "being cleaned",
                &dirty,
                Availability::Cleaning(cleaning(None, 0)),
                false,
            ),
            ("being cleaned since", &dirty, Availability::Free, false),
            ("ended", &ended, Availability::Free, true),
            ("ended, but reserved", &ended, held(), false),
            ("leased since", &renewed, Availability::Free, false),
            ("leased for ever since", &for_ever, Availability::Free, false),
            ("used since", &used, Availability::Free, false),
        ] {
            let found = looks_free(&read(listed), &reported, now());
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_lessee_is_told_its_place_and_how_long_it_takes() {
        for (ahead, waiting, expected) in [
            (0, 1, "1st of 1 in the queue"),
            (1, 12, "2nd of 12 in the queue"),
            (2, 12, "3rd of 12 in the queue"),
            (10, 12, "11th of 12 in the queue"),
            (20, 99, "21st of 99 in the queue"),
            (112, 200, "113th of 200 in the queue"),
            (1_024, 1_024, "the queue is full: 1024 lessees wait in it"),
        ] {
            assert_eq!(Position { ahead, waiting }.to_string(), expected);
        }
        for (first, ahead, waited, expected) in [
            (5, 5, 60, None),
            (5, 6, 60, None),
            (5, 3, 20, Some(10)),
            (5, 0, 50, Some(10)),
        ] {
            let found = time_for_each(first, ahead, Duration::from_secs(waited));
            assert_eq!(found, expected.map(Duration::from_secs), "{first} {ahead}");
        }
        for (ahead, expected) in [(0, 300), (7, 1_000), (1_023, 15_000)] {
            assert_eq!(pause(ahead), Duration::from_millis(expected));
        }
    }

    proptest! {
        /// Lessees of one or two entries join, look and release in any order. One that looks takes what it is offered. Also those look
        /// that have not joined.
        #[test]
        fn nobody_takes_an_entry_for_which_another_has_waited_longer(
            steps in proptest::collection::vec((0_usize..12, 0_u8..4), 1..200),
            size in 2_usize..4,
        ) {
            let begin: Timestamp = NOW.parse().unwrap();
            let entry_names = ["a", "b", "c"];
            let mut holders: Vec<Option<usize>> = vec![None; size];
            let mut queue = Queue::default();
            // The lessees that wait, in order.
            let mut line: Vec<usize> = Vec::new();
            let count = |lessee: usize| 1 + lessee % 2;
            for (second, (lessee, step)) in steps.into_iter().enumerate() {
                // No place ends during the test.
                let time = begin + SignedDuration::from_secs(i64::try_from(second / 10).unwrap());
                let now = ServerTime { earliest: time, latest: time, is_certain: true };
                let held: Vec<_> = holders.iter().zip(entry_names).map(|(holder, name)| named(name, match holder {
                    Some(holder) => leased(&lease(&format!("lessee-{holder}"), None)),
                    None => entry("True", None),
                })).collect();
                let held = entries(&held);
                let is_free = |entry: &&Entry| looks_free(entry, &Availability::Free, now);
                let free: Vec<_> = held.iter().filter(is_free).collect();
                let name = format!("lessee-{lessee}");
                let is_holder = holders.contains(&Some(lessee));
                let before = queue.waiting("pool", &held, now);
                let ahead_of_it = ahead(&before, &name);
                match step {
                    0 if !is_holder && !line.contains(&lessee) => {
                        let place = queue.place_to_write(&name, None, None, count(lessee), line.len(), now).unwrap();
                        queue = queue.with(place);
                        line.push(lessee);
                    }
                    1 if is_holder => {
                        queue = queue.without(&name);
                        holders.iter_mut().filter(|holder| **holder == Some(lessee)).for_each(|holder| *holder = None);
                    }
                    _ if !is_holder => {
                        let offer = offered(&free, &[], &ahead_of_it, count(lessee));
                        let place = line.iter().position(|other| *other == lessee);
                        let of_others: usize = line[..place.unwrap_or(line.len())].iter().map(|other| count(*other)).sum();
                        prop_assert_eq!(offer.is_empty(), free.len() < of_others + count(lessee));
                        for entry in offer.iter().take(count(lessee)) {
                            let taken = entry_names.iter().position(|name| *name == entry.name());
                            holders[taken.unwrap()] = Some(lessee);
                            line.retain(|other| *other != lessee);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
