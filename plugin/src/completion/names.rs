//! Reads the names that complete a value, from the kubeconfig and from the cluster.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use clap::{Args as _, Command, FromArgMatches as _};
use kcp_api::{
    Kind, Object as _, PartialObjectMetadata,
    kind::{MACHINE, NAMESPACE},
    names::label,
};
use kcp_client::{
    Connection, kubeconfig,
    reads::names::{list_metadata, list_versions},
};
use kcp_rules::syntax::parse_version;
use kube::config::Kubeconfig;
use tokio::time::timeout;

use crate::{
    arguments::{Global, global::ColorWhen, name::NamedKind},
    session::Session,
    terminal::Terminal,
};

/// A text that the user can choose, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) value: String,
    pub(super) help: String,
}

impl Candidate {
    pub(super) fn new(value: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            help: help.into(),
        }
    }
}

/// Completion stops reading from the cluster after this time, counted from the start of the program. The shell waits for the answer
/// even if the server is dead.
const LIMIT: Duration = Duration::from_millis(220);

/// The names that complete a value. Each list is empty if it cannot be read.
pub(super) trait Names {
    fn objects(&self, kind: &NamedKind) -> Vec<Candidate>;
    fn namespaces(&self) -> Vec<Candidate>;
    fn contexts(&self) -> Vec<Candidate>;
    fn clusters(&self) -> Vec<Candidate>;
    fn users(&self) -> Vec<Candidate>;
    fn versions(&self) -> Vec<Candidate>;
}

/// The names in the kubeconfig and the cluster that the flags of the command line select.
#[derive(Debug)]
pub(super) struct LiveNames {
    global: Global,
    started: Instant,
}

impl LiveNames {
    /// `global_flags` are those of the command line, as `--NAME=VALUE`. Invalid ones are ignored.
    pub(super) fn new(global_flags: &[String], started: Instant) -> Self {
        let command = Global::augment_args(Command::new("global")).no_binary_name(true);
        let is_valid = |flag: &&String| command.clone().try_get_matches_from([flag]).is_ok();
        let valid: Vec<&String> = global_flags.iter().filter(is_valid).collect();
        let matches = command.clone().try_get_matches_from(valid);
        let global = matches.and_then(|matches| Global::from_arg_matches(&matches));
        Self {
            global: global.unwrap_or_default(),
            started,
        }
    }

    fn kubeconfig(&self) -> Kubeconfig {
        let loaded = kubeconfig::load(self.global.kubeconfig.as_deref(), false);
        loaded.ok().flatten().unwrap_or_default()
    }

    /// Reads from the cluster until the time limit. `read` adds each page of names as it arrives, so that the time limit
    /// loses only what has not arrived.
    fn read<T>(&self, read: impl AsyncFnOnce(&Connection, &mut Vec<T>)) -> Vec<T> {
        let mut found = Vec::new();
        let Some(left) = LIMIT.checked_sub(self.started.elapsed()) else {
            return found;
        };
        // Ignore the error: it means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return found;
        };
        let session = Session {
            global: self.global.clone(),
            terminal: Terminal::new(ColorWhen::Never),
        };
        runtime.block_on(async {
            let read = async {
                if let Ok(connection) = session.connect_within(left).await {
                    read(&connection, &mut found).await;
                }
            };
            // Ignore the error: the names that have arrived are the answer.
            let _ = timeout(left, read).await;
        });
        // Do not wait for DNS lookups and credential plugins.
        runtime.shutdown_background();
        found
    }

    fn metadata(
        &self,
        kind: &Kind,
        is_namespaced: bool,
        selector: Option<&str>,
    ) -> Vec<PartialObjectMetadata> {
        self.read(async |connection, found| {
            let namespace = is_namespaced.then_some(connection.namespace.as_str());
            list_metadata(connection, kind, namespace, selector, found).await;
        })
    }
}

impl Names for LiveNames {
    fn objects(&self, kind: &NamedKind) -> Vec<Candidate> {
        // The Machines that commands name are those of control planes.
        let selector = (kind.kind == MACHINE).then_some(label::CONTROL_PLANE);
        let found = self.metadata(&kind.kind, true, selector);
        let what = kind.noun();
        let candidate = |object: &PartialObjectMetadata| {
            let help = match object.label(label::CLUSTER_NAME) {
                Some(cluster) => format!("{what} of cluster {cluster}"),
                None => what.to_owned(),
            };
            Candidate::new(object.name(), help)
        };
        found.iter().map(candidate).collect()
    }

    fn namespaces(&self) -> Vec<Candidate> {
        let found = self.metadata(&NAMESPACE, false, None);
        found
            .iter()
            .map(|namespace| Candidate::new(namespace.name(), "namespace"))
            .collect()
    }

    fn contexts(&self) -> Vec<Candidate> {
        let contexts = self.kubeconfig().contexts;
        let help = |context: &kube::config::NamedContext| match &context.context {
            Some(context) => format!("context of cluster {}", context.cluster),
            None => "context".to_owned(),
        };
        contexts
            .iter()
            .map(|context| Candidate::new(&context.name, help(context)))
            .collect()
    }

    fn clusters(&self) -> Vec<Candidate> {
        let clusters = self.kubeconfig().clusters;
        clusters
            .iter()
            .map(|cluster| Candidate::new(&cluster.name, "cluster of the kubeconfig"))
            .collect()
    }

    fn users(&self) -> Vec<Candidate> {
        let users = self.kubeconfig().auth_infos;
        users
            .iter()
            .map(|user| Candidate::new(&user.name, "user of the kubeconfig"))
            .collect()
    }

    fn versions(&self) -> Vec<Candidate> {
        let found = self.read(async |connection, found| {
            list_versions(connection, found).await;
        });
        versions_in_use(found)
    }
}

/// Each version once, the newest first, with the number of control planes that have it.
fn versions_in_use(mut found: Vec<String>) -> Vec<Candidate> {
    found.sort_by_cached_key(|version| Reverse(parse_version(version).ok()));
    let of_one_version = found.chunk_by(|a, b| a == b);
    of_one_version
        .filter_map(|same| {
            let version = same.first()?;
            let count = match same.len() {
                1 => "1 control plane".to_owned(),
                number => format!("{number} control planes"),
            };
            Some(Candidate::new(version, format!("version of {count}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Candidate, LiveNames, Names as _, versions_in_use};
    use std::time::Instant;

    #[test]
    fn versions_are_sorted_by_their_numbers() {
        let found = ["v1.9.1", "v1.34.10", "v1.34.9", "v1.34.10"].map(str::to_owned);
        let expected = [
            Candidate::new("v1.34.10", "version of 2 control planes"),
            Candidate::new("v1.34.9", "version of 1 control plane"),
            Candidate::new("v1.9.1", "version of 1 control plane"),
        ];
        assert_eq!(versions_in_use(found.to_vec()), expected);
    }

    /// Nothing listens on port 1.
    #[test]
    fn a_dead_server_has_no_names() {
        let flags = ["--server=https://127.0.0.1:1", "--context="].map(str::to_owned);
        let names = LiveNames::new(&flags, Instant::now());
        assert_eq!(names.namespaces(), []);
        assert_eq!(names.versions(), []);
    }

    #[test]
    fn an_invalid_flag_does_not_hide_the_others() {
        let flags = ["--namespace=a", "--request-timeout=soon", "--context=c"].map(str::to_owned);
        let names = LiveNames::new(&flags, Instant::now());
        assert_eq!(names.global.context.as_deref(), Some("c"));
        assert_eq!(names.global.namespace.as_deref(), Some("a"));
    }
}
