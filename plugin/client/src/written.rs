//! Classifies the outcome of a write, because a failed write may still be stored.

use crate::Error;

/// The outcome of a write that the server has not rejected.
#[derive(Debug)]
pub enum Written {
    /// The server has stored the write, unless this is a dry run.
    Stored,
    /// Another client has changed the object since it was read. Nothing is stored.
    Changed,
    /// The server neither confirmed nor rejected the write, which may be stored now or later.
    Unknown(Error),
}

/// Classifies the response to a write. Fails if nothing is stored, and another attempt would also fail: the write was not sent,
/// or the server rejected its content or the user.
pub(crate) fn classify_write<T>(answer: Result<T, Error>, dry_run: bool) -> Result<Written, Error> {
    match answer {
        Ok(_) => Ok(Written::Stored),
        Err(Error::Conflict { .. }) => Ok(Written::Changed),
        Err(error) if !dry_run && is_inconclusive(&error) => Ok(Written::Unknown(error)),
        Err(error) => Err(error),
    }
}

/// Whether a write that failed with this error may be stored now or later.
const fn is_inconclusive(error: &Error) -> bool {
    match error {
        Error::Timeout { .. }
        | Error::OutOfTime { .. }
        | Error::NoResponse { .. }
        | Error::Malformed { .. } => true,
        // The server sends 429 before it processes a request.
        Error::Busy { code, .. } => *code != 429,
        // 408 may come from a proxy that forwarded the request.
        Error::Response { code, .. } => !matches!(*code, 400..=407 | 409..=499),
        Error::NoKubeconfig { .. }
        | Error::Kubeconfig { .. }
        | Error::NotInKubeconfig { .. }
        | Error::NoCurrentContext
        | Error::Configuration { .. }
        | Error::Pod { .. }
        | Error::CredentialsOutOfTime { .. }
        | Error::Credentials { .. }
        | Error::Unreachable { .. }
        | Error::Tls { .. }
        | Error::Unauthorized { .. }
        | Error::Forbidden { .. }
        | Error::NotFound { .. }
        | Error::NotServed { .. }
        | Error::NoControlPlane { .. }
        | Error::Conflict { .. }
        | Error::Contended { .. }
        | Error::OutcomeUnknown { .. }
        | Error::Rejected { .. }
        | Error::UnknownField { .. }
        | Error::AdmissionFailed { .. }
        | Error::Other { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_api::kind::KUBEADM_CONTROL_PLANE;
    use kube::core::Status;

    use super::{Written, classify_write};
    use crate::{Action, Error};

    fn action() -> Action {
        Action::new("patch", &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"))
    }

    fn text() -> String {
        "text".to_owned()
    }

    fn answer(code: u16) -> Error {
        let status = Status::failure("no", "Reason").with_code(code).boxed();
        Error::from_request_error(kube::Error::Api(status), &action(), "https://s")
    }

    #[test]
    fn what_an_answer_tells() {
        let no_answer = || Error::NoResponse {
            action: Box::new(action()),
            server: text(),
            cause: text(),
        };
        let malformed = serde_json::from_str::<u8>("{").expect_err("no number");
        for (name, error, expected) in [
            ("no answer", no_answer(), "unknown"),
            (
                "none in time",
                Error::Timeout {
                    action: Box::new(action()),
                    server: text(),
                    after: Duration::ZERO,
                },
                "unknown",
            ),
            (
                "malformed",
                Error::malformed(action(), malformed.into()),
                "unknown",
            ),
            ("a Status without code", answer(0), "unknown"),
            ("408", answer(408), "unknown"),
            ("500", answer(500), "unknown"),
            ("502", answer(502), "unknown"),
            ("503", answer(503), "unknown"),
            ("504", answer(504), "unknown"),
            ("409", answer(409), "changed"),
            (
                "no connection",
                Error::Unreachable {
                    server: text(),
                    proxy: None,
                    cause: text(),
                },
                "not written",
            ),
            (
                "no trust",
                Error::Tls {
                    server: text(),
                    cause: text(),
                },
                "not written",
            ),
            ("400", answer(400), "not written"),
            ("401", answer(401), "not written"),
            ("403", answer(403), "not written"),
            ("404", answer(404), "not written"),
            ("415", answer(415), "not written"),
            ("422", answer(422), "not written"),
            ("429", answer(429), "not written"),
            (
                "a webhook is away",
                Error::AdmissionFailed {
                    action: action(),
                    message: text(),
                },
                "not written",
            ),
        ] {
            let found = match classify_write::<()>(Err(error), false) {
                Ok(Written::Stored) => "stored",
                Ok(Written::Changed) => "changed",
                Ok(Written::Unknown(_)) => "unknown",
                Err(_) => "not written",
            };
            assert_eq!(found, expected, "{name}");
        }
        assert!(matches!(classify_write(Ok(()), false), Ok(Written::Stored)));
        assert!(
            matches!(
                classify_write::<()>(Err(no_answer()), true),
                Err(Error::NoResponse { .. })
            ),
            "a dry run stores nothing"
        );
    }
}
