//! Parses `--timeout` of commands that read.

use std::time::Duration;

use kcp_control_plane::duration::parse_duration;

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
