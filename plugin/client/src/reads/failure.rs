//! What an error means to somebody who reads a report: which object, which permission.

use kcp_api::Kind;
use kcp_control_plane::snapshot::{Failure, Forbidden};

use crate::Error;

/// `Kind`, or `Kind/name`: what was asked for.
pub fn object(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{kind}/{name}"),
        None => kind.to_owned(),
    }
}

/// The failure to read an object of the management cluster.
pub fn of(object: String, error: &Error) -> Failure {
    Failure {
        object,
        message: one_line(&error.to_string()),
        hint: error.hint(),
        forbidden: match error {
            Error::Forbidden { action, .. } => Some(Forbidden {
                verb: action.verb.to_owned(),
                resource: action.resource.clone(),
                namespace: action.namespace.clone(),
                in_workload_cluster: false,
            }),
            _ => None,
        },
    }
}

pub fn of_all(kind: &Kind, error: &Error) -> Failure {
    of(object(kind.kind, None), error)
}

/// The longest message that is kept, in characters: what answers may say anything.
pub const LONGEST_MESSAGE: usize = 300;

/// A server's words may have several lines, and be without end.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((end, _)) = line.char_indices().nth(LONGEST_MESSAGE) {
            line.truncate(end);
            line.push('…');
            return line;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::MACHINE;

    use super::{Failure, Forbidden, LONGEST_MESSAGE, of, of_all, one_line};
    use crate::{Action, Error};

    fn list() -> Action {
        Action::new("list", &MACHINE.at("v1beta2"))
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        assert_eq!(one_line(" a\n  b\tc "), "a b c");
        let fits = "é".repeat(LONGEST_MESSAGE);
        assert_eq!(one_line(&fits), fits);
        for endless in ["é".repeat(1_000), "é ".repeat(1_000)] {
            let shown = one_line(&endless);
            assert_eq!(shown.chars().count(), LONGEST_MESSAGE + 1);
            assert!(shown.ends_with('…'), "{shown}");
        }
    }

    #[test]
    fn a_missing_permission_is_named() {
        let error = Error::Forbidden {
            action: list().in_namespace("d"),
            user: Some("bob".to_owned()),
        };
        assert_eq!(
            of_all(&MACHINE, &error),
            Failure {
                object: "Machine".to_owned(),
                message: "cannot list machines in namespace \"d\": forbidden for user \"bob\"".to_owned(),
                hint: Some("check with: kubectl auth can-i list machines.cluster.x-k8s.io -n d".to_owned()),
                forbidden: Some(Forbidden {
                    verb: "list".to_owned(),
                    resource: "machines.cluster.x-k8s.io".to_owned(),
                    namespace: Some("d".to_owned()),
                    in_workload_cluster: false,
                }),
            }
        );
    }

    #[test]
    fn a_message_of_several_lines_fits_on_one() {
        let error = Error::Answer {
            action: list(),
            code: 500,
            message: "conversion failed:\n  no such host".to_owned(),
        };
        let failure = of("Machine".to_owned(), &error);
        assert_eq!(
            failure.message,
            "cannot list machines in all namespaces: the server answers 500: conversion failed: no such host"
        );
        assert_eq!(failure.forbidden, None);
    }
}
