//! Limits on what one client, and all clients together, may use.
//!
//! These limits keep the server's memory below the limit in the manifests, which a test measures. The largest parts are 64 MiB
//! for reviews ([`Limits::held_bytes`]), about 35 MiB to decode a review on each of two threads ([`MAX_VALUES`]), 32 MiB for
//! responses of the API server ([`MAX_BUFFERED_RESPONSE_BYTES`]), about 50 MiB for the caches of five kinds
//! ([`MAX_CACHED_OBJECTS`] and [`MAX_CACHED_BYTES`] each), 90 KiB for each of 512 connections ([`READ_BUFFER_BYTES`], and TLS),
//! and 17 MiB for the program.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The largest head of a request, and the largest chunk of a body, in bytes. A larger head gets the response 431.
pub(crate) const READ_BUFFER_BYTES: usize = 32 * 1024;

/// The bytes of a response that the kernel keeps until the client reads them. Otherwise the kernel would keep megabytes.
pub(crate) const SEND_BUFFER_BYTES: u32 = 64 * 1024;

/// How many bytes a review holds besides its body, its decoded values and its response.
pub(crate) const REVIEW_BYTES: usize = 16 * 1024;

/// How many bytes a decoded value holds, together with the problems that rules find in it. The test of the memory limit measures
/// 330.
pub(crate) const VALUE_BYTES: usize = 350;

/// How long a review waits for its share of what all reviews use, such as memory. Then the webhook rejects the review, and the
/// API server does not send it again.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of values in an object that the webhook reviews. Each field, list entry, list and object counts
/// as one value. Real objects rarely have more than a few thousand. The largest object that the API server accepts can
/// have 1.5 million values, and its review would need gigabytes of memory.
pub(crate) const MAX_VALUES: usize = 50_000;

/// The maximum size of the user's groups and extra fields in a review, in bytes. What is decoded from extra fields takes up to 200
/// times their size.
pub(crate) const MAX_USER_INFO: usize = 64 * 1024;

/// The maximum length of a review's uid, which the response repeats, in bytes. The API server sends 36.
pub(crate) const MAX_UID: usize = 128;

/// The maximum length in characters of a decoder's error that a message quotes. Such errors contain text from the client.
pub(crate) const MAX_QUOTED_CHARS: usize = 300;

/// The longest name of a Kubernetes object, in characters (RFC 1123).
pub(crate) const MAX_NAME_CHARS: usize = 253;

/// The maximum number of causes that a denial lists. If there are more, the denial says how many more.
pub(crate) const MAX_CAUSES: usize = 50;

/// The longest message of one cause, and its longest field, in characters.
pub(crate) const MAX_CAUSE_CHARS: usize = 1024;

/// The maximum length of a warning, in characters. Rules that warn need at most 120, which fits on one or two lines of a
/// terminal. A denial that became a warning, because it is overridden or because the stored object has the same problem, may
/// be longer. The API server cuts warnings at 256 if all warnings of a request exceed [`MAX_WARNINGS_BYTES`] (k8s.io/apiserver,
/// `pkg/endpoints/filters/warning.go`).
pub(crate) const MAX_WARNING_CHARS: usize = 256;

/// The maximum length of all warnings of one review together, in bytes. The API server drops warnings beyond the same number
/// of characters.
pub(crate) const MAX_WARNINGS_BYTES: usize = 4096;

/// The time limit for all live reads of a review that sets none. The API server sets it for each review with `?timeout=`.
pub(crate) const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before the webhook sends a read again to a busy API server. The `Retry-After` of the API server is at least a
/// second, which is often the whole time limit of a review.
pub(crate) const BUSY_DELAY: Duration = Duration::from_millis(200);

/// The longest time limit that a review may ask for: the default of Kubernetes.
pub(crate) const MAX_REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// What remains of the time limit of a review when its live reads end, so that the webhook can still respond and explain the failure.
pub(crate) const RESPONSE_MARGIN: Duration = Duration::from_millis(500);

/// The largest response of the API server to a live read, in bytes.
pub(crate) const MAX_RESPONSE_BYTES: usize = 16 * MIB;

/// The maximum size of all responses to live reads in memory at one time, in bytes.
pub(crate) const MAX_BUFFERED_RESPONSE_BYTES: usize = 32 * MIB;

/// The number of objects that the webhook requests in one page of a list.
pub(crate) const LIST_PAGE_SIZE: usize = 500;

/// The maximum number of cached objects of a kind. Each object needs 100 to 250 bytes. A kind with more
/// objects is not cached, and each review reads it live.
pub(crate) const MAX_CACHED_OBJECTS: usize = 50_000;

/// The maximum size of cached text of a kind, in bytes, such as specs of control planes and inventories of pools. Beyond this
/// limit, only the names of objects are cached, and the rest is read live.
pub(crate) const MAX_CACHED_BYTES: usize = 4 * MIB;

/// The maximum number of live reads in progress at one time. Other reads wait, at most until the deadline of their review.
pub(crate) const MAX_CONCURRENT_READS: usize = 32;

/// The maximum number of objects in a list that is read live. This number of objects can be read within a
/// second.
pub(crate) const MAX_LISTED_OBJECTS: usize = 5000;

const MIB: usize = 1024 * 1024;

/// Limits on the memory, connections and time that the clients of a server may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes. The API server accepts objects of 3 MB, and the review of an update has two.
    pub body_bytes: usize,
    /// What all reviews hold at one time, in bytes: their bodies, what is decoded, and responses that are not sent yet.
    pub held_bytes: usize,
    /// The maximum number of reviews in progress at one time, counted from the end of their bodies.
    pub reviews: usize,
    /// The maximum number of connections served at one time. It is larger than [`Limits::reviews`], so that some connections
    /// always have no review in progress, and the webhook can close one of them for a new client.
    pub connections: usize,
    /// The time limit for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The time limit for the head of a request, and then for its body. It begins with the first byte of the head. For the first
    /// request of a connection, it begins when the handshake ends.
    pub request_timeout: Duration,
    /// The time limit for sending a response. It begins when the client stops reading, and ends when everything is sent.
    pub write_timeout: Duration,
    /// The time limit between two requests on a connection. It is longer than the 90 s of Go's HTTP client
    /// (`IdleConnTimeout`), so that the API server closes connections first. If the webhook closed first, a review that the
    /// API server sends at the same time would be lost, because Go does not send a POST again.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 7 * MIB,
            held_bytes: 64 * MIB,
            reviews: 256,
            connections: 512,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// The minimum time between two actions that a [`RateLimit`] admits. Any client that reaches a port can cause such actions.
const INTERVAL: Duration = Duration::from_secs(1);

/// Limits how often the server does something. Contains when the last action was admitted, and how many actions were rejected
/// since then.
#[derive(Default)]
pub(crate) struct RateLimit(Mutex<(Option<Instant>, u64)>);

impl RateLimit {
    /// Returns `None` if the caller must not act now. Otherwise returns how many actions were rejected since the last admitted
    /// one.
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

/// Shortens `text` to at most `limit` characters. Shortened text ends in `…` and `tail`.
pub(crate) fn shorten<'a>(text: &'a str, limit: usize, tail: &str) -> Cow<'a, str> {
    // Text with few bytes has few characters, and need not be counted.
    if text.len() <= limit || text.chars().nth(limit).is_none() {
        return Cow::Borrowed(text);
    }
    let room = limit.saturating_sub(tail.chars().count() + 1);
    Cow::Owned(text.chars().take(room).chain(['…']).chain(tail.chars()).collect())
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

    #[test]
    fn shortens_only_text_that_is_too_long() {
        for (text, limit, tail, expected) in [
            ("abc", 3, "", "abc"),
            ("abcd", 3, "", "ab…"),
            ("\u{e4}\u{e4}\u{e4}\u{e4}", 3, "", "\u{e4}\u{e4}…"),
            ("abcdefgh (id)", 10, " (id)", "abcd… (id)"),
            ("", 0, "", ""),
        ] {
            assert_eq!(shorten(text, limit, tail), expected, "{text}");
        }
    }
}
