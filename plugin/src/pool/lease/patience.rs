//! How long one waits for a free customization, and how long between two looks. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::arguments::parse_duration;

/// The least and the most between two looks: many who wait for the same pool do not all look at once.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));

/// How long one is told to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// As long as it takes.
    Unlimited,
    /// So long at most.
    AtMost(Duration),
}

impl WaitLimit {
    /// The value of an option that may be left without one.
    ///
    /// # Errors
    /// As [`parse_duration`].
    pub(in crate::pool) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Ok(Self::Unlimited)
        } else {
            parse_duration(text).map(Self::AtMost)
        }
    }

    const fn duration(self) -> Option<Duration> {
        match self {
            Self::Unlimited => None,
            Self::AtMost(limit) => Some(limit),
        }
    }
}

/// How long one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Patience {
    pub(in crate::pool) since: Timestamp,
    pub(in crate::pool) limit: WaitLimit,
}

impl Patience {
    /// How long it has been. A clock that is set back has not begun.
    pub(in crate::pool) fn waited(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or_default()
    }

    /// How long until the next look; none when the time is over. `random` is any number.
    pub(in crate::pool) fn rest(&self, now: Timestamp, random: u64) -> Option<Duration> {
        let (least, most) = REST;
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        let rest = least + Duration::from_millis(random % span.max(1));
        match self.limit.duration() {
            None => Some(rest),
            Some(limit) => {
                let left = limit.saturating_sub(self.waited(now));
                // The last look is at the very end.
                (!left.is_zero()).then_some(rest.min(left))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Patience, WaitLimit};

    #[test]
    fn a_limit_may_be_left_out() {
        assert_eq!(WaitLimit::parse(""), Ok(WaitLimit::Unlimited));
        assert_eq!(
            WaitLimit::parse("2m"),
            Ok(WaitLimit::AtMost(Duration::from_secs(120)))
        );
        assert!(WaitLimit::parse("long").is_err());
    }

    #[test]
    fn how_long_until_the_next_look() {
        for (limit, now, random, expected) in [
            (None, "06:00:00", 0, Some(1000)),
            (None, "06:00:00", 1999, Some(2999)),
            (None, "06:00:00", 2000, Some(1000)),
            (Some(60), "05:00:00", 500, Some(1500)),
            (Some(60), "05:00:59.5", 500, Some(500)),
            (Some(60), "05:01:00", 0, None),
            (Some(0), "05:00:00", 0, None),
            (Some(60), "04:00:00", 0, Some(1000)),
        ] {
            let patience = Patience {
                since: "2026-11-21T05:00:00Z".parse().unwrap(),
                limit: limit.map_or(WaitLimit::Unlimited, |limit| {
                    WaitLimit::AtMost(Duration::from_secs(limit))
                }),
            };
            let now = format!("2026-11-21T{now}Z").parse().unwrap();
            assert_eq!(
                patience.rest(now, random),
                expected.map(Duration::from_millis),
                "{limit:?} {now} {random}"
            );
        }
    }
}
