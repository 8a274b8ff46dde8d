//! One request to the API server, with a time limit.

use std::time::Duration;

use thiserror::Error;
use tokio::time;

/// How long one request to the API server may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Why an object could not be read or written.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("cannot {action}: {error}")]
    Failed { action: String, error: String },
    /// Another client has changed the object since it was read. The next pass reads it again.
    #[error("cannot {action}: changed by another client")]
    Conflict { action: String },
    #[error("cannot {action}: no response within {LIMIT:?}")]
    TooSlow { action: String },
}

impl RequestError {
    pub(crate) fn failed(action: &str, error: &impl ToString) -> Self {
        Self::Failed {
            action: action.to_owned(),
            error: error.to_string(),
        }
    }
}

pub(crate) async fn call<T>(
    action: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RequestError> {
    match time::timeout(LIMIT, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(RequestError::Conflict {
            action: action.to_owned(),
        }),
        Ok(Err(kube::Error::Api(status))) => Err(RequestError::failed(action, &status.message)),
        Ok(Err(error)) => Err(RequestError::failed(action, &error)),
        Err(_) => Err(RequestError::TooSlow {
            action: action.to_owned(),
        }),
    }
}
