//! Limits on what one client, and all clients together, may use.
//!
//! They bound the server's memory below the limit in the manifests; a test measures it. The largest parts are 64 MiB for
//! request bodies ([`Limits::buffered_bytes`]), 32 MiB for responses of the API server ([`ANSWERS_BYTES`]), about 40 MiB for
//! the caches of four kinds ([`CACHED_OBJECTS`] and [`CACHED_BYTES`] each), 100 KiB for each of 512 connections (a full
//! [`READ_BUFFER_BYTES`], and TLS), 17 MiB for the program, and the memory to evaluate one review at a time ([`VALUES`]).

use std::time::Duration;

/// The largest head of a request, and the largest chunk of a body, in bytes. A larger head gets the response 431.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;

/// The most values in an object: fields, list entries, and the lists and objects themselves. Real objects rarely have
/// thousands. The largest object that the API server accepts could have 1.5 million, and take gigabytes to check.
pub(crate) const VALUES: usize = 50_000;

/// The longest decoder error in a message, in characters: such errors quote what the client sent.
pub(crate) const QUOTED_CHARS: usize = 300;

/// The longest name of a Kubernetes object, in characters (RFC 1123).
pub(crate) const NAME_CHARS: usize = 253;

/// The most causes listed in a denial. Further causes are only counted.
pub(crate) const CAUSES: usize = 50;

/// The longest message of one cause, in characters.
pub(crate) const CAUSE_CHARS: usize = 1024;

/// The longest warning, in characters. Rules that warn need at most 120, which fits on one or two lines of a terminal. A
/// denial that became a warning, because it is overridden or the stored object has the same problem, is longer. The API
/// server cuts warnings at 256 if all warnings of a request exceed [`WARNINGS_BYTES`] (k8s.io/apiserver,
/// `pkg/endpoints/filters/warning.go`).
pub(crate) const WARNING_CHARS: usize = 256;

/// All warnings of one review together, in bytes. The API server drops warnings beyond the same number of characters.
pub(crate) const WARNINGS_BYTES: usize = 4096;

/// The time for all live reads of one review. A scale reads the control plane, and then the objects that rules need. The
/// manifests give a review at least three seconds, so that the webhook can still respond and explain the failure.
pub(crate) const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest response of the API server to a live read, in bytes.
pub(crate) const ANSWER_BYTES: usize = 16 * MIB;

/// All responses to live reads in memory at one time, in bytes.
pub(crate) const ANSWERS_BYTES: usize = 32 * MIB;

/// The page size of lists.
pub(crate) const PAGE_OBJECTS: usize = 500;

/// The most cached objects of a kind, at 100 to 250 bytes each. A kind with more is not cached, and each review reads it
/// live.
pub(crate) const CACHED_OBJECTS: usize = 50_000;

/// The most cached text of a kind, in bytes, such as specs of control planes and inventories of pools. Beyond it, only
/// the names of objects are cached, and the rest is read live.
pub(crate) const CACHED_BYTES: usize = 4 * MIB;

/// Live reads in progress at one time. Further ones wait until the deadline of their review.
pub(crate) const CONCURRENT_READS: usize = 32;

/// The most objects of a list that is read live: what can be read within [`LIVE_READ_TIMEOUT`].
pub(crate) const LISTED_OBJECTS: usize = 5000;

const MIB: usize = 1024 * 1024;

/// Limits on the clients of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes. The API server accepts objects of 3 MB, and the review of an update has two.
    pub body_bytes: usize,
    /// All bodies in memory at one time, in bytes.
    pub buffered_bytes: usize,
    /// Reviews in progress at one time, from the end of their bodies. Further ones get the response 503.
    pub reviews: usize,
    /// Connections served at one time.
    pub connections: usize,
    /// Connections from one IP address. The API server has one for each review in progress, and keeps 25 idle ones.
    pub connections_per_peer: usize,
    /// Connections from one IP address that have not carried a complete review. For each further one, the connection that has
    /// waited longest is evicted. The API server's connections leave this state with their first response.
    pub waiting_connections_per_peer: usize,
    /// Connections beyond [`Limits::connections`] that get the response 503. Further ones are closed without a response.
    pub refused_connections: usize,
    /// All bodies in memory of one IP address, on connections that have not carried a complete review, in bytes.
    pub buffered_bytes_per_peer: usize,
    /// All bodies in memory of one IP address, in bytes. Only the API server needs that many.
    pub buffered_bytes_per_proven_peer: usize,
    /// The limits on waiting connections and bodies of one IP address apply to those of at least this age: an API server that
    /// starts opens many at once. It waits no longer than this for a review.
    pub peer_grace: Duration,
    /// The slowest transfer of a body, in bytes per second after [`Limits::body_grace`].
    pub body_rate: usize,
    /// The time before [`Limits::body_rate`] applies.
    pub body_grace: Duration,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// The time for the head of a request, from its first byte, or from the end of the handshake for the first request of a
    /// connection.
    pub head: Duration,
    /// The time for the body of a request, from the end of its head.
    pub body: Duration,
    /// The time between two requests on a connection. Longer than the 90 s of Go's HTTP client (`IdleConnTimeout`), so that
    /// the API server closes first: Go does not send a POST again, so a review on a closing connection would be lost.
    pub idle: Duration,
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
            body_rate: 64 * 1024,
            body_grace: Duration::from_secs(2),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(120),
        }
    }
}
