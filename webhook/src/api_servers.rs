//! Reads the addresses of all API servers.

use std::{collections::BTreeSet, net::SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kcp_rules::api_proxy::{API_SERVERS, api_servers};
use kube::{Api, Client};

use crate::request::{RequestError, call};

/// The addresses and ports of the API servers. Empty if the `EndpointSlice` does not exist.
pub(crate) async fn read(client: &Client) -> Result<BTreeSet<SocketAddr>, RequestError> {
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
