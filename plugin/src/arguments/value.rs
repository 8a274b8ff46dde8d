//! Parses the values of `--timeout` and `--reason`.

use std::time::Duration;

use kcp_control_plane::duration::parse_duration;

/// The maximum length of a reason, in characters.
const MAX_REASON: usize = 400;

/// Parses the time limit of a read. Rejects 0, because every read would fail.
///
/// # Errors
/// What is wrong, in a few words.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    if timeout.is_zero() {
        return Err("expected more than 0".to_owned());
    }
    Ok(timeout)
}

/// Parses the reason that a command records on an object.
///
/// # Errors
/// What is wrong, in a few words.
pub fn parse_reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the reason must not be empty".to_owned()),
        text if text.chars().count() > MAX_REASON => {
            Err(format!("a reason must have at most {MAX_REASON} characters"))
        }
        text => Ok(text.to_owned()),
    }
}
