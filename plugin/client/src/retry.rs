//! How often and when requests are retried.
//!
//! While the server is busy, this crate retries reads, and writes that the server refused to process. After a conflict,
//! it reads the object again and the caller decides again ([`crate::update`]). It never resends a write whose outcome
//! is unknown.

use std::{future::Future, time::Duration};

use backon::{BackoffBuilder as _, ConstantBuilder, ExponentialBackoff, ExponentialBuilder, Retryable as _};

use crate::Error;

/// How many times to read, decide and write if other clients change the object in between. Controllers write a few
/// status updates a second in a burst.
pub const CONFLICT_ATTEMPTS: usize = 5;

/// The pause after the first conflict; each later pause is twice as long.
const CONFLICT_DELAY: Duration = Duration::from_millis(20);

const BUSY_ATTEMPTS: usize = 3;

/// The pause after the first response of a busy server that sends no `Retry-After`.
const BUSY_DELAY: Duration = Duration::from_millis(200);

/// The longest pause that a server's `Retry-After` can cause.
const MAX_BUSY_DELAY: Duration = Duration::from_secs(5);

/// The pauses between attempts after conflicts.
pub fn conflict_backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(CONFLICT_DELAY)
        .with_max_times(CONFLICT_ATTEMPTS - 1)
        .with_jitter()
        .build()
}

/// Sends a request, and retries it while the server is busy. This is safe for writes: for them only 429 counts as busy,
/// which the server sends before it processes a request.
pub async fn retry_while_busy<T, F>(request: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let backoff = ExponentialBuilder::new()
        .with_min_delay(BUSY_DELAY)
        .with_max_delay(MAX_BUSY_DELAY)
        .with_max_times(BUSY_ATTEMPTS - 1);
    request
        .retry(backoff)
        .when(|error| matches!(error, Error::Busy { .. }))
        .adjust(|error, delay| match error {
            Error::Busy {
                retry_after: Some(after),
                ..
            } => delay.map(|_| (*after).min(MAX_BUSY_DELAY)),
            _ => delay,
        })
        .await
}

/// How often to try again after an API server has ended. With the pause before each attempt, this is half a minute, because a
/// load balancer can take so long to notice.
const LOST_SERVER_ATTEMPTS: usize = 30;
const LOST_SERVER_DELAY: Duration = Duration::from_secs(1);

/// Calls a function again while it fails with a transient error, because an API server behind a load balancer has just ended. The
/// function must read before it writes, so that it does not repeat a write that was stored.
pub async fn retry_after_lost_server<T, F>(call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let backoff = ConstantBuilder::new()
        .with_delay(LOST_SERVER_DELAY)
        .with_max_times(LOST_SERVER_ATTEMPTS);
    call.retry(backoff)
        .when(|error| error.is_transient() || matches!(error, Error::OutcomeUnknown { .. }))
        .await
}

/// How often to try again while etcd rejects a change of its members. With the pause before each attempt, this is ten seconds,
/// because etcd counts a member only after a connection of five seconds (`HealthInterval` in etcd's
/// `server/etcdserver/server.go`).
const UNCONNECTED_ATTEMPTS: usize = 10;
const UNCONNECTED_DELAY: Duration = Duration::from_secs(1);

/// Asks etcd for a change of its members, and tries again while etcd says that a member is unhealthy. The caller knows that the
/// members are healthy, so one of them has only just connected.
pub async fn retry_while_connecting<T, F>(call: impl FnMut() -> F) -> Result<T, kcp_etcd::Error>
where
    F: Future<Output = Result<T, kcp_etcd::Error>>,
{
    let backoff = ConstantBuilder::new()
        .with_delay(UNCONNECTED_DELAY)
        .with_max_times(UNCONNECTED_ATTEMPTS);
    call.retry(backoff)
        .when(|error| {
            matches!(error, kcp_etcd::Error::Rejected { message, .. } if message.ends_with("unhealthy cluster"))
        })
        .await
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        time::{Duration, Instant},
    };

    use super::{BUSY_ATTEMPTS, CONFLICT_ATTEMPTS, conflict_backoff, retry_while_busy};
    use crate::{Action, Error};

    fn busy(retry_after: Option<Duration>) -> Error {
        Error::Busy {
            action: Box::new(Action::path("get", "/apis")),
            code: 429,
            message: "busy".to_owned(),
            retry_after,
        }
    }

    #[test]
    fn every_retry_has_a_pause_before_it() {
        assert_eq!(conflict_backoff().count(), CONFLICT_ATTEMPTS - 1);
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_when_it_says() {
        for (failures, is_answered) in [(0, true), (BUSY_ATTEMPTS - 1, true), (BUSY_ATTEMPTS, false)] {
            let sent = Cell::new(0);
            let started = Instant::now();
            let answer = retry_while_busy(|| {
                sent.set(sent.get() + 1);
                let answer = if sent.get() > failures {
                    Ok(())
                } else {
                    Err(busy(Some(Duration::from_millis(1))))
                };
                async { answer }
            });
            assert_eq!(answer.await.is_ok(), is_answered, "{failures}");
            assert_eq!(sent.get(), BUSY_ATTEMPTS.min(failures + 1));
            assert!(
                started.elapsed() < Duration::from_millis(200),
                "Retry-After is shorter"
            );
        }
    }

    #[tokio::test]
    async fn another_error_is_final() {
        let sent = Cell::new(0);
        let answer: Result<(), Error> = retry_while_busy(|| {
            sent.set(sent.get() + 1);
            async { Err(Error::NoCurrentContext) }
        })
        .await;
        assert!(matches!(answer, Err(Error::NoCurrentContext)));
        assert_eq!(sent.get(), 1);
    }
}
