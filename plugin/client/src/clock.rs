//! The API server's time, from the `Date` header of its responses. The local clock is never used: if it is wrong, a
//! lease could be ended early and have two holders.
//!
//! Each response bounds the server's clock. When the response arrived, the clock showed at least its `Date`. When the
//! request was sent, the clock showed at most that `Date` plus one second, because HTTP dates have whole seconds.
//! Between responses, the clock advances with this machine's time since boot, which includes suspension.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp};
use tower::Service;

/// The maximum difference between the dates of two responses. If they differ by more, the clocks of the API servers
/// are not reliable.
const MAX_DISAGREEMENT: SignedDuration = SignedDuration::from_secs(5);

const DATE_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// The interval that contains the server's current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// The earliest time that the server's clock may show now.
    pub earliest: Timestamp,
    /// The latest time that the server's clock may show now.
    pub latest: Timestamp,
    /// Whether the dates of all responses agree. If not, the clock must not be used to end a lease.
    pub is_certain: bool,
}

/// What is known about the API server's clock from its responses so far. All clones share this knowledge.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<ClockBounds>>);

impl ServerClock {
    /// The server's time. `None` before the first response with a `Date` header.
    pub fn now(&self) -> Option<ServerTime> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .at(time_since_boot())
    }

    /// Records the `Date` of a response. `sent` is when the request was sent, as time since boot.
    pub(crate) fn observe(&self, headers: &HeaderMap, sent: Duration) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(parse_date) else {
            return;
        };
        let received = time_since_boot();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(date, sent, received);
    }
}

/// What the server's clock showed when this machine booted: bounds from the last response, and from all responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockBounds {
    last: Option<Bounds>,
    /// The highest lower bound and the lowest upper bound of all responses.
    all: Option<Bounds>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    earliest: Timestamp,
    latest: Timestamp,
}

impl ClockBounds {
    /// Records the `Date` of a response, and when the request was sent and the response was received, as time since boot.
    pub fn add(&mut self, date: Timestamp, sent: Duration, received: Duration) {
        let before = |time: Timestamp, passed: Duration| time.checked_sub(passed);
        let late = date
            .checked_add(DATE_RESOLUTION)
            .and_then(|date| before(date, sent));
        let (Ok(earliest), Ok(latest)) = (before(date, received), late) else {
            return;
        };
        let bounds = Bounds { earliest, latest };
        self.last = Some(bounds);
        self.all = Some(self.all.map_or(bounds, |all| Bounds {
            earliest: all.earliest.max(earliest),
            latest: all.latest.min(latest),
        }));
    }

    /// The server's time at this time since boot; `None` before the first response.
    pub fn at(&self, since_boot: Duration) -> Option<ServerTime> {
        let (last, all) = (self.last?, self.all?);
        Some(ServerTime {
            earliest: last.earliest.checked_add(since_boot).ok()?,
            latest: last.latest.checked_add(since_boot).ok()?,
            is_certain: all.earliest.duration_since(all.latest) <= MAX_DISAGREEMENT,
        })
    }
}

/// The time since this machine booted, including the time in which it was suspended.
pub fn time_since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

fn parse_date(date: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(date.timestamp())
}

/// Forwards requests and records the date of each response.
pub(crate) struct DateRecorder<S> {
    pub(crate) inner: S,
    pub(crate) clock: ServerClock,
}

impl<S, A, B> Service<Request<A>> for DateRecorder<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (clock, sent) = (self.clock.clone(), time_since_boot());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            clock.observe(answer.headers(), sent);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, time::Duration};

    use http::{Request, Response, header::DATE};
    use jiff::{SignedDuration, Timestamp};
    use tower::Service as _;

    use super::{ClockBounds, DateRecorder, ServerClock, ServerTime, parse_date, time_since_boot};

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_answer_bounds_the_time_from_both_sides() {
        let mut readings = ClockBounds::default();
        assert_eq!(readings.at(seconds(1)), None);
        // Requested 100 s after boot, and received 2 s later.
        readings.add(time("2026-11-22T10:00:00Z"), seconds(100), seconds(102));
        let now = ServerTime {
            earliest: time("2026-11-22T10:00:08Z"),
            latest: time("2026-11-22T10:00:11Z"),
            is_certain: true,
        };
        assert_eq!(readings.at(seconds(110)), Some(now));
    }

    #[test]
    fn answers_that_disagree_by_more_than_five_seconds_are_not_certain() {
        for (second, is_certain) in [
            ("2026-11-22T10:00:15Z", true),
            ("2026-11-22T10:00:16Z", true),
            ("2026-11-22T10:00:17Z", false),
            ("2026-11-22T10:00:04Z", true),
            ("2026-11-22T10:00:03Z", false),
        ] {
            let mut readings = ClockBounds::default();
            readings.add(time("2026-11-22T10:00:00Z"), seconds(100), seconds(100));
            readings.add(time(second), seconds(110), seconds(110));
            let now = readings.at(seconds(110)).expect("read");
            assert_eq!(now.is_certain, is_certain, "{second}");
            assert_eq!(now.earliest, time(second));
            // The clock stays uncertain, whatever later responses say.
            readings.add(time("2026-11-22T10:00:20Z"), seconds(120), seconds(120));
            let later = readings.at(seconds(120)).expect("read");
            assert_eq!(later.is_certain, is_certain, "{second}");
        }
    }

    /// A server whose clock is 70 years ahead of this machine's.
    #[tokio::test]
    async fn the_time_follows_the_servers_date_and_not_the_local_clock() {
        let clock = ServerClock::default();
        assert_eq!(clock.now(), None);
        let inner = tower::service_fn(|_: Request<()>| {
            let answer = Response::builder().header(DATE, "Wed, 01 Jan 2098 00:00:00 GMT");
            ready(answer.body(()))
        });
        let mut service = DateRecorder {
            inner,
            clock: clock.clone(),
        };
        service.call(Request::new(())).await.expect("a response");
        let now = clock.now().expect("the time");
        let date = time("2098-01-01T00:00:00Z");
        let bounds = date..date + SignedDuration::from_mins(5);
        assert!(
            bounds.contains(&now.earliest) && bounds.contains(&now.latest),
            "{now:?}"
        );
    }

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(
            parse_date("Sun, 22 Nov 2026 10:00:00 GMT"),
            Some(time("2026-11-22T10:00:00Z"))
        );
        assert_eq!(parse_date("yesterday"), None);
        assert!(time_since_boot() > Duration::ZERO);
    }
}
