//! Limits how often the server does something that any client that reaches a port can cause.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// When the server last did it, and how often it did not since.
#[derive(Default)]
pub(crate) struct RateLimit(Mutex<(Option<Instant>, u64)>);

impl RateLimit {
    /// Whether to do it now. Returns how often it was not done since the last time.
    pub(crate) fn admit(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, dropped) = *state;
        if last.is_some_and(|last| last.elapsed() < INTERVAL) {
            state.1 += 1;
            return None;
        }
        *state = (Some(Instant::now()), 0);
        Some(dropped)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_what_it_drops() {
        let limit = RateLimit::default();
        let admitted = [(); 3].map(|()| limit.admit());
        time::advance(INTERVAL).await;
        assert_eq!((admitted, limit.admit()), ([Some(0), None, None], Some(2)));
    }
}
