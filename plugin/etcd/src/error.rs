//! What can go wrong between us and a member.

use std::fmt;
use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use thiserror::Error;
use tonic::{Code, Status};

/// Why a member did not answer, or what it answered instead.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No stream to the member.
    #[error("cannot connect: {0}")]
    Dial(#[source] io::Error),
    /// A stream, and no TLS over it.
    #[error("no TLS connection: {0}")]
    Handshake(#[source] HandshakeError),
    /// The member takes its time.
    #[error("{step}: no answer within {}", Seconds(*after))]
    Deadline {
        /// What it did not answer.
        step: Step,
        /// How long we waited.
        after: Duration,
    },
    /// The connection ended under a call, whose outcome is unknown.
    #[error("{call}: the connection broke: {cause}")]
    Broken {
        /// What was asked.
        call: Call,
        /// The stream's own words, or HTTP/2's.
        cause: String,
    },
    /// etcd answered with an error.
    #[error("{call}: etcd answered {code:?}: {message}")]
    Refused {
        /// What was asked.
        call: Call,
        /// gRPC's.
        code: Code,
        /// etcd's, of at most the size that an answer's headers may have: 16 KiB.
        message: String,
    },
    /// Not etcd, or not one that we know.
    #[error("{call}: the answer makes no sense: {message}")]
    Nonsense {
        /// What was asked.
        call: Call,
        /// What is wrong with it.
        message: String,
    },
}

/// Why TLS failed.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Of the member's certificate.
    #[error("the member's certificate has expired")]
    Expired {
        /// Seconds since 1970.
        not_after: Option<i64>,
    },
    /// Of the member's certificate, unless our clock is behind.
    #[error("the member's certificate is not valid yet")]
    NotYetValid,
    /// Another authority's certificate, be it of the same name.
    #[error("the member's certificate was not issued by the given authority")]
    UnknownIssuer,
    /// Anything else about the member's certificate.
    #[error("the member's certificate cannot be accepted: {0}")]
    Certificate(String),
    /// The member refused our certificate. It says so only after the handshake, to the first call.
    #[error("the member does not accept our client certificate ({0:?})")]
    ClientCertificate(AlertDescription),
    /// The other side hung up in the middle.
    #[error("the connection was closed: {0}")]
    Closed(String),
    /// The other side speaks something else than etcd's TLS.
    #[error("{0}")]
    Protocol(String),
}

/// What we were waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A stream.
    Dial,
    /// TLS over it, and HTTP/2 over that.
    Handshake,
    /// An answer.
    Call(Call),
}

/// A call of etcd's API, by its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Call {
    Status,
    MemberList,
    MemberAdd,
    MemberPromote,
    MemberRemove,
    MoveLeader,
    Alarm,
    Range,
    Put,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial => formatter.write_str("connecting"),
            Self::Handshake => formatter.write_str("TLS handshake"),
            Self::Call(call) => call.fmt(formatter),
        }
    }
}

/// `2 s`, `1.5 s`.
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
            // All of Cluster API's etcd authorities have the same name: another's signature is merely wrong.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            other => Self::Certificate(other.to_string()),
        }
    }
}

/// What TLS had to say in an error of its stream.
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
            // Another authority of the same name: its signature is merely wrong.
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

impl Error {
    /// `breakage` is what the stream itself died of, if it did.
    pub(crate) fn from_answer(call: Call, status: &Status, breakage: Option<&io::Error>) -> Self {
        if let Some(refusal) = breakage.and_then(tls_error).map(HandshakeError::from_tls) {
            return Self::Handshake(refusal);
        }
        if let Some(error) = breakage {
            return Self::Broken {
                call,
                cause: error.to_string(),
            };
        }
        // tonic's own errors have a source; what the member answered has none.
        let source = std::error::Error::source(status);
        let message = status.message().to_owned();
        match (status.code(), source) {
            (_, Some(source)) => Self::Broken {
                call,
                cause: innermost(source),
            },
            (Code::OutOfRange | Code::Internal | Code::Unimplemented, None)
                if !message.starts_with("etcdserver: ") =>
            {
                Self::Nonsense { call, message }
            }
            (code, None) => Self::Refused { call, code, message },
        }
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
