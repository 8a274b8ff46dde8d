//! The queue of a pool: which lessees wait for an entry, and since when. No I/O.
//!
//! The queue only orders requests. Who holds an entry follows from the entry alone, so a wrong queue delays lessees, but never
//! gives two of them the same entry.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kcp_api::{
    ClusterPool,
    metadata::{Object as _, ObjectMeta},
    names::{annotation::PLACE_PREFIX, label},
};
use kcp_client::ServerTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    lease::choice::stable_hash,
    objects::{Holder, entry::Entry, record::LeaseRecord},
};

/// How long a place lasts after its lessee has renewed it, if fewer than twice [`PLACES_OF_TTL`] lessees wait.
const PLACE_TTL: SignedDuration = SignedDuration::from_secs(90);

/// For each such number of lessees that wait, a place lasts longer by [`PLACE_TTL`], so that most lessees of a long queue never renew
/// their places.
const PLACES_OF_TTL: usize = 64;

/// The longest time that a place lasts.
const MAX_PLACE_TTL: SignedDuration = SignedDuration::from_mins(12);

/// A place that lasts longer does not count, because its end is wrong. Longer than [`MAX_PLACE_TTL`], because the server's time
/// is known only within some seconds.
const MAX_LEFT: SignedDuration = SignedDuration::from_mins(15);

/// A lessee renews its place when this much of its time is left, however long the place lasts. A lessee looks at the queue at least
/// every 15 seconds ([`pause`](super::order::pause)), so this is enough for two looks at a slow server.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_secs(40);

/// How long a place stays in the queue after it has ended, so that the next command under the same name can continue there. It no
/// longer counts for others.
pub const KEPT: SignedDuration = SignedDuration::from_secs(15);

/// The places of each part of a queue. The API server stores all places of a part again whenever one is written, and applies
/// writes that arrive at the same time one after the other. A place has at most 512 bytes, so a part has at most 64 KiB, of the
/// 256 KiB that Kubernetes allows for annotations (`TotalAnnotationSizeLimitB`).
const PLACES_OF_PART: usize = 128;

/// Together, the parts have places for 1,024 lessees. The permissions of lessees name each part.
const MAX_PARTS: usize = 8;

/// The value of the label of queues.
pub const QUEUE_LABEL: &str = "queue";

/// A lessee that waits for entries of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// When the lessee began to wait, or just after the last place before it if that is later, because the clocks of lessees
    /// differ.
    pub since: Timestamp,
    /// The name of the ClusterDeployment that will hold the entry.
    pub holder: String,
    /// When the place ends unless it is renewed.
    pub until: Timestamp,
    /// The only entries that the lessee accepts; `None` if it accepts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<EntrySet>,
    /// How many entries the lessee wants at once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: usize,
    /// The part of the queue that contains the place.
    #[serde(skip)]
    pub part: usize,
}

const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_one(count: &usize) -> bool {
    *count == 1
}

/// A set of names of entries that has the same size for any number of names: a bit for each value of a hash, in hexadecimal
/// digits. It seldom contains a name that was not added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntrySet(String);

/// The places in the annotations of the parts of a pool's queue. Each part is a Lease (`coordination.k8s.io`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The resourceVersion of each part that exists.
    versions: BTreeMap<usize, String>,
    /// In order.
    places: Vec<Place>,
}

/// The name of a part of a pool's queue. No two parts of any two pools have the same name.
pub fn queue_name(pool: &str, part: usize) -> String {
    let number = if part == 0 {
        String::new()
    } else {
        part.to_string()
    };
    format!("kubectl-kcp-queue{number}-{pool}")
}

impl EntrySet {
    const DIGITS: u64 = 60;

    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let bits: BTreeSet<_> = names.into_iter().map(Self::bit).collect();
        let digit = |index| {
            let set = (0..4).filter(|bit| bits.contains(&(index, *bit)));
            char::from_digit(set.map(|bit| 1_u32 << bit).sum(), 16)
        };
        Self((0..Self::DIGITS).filter_map(digit).collect())
    }

    pub fn contains(&self, name: &str) -> bool {
        let (index, bit) = Self::bit(name);
        let digit = usize::try_from(index)
            .ok()
            .and_then(|index| self.0.chars().nth(index));
        digit
            .and_then(|digit| digit.to_digit(16))
            .is_some_and(|digit| digit & (1 << bit) != 0)
    }

    /// The digit of a name, and the bit in this digit.
    fn bit(name: &str) -> (u64, u64) {
        let hash = stable_hash(&[name]);
        (hash / 4 % Self::DIGITS, hash % 4)
    }
}

impl Place {
    /// The name of the annotation with the place of a holder, so that the holder has the same place after a restart.
    fn annotation(holder: Holder<'_>) -> String {
        let hash = stable_hash(&[holder.pool, holder.cluster_deployment, ""]);
        format!("{PLACE_PREFIX}{hash:016x}")
    }

    fn text(&self) -> String {
        json!(self).to_string()
    }

    /// Whether the place has not ended. A place with an end that no lessee can have written does not count.
    fn lasts(&self, now: ServerTime) -> bool {
        self.until > now.earliest && self.until.duration_since(now.latest) <= MAX_LEFT
    }

    /// Whether the place lasts, or has ended so recently that its lessee may continue there.
    fn may_continue(&self, now: ServerTime) -> bool {
        let kept_until = self.until.saturating_add(KEPT).unwrap_or(self.until);
        kept_until > now.earliest && self.until.duration_since(now.latest) <= MAX_LEFT
    }

    /// The place, with the number of entries that the lessee still wants; `None` if it has all. `held` is how many entries each
    /// holder holds.
    fn missing(&self, held: &BTreeMap<&str, usize>) -> Option<Self> {
        let held = held.get(self.holder.as_str()).copied().unwrap_or_default();
        let count = self.count.checked_sub(held).filter(|missing| *missing > 0)?;
        Some(Self {
            count,
            ..self.clone()
        })
    }

    /// Whether this is the other place, perhaps renewed.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.holder, self.since) == (&other.holder, other.since)
    }
}

/// How long a place lasts if this number of lessees wait.
fn place_ttl(waiting: usize) -> SignedDuration {
    let factor = i32::try_from(waiting / PLACES_OF_TTL).unwrap_or(i32::MAX);
    PLACE_TTL.saturating_mul(factor.max(1)).min(MAX_PLACE_TTL)
}

impl Queue {
    /// Reads the places in the parts of the pool's queue, which may be among other Leases. Ignores an annotation that is not a place.
    pub fn new<'m>(pool: &str, leases: impl IntoIterator<Item = &'m ObjectMeta>) -> Self {
        let names: Vec<_> = (0..MAX_PARTS).map(|part| queue_name(pool, part)).collect();
        let mut queue = Self::default();
        for lease in leases {
            let found = lease.name.as_ref();
            let Some(part) = names.iter().position(|name| Some(name) == found) else {
                continue;
            };
            let annotations = lease.annotations.iter().flatten();
            let places = annotations.filter_map(|(key, value)| {
                let place: Place = serde_json::from_str(value).ok()?;
                (*key == annotation_of(pool, &place.holder)).then_some(Place { part, ..place })
            });
            queue.places.extend(places);
            queue.versions.insert(part, lease.resource_version().to_owned());
        }
        queue.places.sort();
        queue
    }

    /// The place at which a holder waits or may continue. An ended place stays in its part until a lessee writes to this part.
    pub fn find(&self, holder: &str, now: ServerTime) -> Option<&Place> {
        let mut kept = self.places.iter().filter(|place| place.may_continue(now));
        kept.find(|place| place.holder == holder)
    }

    /// The queue without the place of a holder.
    #[cfg(test)]
    pub fn without(mut self, holder: &str) -> Self {
        self.places.retain(|place| place.holder != holder);
        self
    }

    /// The queue after this place is written.
    pub fn with(mut self, place: Place) -> Self {
        self.places.retain(|other| other.holder != place.holder);
        self.places.push(place);
        self.places.sort();
        self
    }

    /// The places of lessees that still wait, in order. A place that was not renewed in time does not count, nor that of a lessee
    /// that holds as many entries of the pool as it wants.
    pub fn waiting(&self, pool: &str, entries: &[Entry], now: ServerTime) -> Vec<Place> {
        let held = holders(pool, entries);
        // Two processes under one name may have joined two parts at the same time.
        let mut holders = BTreeSet::new();
        let lasting = self.places.iter().filter(|place| place.lasts(now));
        lasting
            .filter(|place| holders.insert(&place.holder))
            .filter_map(|place| place.missing(&held))
            .collect()
    }

    /// The place that a lessee must write now, to join the queue or to renew its place. `None` if its place lasts long enough, or
    /// the queue is full. `last` is the place that the lessee has had until now. `accepted` contains the only entries that the
    /// lessee accepts; `None` if it accepts any. `count` is how many it wants. `waiting` is how many lessees wait.
    pub fn place_to_write(
        &self,
        holder: &str,
        last: Option<&Place>,
        accepted: Option<&EntrySet>,
        count: usize,
        waiting: usize,
        now: ServerTime,
    ) -> Option<Place> {
        let kept: Vec<_> = self
            .places
            .iter()
            .filter(|place| place.may_continue(now))
            .collect();
        let own = kept.iter().copied().find(|place| place.holder == holder);
        let ttl = place_ttl(waiting);
        let is_renewal_due = |own: &Place| own.until.duration_since(now.latest) <= RENEWED_BEFORE;
        // Another process under the same name may accept other entries. It does not write its set again, nor does this one.
        let is_changed = last
            .or(own)
            .is_some_and(|last| (last.entries.as_ref(), last.count) != (accepted, count));
        if !is_changed && own.is_some_and(|own| !is_renewal_due(own)) {
            return None;
        }
        let next = || {
            let now = Timestamp::from_millisecond(now.latest.as_millisecond()).unwrap_or(now.latest);
            let before = kept.last().map_or(Timestamp::MIN, |before| before.since);
            let after = before.saturating_add(SignedDuration::from_millis(1));
            now.max(after.unwrap_or(before))
        };
        let places = |part: usize| kept.iter().filter(move |place| place.part == part).count();
        let part = match own {
            Some(own) => own.part,
            None => (0..MAX_PARTS).find(|part| places(*part) < PLACES_OF_PART)?,
        };
        Some(Place {
            since: own.or(last).map_or_else(next, |before| before.since),
            holder: holder.to_owned(),
            until: end_of_place(now, ttl),
            entries: accepted.cloned(),
            count,
            part,
        })
    }

    /// The annotations of a part of the queue that write a place, and remove the places at which nobody may continue. They need no
    /// resourceVersion: each lessee writes only its own place, and a lessee whose place has ended takes it again if it still runs.
    /// Removes no place while the server's time is uncertain.
    pub fn annotations_with(&self, pool: &str, place: &Place, now: ServerTime) -> Map<String, Value> {
        let ended = self
            .places
            .iter()
            .filter(|ended| ended.part == place.part && now.is_certain && !ended.may_continue(now));
        let ended = ended.map(|place| (annotation_of(pool, &place.holder), Value::Null));
        let own = (annotation_of(pool, &place.holder), place.text().into());
        ended.chain([own]).collect()
    }

    /// The patch of a part that removes the places of this holder and of all that hold what they want. It requires that the part is
    /// unchanged. The entries must be read after the queue, because a lessee that has released its entry may wait again.
    pub fn without_served(&self, part: usize, holder: Holder<'_>, entries: &[Entry]) -> Value {
        let held = holders(holder.pool, entries);
        let of_part = self.places.iter().filter(|place| place.part == part);
        let served = of_part
            .filter(|place| place.holder == holder.cluster_deployment || place.missing(&held).is_none());
        let removed: Map<String, Value> = served
            .map(|place| (annotation_of(holder.pool, &place.holder), Value::Null))
            .collect();
        let version = self.versions.get(&part);
        json!({"metadata": {"resourceVersion": version, "annotations": removed}})
    }
}

/// A part of the queue of a pool with its first place.
pub fn new_queue(pool: &ClusterPool, part: usize, annotations: &Map<String, Value>) -> Value {
    let written = annotations.iter().filter(|(_, value)| !value.is_null());
    let written: Map<_, _> = written.map(|(key, value)| (key.clone(), value.clone())).collect();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": queue_name(pool.name(), part),
            "labels": {label::POOL_LEASE: QUEUE_LABEL},
            "annotations": written,
            "ownerReferences": [{
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "name": pool.name(), "uid": pool.uid(),
            }],
        },
    })
}

fn end_of_place(now: ServerTime, ttl: SignedDuration) -> Timestamp {
    let end = now.latest.saturating_add(ttl).unwrap_or(Timestamp::MAX);
    LeaseRecord::round_up_to_second(end)
}

/// The patch that ends a place. Its lessee may continue at this place for a while.
pub fn end(pool: &str, place: &Place, now: ServerTime) -> Value {
    let second = Timestamp::from_second(now.earliest.as_second());
    let place = Place {
        until: second.unwrap_or(now.earliest),
        ..place.clone()
    };
    json!({"metadata": {"annotations": {annotation_of(pool, &place.holder): place.text()}}})
}

/// The patch that removes the place of a holder.
pub fn leave(holder: Holder<'_>) -> Value {
    json!({"metadata": {"annotations": {Place::annotation(holder): null}}})
}

fn annotation_of(pool: &str, holder: &str) -> String {
    Place::annotation(Holder {
        pool,
        cluster_deployment: holder,
    })
}

/// How many entries of a pool each holder holds.
fn holders<'e>(pool: &str, entries: &'e [Entry]) -> BTreeMap<&'e str, usize> {
    let of_pool = entries.iter().filter(|entry| entry.status.pool() == Some(pool));
    let mut held = BTreeMap::new();
    for holder in of_pool.filter_map(|entry| entry.status.holder()) {
        *held.entry(holder).or_default() += 1;
    }
    held
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use kcp_client::ServerTime;
    use serde_json::{Value, json};

    use super::{
        EntrySet, PLACES_OF_PART, Place, Queue, annotation_of, end, leave, new_queue, place_ttl, queue_name,
    };
    use crate::{
        lease::order::ahead,
        objects::{Holder, entry::Entry},
        testing::objects::{NOW, lease, leased, named, pool, read},
    };

    fn at(second: i64) -> ServerTime {
        let begin: Timestamp = NOW.parse().unwrap();
        let now = begin + Duration::from_secs(second.unsigned_abs());
        ServerTime {
            earliest: now,
            latest: now,
            is_certain: true,
        }
    }

    fn empty() -> Queue {
        Queue::new("pool", [])
    }

    /// The queue after these lessees have joined it at these seconds, as the server stores it.
    fn joined(lessees: &[(&str, i64, Option<&EntrySet>)]) -> (Queue, Value) {
        let mut stored = json!({"metadata": {"name": queue_name("pool", 0), "resourceVersion": "7"}});
        for (holder, second, accepted) in lessees {
            let queue = read_queue(&stored);
            let place = queue
                .place_to_write(holder, None, *accepted, 1, lessees.len(), at(*second))
                .unwrap();
            let annotations = queue.annotations_with("pool", &place, at(*second));
            json_patch::merge(&mut stored, &json!({"metadata": {"annotations": annotations}}));
            assert_eq!(queue.with(place).places, read_queue(&stored).places);
        }
        (read_queue(&stored), stored)
    }

    fn read_queue(stored: &Value) -> Queue {
        Queue::new("pool", [&read(&stored["metadata"])])
    }

    fn entries(entries: &[Value]) -> Vec<Entry> {
        entries.iter().map(read).collect()
    }

    fn names<'p>(places: impl IntoIterator<Item = &'p Place>) -> Vec<&'p str> {
        places.into_iter().map(|place| place.holder.as_str()).collect()
    }

    /// The queue with this number of places, which last until this second.
    fn of_size(size: usize, until: i64) -> Queue {
        let places = (0..size).map(|number| Place {
            since: at(i64::try_from(number).unwrap()).latest,
            holder: format!("{number:0>63}"),
            until: at(until).latest,
            entries: Some(EntrySet::new(["a"])),
            count: 1,
            part: number / PLACES_OF_PART,
        });
        places.fold(empty(), |mut queue, place| {
            queue.places.push(place);
            queue
        })
    }

    #[test]
    fn lessees_wait_in_the_order_in_which_they_joined() {
        let only_a = EntrySet::new(["a"]);
        // The clock of rome's command is behind.
        let (queue, stored) = joined(&[("paris", 9, None), ("rome", 3, Some(&only_a)), ("bern", 12, None)]);
        let waiting = queue.waiting("pool", &[], at(12));
        assert_eq!(names(&waiting), ["paris", "rome", "bern"]);
        // All versions must find this place.
        let text = r#"{"entries":"ENTRIES","holder":"rome","since":"2026-11-21T05:00:09.001Z","until":"2026-11-21T05:01:33Z"}"#;
        let expected = text.replace("ENTRIES", &only_a.0);
        assert_eq!(
            stored["metadata"]["annotations"]["kubectl-kcp.dev/place-ba8d6857a8558f08"],
            expected
        );
        assert_eq!(names(ahead(&waiting, "rome")), ["paris"]);
        assert_eq!(names(ahead(&waiting, "oslo")), ["paris", "rome", "bern"]);
    }

    #[test]
    fn a_place_has_whole_milliseconds_and_ends_at_a_whole_second() {
        let mut now = at(0);
        now.latest = "2026-11-21T05:00:00.123456789Z".parse().unwrap();
        let place = empty().place_to_write("paris", None, None, 1, 0, now).unwrap();
        assert_eq!(
            place.text(),
            r#"{"holder":"paris","since":"2026-11-21T05:00:00.123Z","until":"2026-11-21T05:01:31Z"}"#
        );
    }

    #[test]
    fn a_place_ends_unless_it_is_renewed() {
        let (queue, _) = joined(&[("paris", 0, None), ("rome", 1, None)]);
        for (second, expected) in [(89, &["paris", "rome"][..]), (90, &["rome"]), (91, &[])] {
            assert_eq!(
                names(&queue.waiting("pool", &[], at(second))),
                expected,
                "{second}"
            );
        }
        let renewed = |holder, last, second| queue.place_to_write(holder, last, None, 1, 2, at(second));
        assert_eq!(renewed("paris", None, 49), None, "it lasts long enough");
        let place = renewed("paris", None, 50).unwrap();
        assert_eq!((place.since, place.until), (at(0).latest, at(140).latest));
        // A lessee that has lost its place, such as after an outage, continues at the same place if it still runs.
        assert_eq!(renewed("paris", Some(&place), 200).unwrap().since, at(0).latest);
        assert_eq!(renewed("paris", None, 200).unwrap().since, at(200).latest);
        // Whoever joins removes the places at which nobody may continue, but not if the time is uncertain.
        let place = renewed("bern", None, 105).unwrap();
        for (is_certain, expected) in [(true, 1), (false, 0)] {
            let now = ServerTime {
                is_certain,
                ..at(105)
            };
            let written = queue.annotations_with("pool", &place, now);
            let removed = written.values().filter(|place| place.is_null()).count();
            assert_eq!((written.len(), removed), (expected + 1, expected));
        }
    }

    #[test]
    fn a_lessee_writes_once_that_it_accepts_other_entries() {
        let (only_a, only_b) = (EntrySet::new(["a"]), EntrySet::new(["b"]));
        let (queue, _) = joined(&[("paris", 0, None)]);
        let write = |queue: &Queue, last: Option<&Place>, accepted| {
            queue.place_to_write("paris", last, Some(accepted), 1, 1, at(1))
        };
        let of_a = write(&queue, None, &only_a).unwrap();
        assert_eq!((of_a.since, of_a.entries.as_ref()), (at(0).latest, Some(&only_a)));
        let queue = queue.with(of_a.clone());
        assert_eq!(write(&queue, None, &only_a), None);
        // Another process under the same name accepts another entry. Each process writes its set once.
        let of_b = write(&queue, None, &only_b).unwrap();
        let queue = queue.with(of_b.clone());
        assert_eq!(write(&queue, Some(&of_a), &only_a), None);
        assert_eq!(write(&queue, Some(&of_b), &only_b), None);
        assert_eq!(write(&queue, Some(&of_b), &only_a).unwrap().entries, Some(only_a));
    }

    #[test]
    fn a_lessee_waits_until_it_holds_as_many_entries_as_it_wants() {
        let write = |queue: &Queue, count| queue.place_to_write("paris", None, None, count, 1, at(0));
        let two = write(&empty(), 2).unwrap();
        assert_eq!(
            two.text(),
            r#"{"count":2,"holder":"paris","since":"2026-11-21T05:00:00Z","until":"2026-11-21T05:01:30Z"}"#
        );
        let queue = empty().with(two);
        assert_eq!(write(&queue, 2), None);
        // A command under the same name wants another number.
        assert_eq!(write(&queue, 3).map(|place| place.count), Some(3));
        let held_by = |name: &str, holder: &str| named(name, leased(&lease(holder, None)));
        let rome = Holder {
            pool: "pool",
            cluster_deployment: "rome",
        };
        let missing = |held: &[Value]| queue.waiting("pool", &entries(held), at(1))[0].count;
        assert_eq!((missing(&[]), missing(&[held_by("a", "paris")])), (2, 1));
        for (held, is_waiting) in [
            (vec![], true),
            (vec![held_by("a", "paris")], true),
            (vec![held_by("a", "paris"), held_by("b", "rome")], true),
            (vec![held_by("a", "paris"), held_by("b", "paris")], false),
            (
                vec![
                    held_by("a", "paris"),
                    held_by("b", "paris"),
                    held_by("c", "paris"),
                ],
                false,
            ),
        ] {
            let held = entries(&held);
            assert_eq!(queue.waiting("pool", &held, at(1)).len(), usize::from(is_waiting));
            let removed = queue.without_served(0, rome, &held)["metadata"]["annotations"].clone();
            assert_eq!(removed.as_object().unwrap().is_empty(), is_waiting, "{held:?}");
        }
    }

    #[test]
    fn a_place_that_never_ends_does_not_count() {
        for (seconds, expected) in [(900, 1), (901, 0)] {
            assert_eq!(of_size(1, seconds).waiting("pool", &[], at(0)).len(), expected);
        }
    }

    #[test]
    fn a_lessee_that_holds_an_entry_does_not_wait() {
        let (queue, mut stored) = joined(&[("paris", 0, None), ("rome", 1, None), ("bern", 2, None)]);
        let of_rome = entries(&[leased(&lease("rome", None))]);
        assert_eq!(names(&queue.waiting("pool", &of_rome, at(3))), ["paris", "bern"]);
        assert_eq!(names(&queue.waiting("other", &of_rome, at(3))).len(), 3);
        let paris = Holder {
            pool: "pool",
            cluster_deployment: "paris",
        };
        let removal = queue.without_served(0, paris, &of_rome);
        assert_eq!(removal["metadata"]["resourceVersion"], "7");
        json_patch::merge(&mut stored, &removal);
        assert_eq!(names(&read_queue(&stored).waiting("pool", &[], at(3))), ["bern"]);
        let bern = Holder {
            cluster_deployment: "bern",
            ..paris
        };
        json_patch::merge(&mut stored, &leave(bern));
        assert_eq!(read_queue(&stored).places, []);
    }

    #[test]
    fn a_lessee_may_continue_at_a_place_that_has_ended() {
        let (queue, mut stored) = joined(&[("paris", 0, None), ("rome", 1, None)]);
        let paris = queue.find("paris", at(1)).unwrap();
        json_patch::merge(&mut stored, &end("pool", paris, at(5)));
        let queue = read_queue(&stored);
        assert_eq!(names(&queue.waiting("pool", &[], at(5))), ["rome"]);
        for (second, since) in [(19, 0), (20, 20)] {
            let again = queue
                .place_to_write("paris", None, None, 1, 2, at(second))
                .unwrap();
            assert_eq!(
                (again.since, again.until),
                (at(since).latest, at(second + 90).latest)
            );
            let rome = queue.find("rome", at(second)).unwrap();
            let written = queue.annotations_with("pool", rome, at(second));
            assert_eq!(written.len(), if since == 0 { 1 } else { 2 }, "{second}");
        }
    }

    /// The place of a lessee with the longest name of a namespace, and thus of a cluster with a namespace of its own.
    fn longest_place(queue: &Queue, second: i64) -> Option<Place> {
        let accepted = EntrySet::new(["a"]);
        queue.place_to_write(&"x".repeat(63), None, Some(&accepted), 1, 1, at(second))
    }

    #[test]
    fn each_part_of_a_queue_has_the_same_number_of_places() {
        for (size, part) in [
            (0, Some(0)),
            (127, Some(0)),
            (128, Some(1)),
            (1_023, Some(7)),
            (1_024, None),
        ] {
            let place = longest_place(&of_size(size, 700), 0);
            assert_eq!(place.map(|place| place.part), part, "{size}");
        }
        // A place that was left is taken first.
        let first = format!("{:0>63}", 0);
        let place = longest_place(&of_size(1_024, 700).without(&first), 0);
        assert_eq!(place.unwrap().part, 0);
        // The longest name of a ClusterDeployment.
        let place = empty().place_to_write(&"x".repeat(253), None, Some(&EntrySet::new(["a"])), 99, 1, at(0));
        let size = annotation_of("pool", "x").len() + place.unwrap().text().len();
        assert_eq!((size, size <= 512), (450, true));
    }

    #[test]
    fn two_places_of_one_lessee_count_once() {
        let place = longest_place(&empty(), 0).unwrap();
        let later = Place {
            since: at(1).latest,
            part: 1,
            ..place.clone()
        };
        let lease = |place: &Place| {
            let annotations = empty().annotations_with("pool", place, at(0));
            read(&json!({"name": queue_name("pool", place.part), "annotations": annotations}))
        };
        let leases = [lease(&place), lease(&later)];
        let queue = Queue::new("pool", &leases);
        assert_eq!(queue.waiting("pool", &[], at(2)), std::slice::from_ref(&place));
        // Another pool may have the name of a part.
        assert_eq!(Queue::new("1-pool", &leases), empty());
        // An ended place in another part is no place.
        let renewed = Place {
            since: at(95).latest,
            until: at(200).latest,
            ..later.clone()
        };
        let rejoined = Queue::new("pool", [&leases[0], &lease(&renewed)]);
        for (second, part) in [(104, Some(0)), (105, Some(1)), (300, None)] {
            let found = rejoined.find(&place.holder, at(second));
            assert_eq!(found.map(|found| found.part), part, "{second}");
        }
        let written = queue.annotations_with("pool", &later, at(10_000));
        assert_eq!(written.len(), 1, "only the places of the same part are removed");
    }

    #[test]
    fn a_queue_is_full_only_of_places_that_last() {
        let full = of_size(1_024, 700);
        assert_eq!(longest_place(&full, 0), None);
        // Whoever has a place can renew it.
        let own = format!("{:0>63}", 7);
        assert!(full.place_to_write(&own, None, None, 1, 1, at(699)).is_some());
        // The places have ended, and nobody has removed them yet.
        let place = longest_place(&full, 10_000).unwrap();
        assert_eq!(place.since, at(10_000).latest);
        assert_eq!(full.with(place).waiting("pool", &[], at(10_000)).len(), 1);
    }

    #[test]
    fn places_last_longer_in_a_long_queue() {
        for (waiting, seconds) in [
            (0, 90),
            (127, 90),
            (128, 180),
            (511, 630),
            (512, 720),
            (9_999, 720),
        ] {
            assert_eq!(
                place_ttl(waiting),
                SignedDuration::from_secs(seconds),
                "{waiting}"
            );
        }
        let queue = of_size(1_024, 700);
        let own = format!("{:0>63}", 7);
        let accepted = EntrySet::new(["a"]);
        for (second, until) in [(659, None), (660, Some(1_380))] {
            let renewed = queue.place_to_write(&own, None, Some(&accepted), 1, 1_024, at(second));
            let expected = until.map(|until| at(until).latest);
            assert_eq!(renewed.map(|place| place.until), expected, "{second}");
        }
        // A place from the time when the queue was short is renewed no earlier.
        for (second, is_due) in [(49, false), (50, true)] {
            let renewed =
                of_size(1_024, 90).place_to_write(&own, None, Some(&accepted), 1, 1_024, at(second));
            assert_eq!(renewed.is_some(), is_due, "{second}");
        }
        // The places of lessees that hold an entry do not let others last longer.
        let queue = of_size(1_000, 700);
        let place = queue.place_to_write("paris", None, None, 1, 1, at(0)).unwrap();
        assert_eq!(place.until, at(90).latest);
    }

    #[test]
    fn a_set_of_entries_contains_what_was_added_and_little_else() {
        let names: Vec<_> = (0..1_000).map(|number| format!("host-{number}")).collect();
        for (added, expected) in [(0, 0), (1, 3), (10, 46), (100, 430)] {
            let set = EntrySet::new(names.iter().take(added).map(String::as_str));
            assert_eq!(set.0.len(), 60);
            assert!(names.iter().take(added).all(|name| set.contains(name)));
            let contained = names.iter().filter(|name| set.contains(name)).count();
            assert_eq!(contained, expected, "{added}");
        }
        let damaged: EntrySet = read(&json!("soon"));
        assert!(!names.iter().any(|name| damaged.contains(name)));
    }

    #[test]
    fn what_is_no_place_is_ignored() {
        let place = empty().place_to_write("paris", None, None, 1, 0, at(0)).unwrap();
        let mut stored = json!({"metadata": {"name": queue_name("pool", 0), "annotations": {
            "kubectl-kcp.dev/place-0": place.text(), "kubectl-kcp.dev/place-1": "soon", "other": "{}",
        }}});
        assert_eq!(read_queue(&stored).places, []);
        let annotations = empty().annotations_with("pool", &place, at(0));
        let created = new_queue(&pool(&json!({})), 0, &annotations);
        assert_eq!(created["metadata"]["name"], "kubectl-kcp-queue-pool");
        json_patch::merge(&mut stored, &created);
        assert_eq!(names(&read_queue(&stored).waiting("pool", &[], at(0))), ["paris"]);
    }
}
