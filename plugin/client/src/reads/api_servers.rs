//! Reads the addresses of all API servers of a cluster, which they write themselves to one `EndpointSlice`.

use std::{collections::BTreeSet, net::SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kcp_api::kind::ENDPOINT_SLICE;
use kcp_rules::api_proxy::{API_SERVERS, api_servers, check_count};

use crate::{Action, Connection, Error, ReadLimit};

/// Reads the addresses and ports of the API servers.
pub async fn read_api_servers(
    connection: &Connection,
    limit: ReadLimit,
) -> Result<BTreeSet<SocketAddr>, Error> {
    let (namespace, name) = API_SERVERS;
    let resource = ENDPOINT_SLICE.api_resource("v1");
    let action = Action::new("get", &resource)
        .in_namespace(namespace)
        .with_name(name);
    let read = connection.get::<EndpointSlice>(&resource, namespace, name);
    let slice = connection.run_with_limit(limit, &action, read).await?;
    let endpoints = slice.endpoints.iter().flatten();
    let ports = slice.ports.iter().flatten();
    let servers = api_servers(
        endpoints.flat_map(|endpoint| &endpoint.addresses),
        ports.filter_map(|port| port.port),
    );
    check_count(servers).map_err(|error| Error::Other {
        action,
        cause: error.to_string(),
    })
}
