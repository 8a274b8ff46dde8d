//! Describes why etcd members could not be queried, with hints on what to fix.

use kcp_control_plane::snapshot::{Failure, Forbidden};
use kcp_etcd::{ConnectionStep, Error, HandshakeError};

use crate::{
    Action, Error as ClientError,
    reads::{
        etcd::members::{object_name, pod_name},
        failure::one_line,
        secret::Secrets,
        workload::KUBE_SYSTEM,
    },
};

#[derive(Clone, Debug)]
pub struct FailureContext {
    /// Whether the etcd members run as pods in the workload cluster.
    pub stacked: bool,
    /// Where etcd's CA comes from, such as `Secret edge-etcd`.
    pub ca_source: String,
    /// The URL of the workload cluster's API server, which forwards ports. Empty for an external etcd.
    pub server: String,
    /// How a person runs kubectl against the workload cluster.
    pub kubectl: String,
}

impl FailureContext {
    /// For the members of a Cluster. `server` is the URL of the API server, empty for an external etcd.
    pub fn of_cluster(secrets: &Secrets<'_>, stacked: bool, server: &str) -> Self {
        Self {
            stacked,
            ca_source: format!("Secret {}", secrets.name("etcd")),
            server: server.to_owned(),
            kubectl: secrets.kubectl(),
        }
    }

    /// For stacked members whose credentials the user passes in files. `server` is the URL of the API server.
    pub fn with_files(server: &str) -> Self {
        Self {
            stacked: true,
            ca_source: "the file of --etcd-ca".to_owned(),
            server: server.to_owned(),
            kubectl: "kubectl".to_owned(),
        }
    }

    pub fn describe(&self, name: &str, error: Error) -> Failure {
        let hint = self.hint(name, &error);
        let without_port_forward = |message: &str| Failure {
            object: object_name(name),
            message: one_line(message),
            hint,
            ..Failure::default()
        };
        match error {
            Error::Dial(error) => {
                let text = error.to_string();
                match error
                    .into_inner()
                    .map(<dyn std::error::Error + Send + Sync>::downcast::<kube::Error>)
                {
                    Some(Ok(error)) => self.describe_port_forward(name, *error),
                    _ => without_port_forward(&format!("cannot connect: {text}")),
                }
            }
            error if self.is_not_listening(&error) => without_port_forward(&format!(
                "connection refused: etcd is not listening in pod {}",
                pod_name(name)
            )),
            error => without_port_forward(&error.to_string()),
        }
    }

    /// Whether the kubelet reports that no process listens on the forwarded port.
    fn is_not_listening(&self, error: &Error) -> bool {
        let (Error::Handshake(HandshakeError::Closed(text)) | Error::Broken { cause: text, .. }) = error
        else {
            return false;
        };
        self.stacked && text.contains("error forwarding port") && text.contains("connection refused")
    }

    fn describe_port_forward(&self, node: &str, error: kube::Error) -> Failure {
        let pod = pod_name(node);
        // A WebSocket port-forward needs the verb `get`, and since Kubernetes 1.35 also `create`. The message of the
        // 403 for `create` does not contain the verb (`pkg/registry/core/pod/rest/authorize.go`).
        let verb = match &error {
            kube::Error::Api(status) if status.code == 403 && !status.message.contains(" cannot get ") => {
                "create"
            }
            _ => "get",
        };
        let action = Action {
            verb,
            resource: "pods/portforward".to_owned(),
            namespace: Some(KUBE_SYSTEM.to_owned()),
            name: Some(pod.clone()),
        };
        let error = ClientError::from_request_error(error, &action, &self.server);
        let forbidden = matches!(error, ClientError::Forbidden { .. }).then(|| Forbidden {
            verb: verb.to_owned(),
            resource: action.resource,
            namespace: action.namespace,
            is_from_workload_cluster: true,
        });
        Failure {
            object: object_name(node),
            message: one_line(&error.to_string()),
            hint: match error {
                ClientError::Forbidden { .. } => Some(format!(
                    "allow the kubeconfig's user to get and create pods/portforward in namespace {KUBE_SYSTEM} of \
                     the workload cluster, or skip etcd with --no-etcd"
                )),
                ClientError::NotFound { .. } => Some(format!(
                    "check whether node {node} runs etcd as a static pod, and whether its kubelet reports \
                     the pod"
                )),
                _ => None,
            },
            forbidden,
            is_unusable_secret: false,
        }
    }

    /// The command that prints the logs of the member's pod.
    fn logs(&self, name: &str) -> String {
        format!("{} logs -n {KUBE_SYSTEM} {}", self.kubectl, pod_name(name))
    }

    /// The failure of each member if the CA of the Secret issued no member's certificate. `None` if the CA is not in a Secret.
    pub fn foreign_ca(&self) -> Option<Failure> {
        let secret = self.ca_source.strip_prefix("Secret ").filter(|_| self.stacked)?;
        Some(Failure {
            object: format!("Secret/{secret}"),
            message: "contains a CA that did not issue the certificate of any etcd member, so neither this command nor Cluster API \
                      can connect to etcd"
                .to_owned(),
            hint: Some(
                "put etcd's CA back into the keys tls.crt and tls.key of the Secret: on every control plane node, it is in \
                 /etc/kubernetes/pki/etcd/ca.crt and ca.key"
                    .to_owned(),
            ),
            is_unusable_secret: true,
            ..Failure::default()
        })
    }

    fn hint(&self, name: &str, error: &Error) -> Option<String> {
        let authority = &self.ca_source;
        Some(match error {
            Error::Handshake(HandshakeError::UnknownIssuer) => {
                format!("check that {authority} belongs to this cluster")
            }
            Error::Handshake(HandshakeError::ClientCertificate(_)) => {
                format!("check that the etcd member trusts the CA in {authority}")
            }
            Error::Handshake(HandshakeError::Expired { .. }) => {
                let how = "renew the certificate on the member's node";
                if self.stacked {
                    format!("{how} with: kubeadm certs renew etcd-server; then restart etcd")
                } else {
                    format!("{how}, and then restart etcd")
                }
            }
            Error::Handshake(HandshakeError::NotYetValid) => {
                "check the clocks of this machine and of the etcd member's node".to_owned()
            }
            error if self.is_not_listening(error) => {
                format!("etcd has exited; read its logs: {}", self.logs(name))
            }
            Error::Deadline {
                step: ConnectionStep::Dial,
                ..
            } if self.stacked => format!(
                "check whether the workload cluster's API server and the kubelet of node {name} respond, or allow more time \
                 with --timeout"
            ),
            // The kubelet forwards the connection, and the kernel accepts it for a process that has stopped.
            Error::Deadline { .. } if self.stacked => format!(
                "etcd accepts connections, but may be frozen; allow more time with --timeout, or stop etcd's \
                 container on node {name}, which the kubelet then restarts: crictl stop $(crictl ps -q \
                 --name etcd)"
            ),
            Error::Handshake(HandshakeError::Closed(_)) | Error::Broken { .. } if self.stacked => {
                format!(
                    "allow more time with --timeout, or read etcd's logs: {}",
                    self.logs(name)
                )
            }
            Error::Deadline { .. } => "allow more time with --timeout".to_owned(),
            _ => return None,
        })
    }
}

pub fn etcd_failure(message: &str) -> Failure {
    Failure {
        object: "etcd".to_owned(),
        message: one_line(message),
        hint: None,
        ..Failure::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use kcp_etcd::{Call, ConnectionStep, Error, HandshakeError};
    use kube::core::Status;

    use super::{Failure, FailureContext, Forbidden};

    fn failures(stacked: bool) -> FailureContext {
        FailureContext {
            stacked,
            ca_source: "Secret edge-etcd".to_owned(),
            server: "https://s".to_owned(),
            kubectl: "kubectl kcp kubectl cluster/edge -n d --".to_owned(),
        }
    }

    fn of(stacked: bool, error: Error) -> (String, Option<String>) {
        let failure = failures(stacked).describe("n1", error);
        assert_eq!(
            (failure.object.as_str(), failure.forbidden),
            ("etcd member n1", None)
        );
        (failure.message, failure.hint)
    }

    fn refused(code: u16, reason: &str, message: &str) -> Error {
        let mut status = Status::failure(message, reason).with_code(code);
        status.details = serde_json::from_str("{}").expect("details");
        Error::Dial(io::Error::other(kube::Error::Api(status.boxed())))
    }

    #[test]
    fn says_what_is_wrong_on_the_way_and_what_to_look_at() {
        let logs = "allow more time with --timeout, or read etcd's logs: kubectl kcp kubectl cluster/edge -n d -- logs \
                    -n kube-system etcd-n1";
        let deadline = || Error::Deadline {
            step: ConnectionStep::Call(Call::Status),
            after: Duration::from_millis(1_500),
        };
        let cases = [
            (
                true,
                deadline(),
                "Status: no response within 1.5 s",
                Some(
                    "etcd accepts connections, but may be frozen; allow more time with --timeout, or stop \
                     etcd's container on node n1, which the kubelet then restarts: crictl stop $(crictl ps \
                     -q --name etcd)",
                ),
            ),
            (
                false,
                deadline(),
                "Status: no response within 1.5 s",
                Some("allow more time with --timeout"),
            ),
            (
                true,
                Error::Handshake(HandshakeError::UnknownIssuer),
                "TLS handshake failed: the member's certificate was not issued by etcd's CA",
                Some("check that Secret edge-etcd belongs to this cluster"),
            ),
            (
                true,
                Error::Handshake(HandshakeError::Closed(
                    "error forwarding port 2379:\nrefused".to_owned(),
                )),
                "TLS handshake failed: the connection was closed: error forwarding port 2379: refused",
                Some(logs),
            ),
            (
                true,
                Error::Handshake(HandshakeError::Closed(
                    "error forwarding port 2379 to pod 8f1c, uid : failed to execute portforward in network namespace \
                     \"/var/run/netns/cni-1\": failed to connect to localhost:2379 inside namespace \"8f1c\", IPv4: dial \
                     tcp4 127.0.0.1:2379: connect: connection refused IPv6 dial tcp6: address localhost: no suitable \
                     address found"
                        .to_owned(),
                )),
                "connection refused: etcd is not listening in pod etcd-n1",
                Some(
                    "etcd has exited; read its logs: kubectl kcp kubectl cluster/edge -n d -- logs -n kube-system etcd-n1",
                ),
            ),
            (
                true,
                Error::Handshake(HandshakeError::Expired { not_after: None }),
                "TLS handshake failed: the member's certificate has expired",
                Some(
                    "renew the certificate on the member's node with: kubeadm certs renew etcd-server; then \
                     restart etcd",
                ),
            ),
            (
                true,
                Error::Dial(io::Error::other("the API server did not open a stream for the port-forward")),
                "cannot connect: the API server did not open a stream for the port-forward",
                None,
            ),
            (
                false,
                Error::Dial(io::ErrorKind::ConnectionRefused.into()),
                "cannot connect: connection refused",
                None,
            ),
            (
                true,
                refused(404, "NotFound", "pods \"etcd-n1\" not found"),
                "cannot get pods/portforward \"etcd-n1\" in namespace \"kube-system\": not found",
                Some("check whether node n1 runs etcd as a static pod, and whether its kubelet reports the \
                      pod"),
            ),
            (
                true,
                refused(500, "InternalError", "etcdserver: no leader"),
                "cannot get pods/portforward \"etcd-n1\" in namespace \"kube-system\": the server responded with \
                 500: etcdserver: no leader",
                None,
            ),
        ];
        for (stacked, error, message, hint) in cases {
            assert_eq!(of(stacked, error), (message.to_owned(), hint.map(str::to_owned)));
        }
    }

    #[test]
    fn each_of_the_two_verbs_that_a_port_forward_needs_is_named() {
        let of_get = "pods \"etcd-n1\" is forbidden: User \"reader\" cannot get resource \"pods/portforward\" in API group \
                      \"\" in the namespace \"kube-system\"";
        let of_create = "pods \"etcd-n1\" is forbidden: ";
        for (verb, message, user) in [("get", of_get, " for user \"reader\""), ("create", of_create, "")] {
            assert_eq!(
                failures(true).describe("n1", refused(403, "Forbidden", message)),
                Failure {
                    object: "etcd member n1".to_owned(),
                    message: format!(
                        "cannot {verb} pods/portforward \"etcd-n1\" in namespace \"kube-system\": forbidden{user}"
                    ),
                    hint: Some(
                        "allow the kubeconfig's user to get and create pods/portforward in namespace kube-system of the \
                         workload cluster, or skip etcd with --no-etcd"
                            .to_owned()
                    ),
                    forbidden: Some(Forbidden {
                        verb: verb.to_owned(),
                        resource: "pods/portforward".to_owned(),
                        namespace: Some("kube-system".to_owned()),
                        is_from_workload_cluster: true,
                    }),
                    ..Failure::default()
                }
            );
        }
    }
}
