//! What has failed at an object store, why, and what to do.

use std::{error::Error, time::Duration};

use http::StatusCode;

/// A request to an object store has failed, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The request was not made.
    #[error("cannot use {place}: {cause}")]
    Configuration { place: String, cause: String },
    #[error("cannot {action} {place}: {cause}")]
    Request {
        /// What the request does, such as `upload to`.
        action: &'static str,
        /// The bucket or the object, as `s3://...`.
        place: String,
        cause: Failure,
        /// Whether the environment names credentials for the bucket.
        has_credentials: bool,
    },
    /// The name belongs to another object.
    #[error("cannot write {place}: an object with this name already exists")]
    Exists { place: String },
}

impl StorageError {
    /// What to do.
    pub fn hint(&self) -> Option<String> {
        let Self::Request {
            cause,
            has_credentials,
            ..
        } = self
        else {
            return None;
        };
        // Without a variable, a machine can still have a role. An error code of S3 means that the server has received
        // credentials, so they are not missing.
        let may_lack_credentials =
            !has_credentials && !matches!(cause, Failure::Refused { code, .. } if !code.is_empty());
        let hint = match cause {
            _ if may_lack_credentials => {
                "the environment names no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_ROLE_ARN and \
                 AWS_WEB_IDENTITY_TOKEN_FILE"
            }
            Failure::Refused { status, code, .. } => match (code.as_str(), *status) {
                ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken", _)
                | (_, StatusCode::UNAUTHORIZED) => {
                    "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
                }
                ("NoSuchBucket", _) => "create the bucket, or correct its name or AWS_ENDPOINT_URL",
                ("AuthorizationHeaderMalformed" | "PermanentRedirect", _)
                | (_, StatusCode::MOVED_PERMANENTLY | StatusCode::TEMPORARY_REDIRECT) => {
                    "set AWS_REGION to the region of the bucket"
                }
                (_, StatusCode::FORBIDDEN) => {
                    "give the credentials s3:PutObject and s3:AbortMultipartUpload on the bucket; --list, --keep and --verify \
                     also need s3:ListBucket, --keep s3:DeleteObject, and --verify s3:GetObject"
                }
                (_, StatusCode::INSUFFICIENT_STORAGE)
                | ("QuotaExceeded" | "XMinioStorageFull" | "EntityTooLarge", _) => {
                    "make room in the bucket, or raise its quota"
                }
                _ => return None,
            },
            Failure::Unreachable(_) => {
                "check AWS_ENDPOINT_URL, AWS_REGION and HTTPS_PROXY; if your own CA issued the server's certificate, set \
                 AWS_CA_BUNDLE to a file with this CA"
            }
            Failure::Interrupted(_) | Failure::Other(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// Why a request has failed. The text has no line breaks, and no secret: a server's response never contains one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the server responded with {status}{}{}", detail(.code), detail(.message))]
    Refused {
        status: StatusCode,
        /// S3's code, such as `NoSuchBucket`. Empty if the response has none.
        code: String,
        message: String,
    },
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("{0}")]
    Interrupted(String),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Reads S3's code and message from the body of a response.
    pub(crate) fn from_response(status: StatusCode, body: &str) -> Self {
        Self::Refused {
            status,
            code: element(body, "Code"),
            message: element(body, "Message"),
        }
    }

    pub(crate) fn from_transport(error: &(dyn Error + 'static), is_connect: bool) -> Self {
        // The outer errors only say that the client failed.
        let mut innermost = error;
        while let Some(cause) = innermost.source() {
            innermost = cause;
        }
        let cause = innermost.to_string();
        if is_connect {
            Self::Unreachable(cause)
        } else {
            Self::Interrupted(cause)
        }
    }

    pub(crate) fn no_response(limit: Duration) -> Self {
        Self::Interrupted(format!("no response within {} s", limit.as_secs()))
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

/// The maximum number of characters of a server's message.
const MAX_MESSAGE: usize = 300;

/// The text of the first XML element with this name, without line breaks; empty if there is none.
fn element(body: &str, name: &str) -> String {
    let (_, rest) = body.split_once(&format!("<{name}>")).unwrap_or_default();
    let (text, _) = rest.split_once("</").unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::StatusCode;

    use super::{Failure, StorageError};

    const DENIED: &str = "<?xml version=\"1.0\"?><Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id\n \
        does not exist.</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";

    #[test]
    fn a_response_is_named_by_its_code_and_message() {
        for (status, body, expected) in [
            (
                403,
                DENIED,
                "the server responded with 403 Forbidden: InvalidAccessKeyId: The AWS Access Key Id does not exist.",
            ),
            (503, "busy", "the server responded with 503 Service Unavailable"),
            (
                500,
                "<Code>",
                "the server responded with 500 Internal Server Error",
            ),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(Failure::from_response(status, body).to_string(), expected);
        }
        let long = format!("<Message>{}</Message>", "m".repeat(10_000));
        let Failure::Refused { message, .. } = Failure::from_response(StatusCode::BAD_REQUEST, &long) else {
            panic!("refused");
        };
        assert_eq!(message.len(), 300);
    }

    #[test]
    fn an_error_says_what_to_do() {
        let refused = |status: u16, code: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            Failure::from_response(status, &format!("<Code>{code}</Code>"))
        };
        let refusal = io::Error::from(io::ErrorKind::ConnectionRefused);
        for (cause, has_credentials, expected) in [
            (
                refused(403, "InvalidAccessKeyId"),
                true,
                "check AWS_ACCESS_KEY_ID",
            ),
            (
                refused(403, "AccessDenied"),
                false,
                "give the credentials s3:PutObject",
            ),
            (refused(403, ""), false, "the environment names no credentials"),
            (
                refused(403, "AccessDenied"),
                true,
                "give the credentials s3:PutObject",
            ),
            (refused(404, "NoSuchBucket"), true, "create the bucket"),
            (refused(301, "PermanentRedirect"), true, "set AWS_REGION"),
            (refused(507, ""), true, "make room in the bucket"),
            (
                Failure::from_transport(&refusal, true),
                true,
                "check AWS_ENDPOINT_URL",
            ),
            (refused(500, "InternalError"), true, ""),
        ] {
            let error = StorageError::Request {
                action: "upload to",
                place: "s3://b/k".to_owned(),
                cause,
                has_credentials,
            };
            let hint = error.hint().unwrap_or_default();
            assert!(hint.starts_with(expected), "{error}: {hint}");
            assert_eq!(hint.is_empty(), expected.is_empty(), "{error}: {hint}");
        }
    }
}
