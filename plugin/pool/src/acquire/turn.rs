//! Waits in the queue of a pool, until an entry is free for which no lessee ahead waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kcp_api::metadata::Object as _;
use kcp_client::{CreateResult, Error, Written};
use kcp_control_plane::duration::format_duration;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    acquire::{
        LeaseRequest,
        answer::{LeaseRefusal, LeaseResult},
        wait::{Progress, Turn},
    },
    lease::{
        choice::{Availability, UnusableReason},
        order::{Position, Unused, ahead, looks_free, may_overtake, offered, pause, time_for_each},
        queue::{EntrySet, Place, Queue, end, leave},
    },
    objects::{
        Holder,
        entry::{Entry, EntryStatus as _},
    },
    store::LeaseStore,
};

/// The time between two attempts of the first lessee in the queue. Only an attempt frees the entries of leases that have
/// ended.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(3);

/// The maximum time between two attempts of any lessee in the queue. An attempt notices, for example, that the pool is being
/// deleted.
const MAX_BETWEEN_ATTEMPTS: Duration = Duration::from_secs(300);

/// The minimum time between two reports of the place in the queue.
const BETWEEN_REPORTS: Duration = Duration::from_secs(30);

/// How long a command tries to leave the queue. Otherwise, its place ends soon.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A lessee in the queue of a pool.
pub struct QueuedLessee<'w, S> {
    store: &'w S,
    request: LeaseRequest<'w>,
    /// Whether a later command may have the same name.
    is_name_given: bool,
    /// The place as this lessee last wrote or found it, but with the entries that this lessee accepts.
    place: Option<Place>,
    /// The entries whose patches do not fit the install-config, as far as an attempt has found one free.
    unfit: BTreeSet<String>,
    /// When the lessee first saw its place, and how many lessees were ahead then.
    first: Option<(Instant, usize)>,
    /// How many lessees were ahead when the lessee last looked.
    ahead: Option<usize>,
    unused: Unused,
    reported: Option<(Instant, Position)>,
}

impl<'w, S> QueuedLessee<'w, S> {
    pub fn new(store: &'w S, request: LeaseRequest<'w>, is_name_given: bool) -> Self {
        Self {
            store,
            request,
            is_name_given,
            place: None,
            unfit: BTreeSet::new(),
            first: None,
            ahead: None,
            unused: Unused::default(),
            reported: None,
        }
    }
}

impl<S: LeaseStore> Turn for QueuedLessee<'_, S> {
    async fn wait(
        &mut self,
        refused: &LeaseResult,
        limit: Duration,
        progress: &impl Progress,
    ) -> Result<Vec<Place>, Error> {
        let Some(LeaseRefusal::Exhausted { entries, .. }) = refused.refusal() else {
            return Ok(Vec::new());
        };
        self.unfit.extend(unfit(entries).map(str::to_owned));
        let accepted = accepted(
            entries,
            &self.unfit,
            !refused.others.is_empty(),
            self.request.count,
        );
        let begun = Instant::now();
        loop {
            // Also pause after an attempt that was refused although it was this lessee's turn.
            if let Some(ahead) = self.ahead {
                let until_attempt = time_between_attempts(ahead)
                    .min(limit)
                    .saturating_sub(begun.elapsed());
                if until_attempt.is_zero() {
                    return Ok(Vec::new());
                }
                tokio::time::sleep(pause(ahead).min(until_attempt)).await;
            }
            let queue = self.store.queue(self.request.holder.pool).await?;
            let listed = self.store.list().await?;
            let queue = self.keep_place(queue, &listed, accepted.as_ref()).await?;
            let (position, overtaken) = self.look(&queue, &listed, entries, &refused.others);
            self.ahead = Some(position.ahead);
            self.report(position, progress);
            if let Some(overtaken) = overtaken {
                return Ok(overtaken);
            }
        }
    }

    async fn leave(&mut self, may_continue: bool) {
        let Some(place) = self.place.take() else { return };
        let (holder, part) = (self.request.holder, place.part);
        let patch = if may_continue && self.is_name_given {
            end(holder.pool, &place, self.store.now())
        } else {
            leave(holder)
        };
        let written = self.store.write_queue(holder.pool, part, &patch);
        drop(tokio::time::timeout(LEAVE_TIMEOUT, written).await);
    }
}

/// Removes the place of a holder from a part of the queue, even if the part changes. Ignores errors.
pub async fn leave_now(store: &impl LeaseStore, part: usize, holder: Holder<'_>) {
    drop(store.write_queue(holder.pool, part, &leave(holder)).await);
}

fn states(reported: &[(String, Availability)]) -> impl Iterator<Item = (&str, &Availability)> {
    reported.iter().map(|(name, state)| (name.as_str(), state))
}

/// The entries whose patches an attempt could not apply.
fn unfit(entries: &[(String, Availability)]) -> impl Iterator<Item = &str> {
    let is_unfit = |state: &Availability| matches!(state, Availability::Unusable(UnusableReason::Patches(_)));
    let unfit = states(entries).filter(move |(_, state)| is_unfit(state));
    unfit.map(|(name, _)| name)
}

/// The only entries that a request accepts, of those that an attempt has reported; `None` if it accepts any. Another request may
/// have another install-config, so an entry whose patches do not fit this one may be free for others. A lessee of several entries
/// accepts none while fewer can be leased, such as because some are cordoned: it would otherwise keep the free ones from others.
fn accepted(
    entries: &[(String, Availability)],
    unfit: &BTreeSet<String>,
    is_selection: bool,
    count: usize,
) -> Option<EntrySet> {
    let fitting = || states(entries).filter(|(name, _)| !unfit.contains(*name));
    let usable = fitting().filter(|(_, state)| !matches!(state, Availability::Unusable(_)));
    if count > 1 && usable.count() < count {
        return Some(EntrySet::new([]));
    }
    let accepted: Vec<_> = fitting().map(|(name, _)| name).collect();
    let is_any = !is_selection && accepted.len() == entries.len();
    (!is_any).then(|| EntrySet::new(accepted))
}

fn time_between_attempts(ahead: usize) -> Duration {
    let factor = u32::try_from(ahead + 1).unwrap_or(u32::MAX);
    BETWEEN_ATTEMPTS.saturating_mul(factor).min(MAX_BETWEEN_ATTEMPTS)
}

impl<S: LeaseStore> QueuedLessee<'_, S> {
    /// Joins the queue, or renews the place in it, if that is due. Returns the queue with the place.
    async fn keep_place(
        &mut self,
        queue: Queue,
        listed: &[Entry],
        accepted: Option<&EntrySet>,
    ) -> Result<Queue, Error> {
        let (pool, holder) = (self.request.holder.pool, self.request.holder.cluster_deployment);
        let now = self.store.now();
        let waiting = queue.waiting(pool, listed, now).len();
        let last = self.place.as_ref();
        let Some(place) = queue.place_to_write(holder, last, accepted, self.request.count, waiting, now)
        else {
            if let Some(found) = queue.find(holder, now) {
                self.place = Some(Place {
                    entries: accepted.cloned(),
                    count: self.request.count,
                    ..found.clone()
                });
            }
            return Ok(queue);
        };
        self.place = Some(place.clone());
        let annotations = queue.annotations_with(pool, &place, now);
        let patch = json!({"metadata": {"annotations": annotations}});
        let written = self.store.write_queue(pool, place.part, &patch).await?;
        if let Written::Changed = written {
            let created = self.store.create_queue(pool, place.part, &annotations).await?;
            if let CreateResult::AlreadyExists = created {
                self.store.write_queue(pool, place.part, &patch).await?;
            }
        }
        Ok(queue.with(place))
    }

    /// Where the lessee stands, and which lessees ahead it may overtake now; `None` if it is not its turn.
    fn look(
        &mut self,
        queue: &Queue,
        listed: &[Entry],
        reported: &[(String, Availability)],
        others: &[(String, Availability)],
    ) -> (Position, Option<Vec<Place>>) {
        let holder = self.request.holder;
        let now = self.store.now();
        let waiting = queue.waiting(holder.pool, listed, now);
        let ahead = ahead(&waiting, holder.cluster_deployment);
        let states: BTreeMap<_, _> = states(reported).chain(states(others)).collect();
        let is_accepted =
            |name: &str| !others.iter().any(|(other, _)| other == name) && !self.unfit.contains(name);
        let free = listed.iter().filter(|entry| {
            let state = states.get(entry.name());
            state.is_some_and(|state| looks_free(entry, state, now))
        });
        let (candidates, others): (Vec<_>, Vec<_>) = free.partition(|entry| is_accepted(entry.name()));
        let joined = self.place.as_ref().map(|place| place.since);
        let unused = self.unused.update(&candidates, joined, now);
        let held = listed.iter().filter(|entry| entry.refers_to(holder)).count();
        let wanted = self.request.count.saturating_sub(held).max(1);
        let overtaken = if offered(&candidates, &others, &ahead, wanted).is_empty() {
            may_overtake(&unused, &others, &ahead, wanted)
        } else {
            Some(Vec::new())
        };
        let position = Position {
            ahead: ahead.len(),
            waiting: waiting.len(),
        };
        (
            position,
            overtaken.map(|places| places.into_iter().cloned().collect()),
        )
    }

    fn report(&mut self, position: Position, progress: &impl Progress) {
        let (first_at, first_ahead) = *self.first.get_or_insert_with(|| (Instant::now(), position.ahead));
        let time_for_each = time_for_each(first_ahead, position.ahead, first_at.elapsed());
        let until_turn = u32::try_from(position.ahead + 1).unwrap_or(u32::MAX);
        let left = time_for_each.map_or_else(String::new, |time| {
            format!(", about {}", format_duration(time.saturating_mul(until_turn)))
        });
        let text = format!("{position}{left}");
        progress.queued(&text);
        let is_new = self.reported.is_none_or(|(reported_at, before)| {
            reported_at.elapsed() >= BETWEEN_REPORTS && before.ahead != position.ahead
        });
        if is_new {
            progress.waiting(&text);
            self.reported = Some((Instant::now(), position));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::{accepted, time_between_attempts, unfit};
    use crate::{
        install_config::patches::PatchProblem,
        lease::choice::{Availability, UnusableReason},
    };

    const HELD: Availability = Availability::Held {
        cluster_deployment: None,
        pool: None,
        until: None,
    };

    /// The states of the entries `a` and `b`.
    fn reported([a, b]: [&Availability; 2]) -> [(String, Availability); 2] {
        [("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())]
    }

    #[test]
    fn a_lessee_accepts_the_entries_that_it_selects_and_whose_patches_fit() {
        let is_unfit =
            &Availability::Unusable(UnusableReason::Patches(PatchProblem::Broken("why".to_owned())));
        let cordoned = &Availability::Unusable(UnusableReason::Cordoned("why".to_owned()));
        let (free, held) = (&Availability::Free, &HELD);
        for (attempts, is_selection, expected) in [
            (&[[free, cordoned]][..], false, None),
            (&[[free, cordoned]], true, Some([true, true, false])),
            (&[[free, is_unfit]], false, Some([true, false, false])),
            (&[[is_unfit, is_unfit]], false, Some([false; 3])),
            // Only an attempt that finds the entry free finds that its patches do not fit.
            (
                &[[held, is_unfit], [held, held]],
                false,
                Some([true, false, false]),
            ),
            (&[[held, is_unfit], [is_unfit, held]], false, Some([false; 3])),
        ] {
            let mut all_unfit = BTreeSet::new();
            let mut set = None;
            for attempt in attempts {
                let reported = reported(*attempt);
                all_unfit.extend(unfit(&reported).map(str::to_owned));
                set = accepted(&reported, &all_unfit, is_selection, 1);
            }
            let found = set.map(|set| ["a", "b", "c"].map(|name| set.contains(name)));
            assert_eq!(found, expected, "{attempts:?}");
        }
    }

    #[test]
    fn a_lessee_of_two_entries_accepts_none_while_fewer_than_two_can_be_leased() {
        let cordoned = &Availability::Unusable(UnusableReason::Cordoned("why".to_owned()));
        let (free, held) = (&Availability::Free, &HELD);
        for (states, unfit, is_selection, expected) in [
            ([free, held], &[][..], false, None),
            ([free, &Availability::Ours], &[], false, None),
            ([free, held], &[], true, Some([true, true, false])),
            ([free, cordoned], &[], false, Some([false; 3])),
            ([free, held], &["b"], false, Some([false; 3])),
        ] {
            let unfit = unfit.iter().map(|name| (*name).to_owned()).collect();
            let set = accepted(&reported(states), &unfit, is_selection, 2);
            let found = set.map(|set| ["a", "b", "c"].map(|name| set.contains(name)));
            assert_eq!(found, expected, "{states:?} {unfit:?}");
        }
    }

    #[test]
    fn lessees_attempt_less_often_the_more_are_ahead() {
        for (ahead, seconds) in [(0, 3), (1, 6), (1_023, 300)] {
            assert_eq!(time_between_attempts(ahead), Duration::from_secs(seconds));
        }
    }
}
