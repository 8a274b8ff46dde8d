//! Parses the values of `--request-timeout`, `--timeout`, `--reason` and the options for images, labels and times.

use std::time::Duration;

use jiff::Timestamp;
use kcp_control_plane::duration::parse_duration;
use kcp_rules::syntax::{key_fault, label_value_fault};

/// The maximum length of a reason, in characters.
const MAX_REASON: usize = 400;

/// Parses the value of `--request-timeout`, which is kubectl's flag: scripts pass the same value to both programs. So a
/// number without a unit is a number of seconds, as in kubectl (`ParseTimeout` of client-go's `clientcmd`).
pub fn parse_request_timeout(text: &str) -> Result<Duration, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !text.is_empty() {
        return parse_duration(&format!("{text}s"));
    }
    parse_duration(text)
}

/// Parses a time such as `2026-12-24T02:00:00Z`.
pub fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "expected a time with its zone, such as 2026-12-24T02:00:00Z; for a time from now, use --in, such as --in 8h".to_owned()
    })
}

/// Parses the time limit of a read. Rejects 0, because every read would fail.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    if timeout.is_zero() {
        return Err("expected more than 0".to_owned());
    }
    Ok(timeout)
}

/// The maximum length of the name of an image.
const MAX_IMAGE: usize = 500;

/// Parses the name of a container image, which becomes part of manifests and scripts.
pub fn parse_image(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.:@".contains(&byte);
    if (1..=MAX_IMAGE).contains(&text.len()) && text.bytes().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("expected the name of an image, such as registry.example.com/haproxy:3.2".to_owned())
}

/// Parses the key and the value of a label.
pub fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    match key_fault(key).or_else(|| label_value_fault(value)) {
        Some(fault) => Err(fault.to_owned()),
        None => Ok((key.to_owned(), value.to_owned())),
    }
}

/// Parses the reason that a command records on an object.
pub fn parse_reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the reason must not be empty".to_owned()),
        text if text.chars().count() > MAX_REASON => {
            Err(format!("a reason must have at most {MAX_REASON} characters"))
        }
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse_request_timeout, parse_timeout, parse_timestamp};

    #[test]
    fn a_time_has_a_time_zone() {
        for text in ["2026-12-24T02:00:00Z", "2026-12-24T02:00:00+01:00"] {
            assert!(parse_timestamp(text).is_ok(), "{text}");
        }
        for text in ["tomorrow", "02:00", "2026-12-24T02:00:00", ""] {
            let error = parse_timestamp(text).unwrap_err();
            assert!(
                error.starts_with("expected a time with its zone, such as 2026-12-24T02:00:00Z"),
                "{text}"
            );
        }
    }

    #[test]
    fn only_the_flag_of_kubectl_takes_seconds_without_a_unit() {
        for (text, seconds) in [("0", 0), ("8", 8), ("08", 8), ("30s", 30), ("2m", 120)] {
            assert_eq!(
                parse_request_timeout(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in ["", "8x", "-1", "31536001"] {
            assert!(parse_request_timeout(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_timeout("8"),
            Err("the unit is missing: write 8s, 8m or 8h".to_owned())
        );
        assert_eq!(parse_timeout("0"), Err("expected more than 0".to_owned()));
    }
}
