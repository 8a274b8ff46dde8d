//! What can go wrong between us and a cluster: one sentence each, and what to try next.

use std::{path::PathBuf, time::Duration};

use kcp_api::DecodeError;
use kube::{config::KubeconfigError, core::Status};
use thiserror::Error as ThisError;

use crate::{Action, api_error::root_cause};
use kcp_control_plane::duration::format_limit;

/// A failure to find, reach or use a cluster.
#[derive(Debug, ThisError)]
pub enum Error {
    /// Neither a kubeconfig nor a pod's service account.
    #[error("no kubeconfig found: looked at {}", looked_at.join(", "))]
    NoKubeconfig { looked_at: Vec<String> },
    #[error("cannot read kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        path: PathBuf,
        /// Without the file's content: that holds secrets.
        cause: String,
    },
    /// A name that the kubeconfig does not define.
    #[error("{kind} {name:?} is not in the kubeconfig")]
    NotInKubeconfig {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        name: String,
    },
    #[error("the kubeconfig has no current context")]
    NoCurrentContext,
    #[error("the cluster's configuration cannot be used: {cause}")]
    Configuration {
        /// Without secrets.
        cause: String,
    },
    /// A pod whose service account cannot be used.
    #[error("cannot use the pod's service account: {cause}")]
    Pod { cause: String },
    #[error("cannot get credentials for {server}: {cause}")]
    Credentials {
        server: String,
        /// Without the output of a credential plugin: that holds secrets.
        cause: String,
    },
    /// Credentials that did not come in time. Nothing was sent.
    #[error("no credentials within {}: the kubeconfig's credential plugin has not ended", format_limit(*after))]
    CredentialsOutOfTime { after: Duration },
    #[error("cannot reach the API server at {server}: {cause}")]
    Unreachable { server: String, cause: String },
    #[error("cannot make a secure connection to {server}: {cause}")]
    Tls { server: String, cause: String },
    /// The connection broke, or what came through it is no answer.
    #[error("cannot {action}: no answer from {server}: {cause}")]
    NoAnswer {
        action: Box<Action>,
        server: String,
        cause: String,
    },
    #[error("cannot {action}: no answer from {server} within {}", format_limit(*after))]
    Timeout {
        action: Box<Action>,
        server: String,
        after: Duration,
    },
    /// The time for it, or for all that the command does, was over.
    #[error("cannot {action}: no answer from {server} within {}", format_limit(*after))]
    OutOfTime {
        action: Box<Action>,
        server: String,
        after: Duration,
    },
    /// 401.
    #[error("the API server at {server} does not accept the credentials")]
    Unauthorized { server: String },
    /// 403 by authorization.
    #[error("cannot {action}: forbidden{}", user.as_ref().map_or(String::new(), |user| format!(" for user {user:?}")))]
    Forbidden { action: Action, user: Option<String> },
    /// 404 for an object.
    #[error("cannot {action}: not found")]
    NotFound { action: Action },
    #[error("{server} does not serve {resource}")]
    NotServed {
        /// `plural.group`.
        resource: String,
        product: &'static str,
        server: String,
    },
    /// A Cluster that refers to no control plane of the kind that we know.
    #[error("cluster {cluster:?} in namespace {namespace:?} {}", kind.as_ref().map_or_else(|| "refers to no control plane".to_owned(), |kind| format!("has a {kind}, not a KubeadmControlPlane")))]
    NoControlPlane {
        cluster: String,
        namespace: String,
        kind: Option<String>,
    },
    /// 409: the object has changed since it was read.
    #[error("cannot {action}: conflict: changed by another client")]
    Conflict { action: Action },
    /// Another client wrote between our read and our write, each time.
    #[error("cannot {goal}: another client changed it before each of {attempts} attempts")]
    Contended {
        /// What is wanted: `scale c1-cp`.
        goal: String,
        attempts: usize,
    },
    /// A write without an answer: it may be stored.
    #[error("it is unknown whether the change was stored")]
    OutcomeUnknown {
        #[source]
        source: Box<Error>,
    },
    /// A write that the server or a webhook refuses.
    #[error("cannot {action}: {}", status.message)]
    Rejected { action: Action, status: Box<Status> },
    /// A field of a write that the server does not have: nothing was written.
    #[error("cannot {action}: {cause}")]
    UnknownField {
        action: Action,
        /// The server's words, without the object that they may quote: that may hold secrets.
        cause: String,
    },
    /// A webhook that has to be asked before the server stores does not answer: nothing was written.
    #[error("cannot {action}: {message}")]
    AdmissionFailed { action: Action, message: String },
    /// 429, 503 or 504: later, perhaps.
    #[error("cannot {action}: the server is busy: {message}")]
    Busy {
        action: Box<Action>,
        code: u16,
        message: String,
        /// When to come back, if the server says so.
        retry_after: Option<Duration>,
    },
    #[error("cannot {action}: the server answers {code}: {message}")]
    Answer {
        action: Action,
        code: u16,
        message: String,
    },
    /// An answer that is not what was asked for.
    #[error("cannot {action}: the answer cannot be understood")]
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

    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoKubeconfig { .. } => "name one with --kubeconfig or $KUBECONFIG".to_owned(),
            Self::NoCurrentContext => "choose one with --context; list them with: kubectl config get-contexts".to_owned(),
            Self::NotInKubeconfig { kind, .. } => format!("list the {kind}s with: kubectl config get-{kind}s"),
            Self::Unreachable { .. } => {
                "is the server up, and is this the right context? see: kubectl config current-context".to_owned()
            }
            Self::Tls { .. } => {
                "check certificate-authority and tls-server-name of the cluster in the kubeconfig, and the clock"
                    .to_owned()
            }
            Self::Timeout { .. } => "allow more time with --request-timeout".to_owned(),
            Self::OutOfTime { .. } => "allow more time with --timeout".to_owned(),
            Self::CredentialsOutOfTime { .. } => {
                "log in first, for instance with: kubectl auth whoami; or allow more time with --timeout".to_owned()
            }
            Self::Unauthorized { .. } => {
                "log in again, or choose another user with --user or --context".to_owned()
            }
            Self::Forbidden { action, .. } => format!("check with: {}", action.can_i()),
            Self::NotFound { action } if action.resource.starts_with("kubeadmcontrolplanes") => {
                "list the control planes of all namespaces with: kubectl kcp status -A".to_owned()
            }
            Self::NotFound { action } if action.resource.starts_with("clusterpools") => {
                "list the cluster pools of all namespaces with: kubectl get clusterpools.hive.openshift.io -A".to_owned()
            }
            Self::NotServed { resource, .. } if resource.starts_with('/') => {
                "is this the right address? what answers there is no Kubernetes API server".to_owned()
            }
            Self::NotServed { product, .. } => {
                format!("is this the right context? {product} is not installed there")
            }
            Self::AdmissionFailed { .. } => {
                "nothing was written: the webhook's server has to answer first; see: \
                 kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
                    .to_owned()
            }
            Self::UnknownField { .. } => {
                "nothing was written: the resource definitions in that cluster do not have the field; see: kubectl explain"
                    .to_owned()
            }
            Self::OutcomeUnknown { .. } => "check with: kubectl kcp status".to_owned(),
            Self::Contended { .. } => "try again".to_owned(),
            Self::Conflict { .. } => "run the command again".to_owned(),
            _ => return None,
        })
    }

    /// Whether it may pass by itself: a server that restarts, or whose etcd elects a leader, is away, breaks off, fails
    /// or is busy for a while.
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::NoAnswer { .. }
                | Self::Timeout { .. }
                | Self::Busy { .. }
                | Self::Answer { code: 500.., .. }
        )
    }

    /// A kubeconfig, or what it points to, that cannot be used.
    pub fn configuration(error: &KubeconfigError) -> Self {
        Self::Configuration {
            cause: without_secrets(error),
        }
    }

    /// A kubeconfig file that cannot be read.
    pub fn kubeconfig(path: impl Into<PathBuf>, error: &KubeconfigError) -> Self {
        Self::Kubeconfig {
            path: path.into(),
            cause: without_secrets(error),
        }
    }
}

/// A parser's message may quote the file, and the file holds tokens and keys: the place is enough.
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
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::KUBEADM_CONTROL_PLANE;
    use kube::{config::Kubeconfig, core::Status};

    use super::Error;
    use crate::Action;

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
            Some("list the control planes of all namespaces with: kubectl kcp status -A")
        );
        assert_eq!(
            hint("clusterpools.hive.openshift.io").as_deref(),
            Some(
                "list the cluster pools of all namespaces with: kubectl get clusterpools.hive.openshift.io -A"
            )
        );
        assert_eq!(hint("clusters.cluster.x-k8s.io"), None);
    }

    #[test]
    fn what_a_server_says_while_it_restarts_may_pass() {
        for (code, may_pass) in [
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
            let action = Action::new("get", &KUBEADM_CONTROL_PLANE.at("v1beta2"));
            let error = Error::request(kube::Error::Api(status), &action, "https://s");
            assert_eq!(error.may_pass(), may_pass, "{code}: {error:?}");
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
