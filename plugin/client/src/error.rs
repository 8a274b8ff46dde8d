//! Errors of connections and requests to a cluster, each with a hint on what to try next.

use std::{error::Error as StdError, path::PathBuf, time::Duration};

use kcp_api::DecodeError;
use kube::{config::KubeconfigError, core::Status};
use thiserror::Error as ThisError;

use crate::{
    Action, Connection,
    api_error::{HTML_PAGE, NO_TLS, root_cause, without_errno},
};
use kcp_control_plane::duration::format_limit;

/// A failure to find, reach or use a cluster.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The program found neither a kubeconfig nor a pod's service account.
    #[error("no kubeconfig found in {}", looked_at.join(", "))]
    NoKubeconfig { looked_at: Vec<String> },
    #[error("cannot read kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        path: PathBuf,
        /// Why the file cannot be read. Never contains the content of the file, which may be secret.
        cause: String,
    },
    /// A context, cluster or user that a flag names, or to which the kubeconfig refers, is not defined in the kubeconfig.
    #[error("{kind} {name:?} is not in the kubeconfig")]
    NotInKubeconfig {
        /// What is not defined: `context`, `cluster` or `user`.
        kind: &'static str,
        name: String,
    },
    #[error("the kubeconfig has no current context")]
    NoCurrentContext,
    #[error("invalid cluster configuration: {cause}")]
    Configuration {
        /// What is invalid in the configuration. Never contains secrets.
        cause: String,
    },
    #[error("cannot use the pod's service account: {cause}")]
    Pod { cause: String },
    #[error("cannot get credentials for {server}: {cause}")]
    Credentials {
        server: String,
        /// Why there are no credentials. Never contains the output of a credential plugin, which may be secret.
        cause: String,
    },
    /// The credential plugin of the kubeconfig exceeded the time limit. No request was sent.
    #[error("the credential plugin in the kubeconfig did not provide credentials within {}", format_limit(*after))]
    CredentialsOutOfTime { after: Duration },
    #[error("cannot reach the API server at {server}{}: {cause}", proxy.as_ref().map_or(String::new(), |proxy| format!(" through the proxy {proxy}")))]
    Unreachable {
        server: String,
        /// The URL of the proxy, without secrets, if the connection needs one.
        proxy: Option<String>,
        cause: String,
    },
    #[error("cannot establish a TLS connection to {server}: {cause}")]
    Tls { server: String, cause: String },
    /// The connection to the server was lost, or its response is not valid HTTP.
    #[error("cannot {action}: no response from {server}: {cause}")]
    NoResponse {
        action: Box<Action>,
        server: String,
        cause: String,
    },
    #[error("cannot {action}: no response from {server} within {}", format_limit(*after))]
    Timeout {
        action: Box<Action>,
        server: String,
        after: Duration,
    },
    /// The request exceeded the time limit of one read, or of the whole command.
    #[error("cannot {action}: no response from {server} within {}", format_limit(*after))]
    OutOfTime {
        action: Box<Action>,
        server: String,
        after: Duration,
    },
    /// The API server responded with 401.
    #[error("the API server at {server} rejected the credentials")]
    Unauthorized { server: String },
    /// The API server responded with 403, because the user is not allowed to send this request. A denial by
    /// admission is [`Error::Rejected`].
    #[error("cannot {action}: forbidden{}", user.as_ref().map_or(String::new(), |user| format!(" for user {user:?}")))]
    Forbidden {
        action: Box<Action>,
        user: Option<String>,
        /// How a person runs kubectl against the cluster.
        kubectl: String,
    },
    /// The API server responded with 404 to a request for an object.
    #[error("cannot {action}: not found")]
    NotFound { action: Action },
    #[error("{server} does not serve {resource}")]
    NotServed {
        /// The resource that the server does not serve, as `plural.group`.
        resource: String,
        product: &'static str,
        server: String,
    },
    /// The Cluster has no `controlPlaneRef`, or refers to another kind than `KubeadmControlPlane`.
    #[error("cluster {cluster:?} in namespace {namespace:?} {}", kind.as_ref().map_or_else(|| "does not refer to a control plane".to_owned(), |kind| format!("has a {kind}, not a KubeadmControlPlane")))]
    NoControlPlane {
        cluster: String,
        namespace: String,
        kind: Option<String>,
    },
    /// The API server responded with 409: the object has changed since it was read.
    #[error("cannot {action}: conflict: changed by another client")]
    Conflict { action: Action },
    /// Each attempt to write the object failed, because another client had changed it.
    #[error("cannot {goal}: {attempts} attempts failed, because another client changed the object each time")]
    Contended {
        /// What the command tried to do, such as `scale c1-cp`.
        goal: String,
        attempts: usize,
    },
    /// The API server did not respond to a write, so the change may be stored.
    #[error("it is unknown whether the API server stored the change")]
    OutcomeUnknown {
        /// The command that shows the object. `None` if the error does not name the object.
        check: Option<String>,
        #[source]
        source: Box<Error>,
    },
    /// Admission or validation rejected the write.
    #[error("cannot {action}: {}", status.message)]
    Rejected { action: Action, status: Box<Status> },
    /// The write contains a field that the API server does not know. Nothing was written.
    #[error("cannot {action}: {cause}")]
    UnknownField {
        action: Action,
        /// The server's message without the quoted object, which may contain secrets.
        cause: String,
    },
    /// An admission webhook with failurePolicy Fail did not respond. Nothing was written.
    #[error("cannot {action}: {message}")]
    AdmissionFailed { action: Action, message: String },
    /// The API server responded with 429, 503 or 504.
    #[error("cannot {action}: the server is busy: {message}")]
    Busy {
        action: Box<Action>,
        code: u16,
        message: String,
        /// How long the server asks to wait (`Retry-After`). `None` if it does not ask.
        retry_after: Option<Duration>,
    },
    #[error("cannot {action}: the server responded with {code}: {message}")]
    Response {
        action: Action,
        code: u16,
        message: String,
    },
    /// The response is not an object of the requested kind.
    #[error("cannot {action}: the response cannot be decoded")]
    Malformed {
        action: Action,
        #[source]
        source: Box<DecodeError>,
    },
    #[error("cannot {action}: {cause}")]
    Other { action: Action, cause: String },
}

impl Error {
    pub(crate) fn malformed(action: Action, source: DecodeError) -> Self {
        Self::Malformed {
            action,
            source: Box::new(source),
        }
    }

    /// The error of a write to which the server did not respond.
    pub(crate) fn outcome_unknown(connection: &Connection, source: Self) -> Self {
        Self::OutcomeUnknown {
            check: source
                .action()
                .map(|action| action.show_command(&connection.kubectl)),
            source: Box::new(source),
        }
    }

    /// The request that failed, if its outcome may be unknown.
    fn action(&self) -> Option<&Action> {
        match self {
            Self::NoResponse { action, .. }
            | Self::Timeout { action, .. }
            | Self::OutOfTime { action, .. }
            | Self::Busy { action, .. } => Some(action),
            Self::Response { action, .. } | Self::Malformed { action, .. } => Some(action),
            _ => None,
        }
    }

    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoKubeconfig { .. } => "specify a kubeconfig with --kubeconfig or $KUBECONFIG".to_owned(),
            Self::NoCurrentContext => "choose a context with --context; list contexts with: kubectl config get-contexts; if there \
                                       are none, name another file with --kubeconfig"
                .to_owned(),
            Self::NotInKubeconfig { kind, .. } => {
                format!("list the {kind}s with: kubectl config get-{kind}s")
            }
            Self::Configuration { cause } if cause.starts_with("configured proxy ") => HTTP_PROXY_ONLY.to_owned(),
            Self::Configuration { .. } => "show the selected cluster and user with: kubectl config view --minify".to_owned(),
            Self::Credentials { .. } => "log in and check the credentials with: kubectl auth whoami".to_owned(),
            Self::Unreachable { proxy: Some(_), .. } => {
                "check the proxy, which comes from --proxy-url, from proxy-url of the cluster in the kubeconfig, or from \
                 $HTTPS_PROXY; $NO_PROXY lists servers that need no proxy"
                    .to_owned()
            }
            Self::Unreachable { .. } => {
                "check that the server is running, and that --server or the current context names the right \
                 one; show the context with: kubectl config current-context"
                    .to_owned()
            }
            Self::Tls { cause, .. } if cause == NO_TLS => CHECK_ADDRESS.to_owned(),
            Self::Tls { .. } => {
                "check this machine's clock, and the fields certificate-authority and tls-server-name of the \
                 cluster in the kubeconfig"
                    .to_owned()
            }
            Self::Timeout { .. } => "allow more time with --request-timeout".to_owned(),
            Self::OutOfTime { .. } => {
                "check whether the API server is overloaded; or allow more time with --timeout, if the \
                 command has this flag"
                    .to_owned()
            }
            Self::CredentialsOutOfTime { .. } => {
                "log in before you run the command, for example with: kubectl auth whoami; or allow more \
                 time with --timeout"
                    .to_owned()
            }
            Self::Unauthorized { .. } => {
                "log in again, or choose another user with --user or --context".to_owned()
            }
            Self::Forbidden { action, kubectl, .. } => {
                format!("check with: {}", action.can_i_command(kubectl))
            }
            Self::NotFound { action } if action.resource.starts_with("kubeadmcontrolplanes") => {
                let list = "list the control planes of all namespaces with: kubectl kcp status -A";
                match (&action.name, &action.namespace) {
                    (Some(name), Some(namespace)) => format!(
                        "{list}; if {name} is a Cluster, find its control plane with: kubectl kcp status cluster/{name} -n \
                         {namespace}"
                    ),
                    _ => list.to_owned(),
                }
            }
            Self::NotFound { action } if action.resource.starts_with("clusterpools") => {
                "list the cluster pools of all namespaces with: kubectl get clusterpools.hive.openshift.io -A"
                    .to_owned()
            }
            // The response is not even an object in JSON.
            Self::Malformed { source, .. } if source.object.is_none() && source.field == "." => {
                CHECK_ADDRESS.to_owned()
            }
            Self::Busy { message, .. } | Self::Response { message, .. } if message.starts_with(HTML_PAGE) => {
                CHECK_ADDRESS.to_owned()
            }
            Self::Busy { .. } => "try again; if the server stays busy, check it and the load balancer in front of it".to_owned(),
            // The text is Go's (net/http, `server.go`).
            Self::Rejected { status, .. } if status.message.starts_with("Client sent an HTTP request to an HTTPS server") => {
                "write https:// in the address of the server".to_owned()
            }
            Self::Rejected { status, .. } if status.message.starts_with(HTML_PAGE) => CHECK_ADDRESS.to_owned(),
            // The text is that of the parser of selectors (apimachinery, `labels/selector.go`).
            Self::Rejected { action, status } if action.verb == "list" && status.message.contains("found '") => {
                "check the selector after -l, such as team=edge,tier!=test".to_owned()
            }
            // Only commands for the cluster that the kubeconfig selects get one Node.
            Self::NotFound {
                action: Action { resource, .. },
            } if ["namespaces", "nodes"].contains(&resource.as_str()) => {
                format!("list the {resource} with: kubectl get {resource}")
            }
            Self::NotServed { resource, .. } if resource.starts_with('/') || is_built_in(resource) => {
                "check the address: the server at this address is not a Kubernetes API server".to_owned()
            }
            Self::NotServed { product, .. } => {
                format!("check that the context is right; if it is, install {product} in this cluster")
            }
            Self::AdmissionFailed { .. } => {
                "nothing was written, because the webhook did not respond; list webhooks with: kubectl get \
                 validatingwebhookconfigurations,mutatingwebhookconfigurations"
                    .to_owned()
            }
            Self::UnknownField { .. } => {
                "nothing was written: the CRDs in this cluster do not have the field; correct the field's \
                 name, or upgrade the CRDs; list the fields with: kubectl explain KIND --recursive"
                    .to_owned()
            }
            Self::OutcomeUnknown { check, .. } => format!("check with: {}", check.as_ref()?),
            Self::Contended { .. } => "try again".to_owned(),
            Self::Conflict { .. } => "run the command again".to_owned(),
            _ => return None,
        })
    }

    /// Whether the same request may succeed later without a change by the user: a server is unreachable, fails or is
    /// busy, for example while it restarts or its etcd elects a leader.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::NoResponse { .. }
                | Self::Timeout { .. }
                | Self::Busy { .. }
                | Self::Response { code: 500.., .. }
        )
    }

    /// The error for an invalid kubeconfig, or for an invalid file to which the kubeconfig refers.
    pub fn configuration(error: &KubeconfigError) -> Self {
        Self::Configuration {
            cause: without_secrets(error),
        }
    }

    /// The error for a kubeconfig file that cannot be read.
    pub fn kubeconfig(path: impl Into<PathBuf>, error: &KubeconfigError) -> Self {
        Self::Kubeconfig {
            path: path.into(),
            cause: without_secrets(error),
        }
    }
}

const HTTP_PROXY_ONLY: &str = "write the address of an HTTP proxy, such as http://proxy:3128; it comes from --proxy-url, from proxy-url \
                               of the cluster in the kubeconfig, or from $HTTPS_PROXY";

const CHECK_ADDRESS: &str = "check the address, which is in the output of kubectl config view --minify unless --server names it: a \
                             proxy or a login page may have responded instead of the API server";

/// Whether every API server has this resource, without CRDs. `resource` has the form `plural.group`.
fn is_built_in(resource: &str) -> bool {
    let group = resource.split_once('.').map_or("", |(_, group)| group);
    matches!(group, "coordination.k8s.io" | "admissionregistration.k8s.io")
}

/// Describes a kubeconfig error. Keeps only the position of a parser's error, because the parser's message may quote
/// tokens and keys.
fn without_secrets(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => format!(
                "not a valid kubeconfig (line {}, column {})",
                place.line(),
                place.column()
            ),
            None => "not a valid kubeconfig".to_owned(),
        },
        KubeconfigError::ReadConfig(error, _) => root_cause(error),
        KubeconfigError::LoadCertificateAuthority(cause) => unloadable("certificate-authority", cause),
        KubeconfigError::LoadClientCertificate(cause) => unloadable("client-certificate", cause),
        KubeconfigError::LoadClientKey(cause) => unloadable("client-key", cause),
        other => other.to_string(),
    }
}

/// Describes why the file or the data of a field in the kubeconfig cannot be loaded. kube does not export the type of the cause, which
/// quotes a path twice.
fn unloadable(field: &str, cause: &(dyn StdError + 'static)) -> String {
    let cause = cause.to_string().replace("'\"", "").replace("\"'", "");
    format!("{field} in the kubeconfig: {}", without_errno(&cause))
}

#[cfg(test)]
mod tests {
    use kcp_api::{KubeadmControlPlane, decode, kind::KUBEADM_CONTROL_PLANE};
    use kube::{config::Kubeconfig, core::Status};

    use super::Error;
    use crate::{Action, discovery::product_of};

    #[test]
    fn what_is_not_in_the_kubeconfig_can_be_listed() {
        for (kind, hint) in [
            ("context", "list the contexts with: kubectl config get-contexts"),
            ("cluster", "list the clusters with: kubectl config get-clusters"),
            ("user", "list the users with: kubectl config get-users"),
        ] {
            let name = "x".to_owned();
            assert_eq!(
                Error::NotInKubeconfig { kind, name }.hint().as_deref(),
                Some(hint)
            );
        }
    }

    #[test]
    fn what_is_not_found_can_be_listed() {
        let hint = |resource: &str| {
            let action = Action {
                verb: "get",
                resource: resource.to_owned(),
                namespace: Some("d".to_owned()),
                name: Some("x".to_owned()),
            };
            Error::NotFound { action }.hint()
        };
        assert_eq!(
            hint("kubeadmcontrolplanes.controlplane.cluster.x-k8s.io").as_deref(),
            Some(
                "list the control planes of all namespaces with: kubectl kcp status -A; if x is a Cluster, find its control plane \
                 with: kubectl kcp status cluster/x -n d"
            )
        );
        assert_eq!(
            hint("clusterpools.hive.openshift.io").as_deref(),
            Some(
                "list the cluster pools of all namespaces with: kubectl get clusterpools.hive.openshift.io -A"
            )
        );
        assert_eq!(
            hint("namespaces").as_deref(),
            Some("list the namespaces with: kubectl get namespaces")
        );
        assert_eq!(
            hint("nodes").as_deref(),
            Some("list the nodes with: kubectl get nodes")
        );
        assert_eq!(hint("clusters.cluster.x-k8s.io"), None);
    }

    #[test]
    fn another_server_than_an_api_server_is_named() {
        let not_served = |resource: &str| {
            let (resource, server) = (resource.to_owned(), "https://s".to_owned());
            let product = product_of(&resource);
            let error = Error::NotServed {
                resource,
                product,
                server,
            };
            error.hint().unwrap_or_default()
        };
        let other = "check the address: the server at this address is not a Kubernetes API server";
        assert_eq!(not_served("/apis"), other);
        assert_eq!(not_served("leases.coordination.k8s.io"), other);
        assert_eq!(
            not_served("clusterpools.hive.openshift.io"),
            "check that the context is right; if it is, install Hive in this cluster"
        );
        for (text, is_other) in [("<html>", true), ("{\"spec\": 1}", false)] {
            let action = Action::new("get", &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"));
            let source = decode::<KubeadmControlPlane>(text).expect_err("no control plane");
            let hint = Error::malformed(action, source).hint();
            assert_eq!(hint.is_some(), is_other, "{text}: {hint:?}");
        }
    }

    #[test]
    fn what_a_server_says_while_it_restarts_may_pass() {
        for (code, is_transient) in [
            (500, true),
            (502, true),
            (503, true),
            (504, true),
            (429, true),
            (400, false),
            (401, false),
            (403, false),
            (404, false),
        ] {
            let status = Status::failure("no", "Reason").with_code(code).boxed();
            let action = Action::new("get", &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"));
            let error = Error::from_request_error(kube::Error::Api(status), &action, "https://s");
            assert_eq!(error.is_transient(), is_transient, "{code}: {error:?}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_loaded_is_named() {
        // `LoadDataError`, which is the source, cannot be created here.
        for (cause, expected) in [
            (
                "failed to read file '\"/a/b.crt\"': No such file or directory (os error 2)",
                "client-key in the kubeconfig: failed to read file /a/b.crt: No such file or directory",
            ),
            (
                "failed to decode base64 data: Invalid symbol 42, offset 3.",
                "client-key in the kubeconfig: failed to decode base64 data: Invalid symbol 42, offset 3.",
            ),
        ] {
            let cause = std::io::Error::other(cause);
            assert_eq!(super::unloadable("client-key", &cause), expected);
        }
    }

    #[test]
    fn a_broken_kubeconfig_is_not_quoted() {
        for yaml in [
            "users:\n- name: sesame\n  user: {token: [sesame]}\n",
            "sesame: [",
            "sesame",
        ] {
            let error = Kubeconfig::from_yaml(yaml).expect_err(yaml);
            let shown = Error::kubeconfig("config", &error).to_string();
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(
                shown.starts_with("cannot read kubeconfig config: not a valid kubeconfig"),
                "{shown}"
            );
        }
    }
}
