//! Why something could not be read, from whatever the API server or the way to it says.

use hyper::StatusCode;
use kube::core::Status;
use thiserror::Error;

use crate::{
    body::Unread,
    limits::{ANSWER_BYTES, LIVE_READS, QUOTED_CHARS},
    shorten::shorten,
};

/// Why an object could not be read. Each says what to do.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error(
        "kcp-webhook has no API access; give it a service account or --kubeconfig, or set spec.replicas on the \
         object itself"
    )]
    NoAccess,
    #[error("its version, namespace or name is none that Kubernetes allows; write to an object that exists")]
    BadName,
    #[error("there is no such object in the API server that kcp-webhook asks; look for it with kubectl get")]
    NotFound,
    #[error(
        "{0}; bind kcp-webhook's ClusterRole to its service account, or set spec.replicas on the object itself"
    )]
    Forbidden(String),
    #[error("nothing says yet which Cluster it belongs to; set its label cluster.x-k8s.io/cluster-name")]
    ClusterUnknown,
    #[error("there are more than {0} of them; none was looked at")]
    TooMany(usize),
    #[error("what the API server sends is larger than {ANSWER_BYTES} bytes; none of it was looked at")]
    TooLarge,
    #[error("the API server did not answer within {} s; try again", LIVE_READS.as_secs())]
    TooSlow,
    #[error("{0}; try again")]
    Failed(String),
    #[error("what the API server sent cannot be used: {0}; correct the object first")]
    Unusable(String),
}

impl ReadError {
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::NoAccess => "no-access",
            Self::BadName => "bad-name",
            Self::NotFound => "not-found",
            Self::Forbidden(_) => "forbidden",
            Self::ClusterUnknown => "cluster-unknown",
            Self::TooMany(_) => "too-many",
            Self::TooLarge => "too-large",
            Self::TooSlow => "timeout",
            Self::Failed(_) | Self::Unusable(_) => "error",
        }
    }
}

pub(super) fn failed(error: &kube::Error) -> ReadError {
    match error {
        // The client's own words for it are "ServiceError".
        kube::Error::Service(source) => cannot_ask(&**source),
        error => cannot_ask(error),
    }
}

pub(super) fn unread(unread: Unread) -> ReadError {
    match unread {
        Unread::TooLarge => ReadError::TooLarge,
        Unread::NoMemory => ReadError::Failed("too many bytes are being held for other reviews".to_owned()),
        Unread::TooSlow => ReadError::TooSlow,
        Unread::Broken(error) => ReadError::Failed(format!("the API server's answer broke off: {error}")),
    }
}

/// What an answer of failure says. A path that is not served, and what stands before an API server, answer with no
/// `Status`.
pub(super) fn status(code: StatusCode, answer: &[u8]) -> Status {
    serde_json::from_slice(answer).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(answer).trim(), "Unknown").with_code(code.as_u16())
    })
}

pub(super) fn refused(status: &Status) -> ReadError {
    let message = shorten(&status.message, QUOTED_CHARS, "");
    match status.code {
        404 => ReadError::NotFound,
        401 | 403 => ReadError::Forbidden(message.into_owned()),
        code => ReadError::Failed(format!("the API server answered {code}: {message}")),
    }
}

/// Tells an error with what caused it, for the outermost message alone often says no more than "client error".
fn cannot_ask(error: &dyn std::error::Error) -> ReadError {
    let mut text = format!("the API server cannot be asked: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = error.source();
    }
    ReadError::Failed(shorten(&text, QUOTED_CHARS, "").into_owned())
}
