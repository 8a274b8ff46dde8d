//! Describes errors of a workload cluster's API server. Most hints are about the Secret with the kubeconfig.

use jiff::Timestamp;

use crate::Error;
use crate::reads::failure;
use kcp_control_plane::{
    snapshot::{Failure, Forbidden},
    staleness::format_age,
};

#[derive(Clone, Debug)]
pub struct FailureContext {
    pub kubeconfig: String,
    /// Set if the client certificate in the kubeconfig had expired when the kubeconfig was read.
    pub expired: Option<ExpiredCertificate>,
}

#[derive(Clone, Debug)]
pub struct ExpiredCertificate {
    pub expired_at: Timestamp,
    /// When the kubeconfig was read.
    pub read_at: Timestamp,
    /// How to get a kubeconfig with a new certificate.
    pub renewal: String,
}

impl FailureContext {
    pub fn describe(&self, object: &str, error: &Error) -> Failure {
        let mut failure = failure::from_error(object.to_owned(), error);
        if let (Error::Unauthorized { .. }, Some(expired)) = (error, &self.expired) {
            failure.message = format!(
                "{}: the client certificate in the kubeconfig expired {} ago, at {}",
                failure.message,
                format_age(expired.expired_at, expired.read_at),
                expired.expired_at
            );
            failure.is_unusable_secret = true;
        }
        Failure {
            hint: self.hint(error),
            forbidden: failure.forbidden.map(|forbidden| Forbidden {
                is_from_workload_cluster: true,
                ..forbidden
            }),
            ..failure
        }
    }

    /// Describes an error that makes every read of the workload cluster fail.
    pub fn describe_all(&self, error: &Error) -> Failure {
        self.describe(&format!("Secret/{}", self.kubeconfig), error)
    }

    fn hint(&self, error: &Error) -> Option<String> {
        let kubeconfig = format!("the kubeconfig in Secret {}", self.kubeconfig);
        Some(match error {
            Error::Unreachable { .. } => {
                format!("check the address in {kubeconfig}, and whether this machine can reach it")
            }
            Error::Timeout { .. } | Error::OutOfTime { .. } => format!(
                "check whether this machine can reach the address in {kubeconfig}; or allow more time with \
                 --timeout, or skip the workload cluster with --no-workload"
            ),
            Error::Tls { .. } => format!(
                "check whether the server's certificate has expired, and whether its CA is the one in {kubeconfig}"
            ),
            Error::Unauthorized { .. } => match &self.expired {
                Some(expired) => expired.renewal.clone(),
                None => format!(
                    "check the credentials in {kubeconfig}; if it contains a client certificate, this has not expired, but the API \
                     server may trust another CA"
                ),
            },
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

    use super::{ExpiredCertificate, Failure, FailureContext};
    use crate::reads::failure::MAX_MESSAGE_CHARS;
    use crate::{Action, Error};
    use kcp_control_plane::snapshot::Forbidden;

    fn failures() -> FailureContext {
        FailureContext {
            kubeconfig: "edge-kubeconfig".to_owned(),
            expired: None,
        }
    }

    #[test]
    fn an_expired_certificate_is_stated_only_where_it_explains_the_error() {
        let time = |text: &str| text.parse().expect("a time");
        let expired = FailureContext {
            expired: Some(ExpiredCertificate {
                expired_at: time("2026-08-19T12:00:00Z"),
                read_at: time("2026-08-21T12:00:00Z"),
                renewal: "delete it".to_owned(),
            }),
            ..failures()
        };
        let rejected = Error::Unauthorized {
            server: "https://s:6443".to_owned(),
        };
        let unreachable = Error::Unreachable {
            server: "https://s:6443".to_owned(),
            proxy: None,
            cause: "connection refused".to_owned(),
        };
        let rejected_by = "the API server at https://s:6443 rejected the credentials";
        for (context, error, message, hint) in [
            (
                &expired,
                &rejected,
                format!(
                    "{rejected_by}: the client certificate in the kubeconfig expired 2d ago, at 2026-08-19T12:00:00Z"
                ),
                "delete it",
            ),
            (
                &failures(),
                &rejected,
                rejected_by.to_owned(),
                "check the credentials in the kubeconfig in Secret edge-kubeconfig; if it contains a client certificate, this has not \
                 expired, but the API server may trust another CA",
            ),
            (
                &expired,
                &unreachable,
                "cannot reach the API server at https://s:6443: connection refused".to_owned(),
                "check the address in the kubeconfig in Secret edge-kubeconfig, and whether this machine can reach it",
            ),
        ] {
            let failure = context.describe_all(error);
            assert_eq!((failure.message, failure.hint.as_deref()), (message, Some(hint)));
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
            action: Box::new(list_pods()),
            user: Some("reader".to_owned()),
            kubectl: "kubectl".to_owned(),
        };
        assert_eq!(
            failures().describe("Pod", &error),
            Failure {
                object: "Pod".to_owned(),
                message: "cannot list pods in namespace \"kube-system\": forbidden for user \"reader\""
                    .to_owned(),
                hint: Some(
                    "allow the user of the kubeconfig in Secret edge-kubeconfig to list pods".to_owned()
                ),
                forbidden: Some(Forbidden {
                    verb: "list".to_owned(),
                    resource: "pods".to_owned(),
                    namespace: Some("kube-system".to_owned()),
                    is_from_workload_cluster: true,
                }),
                ..Failure::default()
            }
        );
    }

    #[test]
    fn a_server_that_is_not_there_is_mended_in_the_secret() {
        let unreachable = Error::Unreachable {
            server: "https://s:6443".to_owned(),
            proxy: None,
            cause: "connection refused".to_owned(),
        };
        assert_eq!(
            failures().describe_all(&unreachable),
            Failure {
                object: "Secret/edge-kubeconfig".to_owned(),
                message: "cannot reach the API server at https://s:6443: connection refused".to_owned(),
                hint: Some(
                    "check the address in the kubeconfig in Secret edge-kubeconfig, and whether this machine \
                     can reach it"
                        .to_owned()
                ),
                ..Failure::default()
            }
        );
        let timeout = Error::OutOfTime {
            action: Box::new(list_pods()),
            server: "https://s:6443".to_owned(),
            after: Duration::from_secs(2),
        };
        assert_eq!(
            failures().describe("Pod", &timeout).hint.as_deref(),
            Some(
                "check whether this machine can reach the address in the kubeconfig in Secret \
                 edge-kubeconfig; or allow more time with --timeout, or skip the workload cluster with \
                 --no-workload"
            )
        );
    }

    #[test]
    fn a_page_of_html_is_no_message() {
        let error = Error::Response {
            action: list_pods(),
            code: 500,
            message: format!("<html>\n{}", "ü ".repeat(1_000)),
        };
        let failure = failures().describe("Pod", &error);
        assert_eq!(failure.message.chars().count(), MAX_MESSAGE_CHARS + 1);
        assert!(failure.message.ends_with('…') && !failure.message.contains('\n'));
        assert_eq!(failure.hint, None);
    }
}
