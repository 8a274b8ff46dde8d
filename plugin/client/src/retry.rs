//! The limits of all retries.
//!
//! A read, or a write that the server turned away, is sent again when the server is busy. A write is decided again after
//! a conflict ([`crate::update`]). A write whose outcome is unknown is never sent again.

use std::{future::Future, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Retryable as _};

use crate::Error;

/// How often an object is read and decided again when another client writes between our read and our write. A controller
/// writes the status several times a second at most, and in bursts.
pub const CONFLICT_ATTEMPTS: usize = 5;

/// The first pause after a conflict; each further one is twice as long. Reading again takes time as well.
const CONFLICT_DELAY: Duration = Duration::from_millis(20);

const BUSY_ATTEMPTS: usize = 3;

/// The first pause if a busy server names none.
const BUSY_DELAY: Duration = Duration::from_millis(200);

/// The longest that we wait for a server's Retry-After.
const MAX_BUSY_DELAY: Duration = Duration::from_secs(5);

/// The pauses between the attempts to write an object that other clients write too.
pub(crate) fn after_conflicts() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(CONFLICT_DELAY)
        .with_max_times(CONFLICT_ATTEMPTS - 1)
        .with_jitter()
        .build()
}

/// Sends a request, and again if the server is busy. A write may be sent this way as well: its client reports a busy
/// server as an error only for 429, which the server sends before it looks at a request.
///
/// # Errors
/// The request's.
pub async fn while_busy<T, F>(request: impl FnMut() -> F) -> Result<T, Error>
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

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        time::{Duration, Instant},
    };

    use super::{BUSY_ATTEMPTS, CONFLICT_ATTEMPTS, after_conflicts, while_busy};
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
        assert_eq!(after_conflicts().count(), CONFLICT_ATTEMPTS - 1);
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again_when_it_says() {
        for (failures, is_answered) in [(0, true), (BUSY_ATTEMPTS - 1, true), (BUSY_ATTEMPTS, false)] {
            let sent = Cell::new(0);
            let started = Instant::now();
            let answer = while_busy(|| {
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
        let answer: Result<(), Error> = while_busy(|| {
            sent.set(sent.get() + 1);
            async { Err(Error::NoCurrentContext) }
        })
        .await;
        assert!(matches!(answer, Err(Error::NoCurrentContext)));
        assert_eq!(sent.get(), 1);
    }
}
