//! Errors of connections and calls to a member.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use thiserror::Error;
use tokio::time::timeout;
use tonic::{Code, Status};

/// Why a call to a member failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream to the member could not be opened.
    #[error("cannot connect: {0}")]
    Dial(#[source] io::Error),
    /// The TLS handshake with the member failed.
    #[error("TLS handshake failed: {0}")]
    Handshake(#[source] HandshakeError),
    /// The member did not respond within the time limit of a step.
    #[error("{step}: no response within {}", Seconds(*after))]
    Deadline {
        /// The step that exceeded its time limit.
        step: ConnectionStep,
        /// The time limit of the step.
        after: Duration,
    },
    /// The connection ended during a call. Whether the member has executed the call is unknown.
    #[error("{call}: connection lost: {cause}")]
    Broken {
        /// The call that failed.
        call: Call,
        /// The error message of the stream, or of HTTP/2 if the stream has none.
        cause: String,
    },
    /// The member responded with an error.
    #[error("{call}: etcd responded with {code:?}: {message}")]
    Rejected {
        /// The call that failed.
        call: Call,
        /// The gRPC status code.
        code: Code,
        /// etcd's message, at most 16 KiB (the limit for response headers).
        message: String,
    },
    /// The response does not follow etcd's API: the server is not etcd, or its version of etcd is not supported.
    #[error("{call}: unexpected response: {message}")]
    Malformed {
        /// The call that failed.
        call: Call,
        /// What is wrong with the response.
        message: String,
    },
}

/// Why a TLS handshake failed.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The member's certificate has expired.
    #[error("the member's certificate has expired")]
    Expired {
        /// When the certificate expired, in seconds since 1970. `None` if rustls does not report it.
        not_after: Option<i64>,
    },
    /// The member's certificate is not valid yet, or the local clock is behind.
    #[error("the member's certificate is not valid yet")]
    NotYetValid,
    /// Another CA issued the member's certificate, possibly a CA with the same name.
    #[error("the member's certificate was not issued by etcd's CA")]
    UnknownIssuer,
    /// The member's certificate is invalid for the reason in this text.
    #[error("the member's certificate is invalid: {0}")]
    Certificate(String),
    /// The member rejected the client certificate, which it reports only at the first call after the handshake.
    #[error("the member rejected the client certificate ({0:?})")]
    ClientCertificate(AlertDescription),
    /// The server closed the connection during the TLS handshake.
    #[error("the connection was closed: {0}")]
    Closed(String),
    /// The server does not speak TLS with HTTP/2, as etcd does. The text is the error of the library.
    #[error("{0}")]
    Protocol(String),
}

/// A step of a connection, with its own time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionStep {
    /// Open a stream to the member.
    Dial,
    /// Set up TLS and HTTP/2 over the stream.
    Handshake,
    /// Send a call and wait for its response.
    Call(Call),
}

/// A call of etcd's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Call {
    Status,
    HashKV,
    Metrics,
    MemberList,
    MemberAdd,
    MemberPromote,
    MemberRemove,
    MoveLeader,
    Alarm,
    Defragment,
    Snapshot,
    Compact,
    Range,
    Put,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

impl fmt::Display for ConnectionStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial => formatter.write_str("connecting"),
            Self::Handshake => formatter.write_str("TLS handshake"),
            Self::Call(call) => call.fmt(formatter),
        }
    }
}

/// A duration that is displayed in seconds, such as `2 s` or `1.5 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} s", self.0.as_secs_f64())
    }
}

impl HandshakeError {
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match tls_error(error) {
            Some(error) => Self::from_tls(error),
            None => Self::Closed(error.to_string()),
        }
    }

    pub(crate) fn from_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::from_certificate(error),
            rustls::Error::AlertReceived(alert) if is_about_certificates(*alert) => {
                Self::ClientCertificate(*alert)
            }
            other => Self::Protocol(other.to_string()),
        }
    }

    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired { not_after: None },
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired {
                not_after: i64::try_from(not_after.as_secs()).ok(),
            },
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            // All etcd CAs of Cluster API have the same name, so a certificate of another CA fails with a bad
            // signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            other => Self::Certificate(other.to_string()),
        }
    }
}

/// Returns the TLS error inside an I/O error, if any.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            // The alert for a certificate of another CA with the same name, whose signature does not verify.
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

impl Error {
    /// When the member's certificate expired, in seconds since 1970, if the TLS handshake failed because the
    /// certificate had expired.
    #[must_use]
    pub const fn certificate_expired_at(&self) -> Option<i64> {
        match self {
            Self::Handshake(HandshakeError::Expired { not_after }) => *not_after,
            _ => None,
        }
    }

    /// Whether etcd has rejected a compaction or a hash because it had already compacted this history.
    #[must_use]
    pub fn is_compacted(&self) -> bool {
        // etcd's `ErrGRPCCompacted` (`api/v3rpc/rpctypes/error.go`).
        matches!(self, Self::Rejected { call: Call::Compact | Call::HashKV | Call::Range, code: Code::OutOfRange, message }
            if message.ends_with("required revision has been compacted"))
    }

    /// Whether etcd has rejected the promotion of a learner because it has not caught up with the leader.
    #[must_use]
    pub fn is_not_in_sync(&self) -> bool {
        // etcd's `ErrGRPCLearnerNotReady` (`api/v3rpc/rpctypes/error.go`).
        matches!(self, Self::Rejected { call: Call::MemberPromote, code: Code::FailedPrecondition, message }
            if message.ends_with("can only promote a learner member which is in sync with leader"))
    }

    /// Converts the outcome of a failed call. `first_error` is the first error of the underlying stream, if any.
    pub(crate) fn from_status(call: Call, status: &Status, first_error: Option<&io::Error>) -> Self {
        if let Some(error) = first_error.and_then(tls_error).map(HandshakeError::from_tls) {
            return Self::Handshake(error);
        }
        if let Some(error) = first_error {
            return Self::Broken {
                call,
                cause: error.to_string(),
            };
        }
        // tonic's own errors have a source; errors from the member have none.
        let source = std::error::Error::source(status);
        let message = status.message().to_owned();
        match (status.code(), source) {
            (_, Some(source)) => Self::Broken {
                call,
                cause: innermost_cause(source),
            },
            (Code::OutOfRange | Code::Internal | Code::Unimplemented, None)
                if !message.starts_with("etcdserver: ") =>
            {
                Self::Malformed { call, message }
            }
            (code, None) => Self::Rejected { call, code, message },
        }
    }
}

fn innermost_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Runs a step, and fails with [`Error::Deadline`] if it takes longer than `limit`.
pub(crate) async fn with_time_limit<T>(
    step: ConnectionStep,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Error> {
    timeout(limit, future)
        .await
        .map_err(|_| Error::Deadline { step, after: limit })
}
