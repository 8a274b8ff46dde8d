//! Waiting for a condition. Nothing else in the tests sleeps.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::Process;

/// The shortest and the longest time between two tries. In between it is a tenth of the time waited so far: a short wait
/// ends soon after its condition is met, and a long one leaves the processor to what it waits for.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);

/// Ends a wait that would never end. What tests wait for takes seconds on an idle machine and a minute or two on a busy
/// one. The limit is far longer, because a slow machine must not fail a test.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Tries until a try succeeds. After [`LIMIT`] it fails with what it waited for and why the last try failed.
///
/// A try that fails means "not yet". Its error says what is missing.
pub async fn until<T, F, Fut>(what: &str, attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    until_within(what, LIMIT, attempt).await
}

/// [`until`] with a limit of its own.
pub async fn until_within<T, F, Fut>(what: &str, limit: Duration, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        match tokio::time::timeout(limit, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) if started.elapsed() >= limit => {
                return Err(reason).with_context(|| format!("waited {} s until {what}", limit.as_secs()));
            }
            Ok(Err(_)) => tokio::time::sleep(interval(started.elapsed())).await,
            Err(_) => bail!("waited {} s until {what}: one try did not end", limit.as_secs()),
        }
    }
}

fn interval(waited: Duration) -> Duration {
    (waited / 10).clamp(*INTERVAL.start(), *INTERVAL.end())
}

/// [`until`], but fails as soon as `process` ends, because only that process can make the condition true.
pub async fn until_served<T, F, Fut>(what: &str, process: &mut Process, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let log = process.log().to_owned();
    tokio::select! {
        served = until(what, &mut attempt) => served.with_context(|| format!("see {}", log.display())),
        ended = process.ended() => Err(ended).with_context(|| format!("waiting until {what}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use anyhow::{Result, bail, ensure};

    use super::{until, until_within};

    #[tokio::test]
    async fn tries_until_it_succeeds() {
        let tries = Cell::new(0);
        let value = until("three", || async {
            tries.set(tries.get() + 1);
            ensure!(tries.get() == 3, "not yet");
            Ok(tries.get())
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn names_the_condition_and_the_last_failure() {
        let never: Result<()> =
            until_within("water boils", Duration::ZERO, || async { bail!("it is cold") }).await;
        let error = format!("{:#}", never.unwrap_err());
        assert_eq!(error, "waited 0 s until water boils: it is cold");
    }
}
