//! Whom to ask, and on which way.

use std::collections::{BTreeMap, BTreeSet};

use http::Uri;
use kcp_etcd::{Endpoint, Tcp};
use kcp_rules::syntax::is_dns1123_subdomain;
use kube::Client;

use crate::reads::workload::KUBE_SYSTEM;
use crate::workload::PortForward;
use kcp_control_plane::snapshot::Failure;

/// Where members listen for clients, with kubeadm.
const CLIENT_PORT: u16 = 2379;

#[derive(Debug)]
pub struct Question {
    /// The node's, or the endpoint's `host:port`.
    pub name: String,
    pub machine: Option<String>,
    /// The way, or why there is none.
    pub endpoint: Result<Endpoint, Failure>,
}

/// One for each control plane node: those of Machines, given as node to Machine, and those that bear the label without
/// belonging to a Machine. Each connection is a port-forward of its own to the node's pod.
pub fn stacked(
    client: &Client,
    machines: &BTreeMap<String, String>,
    labelled: impl IntoIterator<Item = String>,
) -> Vec<Question> {
    let mut nodes: BTreeSet<String> = machines.keys().cloned().collect();
    nodes.extend(labelled);
    nodes
        .into_iter()
        .map(|node| Question {
            machine: machines.get(&node).cloned(),
            endpoint: if is_dns1123_subdomain(node.as_bytes()) {
                let forward = PortForward::new(client.clone(), KUBE_SYSTEM, &pod(&node), CLIENT_PORT);
                Ok(Endpoint::new(forward, [node.as_str(), "localhost"]))
            } else {
                // It would become a part of a URL.
                Err(refused(&node, "its name is no name of a node"))
            },
            name: node,
        })
        .collect()
}

/// The pod of the member on a node, as kubeadm names it.
pub fn pod(node: &str) -> String {
    format!("etcd-{node}")
}

/// One for each endpoint of an external etcd, `https://host:port`.
pub fn external(endpoints: &[String]) -> Vec<Question> {
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
                _ => Err(refused(
                    &without_user(endpoint),
                    "it is no https URL: members are asked over TLS only",
                )),
            };
            match way {
                Ok((address, host)) => Question {
                    endpoint: Ok(Endpoint::new(Tcp(address.clone()), [host])),
                    name: address,
                    machine: None,
                },
                Err(failure) => Question {
                    endpoint: Err(failure),
                    name: without_user(endpoint),
                    machine: None,
                },
            }
        })
        .collect()
}

/// An endpoint without user and password. It may be no URL.
fn without_user(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    match rest.rsplit_once('@') {
        Some((_, rest)) if scheme.is_empty() => rest.to_owned(),
        Some((_, rest)) => format!("{scheme}://{rest}"),
        None => endpoint.to_owned(),
    }
}

/// What is asked of a member is about this.
pub fn object(name: &str) -> String {
    format!("etcd member {name}")
}

fn refused(name: &str, message: &str) -> Failure {
    Failure {
        object: object(name),
        message: message.to_owned(),
        hint: None,
        forbidden: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Question, external, stacked};
    use crate::{Connection, canned::failure};

    /// Name, Machine, and the way or why there is none.
    fn shown(questions: &[Question]) -> Vec<(String, Option<String>, String)> {
        questions
            .iter()
            .map(|question| {
                let way = match &question.endpoint {
                    Ok(endpoint) => format!("{endpoint:?}"),
                    Err(failure) => format!("{}: {}", failure.object, failure.message),
                };
                (question.name.clone(), question.machine.clone(), way)
            })
            .collect()
    }

    #[tokio::test]
    async fn every_node_of_a_machine_and_every_other_labelled_node_is_asked_once() {
        let client = Connection::canned(|_, _| failure(500, "InternalError", "unasked")).client;
        let machines: BTreeMap<String, String> = [("n2", "edge-b"), ("n1", "edge-a"), ("../x", "edge-c")]
            .map(|(node, machine)| (node.to_owned(), machine.to_owned()))
            .into();
        let questions = stacked(&client, &machines, ["n3".to_owned(), "n1".to_owned()]);
        let way = |node: &str| format!("Endpoint {{ names: [\"{node}\", \"localhost\"], .. }}");
        let machine = |name: &str| Some(name.to_owned());
        assert_eq!(
            shown(&questions),
            [
                (
                    "../x".to_owned(),
                    machine("edge-c"),
                    "etcd member ../x: its name is no name of a node".to_owned()
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
        let questions = external(&endpoints.map(str::to_owned));
        let way = |host: &str| format!("Endpoint {{ names: [\"{host}\"], .. }}");
        let refused =
            |name: &str| format!("etcd member {name}: it is no https URL: members are asked over TLS only");
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
            shown(&questions),
            expected.map(|(name, way)| (name.to_owned(), None, way))
        );
    }
}
