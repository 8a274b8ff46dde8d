//! Parses the values of `--timeout`, `--reason` and the options for images.

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

/// The maximum length of the name of an image.
const MAX_IMAGE: usize = 500;

/// Parses the name of a container image, which becomes part of manifests and scripts.
///
/// # Errors
/// What is wrong, in a few words.
pub fn parse_image(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.:@".contains(&byte);
    if (1..=MAX_IMAGE).contains(&text.len()) && text.bytes().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("expected the name of an image, such as registry.example.com/haproxy:3.2".to_owned())
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
