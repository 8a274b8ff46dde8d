//! What went wrong with a workload cluster's API server, and where that can be mended: in the kubeconfig's Secret.

use crate::Error;
use crate::reads::failure;
use kcp_control_plane::snapshot::{Failure, Forbidden};

#[derive(Clone, Debug)]
pub struct Failures {
    pub kubeconfig: String,
}

impl Failures {
    pub fn of(&self, object: &str, error: &Error) -> Failure {
        let failure = failure::of(object.to_owned(), error);
        Failure {
            hint: self.hint(error),
            forbidden: failure.forbidden.map(|forbidden| Forbidden {
                in_workload_cluster: true,
                ..forbidden
            }),
            ..failure
        }
    }

    /// Of all reads, each of which fails like this one.
    pub fn of_all(&self, error: &Error) -> Failure {
        self.of(&format!("Secret/{}", self.kubeconfig), error)
    }

    fn hint(&self, error: &Error) -> Option<String> {
        let kubeconfig = format!("key value of Secret {}", self.kubeconfig);
        Some(match error {
            Error::Unreachable { .. } => {
                format!("is the address in {kubeconfig} right, and can this machine reach it?")
            }
            Error::Timeout { .. } | Error::OutOfTime { .. } => format!(
                "can this machine reach the address in {kubeconfig}? or allow more time with --timeout, or leave it \
                 out with --no-workload"
            ),
            Error::Tls { .. } => format!(
                "has the server's certificate expired, or is it of another authority than {kubeconfig} has?"
            ),
            Error::Unauthorized { .. } => format!("has the client certificate in {kubeconfig} expired?"),
            Error::Forbidden { action, .. } => {
                format!(
                    "allow the user of {kubeconfig} to {} {}",
                    action.verb, action.resource
                )
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Failure, Failures};
    use crate::reads::failure::LONGEST_MESSAGE;
    use crate::{Action, Error};
    use kcp_control_plane::snapshot::Forbidden;

    fn failures() -> Failures {
        Failures {
            kubeconfig: "edge-kubeconfig".to_owned(),
        }
    }

    fn list_pods() -> Action {
        Action {
            verb: "list",
            resource: "pods".to_owned(),
            namespace: Some("kube-system".to_owned()),
            name: None,
        }
    }

    #[test]
    fn a_permission_is_missing_in_the_workload_cluster() {
        let error = Error::Forbidden {
            action: list_pods(),
            user: Some("reader".to_owned()),
        };
        assert_eq!(
            failures().of("Pod", &error),
            Failure {
                object: "Pod".to_owned(),
                message: "cannot list pods in namespace \"kube-system\": forbidden for user \"reader\""
                    .to_owned(),
                hint: Some("allow the user of key value of Secret edge-kubeconfig to list pods".to_owned()),
                forbidden: Some(Forbidden {
                    verb: "list".to_owned(),
                    resource: "pods".to_owned(),
                    namespace: Some("kube-system".to_owned()),
                    in_workload_cluster: true,
                }),
            }
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_mended_in_the_secret() {
        let unreachable = Error::Unreachable {
            server: "https://s:6443".to_owned(),
            cause: "connection refused".to_owned(),
        };
        assert_eq!(
            failures().of_all(&unreachable),
            Failure {
                object: "Secret/edge-kubeconfig".to_owned(),
                message: "cannot reach the API server at https://s:6443: connection refused".to_owned(),
                hint: Some(
                    "is the address in key value of Secret edge-kubeconfig right, and can this machine reach it?"
                        .to_owned()
                ),
                forbidden: None,
            }
        );
        let timeout = Error::OutOfTime {
            action: Box::new(list_pods()),
            server: "https://s:6443".to_owned(),
            after: Duration::from_secs(2),
        };
        assert_eq!(
            failures().of("Pod", &timeout).hint.as_deref(),
            Some(
                "can this machine reach the address in key value of Secret edge-kubeconfig? or allow more time with \
                 --timeout, or leave it out with --no-workload"
            )
        );
    }

    #[test]
    fn a_page_of_html_is_no_message() {
        let error = Error::Answer {
            action: list_pods(),
            code: 500,
            message: format!("<html>\n{}", "ü ".repeat(1_000)),
        };
        let failure = failures().of("Pod", &error);
        assert_eq!(failure.message.chars().count(), LONGEST_MESSAGE + 1);
        assert!(failure.message.ends_with('…') && !failure.message.contains('\n'));
        assert_eq!(failure.hint, None);
    }
}
