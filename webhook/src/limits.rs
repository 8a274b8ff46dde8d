//! What one client, and all clients together, may take.
//!
//! Memory is bounded by these numbers, and measured to stay below the limit that the manifests set: 64 MiB of bodies
//! ([`Limits::buffered_bytes`]), 32 MiB of answers ([`ANSWERS_BYTES`]), some 40 MiB that are kept of the cluster
//! ([`KEPT_OBJECTS`] and [`KEPT_BYTES`] of each of four kinds), 100 KiB for each of 512 connections (a full
//! [`READ_BUFFER_BYTES`], and TLS), 17 MiB for the program, and what one review takes while it is judged, one at a time
//! ([`VALUES`]).

use std::time::Duration;

/// The largest head of a request, and the largest piece of a body, in bytes. A request with a larger head is
/// answered with 431.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;

/// The most values in an object: fields, entries of lists, and the lists and objects themselves. Objects of thousands
/// are rare; one of the largest size could have a million and a half, and take gigabytes to judge.
pub(crate) const VALUES: usize = 50_000;

/// The longest text that an error of a decoder adds to our sentence, in characters: it quotes what was sent.
pub(crate) const QUOTED_CHARS: usize = 300;

/// The longest name that Kubernetes gives an object, in characters (RFC 1123).
pub(crate) const NAME_CHARS: usize = 253;

/// Causes named one by one in a denial; those beyond are counted.
pub(crate) const CAUSES: usize = 50;

/// The longest message of one cause, in characters.
pub(crate) const CAUSE_CHARS: usize = 1024;

/// The longest warning, in characters. Rules that warn say it in 120, which fits a line of a terminal or two; what would be
/// a refusal if it were not overridden or there before is worded as one, with what to do at its end. The API server cuts
/// warnings at 256 once those of a request exceed [`WARNINGS_BYTES`] (k8s.io/apiserver,
/// `pkg/endpoints/filters/warning.go`).
pub(crate) const WARNING_CHARS: usize = 256;

/// All warnings of one review together, in bytes. The API server counts characters, and drops what is beyond as many.
pub(crate) const WARNINGS_BYTES: usize = 4096;

/// How long the live reads of one review may take together: of a scale, the control plane and then what its rules look
/// at. The manifests give a review at least three seconds, so that it is we who answer, and say why.
pub(crate) const LIVE_READS: Duration = Duration::from_secs(1);

/// The largest answer of the API server to a live read, in bytes.
pub(crate) const ANSWER_BYTES: usize = 16 * MIB;

/// Bytes of all answers to live reads being held at one time.
pub(crate) const ANSWERS_BYTES: usize = 32 * MIB;

/// Objects of a list that are sent at one time.
pub(crate) const PAGE_OBJECTS: usize = 500;

/// The most objects of a kind that are kept, at 100 to 250 bytes each. Of more none is, and each review reads live.
pub(crate) const KEPT_OBJECTS: usize = 50_000;

/// Bytes of what is kept of a kind beyond that: specs of control planes, inventories of pools. Of objects beyond it the
/// name alone is kept, and the rest is read live.
pub(crate) const KEPT_BYTES: usize = 4 * MIB;

/// The most objects of a list that is read live: what fits the second that a review has.
pub(crate) const LISTED_OBJECTS: usize = 5000;

const MIB: usize = 1024 * 1024;

/// What clients may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes. The API server takes objects of 3 MB and a review of an update carries two.
    pub body_bytes: usize,
    /// Bytes of all bodies being held at one time.
    pub buffered_bytes: usize,
    /// Reviews being answered at one time; 503 beyond.
    pub reviews: usize,
    /// Connections that are served at one time.
    pub connections: usize,
    /// Connections beyond [`Limits::connections`] that are still told so, with 503; the next ones are closed unheard.
    pub refused_connections: usize,
    /// From the first byte of a TLS handshake to its last.
    pub handshake: Duration,
    /// From the first byte of a request's head to its last; for the first request of a connection, from the end of the
    /// handshake.
    pub head: Duration,
    /// From the end of the head to the end of the body.
    pub body: Duration,
    /// Between two requests of a connection. Above the 90 s of Go's HTTP client (`IdleConnTimeout`), so that the API server closes
    /// first: a review that meets a closing connection is lost, for Go does not send a POST twice.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 7 * MIB,
            buffered_bytes: 64 * MIB,
            reviews: 256,
            connections: 512,
            refused_connections: 64,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(120),
        }
    }
}
