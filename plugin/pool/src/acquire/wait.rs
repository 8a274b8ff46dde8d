//! Repeats an attempt to lease customizations until enough entries are free.

use std::{
    hash::{BuildHasher as _, RandomState},
    mem,
    time::Duration,
};

use jiff::Timestamp;
use kcp_client::Error;

use crate::{
    acquire::answer::LeaseResult,
    lease::{LeaseError, queue::Place},
};

/// The minimum and maximum pause between two attempts to lease. The pause is random, so that the clients of a pool do not
/// all try at the same time.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    Unlimited,
    AtMost(Duration),
}

impl WaitLimit {
    const fn duration(self) -> Option<Duration> {
        match self {
            Self::Unlimited => None,
            Self::AtMost(limit) => Some(limit),
        }
    }
}

/// When a wait started, and how long it may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    pub started_at: Timestamp,
    pub limit: WaitLimit,
}

impl Timeout {
    /// How long the wait has lasted so far; zero if the clock was set back.
    pub fn elapsed(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.started_at)).unwrap_or_default()
    }

    /// How long the wait may still last.
    fn left(&self, now: Timestamp) -> Duration {
        let limit = self.limit.duration().unwrap_or(Duration::MAX);
        limit.saturating_sub(self.elapsed(now))
    }

    /// How long to pause before the next attempt; `None` if the wait has reached its limit. `random` determines the length
    /// of the pause, and may be any number.
    pub fn next_pause(&self, now: Timestamp, random: u64) -> Option<Duration> {
        let (least, most) = PAUSE;
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        let pause = least + Duration::from_millis(random % span.max(1));
        let left = self.left(now);
        // The last pause ends at the limit, so that the last attempt runs then.
        (!left.is_zero()).then_some(pause.min(left))
    }
}

/// Shows the user that a command waits for a free entry.
pub trait Progress {
    /// Receives the reason to wait, whenever it changes.
    fn waiting(&self, why: &str);

    /// Receives `true` before each pause and `false` after it.
    fn pausing(&self, is_pausing: bool);

    /// Receives the place in the queue, whenever it is known.
    fn queued(&self, place: &str);
}

/// Waits between two attempts.
#[allow(
    async_fn_in_trait,
    reason = "used in this crate and its commands, on one thread"
)]
pub trait Turn {
    /// Returns once an attempt may succeed, but at the latest after `limit`, and which lessees in the queue the attempt may
    /// overtake.
    async fn wait(
        &mut self,
        refused: &LeaseResult,
        limit: Duration,
        progress: &impl Progress,
    ) -> Result<Vec<Place>, Error>;

    /// Leaves the queue, because the command gives up. If `may_continue`, a later command under the same name may continue at
    /// this place.
    async fn leave(&mut self, may_continue: bool);
}

/// Repeats the attempt while no entry is free. Returns the last answer, or the value of `stop` if it is ready first. An
/// attempt is never interrupted by `stop`, because it may acquire a lease. If the queue cannot be used, this function pauses
/// between two attempts. A wait that ends without a lease leaves the queue; one that is stopped or reaches its limit may
/// continue. Fails if the first attempt fails, or a later attempt fails with an error that is not transient.
pub async fn wait_for<S>(
    mut attempt: impl AsyncFnMut(Vec<Place>) -> Result<LeaseResult, LeaseError>,
    mut turn: impl Turn,
    timeout: Timeout,
    stop: impl Future<Output = S>,
    progress: &impl Progress,
) -> Result<Result<LeaseResult, S>, LeaseError> {
    let random = RandomState::new();
    let mut stop = std::pin::pin!(stop);
    let (mut reported, mut reported_error) = (String::new(), String::new());
    let report = |before: &mut String, text: String| {
        if text != *before {
            progress.waiting(&text);
            *before = text;
        }
    };
    let mut attempts = 0_u64;
    let mut overtaken = Vec::new();
    loop {
        let result = match attempt(mem::take(&mut overtaken)).await {
            Ok(answer) if !answer.is_exhausted() => {
                if answer.refusal().is_some() {
                    turn.leave(false).await;
                }
                return Ok(Ok(answer));
            }
            // The user may have caused an error of the first attempt, for example with a wrong address.
            Err(error) if attempts == 0 || !error.cause().is_transient() => {
                turn.leave(false).await;
                return Err(error);
            }
            result => result,
        };
        let now = Timestamp::now();
        let Some(pause) = timeout.next_pause(now, random.hash_one(attempts)) else {
            turn.leave(true).await;
            return result.map(|answer| Ok(answer.with_timed_out_after(timeout.elapsed(now))));
        };
        let why = match &result {
            Ok(answer) => answer.refusal().map(ToString::to_string).unwrap_or_default(),
            Err(error) => error.full_message(),
        };
        report(&mut reported, why);
        progress.pausing(true);
        attempts += 1;
        let limit = timeout.left(now);
        let next = async {
            if let Ok(answer) = &result {
                match turn.wait(answer, limit, progress).await {
                    Ok(overtaken) => return overtaken,
                    Err(error) => report(
                        &mut reported_error,
                        format!(
                            "without a place in the queue, so lessees that ask later may be served first: {error}"
                        ),
                    ),
                }
            }
            tokio::time::sleep(pause).await;
            Vec::new()
        };
        let stopped = tokio::select! {
            stopped = &mut stop => Some(stopped),
            next = next => {
                overtaken = next;
                None
            }
        };
        progress.pausing(false);
        if let Some(stopped) = stopped {
            turn.leave(true).await;
            return Ok(Err(stopped));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        time::Duration,
    };

    use jiff::Timestamp;
    use kcp_client::Error;

    use super::{Progress, Timeout, Turn, WaitLimit, wait_for};
    use crate::{
        acquire::answer::{LeaseOutcome, LeaseRefusal, LeaseResult},
        lease::{LeaseError, queue::Place},
        objects::{Holder, PoolName},
    };

    struct Silent;

    impl Progress for Silent {
        fn waiting(&self, _: &str) {}

        fn pausing(&self, _: bool) {}

        fn queued(&self, _: &str) {}
    }

    /// Lets each attempt overtake one lessee more than the last one, or cannot use the queue.
    #[derive(Default)]
    struct FakeTurn {
        is_forbidden: bool,
        overtaken: Vec<Place>,
        /// How the wait has left the queue: whether it may continue.
        left: Vec<bool>,
    }

    impl Turn for &mut FakeTurn {
        async fn wait(
            &mut self,
            _: &LeaseResult,
            _: Duration,
            _: &impl Progress,
        ) -> Result<Vec<Place>, Error> {
            tokio::task::yield_now().await;
            if self.is_forbidden {
                return Err(configuration_error());
            }
            self.overtaken.push(Place {
                since: Timestamp::UNIX_EPOCH,
                holder: "rome".to_owned(),
                until: Timestamp::UNIX_EPOCH,
                entries: None,
                count: 1,
                part: 0,
            });
            Ok(self.overtaken.clone())
        }

        async fn leave(&mut self, may_continue: bool) {
            self.left.push(may_continue);
        }
    }

    fn configuration_error() -> Error {
        Error::Configuration {
            cause: "no such pool".to_owned(),
        }
    }

    fn answer(refusal: LeaseRefusal) -> LeaseResult {
        let holder = Holder {
            pool: "hosts",
            cluster_deployment: "paris",
        };
        LeaseResult::new("d", holder, LeaseOutcome::Refused(refusal))
    }

    fn exhausted() -> LeaseRefusal {
        LeaseRefusal::Exhausted {
            pool: PoolName::new("d", "hosts"),
            entries: Vec::new(),
            count: 1,
        }
    }

    fn deleting() -> LeaseRefusal {
        LeaseRefusal::PoolDeleting {
            pool: "hosts".to_owned(),
        }
    }

    fn timeout() -> Timeout {
        Timeout {
            started_at: Timestamp::now(),
            limit: WaitLimit::Unlimited,
        }
    }

    #[tokio::test]
    async fn a_wait_stops_only_between_two_attempts() {
        let mut attempts = 0;
        let mut turn = FakeTurn::default();
        let attempt = async |_| {
            // `stop` is ready long before the response arrives.
            tokio::task::yield_now().await;
            attempts += 1;
            Ok(answer(exhausted()))
        };
        let waited = wait_for(attempt, &mut turn, timeout(), ready("stopped"), &Silent).await;
        assert_eq!((waited.unwrap().unwrap_err(), attempts), ("stopped", 1));
        assert_eq!(turn.left, [true]);
        let attempt = async |_| {
            tokio::task::yield_now().await;
            Ok(answer(deleting()))
        };
        let waited = wait_for(attempt, &mut turn, timeout(), ready("stopped"), &Silent).await;
        assert_eq!(waited.unwrap().unwrap().refusal(), Some(&deleting()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_without_a_lease_leaves_the_queue() {
        let at_once = WaitLimit::AtMost(Duration::ZERO);
        for (last, limit, may_continue) in [
            (Ok(deleting()), WaitLimit::Unlimited, false),
            (Err(()), WaitLimit::Unlimited, false),
            (Ok(exhausted()), at_once, true),
        ] {
            let mut turn = FakeTurn::default();
            let mut attempts = 0;
            let attempt = async |_| {
                attempts += 1;
                match &last {
                    Ok(refusal) if attempts == 2 => Ok(answer(refusal.clone())),
                    Err(()) if attempts == 2 => Err(LeaseError::Api(configuration_error())),
                    _ => Ok(answer(exhausted())),
                }
            };
            let timeout = Timeout { limit, ..timeout() };
            let waited = wait_for(attempt, &mut turn, timeout, pending::<()>(), &Silent).await;
            assert_eq!(waited.is_err(), last.is_err());
            assert_eq!(turn.left, [may_continue], "{last:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_repeats_the_attempt_with_or_without_a_queue() {
        for (is_forbidden, expected) in [(false, [0, 1, 2]), (true, [0, 0, 0])] {
            let mut turn = FakeTurn {
                is_forbidden,
                ..FakeTurn::default()
            };
            let mut attempts = Vec::new();
            let attempt = async |overtaken: Vec<Place>| {
                attempts.push(overtaken.len());
                Ok(answer(if attempts.len() == 3 {
                    deleting()
                } else {
                    exhausted()
                }))
            };
            let waited = wait_for(attempt, &mut turn, timeout(), pending::<()>(), &Silent).await;
            assert_eq!(waited.unwrap().unwrap().refusal(), Some(&deleting()));
            assert_eq!(attempts, expected);
        }
    }

    #[test]
    fn the_pause_ends_at_the_limit_of_the_wait() {
        for (limit, now, random, expected) in [
            (None, "06:00:00", 0, Some(1000)),
            (None, "06:00:00", 1999, Some(2999)),
            (None, "06:00:00", 2000, Some(1000)),
            (Some(60), "05:00:00", 500, Some(1500)),
            (Some(60), "05:00:59.5", 500, Some(500)),
            (Some(60), "05:01:00", 0, None),
            (Some(0), "05:00:00", 0, None),
            (Some(60), "04:00:00", 0, Some(1000)),
        ] {
            let timeout = Timeout {
                started_at: "2026-11-21T05:00:00Z".parse().unwrap(),
                limit: limit.map_or(WaitLimit::Unlimited, |limit| {
                    WaitLimit::AtMost(Duration::from_secs(limit))
                }),
            };
            let now = format!("2026-11-21T{now}Z").parse().unwrap();
            assert_eq!(
                timeout.next_pause(now, random),
                expected.map(Duration::from_millis),
                "{limit:?} {now} {random}"
            );
        }
    }
}
