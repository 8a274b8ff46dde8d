//! Waiting for a condition. Nothing else in the tests sleeps.

use std::collections::VecDeque;
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

/// How many reasons of earlier tries an error names besides the last one. Reasons that differ only in numbers count as one.
const MAX_REASONS: usize = 6;

/// [`until`] with a limit of its own.
pub async fn until_within<T, F, Fut>(what: &str, limit: Duration, mut attempt: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let started = Instant::now();
    let mut earlier = Reasons::default();
    loop {
        match tokio::time::timeout(limit, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) if started.elapsed() >= limit => {
                let earlier = earlier.others(&format!("{reason:#}"));
                return Err(reason.context(format!("waited {} s until {what}{earlier}", limit.as_secs())));
            }
            Ok(Err(reason)) => {
                earlier.add(format!("{reason:#}"));
                tokio::time::sleep(interval(started.elapsed())).await;
            }
            Err(_) => {
                let earlier = earlier.others("");
                bail!(
                    "waited {} s until {what}{earlier}: one try did not end",
                    limit.as_secs()
                )
            }
        }
    }
}

/// Why earlier tries failed, newest first.
#[derive(Default)]
struct Reasons(VecDeque<String>);

impl Reasons {
    fn add(&mut self, reason: String) {
        let words = without_numbers(&reason);
        if !self.0.iter().any(|known| without_numbers(known) == words) {
            self.0.truncate(MAX_REASONS - 1);
            self.0.push_front(reason);
        }
    }

    /// The reasons other than the last one, each on a line of its own.
    fn others(&self, last: &str) -> String {
        let last = without_numbers(last);
        let others = self.0.iter().filter(|reason| without_numbers(reason) != last);
        others.fold(String::new(), |text, reason| text + "\nearlier: " + reason)
    }
}

fn without_numbers(text: &str) -> String {
    text.replace(|character: char| character.is_ascii_digit(), "")
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

    use super::{MAX_REASONS, Reasons, until, until_within};

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

    #[test]
    fn earlier_reasons_are_named_once() {
        let mut reasons = Reasons::default();
        for reason in ["no kettle in try 1", "no kettle in try 2", "cold: 20 degrees"] {
            reasons.add(reason.to_owned());
        }
        assert_eq!(
            reasons.others("cold: 30 degrees"),
            "\nearlier: no kettle in try 1"
        );
        for number in 0..MAX_REASONS {
            reasons.add("x".repeat(number));
        }
        assert_eq!(reasons.others("").lines().count(), MAX_REASONS);
    }
}
