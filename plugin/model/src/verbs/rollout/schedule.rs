//! When a rollout is to begin.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// When a rollout is to begin, as it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// At once.
    #[default]
    Now,
    /// At a time.
    At(Timestamp),
    /// So long after now.
    In(Duration),
}

/// A time that no rollout can be planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTime {
    /// It is over.
    #[error("{at} is over, and a rollout of that time would begin at once: leave out --at to start one now")]
    Over {
        /// The time asked for.
        at: Timestamp,
    },
    /// It is beyond all time.
    #[error("that is too far away to be written as a time")]
    TooFar,
}

impl Begin {
    /// The time to write, in whole seconds, for the API's times have no fraction: none earlier than is asked for, but
    /// where it is now.
    ///
    /// # Errors
    /// When it is not to come, or cannot be written.
    pub fn after(self, now: Timestamp) -> Result<Timestamp, NoTime> {
        match self {
            Self::Now | Self::In(Duration::ZERO) => {
                Timestamp::from_second(now.as_second()).map_err(|_| NoTime::TooFar)
            }
            Self::At(at) if at <= now => Err(NoTime::Over { at }),
            Self::At(at) => whole_second_from(at),
            Self::In(duration) => SignedDuration::try_from(duration)
                .ok()
                .and_then(|duration| now.checked_add(duration).ok())
                .ok_or(NoTime::TooFar)
                .and_then(whole_second_from),
        }
    }

    /// Whether it is not now.
    pub fn is_planned(self) -> bool {
        match self {
            Self::Now => false,
            Self::At(_) => true,
            Self::In(duration) => !duration.is_zero(),
        }
    }
}

fn whole_second_from(time: Timestamp) -> Result<Timestamp, NoTime> {
    let has_fraction = time.subsec_nanosecond() > 0;
    Timestamp::from_second(time.as_second() + i64::from(has_fraction)).map_err(|_| NoTime::TooFar)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Begin, NoTime};

    #[test]
    fn the_time_that_is_written() {
        let now = "2026-08-21T12:00:00.7Z".parse().expect("a time");
        let at = |text: &str| Begin::At(text.parse().expect("a time"));
        let over = |text: &str| {
            Err(NoTime::Over {
                at: text.parse().expect("a time"),
            })
        };
        for (begin, expected, is_planned) in [
            (Begin::Now, Ok("2026-08-21T12:00:00Z"), false),
            (Begin::In(Duration::ZERO), Ok("2026-08-21T12:00:00Z"), false),
            (
                Begin::In(Duration::from_secs(3600)),
                Ok("2026-08-21T13:00:01Z"),
                true,
            ),
            (Begin::In(Duration::MAX), Err(NoTime::TooFar), true),
            (at("2026-08-22T02:00:00+02:00"), Ok("2026-08-22T00:00:00Z"), true),
            (at("2026-08-21T12:00:00.8Z"), Ok("2026-08-21T12:00:01Z"), true),
            (at("2026-08-21T12:00:00.7Z"), over("2026-08-21T12:00:00.7Z"), true),
            (at("2020-01-01T00:00:00Z"), over("2020-01-01T00:00:00Z"), true),
        ] {
            let after = begin.after(now).map(|after| after.to_string());
            assert_eq!(after, expected.map(str::to_owned), "{begin:?}");
            assert_eq!(begin.is_planned(), is_planned, "{begin:?}");
        }
    }
}
