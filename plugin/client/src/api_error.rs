//! Converts the client library's errors into [`Error`].

use std::{error::Error as StdError, io::ErrorKind, time::Duration};

use kube::{client::AuthError, core::Status};

use crate::{Action, Error, discovery::product_of};

/// The cause of [`Error::Tls`] if the server did not answer in TLS.
pub(crate) const NO_TLS: &str = "the server responded without TLS";

/// The reason that kube gives to an error whose body is not a Status (kube-client, `client/mod.rs`).
const UNPARSED: &str = "Failed to parse error data";

/// The beginning of the message of a response that no API server sends.
pub(crate) const HTML_PAGE: &str = "an HTML page";

impl Error {
    /// The error for a Kubernetes client that cannot be created. `plugin` is the program of the credential plugin.
    pub fn from_client_error(error: &kube::Error, server: &str, plugin: Option<&str>) -> Self {
        match error {
            kube::Error::Auth(error) => Self::from_auth_error(error, server, plugin),
            kube::Error::InferKubeconfig(error) => Self::configuration(error),
            other => Self::Configuration {
                cause: root_cause(other),
            },
        }
    }

    pub fn from_request_error(error: kube::Error, action: &Action, server: &str) -> Self {
        let server = server.to_owned();
        let action = action.clone();
        match error {
            kube::Error::Api(status) => Self::from_status(status, action, server),
            kube::Error::SerdeError(source) => Self::malformed(action, source.into()),
            kube::Error::Auth(error) => Self::from_auth_error(&error, &server, None),
            other => {
                let cause = root_cause(&other);
                if error_chain(&other).any(|cause| downcast::<AuthError>(cause).is_some()) {
                    Self::Credentials {
                        server,
                        cause: "the credential plugin failed".to_owned(),
                    }
                } else if matches!(other, kube::Error::BuildRequest(_)) {
                    Self::Other { action, cause }
                } else if !is_connect_error(&other) {
                    Self::NoResponse {
                        action: Box::new(action),
                        server,
                        cause,
                    }
                } else if let Some(error) = error_chain(&other).find_map(downcast::<rustls::Error>) {
                    let cause = tls_cause(error).map_or(cause, str::to_owned);
                    Self::Tls { server, cause }
                } else {
                    Self::Unreachable {
                        server,
                        proxy: None,
                        cause,
                    }
                }
            }
        }
    }

    fn from_status(mut status: Box<Status>, action: Action, server: String) -> Self {
        let is_unparsed = status.reason == UNPARSED;
        let page = html_page(&status.message).filter(|_| is_unparsed);
        let is_page = page.is_some();
        if let Some(page) = page {
            status.message = page;
        }
        // The message is checked before the status code, because webhooks and policies choose their own code.
        match admission_failure(&status.message) {
            Some(AdmissionFailure::Denied) => return Self::Rejected { action, status },
            Some(AdmissionFailure::Failed) => {
                let message = status.message;
                return Self::AdmissionFailed { action, message };
            }
            None => {}
        }
        if let (400 | 422, Some(cause)) = (status.code, unknown_field_cause(&status.message)) {
            return Self::UnknownField { action, cause };
        }
        match status.code {
            // The API server sends no pages.
            code @ (401 | 403 | 404) if is_page => Self::Response {
                action,
                code,
                message: status.message,
            },
            401 => Self::Unauthorized { server },
            403 if is_namespace_terminating(&status) => Self::Response {
                action,
                code: 403,
                message: status.message,
            },
            403 => Self::Forbidden {
                action: Box::new(action),
                user: quoted_after(&status.message, "User "),
                kubectl: "kubectl".to_owned(),
            },
            // An unknown path gets no Status; a missing object gets a Status with the object's name.
            404 if action.name.is_some() && status.reason == "NotFound" && status.details.is_some() => {
                Self::NotFound { action }
            }
            404 => Self::NotServed {
                product: product_of(&action.resource),
                resource: action.resource,
                server,
            },
            409 => Self::Conflict { action },
            400 | 422 => Self::Rejected { action, status },
            code @ (429 | 503 | 504) => Self::Busy {
                action: Box::new(action),
                code,
                retry_after: status
                    .details
                    .as_ref()
                    .map(|details| Duration::from_secs(details.retry_after_seconds.into()))
                    .filter(|delay| !delay.is_zero()),
                message: status.message,
            },
            code => Self::Response {
                action,
                code,
                message: status.message,
            },
        }
    }

    fn from_auth_error(error: &AuthError, server: &str, plugin: Option<&str>) -> Self {
        let plugin = plugin.map_or("the credential plugin".to_owned(), |plugin| {
            format!("the credential plugin {plugin}")
        });
        // The messages of other errors may contain the arguments, the environment or the output of the credential plugin, which
        // may be secret.
        let cause = match error {
            AuthError::AuthExecRun { out, .. } => format!("{plugin} failed: {}", out.status),
            AuthError::AuthExecStart(cause) if cause.kind() == ErrorKind::NotFound => {
                format!("{plugin} is not installed, or not on the PATH")
            }
            AuthError::AuthExecStart(cause) => format!("cannot start {plugin}: {}", root_cause(cause)),
            AuthError::ReadTokenFile(cause, path) => format!("cannot read {}: {cause}", path.display()),
            AuthError::AuthExecParse(_) => {
                format!("the output of {plugin} is not a valid ExecCredential")
            }
            AuthError::AuthExec(_) => {
                "the auth-provider of the user in the kubeconfig does not work; kubectl replaced auth-provider by credential \
                 plugins (exec)"
                    .to_owned()
            }
            AuthError::InvalidBearerToken(_) => {
                "the token contains characters that are not allowed in an HTTP header".to_owned()
            }
            _ => "the user's credentials in the kubeconfig are invalid".to_owned(),
        };
        Self::Credentials {
            server: server.to_owned(),
            cause,
        }
    }
}

/// A TLS error in words; `None` if its own words say enough.
fn tls_cause(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => Some(NO_TLS),
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            Some("the server's certificate is signed by an unknown authority")
        }
        // An error of webpki for which rustls has no variant.
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))
            if other.to_string() == "CaUsedAsEndEntity" =>
        {
            Some("the server presents the certificate of a CA, such as a self-signed one")
        }
        _ => None,
    }
}

/// What to show of a response that is a page for a browser; `None` for other responses.
fn html_page(text: &str) -> Option<String> {
    if !text.starts_with('<') {
        return None;
    }
    let (_, title) = text.split_once("<title>").unwrap_or_default();
    let (title, _) = title.split_once("</title>").unwrap_or_default();
    Some(match title.trim() {
        "" => HTML_PAGE.to_owned(),
        title => format!("{HTML_PAGE}, {title:?}"),
    })
}

/// Whether the program could not connect to the server, so that it did not send the request.
fn is_connect_error(error: &kube::Error) -> bool {
    error_chain(error)
        .find_map(downcast::<hyper_util::client::legacy::Error>)
        .is_some_and(hyper_util::client::legacy::Error::is_connect)
}

enum AdmissionFailure {
    Denied,
    /// A webhook with failurePolicy Fail did not respond.
    Failed,
}

/// Finds out from the message whether admission stopped a write, because a Status has no field that says so
/// (k8s.io/apiserver, `pkg/admission/plugin/webhook/errors/statuserror.go`,
/// `pkg/admission/plugin/policy/validating/dispatcher.go`,
/// `pkg/admission/plugin/webhook/validating/dispatcher.go`).
fn admission_failure(message: &str) -> Option<AdmissionFailure> {
    let by_webhook = message.starts_with("admission webhook \"") && message.contains("\" denied the request");
    let by_policy = message.contains("AdmissionPolicy '") && message.contains("' denied request");
    if by_webhook || by_policy {
        Some(AdmissionFailure::Denied)
    } else if message.starts_with("Internal error occurred: failed calling webhook ") {
        Some(AdmissionFailure::Failed)
    } else {
        None
    }
}

/// The part of an error of strict field validation that names the unknown field (k8s.io/apiserver,
/// `pkg/endpoints/handlers/patch.go`), without the quoted object that precedes it. `None` for another error.
fn unknown_field_cause(message: &str) -> Option<String> {
    let (_, cause) = message.rsplit_once("strict decoding error: ")?;
    Some(cause.to_owned())
}

fn error_chain<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// Downcasts the error. Also downcasts the error inside an `io::Error`, because `io::Error::source` skips it.
fn downcast<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    let mut error = error;
    loop {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        error = error.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
}

/// The message of the innermost error, because the messages of the outer errors are not specific.
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let message = error_chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default();
    let message = without_errno(&message).to_owned();
    // Start in lower case, except for abbreviations.
    let mut characters = message.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(message.chars().skip(1)).collect()
        }
        _ => message,
    }
}

/// Drops the errno, which follows its description.
pub(crate) fn without_errno(message: &str) -> &str {
    message
        .rsplit_once(" (os error ")
        .map_or(message, |(message, _)| message)
}

/// Whether the API server did not create an object because its namespace is being deleted. The server then
/// responds with 403, as it does if a permission is missing.
fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

fn quoted_after(message: &str, before: &str) -> Option<String> {
    let rest = message.split_once(before)?.1.strip_prefix('"')?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use hyper_util::{
        client::legacy,
        rt::{TokioExecutor, TokioIo},
    };
    use kcp_api::kind::KUBEADM_CONTROL_PLANE;
    use kube::{
        client::AuthError,
        core::{Status, response::StatusDetails},
    };
    use tokio::{io::AsyncReadExt as _, net::UnixStream};

    use super::{Error, root_cause, tls_cause};
    use crate::Action;

    fn classify(error: kube::Error) -> Error {
        let action = Action::new("get", &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"))
            .in_namespace("d")
            .with_name("c1");
        Error::from_request_error(error, &action, "https://s:6443/")
    }

    fn status(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn forbidden_names_verb_resource_namespace_and_user() {
        let message =
            r#"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io "c1" is forbidden: User "bob" cannot get"#;
        let error = classify(status(403, "Forbidden", message));
        assert_eq!(
            error.to_string(),
            "cannot get kubeadmcontrolplanes \"c1\" in namespace \"d\": forbidden for user \"bob\""
        );
        assert_eq!(
            error.hint().as_deref(),
            Some(
                "check with: kubectl auth can-i get kubeadmcontrolplanes.controlplane.cluster.x-k8s.io -n d"
            )
        );
    }

    #[test]
    fn a_refusal_by_admission_is_one_whatever_its_code() {
        let webhook = "admission webhook \"w\" denied the request: no";
        let silent = "admission webhook \"w\" denied the request without explanation";
        let policy = "kubeadmcontrolplanes.controlplane.cluster.x-k8s.io \"c1\" is forbidden: \
                      ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false";
        for message in [webhook, silent, policy] {
            for code in [0, 400, 401, 403, 404, 409, 422, 429, 500, 503, 504] {
                let error = classify(status(code, "Whatever", message));
                assert!(
                    matches!(&error, Error::Rejected { status, .. } if status.message == message),
                    "{code} {message}: {error:?}"
                );
            }
        }
    }

    #[test]
    fn a_webhook_that_does_not_answer_refuses_nothing() {
        let message = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \
                       \"https://w/?timeout=5s\": admission webhook \"w\" denied the request: EOF";
        let error = classify(status(500, "InternalError", message));
        assert!(matches!(error, Error::AdmissionFailed { .. }), "{error:?}");
    }

    #[test]
    fn a_field_that_the_server_lacks_is_named_without_the_object() {
        let field = "unknown field \"spec.rollout\"";
        let of_patch =
            format!(" \"\" is invalid: patch: Invalid value: \"{{sesame}}\": strict decoding error: {field}");
        for (code, message) in [(400, format!("strict decoding error: {field}")), (422, of_patch)] {
            let error = classify(status(code, "Invalid", &message));
            assert!(matches!(error, Error::UnknownField { .. }), "{error:?}");
            assert_eq!(
                error.to_string(),
                format!("cannot get kubeadmcontrolplanes \"c1\" in namespace \"d\": {field}")
            );
            assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
        }
    }

    #[test]
    fn an_absent_object_is_not_an_absent_kind() {
        let mut object = Status::failure("not found", "NotFound").with_code(404);
        object.details = serde_json::from_str::<StatusDetails>(r#"{"name":"c1"}"#).ok();
        assert!(matches!(
            classify(kube::Error::Api(object.boxed())),
            Error::NotFound { .. }
        ));
        let kind = status(404, "Failed to parse error data", "404 page not found");
        assert!(matches!(classify(kind), Error::NotServed { .. }));
    }

    #[test]
    fn a_server_of_another_kind_is_told() {
        let action = Action {
            verb: "get",
            resource: "/apis".to_owned(),
            namespace: None,
            name: None,
        };
        let error = Error::from_request_error(
            status(404, "Failed to parse error data", "nothing"),
            &action,
            "http://s",
        );
        assert_eq!(error.to_string(), "http://s does not serve /apis");
        assert_eq!(
            error.hint().as_deref(),
            Some("check the address: the server at this address is not a Kubernetes API server")
        );
    }

    #[test]
    fn a_page_for_a_browser_comes_from_no_api_server() {
        let page =
            |title: &str| format!("<!DOCTYPE html>\r\n<head><title>{title}</title></head>\r\n<body>long");
        for (code, text, expected) in [
            (
                403,
                page("Access denied"),
                "the server responded with 403: an HTML page, \"Access denied\"",
            ),
            (
                401,
                page("Sign in"),
                "the server responded with 401: an HTML page, \"Sign in\"",
            ),
            (
                404,
                "<html>".to_owned(),
                "the server responded with 404: an HTML page",
            ),
            (
                502,
                page("502 Bad Gateway"),
                "the server responded with 502: an HTML page, \"502 Bad Gateway\"",
            ),
            (503, "<p>busy".to_owned(), "the server is busy: an HTML page"),
        ] {
            let error = classify(status(code, "Failed to parse error data", &text));
            let action = "cannot get kubeadmcontrolplanes \"c1\" in namespace \"d\"";
            assert_eq!(error.to_string(), format!("{action}: {expected}"));
            let hint = error.hint().unwrap_or_default();
            assert!(
                hint.contains("a proxy or a login page may have responded"),
                "{code}: {hint}"
            );
            assert_eq!(error.is_transient(), code > 500, "{code}");
        }
    }

    #[test]
    fn a_rejected_request_says_what_to_write_instead() {
        for (verb, message, expected) in [
            (
                "list",
                "found ',', expected: identifier after ','",
                Some("check the selector after -l, such as team=edge,tier!=test"),
            ),
            (
                "get",
                "Client sent an HTTP request to an HTTPS server.",
                Some("write https:// in the address of the server"),
            ),
            ("patch", "found ','", None),
        ] {
            let action = Action::new(verb, &KUBEADM_CONTROL_PLANE.api_resource("v1beta2"));
            let error = Error::from_request_error(status(400, "BadRequest", message), &action, "https://s");
            assert_eq!(error.hint().as_deref(), expected, "{verb} {message}");
        }
    }

    #[test]
    fn a_credential_plugin_is_named_without_its_arguments_and_output() {
        let failed = || AuthError::AuthExecRun {
            cmd: "TOKEN=\"sesame\" \"login\" \"sesame\"".to_owned(),
            out: Box::new(std::process::Output {
                status: std::process::ExitStatus::default(),
                stdout: b"sesame".to_vec(),
                stderr: b"sesame".to_vec(),
            }),
        };
        let missing = || AuthError::AuthExecStart(io::ErrorKind::NotFound.into());
        for (error, plugin, cause) in [
            (
                missing(),
                Some("login"),
                "the credential plugin login is not installed, or not on the PATH",
            ),
            (
                failed(),
                Some("login"),
                "the credential plugin login failed: exit status: 0",
            ),
            (failed(), None, "the credential plugin failed: exit status: 0"),
            (
                AuthError::AuthExec("sesame".to_owned()),
                None,
                "the auth-provider of the user in the kubeconfig does not work; kubectl replaced auth-provider by credential \
                 plugins (exec)",
            ),
        ] {
            let error = Error::from_client_error(&kube::Error::Auth(error), "https://s", plugin);
            assert_eq!(
                error.to_string(),
                format!("cannot get credentials for https://s: {cause}")
            );
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_described() {
        for (error, cause) in [
            (
                rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
                Some("the server responded without TLS"),
            ),
            (
                rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer),
                Some("the server's certificate is signed by an unknown authority"),
            ),
            (
                rustls::Error::InvalidCertificate(rustls::CertificateError::Expired),
                None,
            ),
        ] {
            assert_eq!(tls_cause(&error), cause, "{error}");
        }
    }

    /// The error that the client library returns for a connector's error.
    fn request_through(
        connect: impl Fn() -> io::Result<UnixStream> + Clone + Send + Sync + 'static,
    ) -> Error {
        let connector =
            tower::service_fn(move |_: http::Uri| std::future::ready(connect().map(TokioIo::new)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let error = runtime.expect("a runtime").block_on(async {
            let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
            let client = kube::Client::new(http, "default");
            let request = http::Request::get("http://s/apis").body(Vec::new());
            client.request_text(request.expect("a request")).await
        });
        classify(error.expect_err("fails"))
    }

    #[test]
    fn no_connection_names_the_server() {
        let error = request_through(|| {
            Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "Connection refused",
            ))
        });
        assert_eq!(
            error.to_string(),
            "cannot reach the API server at https://s:6443/: connection refused"
        );
    }

    #[test]
    fn no_trust_is_told_from_no_connection() {
        // hyper-rustls wraps what tokio-rustls has wrapped.
        let error = request_through(|| {
            let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
            Err(io::Error::other(io::Error::other(tls)))
        });
        assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    }

    #[test]
    fn a_connection_that_breaks_is_no_answer() {
        let error = request_through(|| {
            let (ours, mut theirs) = UnixStream::pair()?;
            tokio::spawn(async move { theirs.read_u8().await });
            Ok(ours)
        });
        assert!(matches!(error, Error::NoResponse { .. }), "{error:?}");

        let tls = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
        let error = classify(kube::Error::Service(Box::new(io::Error::other(tls))));
        assert!(matches!(error, Error::NoResponse { .. }), "{error:?}");
    }

    #[test]
    fn the_cause_begins_in_lower_case() {
        assert_eq!(root_cause(&io::Error::other("No route")), "no route");
        assert_eq!(root_cause(&io::Error::other("TLS alert")), "TLS alert");
    }

    #[test]
    fn the_cause_has_no_number() {
        assert_eq!(
            root_cause(&io::Error::from_raw_os_error(2)),
            "no such file or directory"
        );
    }
}
