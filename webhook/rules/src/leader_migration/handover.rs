//! How long no controller manager runs a controller after the controller manager that ran it has stopped.
//!
//! A holder that stops does not release its Lease. A candidate takes the Lease when it has not seen a renewal
//! for the duration in the Lease (`k8s.io/client-go`, `tools/leaderelection`). A candidate tries again after
//! the retry period plus jitter.

use std::time::Duration;

use super::Flags;

/// The durations of leader election, from the flags of a controller manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a Lease lasts without a renewal.
    pub lease_duration: Duration,
    /// How often the holder renews its Lease, and how often a candidate tries to take the Lease.
    pub retry_period: Duration,
}

/// The shortest and the longest expected time in which no controller manager runs a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The shortest time: the holder stops just before it would renew its Lease.
    pub min: Duration,
    /// The longest time: the holder stops just after it has renewed its Lease, and the candidate waits as
    /// long as it can.
    pub max: Duration,
}

/// The longest wait of a candidate between two tries, as a multiple of the retry period: 1, plus jitter of up
/// to 1.2.
const LONGEST_RETRY: f64 = 2.2;

/// How long a controller manager needs for discovery and informers after it has taken the lock, until its
/// controllers work. Measured on kube-controller-manager 1.36 and a cloud-controller-manager.
const START: Duration = Duration::from_secs(2);

impl Timing {
    /// The durations of leader election that the flags of a controller manager set, or the defaults.
    pub fn from_flags(flags: &Flags) -> Self {
        let duration = |flag, default| flags.duration(flag).unwrap_or(Duration::from_secs(default));
        Self {
            lease_duration: duration("leader-elect-lease-duration", 15),
            retry_period: duration("leader-elect-retry-period", 2),
        }
    }
}

/// The gap until a candidate holds all locks of a holder that stops. `locks` is 1 if the candidate already
/// waits for that lock. It is 2 if the candidate first takes the main lock and then the migration lock: it
/// starts to wait for the second lock only when it holds the first one, and then waits for the whole duration
/// again.
pub fn gap(holder: Timing, candidate: Timing, locks: u32) -> Gap {
    let longest = holder.lease_duration + candidate.retry_period.mul_f64(LONGEST_RETRY);
    let renewed = holder.lease_duration.saturating_sub(holder.retry_period);
    Gap {
        min: renewed + holder.lease_duration * locks.saturating_sub(1),
        max: longest * locks + START,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_computed_from_flags() {
        let default = Timing::from_flags(&Flags::default());
        let short = Timing::from_flags(&Flags::from_pairs([
            ("leader-elect-lease-duration", "4s"),
            ("leader-elect-retry-period", "1s"),
        ]));
        let seconds = |holder, candidate, locks| {
            let Gap { min, max } = gap(holder, candidate, locks);
            (min.as_secs_f64(), max.as_secs_f64())
        };
        // Measured with the defaults: 19 s to a cloud-controller-manager that waits, 2 to 2.7 leases between
        // kube-controller-managers.
        assert_eq!(seconds(default, default, 1), (13.0, 21.4));
        assert_eq!(seconds(default, default, 2), (28.0, 40.8));
        assert_eq!(seconds(short, short, 1), (3.0, 8.2));
        assert_eq!(seconds(default, short, 1), (13.0, 19.2));
    }
}
