//! Selects the etcd members to query, and how to reach each of them.

use std::collections::{BTreeMap, BTreeSet};

use http::Uri;
use kcp_etcd::{Endpoint, Tcp};
use kcp_rules::syntax::is_dns1123_subdomain;
use kube::Client;

use crate::reads::workload::KUBE_SYSTEM;
use crate::workload::PortForward;
use kcp_control_plane::snapshot::Failure;

/// The port on which kubeadm's etcd serves clients.
const CLIENT_PORT: u16 = 2379;

#[derive(Debug)]
pub struct MemberQuery {
    /// The name of the member's node, or `host:port` of an endpoint of an external etcd.
    pub name: String,
    pub machine: Option<String>,
    /// How to reach the etcd member, or why it cannot be reached.
    pub endpoint: Result<Endpoint, Failure>,
}

/// Returns one query for each control plane node: for the nodes of Machines (`machines` maps a node to its Machine),
/// and for other nodes with the control plane label. Each query uses its own port-forward to the node's etcd pod.
pub fn stacked_queries(
    client: &Client,
    machines: &BTreeMap<String, String>,
    labelled: impl IntoIterator<Item = String>,
) -> Vec<MemberQuery> {
    let mut nodes: BTreeSet<String> = machines.keys().cloned().collect();
    nodes.extend(labelled);
    nodes
        .into_iter()
        .map(|node| MemberQuery {
            machine: machines.get(&node).cloned(),
            endpoint: if is_dns1123_subdomain(node.as_bytes()) {
                let forward = PortForward::new(client.clone(), KUBE_SYSTEM, &pod_name(&node), CLIENT_PORT);
                Ok(Endpoint::new(forward, [node.as_str(), "localhost"]))
            } else {
                // Refuse an invalid name, because the node's name becomes part of a URL.
                Err(unusable_endpoint(&node, "the node's name is invalid"))
            },
            name: node,
        })
        .collect()
}

/// The name that kubeadm gives to the etcd pod of a node.
pub fn pod_name(node: &str) -> String {
    format!("etcd-{node}")
}

/// Returns one query for each endpoint of an external etcd. Each endpoint has the form `https://host:port`.
pub fn external_queries(endpoints: &[String]) -> Vec<MemberQuery> {
    endpoints
        .iter()
        .map(|endpoint| {
            let url: Option<Uri> = endpoint.parse().ok();
            let authority = url.as_ref().and_then(Uri::authority);
            let way = match (url.as_ref().and_then(Uri::scheme_str), authority) {
                (Some("https"), Some(authority)) => {
                    let address = match authority.port_u16() {
                        Some(port) => format!("{}:{port}", authority.host()),
                        None => format!("{}:{CLIENT_PORT}", authority.host()),
                    };
                    Ok((address, authority.host().trim_matches(['[', ']']).to_owned()))
                }
                _ => Err(unusable_endpoint(
                    &without_user(endpoint),
                    "the endpoint is not an https URL, and kubectl-kcp queries etcd only over TLS",
                )),
            };
            match way {
                Ok((address, host)) => MemberQuery {
                    endpoint: Ok(Endpoint::new(Tcp(address.clone()), [host])),
                    name: address,
                    machine: None,
                },
                Err(failure) => MemberQuery {
                    endpoint: Err(failure),
                    name: without_user(endpoint),
                    machine: None,
                },
            }
        })
        .collect()
}

/// Returns an endpoint without user and password, even if the endpoint is an invalid URL.
fn without_user(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    match rest.rsplit_once('@') {
        Some((_, rest)) if scheme.is_empty() => rest.to_owned(),
        Some((_, rest)) => format!("{scheme}://{rest}"),
        None => endpoint.to_owned(),
    }
}

/// The name of an etcd member in error messages.
pub fn object_name(name: &str) -> String {
    format!("etcd member {name}")
}

fn unusable_endpoint(name: &str, message: &str) -> Failure {
    Failure {
        object: object_name(name),
        message: message.to_owned(),
        hint: None,
        ..Failure::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{MemberQuery, external_queries, stacked_queries};
    use crate::{Connection, testing::failure};

    /// The name, the Machine, and the endpoint or why there is none.
    fn shown(queries: &[MemberQuery]) -> Vec<(String, Option<String>, String)> {
        queries
            .iter()
            .map(|query| {
                let way = match &query.endpoint {
                    Ok(endpoint) => format!("{endpoint:?}"),
                    Err(failure) => format!("{}: {}", failure.object, failure.message),
                };
                (query.name.clone(), query.machine.clone(), way)
            })
            .collect()
    }

    #[tokio::test]
    async fn every_node_of_a_machine_and_every_other_labelled_node_is_asked_once() {
        let client = Connection::canned(|_, _| failure(500, "InternalError", "unasked")).client;
        let machines: BTreeMap<String, String> = [("n2", "edge-b"), ("n1", "edge-a"), ("../x", "edge-c")]
            .map(|(node, machine)| (node.to_owned(), machine.to_owned()))
            .into();
        let queries = stacked_queries(&client, &machines, ["n3".to_owned(), "n1".to_owned()]);
        let way = |node: &str| format!("Endpoint {{ names: [\"{node}\", \"localhost\"], .. }}");
        let machine = |name: &str| Some(name.to_owned());
        assert_eq!(
            shown(&queries),
            [
                (
                    "../x".to_owned(),
                    machine("edge-c"),
                    "etcd member ../x: the node's name is invalid".to_owned()
                ),
                ("n1".to_owned(), machine("edge-a"), way("n1")),
                ("n2".to_owned(), machine("edge-b"), way("n2")),
                ("n3".to_owned(), None, way("n3")),
            ]
        );
    }

    #[test]
    fn external_endpoints_are_asked_over_tls_only() {
        let endpoints = [
            "https://10.0.0.1:2379",
            "https://etcd.example",
            "https://[fd00::1]:2379",
            "https://me:sesame@10.0.0.3:2379",
            "http://10.0.0.2:2379",
            "http://me:sesame@10.0.0.2:2379",
            "https://me:ses ame@x",
            "me:sesame@x",
            "",
        ];
        let queries = external_queries(&endpoints.map(str::to_owned));
        let way = |host: &str| format!("Endpoint {{ names: [\"{host}\"], .. }}");
        let refused = |name: &str| {
            format!(
                "etcd member {name}: the endpoint is not an https URL, and kubectl-kcp queries etcd only \
                 over TLS"
            )
        };
        let expected = [
            ("10.0.0.1:2379", way("10.0.0.1")),
            ("etcd.example:2379", way("etcd.example")),
            ("[fd00::1]:2379", way("fd00::1")),
            ("10.0.0.3:2379", way("10.0.0.3")),
            ("http://10.0.0.2:2379", refused("http://10.0.0.2:2379")),
            ("http://10.0.0.2:2379", refused("http://10.0.0.2:2379")),
            ("https://x", refused("https://x")),
            ("x", refused("x")),
            ("", refused("")),
        ];
        assert_eq!(
            shown(&queries),
            expected.map(|(name, way)| (name.to_owned(), None, way))
        );
    }
}
