//! Parses and formats durations. Accepts the format of Go's `time.ParseDuration`.

use std::time::Duration;

use kcp_rules::syntax::parse_go_duration;

/// The longest duration that is accepted: one year. The current time plus one year cannot overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// Parses a duration such as `1h30m`, `2.5s` or `300ms`. Only 0 needs no unit: a number without a unit could mean
/// seconds, minutes or hours. Fails if the duration is longer than one year. The error says which durations are accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_go_duration(text) {
        Some(duration) if duration > MAX_DURATION => Err("expected at most one year (8760h)".to_owned()),
        Some(duration) => Ok(duration),
        None if is_number(text) => Err(format!("the unit is missing: write {text}s, {text}m or {text}h")),
        None => Err(match hours_of_days(text) {
            Some(hours) => format!("there is no unit for days: write {hours}h"),
            None => "expected a duration such as 30s, 15m or 1h30m".to_owned(),
        }),
    }
}

/// The hours of a number of days such as `2d`; `None` for any other text.
fn hours_of_days(text: &str) -> Option<u64> {
    text.strip_suffix('d')?.parse::<u64>().ok()?.checked_mul(24)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Formats a duration in its two largest units, such as `2d3h`, `15m`, `1m30s` or `12s`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds % 60, "s")];
    let largest = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = parts
        .iter()
        .skip(largest)
        .take(2)
        .filter(|(count, _)| *count > 0 || largest == 3);
    shown.fold(String::new(), |text, (count, unit)| {
        text + &count.to_string() + unit
    })
}

/// Formats a time limit like [`format_duration`], but shows tenths of a second below one minute, and milliseconds below
/// 100 ms.
pub fn format_limit(limit: Duration) -> String {
    let (millis, seconds) = (limit.as_millis(), limit.as_secs());
    let tenths = millis / 100 % 10;
    match millis {
        1..100 => format!("{millis}ms"),
        100..60_000 if tenths > 0 => format!("{seconds}.{tenths}s"),
        _ => format_duration(limit),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, proptest};

    use super::{format_duration, format_limit, parse_duration};

    #[test]
    fn accepts_durations_as_go_does() {
        for (text, millis) in [
            ("0", 0),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("2.5s", 2500),
            ("300ms", 300),
            ("1m0s", 60_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn rejects_anything_else() {
        for text in [
            "",
            "s",
            "1x",
            "-1s",
            "1s2",
            "1.2.3s",
            "99999999999999999999h",
            "1 s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_are_hours() {
        for (text, error) in [
            ("2d", "there is no unit for days: write 48h"),
            ("1d12h", "expected a duration such as 30s, 15m or 1h30m"),
            ("d", "expected a duration such as 30s, 15m or 1h30m"),
            (
                "18446744073709551615d",
                "expected a duration such as 30s, 15m or 1h30m",
            ),
        ] {
            assert_eq!(parse_duration(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn only_zero_needs_no_unit() {
        for text in ["8", "30", "08", "1000000000000000000"] {
            let error = format!("the unit is missing: write {text}s, {text}m or {text}h");
            assert_eq!(parse_duration(text), Err(error), "{text}");
        }
    }

    #[test]
    fn rejects_what_no_clock_can_be_asked_for() {
        assert_eq!(parse_duration("8760h"), Ok(Duration::from_secs(365 * 86_400)));
        let error = "expected at most one year (8760h)".to_owned();
        assert_eq!(parse_duration("8760h1s"), Err(error));
    }

    #[test]
    fn shows_the_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (12, "12s"),
            (60, "1m"),
            (90, "1m30s"),
            (3661, "1h1m"),
            (86_400 * 2 + 3600 * 3 + 59, "2d3h"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn shows_limits_below_a_second() {
        for (millis, text) in [
            (0, "0s"),
            (20, "20ms"),
            (300, "0.3s"),
            (1000, "1s"),
            (1950, "1.9s"),
            (59_900, "59.9s"),
            (60_500, "1m"),
            (90_000, "1m30s"),
        ] {
            assert_eq!(format_limit(Duration::from_millis(millis)), text);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = parse_duration(&text);
        }
    }
}
