//! The reasons why a read from the API server fails.

use hyper::StatusCode;
use kube::core::Status;
use thiserror::Error;

use crate::{
    limits::{MAX_QUOTED_CHARS, MAX_RESPONSE_BYTES, shorten},
    net::body::BodyError,
};

/// Why an object could not be read. Each message ends with advice to the user, if there is any.
#[derive(Clone, Debug, Error)]
pub(crate) enum ReadError {
    #[error(
        "kcp-webhook has no API access; give it a service account or --kubeconfig, or set spec.replicas on the \
         object itself"
    )]
    NoAccess,
    #[error(
        "kcp-webhook reads objects only for an API server with a client certificate that is signed by a CA in --client-ca-file; \
         configure such a certificate in the API server's --admission-control-config-file, or set spec.replicas on the object itself"
    )]
    Unverified,
    #[error(
        "the API version, namespace or name is not valid in Kubernetes; use the name of an existing object"
    )]
    BadName,
    #[error("not found in the API server that kcp-webhook reads from; check the object with kubectl get")]
    NotFound,
    #[error(
        "{0}; bind kcp-webhook's ClusterRole to its service account, or set spec.replicas on the object itself"
    )]
    Forbidden(String),
    #[error("the object's Cluster is unknown; set the label cluster.x-k8s.io/cluster-name")]
    ClusterUnknown,
    #[error("the list has more than {0} objects, too many to read")]
    TooMany(usize),
    #[error("the API server's response is larger than {MAX_RESPONSE_BYTES} bytes, too large to read")]
    TooLarge,
    #[error("the API server did not respond within the time limit of the review; try again")]
    TooSlow,
    /// The API server did not process the request, and asks to send it again.
    #[error("{0}; try again")]
    Busy(String),
    #[error("{0}; try again")]
    Failed(String),
    #[error("cannot use the API server's response: {0}; correct the object first")]
    Unusable(String),
    #[error("the object's {0} does not have the type that its kind requires; correct the object first")]
    BadField(String),
}

impl ReadError {
    /// A short name of the error, for metrics and warnings.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::NoAccess => "no-access",
            Self::Unverified => "unverified",
            Self::BadName => "bad-name",
            Self::NotFound => "not-found",
            Self::Forbidden(_) => "forbidden",
            Self::ClusterUnknown => "cluster-unknown",
            Self::TooMany(_) => "too-many",
            Self::TooLarge => "too-large",
            Self::TooSlow => "timeout",
            Self::Busy(_) => "busy",
            Self::Failed(_) | Self::Unusable(_) | Self::BadField(_) => "error",
        }
    }

    /// The error for a request without a response.
    pub(super) fn from_request_error(error: &kube::Error) -> Self {
        match error {
            // Use the cause, because the client's own message is only "ServiceError".
            kube::Error::Service(source) => unreachable(&**source),
            error => unreachable(error),
        }
    }

    /// The error for a response that could not be read to its end.
    pub(super) fn from_body_error(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::TooLarge,
            BodyError::NoMemory => {
                Self::Failed("other reviews use all memory reserved for responses".to_owned())
            }
            BodyError::TooSlow => Self::TooSlow,
            BodyError::Broken(error) => {
                Self::Failed(format!("cannot read the API server's response: {error}"))
            }
        }
    }

    /// The error for a response that reports a failure.
    pub(super) fn from_status(status: &Status) -> Self {
        let message = shorten(&status.message, MAX_QUOTED_CHARS, "");
        match status.code {
            404 => Self::NotFound,
            403 => Self::Forbidden(message.into_owned()),
            code @ (429 | 503) => Self::Busy(format!("the API server responded with {code}: {message}")),
            code => Self::Failed(format!("the API server responded with {code}: {message}")),
        }
    }

    pub(super) fn from_json_error(error: &serde_json::Error) -> Self {
        // Omit the decoder's message, because it quotes the value, which can be a secret.
        Self::Unusable(format!(
            "{:?} error at line {} column {}",
            error.classify(),
            error.line(),
            error.column()
        ))
    }
}

/// Returns the `Status` in a response. A response of a proxy, and a response for a path that is not served, has none. For such a
/// response, returns a failure with its text.
pub(super) fn parse_status(code: StatusCode, answer: &[u8]) -> Status {
    serde_json::from_slice(answer).unwrap_or_else(|_| {
        Status::failure(String::from_utf8_lossy(answer).trim(), "Unknown").with_code(code.as_u16())
    })
}

/// The error for an unreachable API server. It includes all causes, because the outermost message is often only "client error".
fn unreachable(error: &dyn std::error::Error) -> ReadError {
    let mut text = format!("cannot reach the API server: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = error.source();
    }
    ReadError::Failed(shorten(&text, MAX_QUOTED_CHARS, "").into_owned())
}
