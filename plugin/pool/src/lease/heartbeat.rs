//! When a lease is renewed under which a command runs, and when it counts as lost. Pure.

use std::time::Duration;

/// The longest that a command is given to end by itself.
const MAX_GRACE: Duration = Duration::from_secs(10);

/// The longest between two renewals that fail.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// The rhythm of a lease that lasts so long from each renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub ttl: Duration,
}

impl Heartbeat {
    /// How long until the next renewal. Two may be lost before the lease is.
    pub fn until_renewal(&self, since_last: Duration, failed: bool) -> Duration {
        let third = self.ttl / 3;
        if failed {
            (third / 4).min(MAX_RETRY)
        } else {
            third.saturating_sub(since_last)
        }
    }

    /// How long until the lease counts as lost: early enough for the command to be gone before another may have it.
    pub fn left(&self, since_last: Duration) -> Duration {
        self.ttl.saturating_sub(self.grace()).saturating_sub(since_last)
    }

    /// How long a command has to end by itself once the lease is lost.
    pub fn grace(&self) -> Duration {
        (self.ttl / 3).min(MAX_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Heartbeat;

    #[test]
    fn the_rhythm() {
        let seconds = Duration::from_secs;
        for (ttl, since_last, renewal, retry, left, grace) in [
            (60, 0, 20, 5, 50, 10),
            (300, 0, 100, 5, 290, 10),
            (60, 15, 5, 5, 35, 10),
            (60, 49, 0, 5, 1, 10),
            (60, 50, 0, 5, 0, 10),
            (12, 0, 4, 1, 8, 4),
            (12, 9, 0, 1, 0, 4),
        ] {
            let heartbeat = Heartbeat { ttl: seconds(ttl) };
            let since_last = seconds(since_last);
            let found = (
                heartbeat.until_renewal(since_last, false),
                heartbeat.until_renewal(since_last, true),
                heartbeat.left(since_last),
                heartbeat.grace(),
            );
            let expected = (seconds(renewal), seconds(retry), seconds(left), seconds(grace));
            assert_eq!(found, expected, "{ttl} {since_last:?}");
        }
    }
}
