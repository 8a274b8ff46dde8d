//! The client. It sends each review when it is due, whatever happens to earlier ones.
//!
//! It behaves as the API server's client. Connections are kept and shared, and the connection used last is used next.
//! Nothing is sent twice: Go's client sends a POST on another connection only if it wrote nothing to the first
//! (net/http, transport.go, `shouldRetryRequest`: `nothingWrittenError`; a POST is not `isReplayable`), and client-go
//! retries only GET after a connection error (rest/request.go, `isErrRetryableFunc`). client-go retries after 429 or
//! 5xx with Retry-After; here such an answer is an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail, ensure};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::connection::{ANSWER, Connection, Dialer};
use super::report::{Outcomes, ReviewResult};
use super::reviews::Review;
use crate::wait;

/// Concurrent reviews: the writes that an API server serves concurrently by default (k8s.io/apiserver,
/// pkg/server/config.go, `MaxMutatingRequestsInFlight`). Further reviews wait, and their latency includes the wait.
const IN_FLIGHT: usize = 200;

/// The most idle connections (k8s.io/client-go, transport/cache.go, `idleConnsPerHost`).
const IDLE: usize = 25;

/// The interval at which the client sends the reviews that are due.
const TICK: Duration = Duration::from_millis(5);

/// Clones share one client.
#[derive(Clone)]
pub(super) struct Client(Arc<Shared>);

struct Shared {
    dialer: Mutex<Dialer>,
    reviews: Vec<Review>,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
    sent: AtomicU64,
    dialed: AtomicU64,
    may_end: watch::Sender<bool>,
}

impl Client {
    pub(super) fn new(dialer: Dialer, reviews: Vec<Review>) -> Self {
        Self(Arc::new(Shared {
            dialer: Mutex::new(dialer),
            reviews,
            idle: Mutex::default(),
            places: Semaphore::new(IN_FLIGHT),
            sent: AtomicU64::new(0),
            dialed: AtomicU64::new(0),
            may_end: watch::Sender::new(false),
        }))
    }

    /// Trusts these CAs from now on, as PEM. The API server uses new connections after a change of a caBundle, because its
    /// clients are cached by their whole configuration (k8s.io/apiserver, pkg/util/webhook/client.go, `HookClient`).
    pub(super) fn trust(&self, bundle: &str) -> Result<()> {
        let mut dialer = self.0.dialer.lock().unwrap_or_else(PoisonError::into_inner);
        *dialer = dialer.trusting(bundle)?;
        self.0.idle().clear();
        Ok(())
    }

    /// Ends the load once its duration is over.
    pub(super) fn may_end(&self) {
        self.0.may_end.send_replace(true);
    }

    /// The number of reviews that have been sent.
    pub(super) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Waits until this number of reviews has been sent.
    pub(super) async fn until_sent(&self, count: u64) -> Result<()> {
        wait::until(&format!("{count} reviews are sent"), || async move {
            let sent = self.0.sent.load(Ordering::Relaxed);
            ensure!(sent >= count, "{sent} are");
            Ok(())
        })
        .await
    }

    /// Sends `rate` reviews per second for `duration`, and then until [`Self::may_end`].
    pub(super) async fn send(self, rate: u32, duration: Duration) -> Result<Outcomes> {
        let started = Instant::now();
        let every = Duration::from_secs(1) / rate;
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let may_end = self.0.may_end.subscribe();
        let mut running = JoinSet::new();
        let mut outcomes = Outcomes::default();
        let (mut due, mut numbers) = (started, 0..);
        while due < started + duration || !*may_end.borrow() {
            ensure!(
                started.elapsed() < duration + wait::LIMIT,
                "the restart did not end"
            );
            ticks.tick().await;
            while due <= Instant::now()
                && let Some(number) = numbers.next()
            {
                let shared = self.0.clone();
                running.spawn(async move { shared.one(number, due).await });
                due += every;
            }
            while let Some(ended) = running.try_join_next() {
                outcomes.add(ended.context("sending a review")?);
            }
        }
        outcomes.seconds = started.elapsed().as_secs_f64();
        while let Some(ended) = running.join_next().await {
            outcomes.add(ended.context("sending a review")?);
        }
        outcomes.connections = self.0.dialed.load(Ordering::Relaxed);
        Ok(outcomes)
    }
}

impl Shared {
    /// Sends a review once and checks its answer.
    async fn one(&self, number: u64, due: Instant) -> ReviewResult {
        let mut retries = 0;
        let answered = async {
            let _place = self.places.acquire().await?;
            self.sent.fetch_add(1, Ordering::Relaxed);
            time::timeout(ANSWER, self.ask(number, &mut retries))
                .await
                .unwrap_or_else(|_| bail!("no answer within {} s", ANSWER.as_secs()))
        }
        .await;
        ReviewResult {
            answered,
            retries,
            latency: due.elapsed(),
        }
    }

    /// The verdict of the answer, or why the answer is wrong.
    async fn ask(&self, number: u64, retries: &mut u64) -> Result<Result<&'static str>, Error> {
        let kinds = u64::try_from(self.reviews.len())?;
        let review = usize::try_from(number % kinds).ok();
        let review = review
            .and_then(|index| self.reviews.get(index))
            .context("there is nothing to send")?;
        let uid = format!("00000000-0000-4000-8000-{number:012}");
        let mut connection = self.connection(retries).await?;
        let answer = connection.ask(review.path, &review.body(&uid)).await?;
        if !answer.closes {
            let mut idle = self.idle();
            if idle.len() < IDLE {
                idle.push(connection);
            }
        }
        Ok(review.judge(&uid, &answer))
    }

    /// The idle connection that was used last, or a new connection. A connection that the server has closed is skipped
    /// before anything is written to it: only then does Go's client try another one.
    async fn connection(&self, retries: &mut u64) -> Result<Connection> {
        while let Some(connection) = self.take() {
            if !connection.has_ended() {
                return Ok(connection);
            }
            *retries += 1;
        }
        self.dialed.fetch_add(1, Ordering::Relaxed);
        let dialer = self.dialer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        dialer.dial().await
    }

    fn take(&self) -> Option<Connection> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
