//! Limits on what one client, and all clients together, may use.
//!
//! These limits keep the server's memory below the limit in the manifests, which a test measures. The largest parts are 64
//! MiB for request bodies ([`Limits::buffered_bytes`]), 4 MiB of vectors kept for them ([`MAX_KEPT_VECTORS`]), 32 MiB for
//! responses of the API server ([`MAX_BUFFERED_RESPONSE_BYTES`]), about 50 MiB for the caches of five kinds
//! ([`MAX_CACHED_OBJECTS`] and [`MAX_CACHED_BYTES`] each), 100 KiB for each of 512 connections (a full
//! [`READ_BUFFER_BYTES`], and TLS), 17 MiB for the program, and the memory to evaluate one review at a time
//! ([`MAX_VALUES`]).

use std::time::Duration;

/// The largest head of a request, and the largest chunk of a body, in bytes. A larger head gets the response 431.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;

/// The maximum number of vectors that the server keeps for request bodies. `make bench` sends as many reviews at the same time.
/// If slow clients use all of them, other large reviews take longer, but need no more memory.
pub(crate) const MAX_KEPT_VECTORS: usize = 8;

/// The capacity of a vector that the server keeps, in bytes. It holds the update of an object of 250 KiB.
pub(crate) const KEPT_VECTOR_BYTES: usize = 512 * 1024;

/// The smallest body for which the server keeps a vector, in bytes. Allocators reuse the memory of smaller bodies.
pub(crate) const MIN_KEPT_BODY_BYTES: usize = 64 * 1024;

/// The maximum number of values in an object that the webhook reviews. Each field, list entry, list and object counts
/// as one value. Real objects rarely have more than a few thousand. The largest object that the API server accepts can
/// have 1.5 million values, and its review would need gigabytes of memory.
pub(crate) const MAX_VALUES: usize = 50_000;

/// The maximum size of a review beside its two objects, in bytes: names, and the user's groups and extra fields. What is decoded
/// from extra fields takes up to 200 times their size.
pub(crate) const MAX_ENVELOPE: usize = 64 * 1024;

/// The maximum length of a review's uid, which the response repeats, in bytes. The API server sends 36.
pub(crate) const MAX_UID: usize = 128;

/// The maximum length in characters of a decoder's error that a message quotes. Such errors contain text from the client.
pub(crate) const MAX_QUOTED_CHARS: usize = 300;

/// The longest name of a Kubernetes object, in characters (RFC 1123).
pub(crate) const MAX_NAME_CHARS: usize = 253;

/// The maximum number of causes that a denial lists. If there are more, the denial says how many more.
pub(crate) const MAX_CAUSES: usize = 50;

/// The longest message of one cause, in characters.
pub(crate) const MAX_CAUSE_CHARS: usize = 1024;

/// The maximum length of a warning, in characters. Rules that warn need at most 120, which fits on one or two lines of a
/// terminal. A denial that became a warning, because it is overridden or because the stored object has the same problem, may
/// be longer. The API server cuts warnings at 256 if all warnings of a request exceed [`MAX_WARNINGS_BYTES`] (k8s.io/apiserver,
/// `pkg/endpoints/filters/warning.go`).
pub(crate) const MAX_WARNING_CHARS: usize = 256;

/// The maximum length of all warnings of one review together, in bytes. The API server drops warnings beyond the same number
/// of characters.
pub(crate) const MAX_WARNINGS_BYTES: usize = 4096;

/// The time limit for all live reads of one review. A scale reads the control plane, and then the objects that rules need. The
/// manifests give a review at least three seconds, so that the webhook can still respond and explain the failure.
pub(crate) const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(1);

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

/// The maximum number of objects in a list that is read live. This number of objects can be read within
/// [`LIVE_READ_TIMEOUT`].
pub(crate) const MAX_LISTED_OBJECTS: usize = 5000;

const MIB: usize = 1024 * 1024;

/// Limits on the memory, connections and time that the clients of a server may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes. The API server accepts objects of 3 MB, and the review of an update has two.
    pub body_bytes: usize,
    /// The maximum size of all bodies in memory at one time, in bytes.
    pub buffered_bytes: usize,
    /// The maximum number of reviews in progress at one time, counted from the end of their bodies. Others get the response
    /// 503.
    pub reviews: usize,
    /// The maximum number of connections served at one time.
    pub connections: usize,
    /// The maximum number of connections from one IP address. The API server has one for each review in progress, and keeps 25
    /// idle ones.
    pub connections_per_peer: usize,
    /// The maximum number of connections from one IP address on which no complete review has been sent yet. For each
    /// additional one, the connection that has waited longest is evicted. The API server's connections are no longer
    /// counted after their first response.
    pub waiting_connections_per_peer: usize,
    /// The maximum number of connections beyond [`Limits::connections`] that get the response 503. Others are closed without a
    /// response.
    pub refused_connections: usize,
    /// The maximum size of all bodies in memory from one IP address, in bytes, on connections on which no complete
    /// review has been sent yet.
    pub buffered_bytes_per_peer: usize,
    /// The maximum size of all bodies in memory from one IP address, in bytes, on connections whose client has sent a complete
    /// review or has a verified certificate. Only the API server needs this much.
    pub buffered_bytes_per_proven_peer: usize,
    /// The limits on waiting connections and bodies of one IP address apply only to connections and bodies of at
    /// least this age, because an API server opens many at the same time when it starts. The API server waits no
    /// longer than this for a review.
    pub peer_grace: Duration,
    /// The minimum rate at which a body must arrive after [`Limits::body_grace`], in bytes per second.
    pub min_body_rate: usize,
    /// The time after which [`Limits::min_body_rate`] applies.
    pub body_grace: Duration,
    /// The time limit for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The time limit for the head of a request. It begins with the first byte of the head, or for the first request of a
    /// connection with the end of the handshake.
    pub head_timeout: Duration,
    /// The time limit for the body of a request. It begins with the end of the head.
    pub body_timeout: Duration,
    /// The time limit between two requests on a connection. It is longer than the 90 s of Go's HTTP client
    /// (`IdleConnTimeout`), so that the API server closes connections first. If the webhook closed first, a review that the
    /// API server sends at the same time would be lost, because Go does not send a POST again.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 7 * MIB,
            buffered_bytes: 64 * MIB,
            reviews: 256,
            connections: 512,
            connections_per_peer: 448,
            waiting_connections_per_peer: 64,
            refused_connections: 64,
            buffered_bytes_per_peer: 16 * MIB,
            buffered_bytes_per_proven_peer: 56 * MIB,
            peer_grace: Duration::from_secs(5),
            min_body_rate: 64 * 1024,
            body_grace: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}
