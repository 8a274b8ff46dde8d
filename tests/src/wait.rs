//! Waiting for a condition. Nothing else in the tests sleeps.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::Process;

/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(100);

/// Tries until it succeeds; after `limit` fails with what was waited for and why the last try failed.
///
/// A try says "not yet" by failing, with a reason that tells a reader where things stand.
pub async fn until<T, F, Fut>(what: &str, limit: Duration, mut attempt: F) -> Result<T>
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
            Ok(Err(_)) => tokio::time::sleep(INTERVAL).await,
            Err(_) => bail!("waited {} s until {what}: one try did not end", limit.as_secs()),
        }
    }
}

/// [`until`], given up as soon as the process that would bring it about has ended.
pub async fn until_served<T, F, Fut>(
    what: &str,
    limit: Duration,
    process: &mut Process,
    mut attempt: F,
) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let log = process.log().to_owned();
    tokio::select! {
        served = until(what, limit, &mut attempt) => served.with_context(|| format!("see {}", log.display())),
        ended = process.ended() => Err(ended).with_context(|| format!("waiting until {what}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use anyhow::{Result, bail, ensure};

    use super::until;

    #[tokio::test]
    async fn tries_until_it_succeeds() {
        let tries = Cell::new(0);
        let value = until("three", Duration::from_secs(5), || async {
            tries.set(tries.get() + 1);
            ensure!(tries.get() == 3, "not yet");
            Ok(tries.get())
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_was_waited_for_and_why_it_is_not_so() {
        let never: Result<()> = until("hell freezes", Duration::ZERO, || async { bail!("it is hot") }).await;
        let error = format!("{:#}", never.unwrap_err());
        assert_eq!(error, "waited 0 s until hell freezes: it is hot");
    }
}
