//! What an error means to somebody who reads a report: which object, which permission.

use crate::{
    cluster::{Error, Kind},
    status::observed::{Failure, reading::Forbidden},
};

/// `Kind`, or `Kind/name`: what was asked for.
pub(super) fn object(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{kind}/{name}"),
        None => kind.to_owned(),
    }
}

/// The failure to read an object of the management cluster.
pub(super) fn of(object: String, error: &Error) -> Failure {
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

/// The failure to read a collection.
pub(super) fn of_all(kind: &Kind, error: &Error) -> Failure {
    of(object(kind.kind, None), error)
}

/// A server's words may have several.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Failure, Forbidden, of, of_all};
    use crate::cluster::{Action, Error, MACHINE};

    fn list() -> Action {
        Action::new("list", &MACHINE.at("v1beta2"))
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
