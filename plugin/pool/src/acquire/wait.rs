//! Repeats an attempt to lease a customization until an entry is free.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use jiff::Timestamp;

use crate::{acquire::answer::LeaseResult, lease::LeaseError};

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

    /// How long to pause before the next attempt; `None` if the wait has reached its limit. `random` determines the length
    /// of the pause, and may be any number.
    pub fn next_pause(&self, now: Timestamp, random: u64) -> Option<Duration> {
        let (least, most) = PAUSE;
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        let pause = least + Duration::from_millis(random % span.max(1));
        match self.limit.duration() {
            None => Some(pause),
            Some(limit) => {
                let left = limit.saturating_sub(self.elapsed(now));
                // The last pause ends at the limit, so that the last attempt runs then.
                (!left.is_zero()).then_some(pause.min(left))
            }
        }
    }
}

/// Shows the user that a command waits for a free entry.
pub trait Progress {
    /// Receives the reason to wait, whenever it changes.
    fn waiting(&self, why: &str);

    /// Receives `true` before each pause and `false` after it.
    fn pausing(&self, is_pausing: bool);
}

/// Repeats the attempt while no entry is free. Returns the last answer, or the value of `stop` if it is ready first. An
/// attempt is never interrupted by `stop`, because it may acquire a lease.
///
/// # Errors
/// The first attempt fails, or a later attempt fails with an error that is not transient.
pub async fn wait_for<S>(
    mut attempt: impl AsyncFnMut() -> Result<LeaseResult, LeaseError>,
    timeout: Timeout,
    stop: impl Future<Output = S>,
    progress: &impl Progress,
) -> Result<Result<LeaseResult, S>, LeaseError> {
    let random = RandomState::new();
    let mut stop = std::pin::pin!(stop);
    let mut reported = String::new();
    let mut attempts = 0_u64;
    loop {
        let result = match attempt().await {
            Ok(answer) if !answer.is_exhausted() => return Ok(Ok(answer)),
            // The user may have caused an error of the first attempt, for example with a wrong address.
            Err(error) if attempts == 0 || !error.cause().is_transient() => return Err(error),
            result => result,
        };
        let now = Timestamp::now();
        let Some(pause) = timeout.next_pause(now, random.hash_one(attempts)) else {
            return result.map(|answer| Ok(answer.with_timed_out_after(timeout.elapsed(now))));
        };
        let why = match &result {
            Ok(answer) => answer.refusal().map(ToString::to_string).unwrap_or_default(),
            Err(error) => error.full_message(),
        };
        if why != reported {
            progress.waiting(&why);
            reported = why;
        }
        progress.pausing(true);
        attempts += 1;
        let stopped = tokio::select! {
            stopped = &mut stop => Some(stopped),
            () = tokio::time::sleep(pause) => None,
        };
        progress.pausing(false);
        if let Some(stopped) = stopped {
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

    use super::{Progress, Timeout, WaitLimit, wait_for};
    use crate::{
        acquire::answer::{LeaseOutcome, LeaseRefusal, LeaseResult},
        lease::LeaseError,
        objects::{Holder, PoolName},
    };

    struct Silent;

    impl Progress for Silent {
        fn waiting(&self, _: &str) {}

        fn pausing(&self, _: bool) {}
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
        let attempt = async || {
            // `stop` is ready long before the response arrives.
            tokio::task::yield_now().await;
            attempts += 1;
            Ok(answer(exhausted()))
        };
        let waited = wait_for(attempt, timeout(), ready("stopped"), &Silent).await;
        assert_eq!((waited.unwrap().unwrap_err(), attempts), ("stopped", 1));
        let attempt = async || {
            tokio::task::yield_now().await;
            Ok(answer(deleting()))
        };
        let waited = wait_for(attempt, timeout(), ready("stopped"), &Silent).await;
        assert_eq!(waited.unwrap().unwrap().refusal(), Some(&deleting()));
        let attempt = async || {
            Err(LeaseError::Api(Error::Configuration {
                cause: "no such pool".to_owned(),
            }))
        };
        let waited = wait_for(attempt, timeout(), pending::<()>(), &Silent).await;
        assert!(waited.unwrap_err().to_string().ends_with("no such pool"));
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
