//! Requests to the API server, each with a time limit.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kcp_rules::api_proxy::{API_SERVERS, api_servers};
use kube::{Api, Client};
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

/// The addresses and ports of the API servers. Empty if the `EndpointSlice` does not exist.
pub(crate) async fn read_api_servers(client: &Client) -> Result<BTreeSet<SocketAddr>, RequestError> {
    let (namespace, name) = API_SERVERS;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let slice = call("get the EndpointSlice kubernetes", slices.get_opt(name)).await?;
    let slice = slice.unwrap_or_default();
    let endpoints = slice.endpoints.iter().flatten();
    let ports = slice.ports.iter().flatten();
    Ok(api_servers(
        endpoints.flat_map(|endpoint| &endpoint.addresses),
        ports.filter_map(|port| port.port),
    ))
}
