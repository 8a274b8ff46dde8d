//! Describes a failed read for a report: names the object that could not be read, and the missing permission,
//! if any.

use kcp_api::Kind;
use kcp_control_plane::snapshot::{Failure, Forbidden};

use crate::Error;

/// How reports name an object that was read: `Kind` or `Kind/name`.
pub fn object_name(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{kind}/{name}"),
        None => kind.to_owned(),
    }
}

/// Describes a failure to read an object of the management cluster.
pub fn from_error(object: String, error: &Error) -> Failure {
    let message = match error {
        // The source of this error names the object and the field. All other messages are complete.
        Error::Malformed { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    };
    Failure {
        object,
        message: one_line(&message),
        hint: error.hint(),
        forbidden: match error {
            Error::Forbidden { action, .. } => Some(Forbidden {
                verb: action.verb.to_owned(),
                resource: action.resource.clone(),
                namespace: action.namespace.clone(),
                is_from_workload_cluster: false,
            }),
            _ => None,
        },
        is_unusable_secret: false,
    }
}

pub fn of_kind(kind: &Kind, error: &Error) -> Failure {
    from_error(object_name(kind.kind, None), error)
}

/// The maximum length in characters of a server's message. It is limited, because the server is not trusted.
pub const MAX_MESSAGE_CHARS: usize = 300;

/// Puts a server's message on one line and limits its length.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((end, _)) = line.char_indices().nth(MAX_MESSAGE_CHARS) {
            line.truncate(end);
            line.push('…');
            return line;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use kcp_api::{Machine, decode, kind::MACHINE};

    use super::{Failure, Forbidden, MAX_MESSAGE_CHARS, from_error, of_kind, one_line};
    use crate::{Action, Error};

    fn list() -> Action {
        Action::new("list", &MACHINE.api_resource("v1beta2"))
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        assert_eq!(one_line(" a\n  b\tc "), "a b c");
        let fits = "é".repeat(MAX_MESSAGE_CHARS);
        assert_eq!(one_line(&fits), fits);
        for endless in ["é".repeat(1_000), "é ".repeat(1_000)] {
            let shown = one_line(&endless);
            assert_eq!(shown.chars().count(), MAX_MESSAGE_CHARS + 1);
            assert!(shown.ends_with('…'), "{shown}");
        }
    }

    #[test]
    fn a_missing_permission_is_named() {
        let error = Error::Forbidden {
            action: Box::new(list().in_namespace("d")),
            user: Some("bob".to_owned()),
            kubectl: "kubectl".to_owned(),
        };
        assert_eq!(
            of_kind(&MACHINE, &error),
            Failure {
                object: "Machine".to_owned(),
                message: "cannot list machines in namespace \"d\": forbidden for user \"bob\"".to_owned(),
                hint: Some("check with: kubectl auth can-i list machines.cluster.x-k8s.io -n d".to_owned()),
                forbidden: Some(Forbidden {
                    verb: "list".to_owned(),
                    resource: "machines.cluster.x-k8s.io".to_owned(),
                    namespace: Some("d".to_owned()),
                    is_from_workload_cluster: false,
                }),
                ..Failure::default()
            }
        );
    }

    #[test]
    fn the_object_and_field_that_cannot_be_decoded_are_named() {
        let source = decode::<Machine>(r#"{"kind": "Machine", "metadata": {"name": "m1"}, "spec": 1}"#);
        let error = Error::malformed(list().in_namespace("d"), source.expect_err("no spec"));
        assert_eq!(
            of_kind(&MACHINE, &error).message,
            "cannot list machines in namespace \"d\": the response cannot be decoded: Machine m1: spec: found integer 1, \
             expected an object"
        );
    }

    #[test]
    fn a_message_of_several_lines_fits_on_one() {
        let error = Error::Response {
            action: list(),
            code: 500,
            message: "conversion failed:\n  no such host".to_owned(),
        };
        let failure = from_error("Machine".to_owned(), &error);
        assert_eq!(
            failure.message,
            "cannot list machines in all namespaces: the server responded with 500: conversion failed: no such host"
        );
        assert_eq!(failure.forbidden, None);
    }
}
