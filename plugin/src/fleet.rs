//! Reads several control planes at the same time, in one or several contexts of the kubeconfig.

use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    arguments::Global,
    session::Session,
    terminal::{Terminal, escape},
};
use kcp_client::{Connection, Error};

/// The maximum number of control planes of one context that are read at the same time. Each may need a dozen connections.
pub const MAX_CONCURRENT_READS: usize = 8;

/// The maximum number of contexts that are read at the same time.
const MAX_CONCURRENT_CONTEXTS: usize = 4;

/// The text of an empty list. `None` means all namespaces.
pub fn no_control_planes(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("No control planes found in {} namespace.\n", escape(namespace)),
        None => "No control planes found.\n".to_owned(),
    }
}

/// The flag `--contexts` of commands that list control planes.
#[derive(Clone, Debug, Default, Args)]
pub struct ContextsArgument {
    /// Show the control planes of these kubeconfig contexts in one table
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_context, conflicts_with = "name")]
    pub contexts: Vec<String>,
}

impl ContextsArgument {
    /// The error message, if a global flag already selects one cluster.
    pub fn contradiction(&self, global: &Global) -> Option<String> {
        let selects = [
            ("--context", global.context.is_some()),
            ("--cluster", global.cluster.is_some()),
            ("--server", global.server.is_some()),
            // The credentials of one cluster must not be sent to the others.
            ("--user", global.user.is_some()),
            ("--token", global.token.is_some()),
            ("--client-certificate", global.client_certificate.is_some()),
        ];
        let (flag, _) = selects
            .iter()
            .find(|(_, is_set)| *is_set && !self.contexts.is_empty())?;
        Some(format!(
            "--contexts cannot be used with {flag}, which applies to only one cluster"
        ))
    }
}

fn parse_context(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("expected the names of contexts, separated by commas".to_owned());
    }
    Ok(text.to_owned())
}

/// The connection to each context, or the error.
pub type Connections = Vec<(String, Result<Connection, Error>)>;

/// A context whose control planes could not be listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreadContext {
    pub context: String,
    pub error: String,
}

/// What was read in each context, in the order of the contexts, and the contexts that could not be read.
#[derive(Debug)]
pub struct InContexts<T> {
    pub results: Vec<(String, T)>,
    pub unread_contexts: Vec<UnreadContext>,
}

/// Connects to each context once. `limit` is the time limit for a credential plugin.
pub async fn connect(session: &Session, contexts: &[String], limit: Duration) -> Connections {
    let mut names: Vec<&String> = Vec::new();
    for context in contexts {
        if !names.contains(&context) {
            names.push(context);
        }
    }
    let connect = names
        .into_iter()
        .map(async |context| (context.clone(), session.connect_to(context, limit).await));
    stream::iter(connect)
        .buffered(MAX_CONCURRENT_CONTEXTS)
        .collect()
        .await
}

/// The time of the first API server to which there is a connection. In a table of several contexts, ages are
/// relative to this time. Without a connection, the table shows no ages.
pub fn now(connections: &Connections) -> Timestamp {
    let mut connections = connections
        .iter()
        .filter_map(|(_, connection)| connection.as_ref().ok());
    connections.next().map_or(Timestamp::UNIX_EPOCH, Connection::now)
}

/// Calls `read` for each context. The failure of one context does not affect the others.
pub async fn read_each<T>(
    connections: &Connections,
    read: impl AsyncFn(&Connection) -> Result<T, Error>,
) -> InContexts<T> {
    let read = &read;
    let reads = connections.iter().map(async |(context, connection)| {
        let outcome = match connection {
            Ok(connection) => read(connection).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        (context.clone(), outcome)
    });
    let mut reads = stream::iter(reads).buffered(MAX_CONCURRENT_CONTEXTS);
    let mut all = InContexts {
        results: Vec::new(),
        unread_contexts: Vec::new(),
    };
    while let Some((context, outcome)) = reads.next().await {
        match outcome {
            Ok(read) => all.results.push((context, read)),
            Err(error) => all.unread_contexts.push(UnreadContext { context, error }),
        }
    }
    all
}

/// Reads several control planes at the same time, each with `one`, and shows the progress on a terminal. Returns the
/// results in the order of the control planes.
pub async fn read_concurrently<C, T>(
    terminal: &Terminal,
    control_planes: &[C],
    one: impl AsyncFn(&C) -> T,
) -> Vec<T> {
    let total = control_planes.len();
    let progress = |done: usize| terminal.spin(&format!("{done} of {total} control planes read"));
    progress(0);
    let one = &one;
    let reads = control_planes
        .iter()
        .enumerate()
        .map(|(index, control_plane)| async move { (index, one(control_plane).await) });
    let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS);
    let mut read = Vec::with_capacity(total);
    while let Some(outcome) = reads.next().await {
        read.push(outcome);
        progress(read.len());
    }
    terminal.stop_spinning();
    read.sort_unstable_by_key(|(index, _)| *index);
    read.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args as _, Command, FromArgMatches as _};

    use super::{ContextsArgument, UnreadContext, read_each};
    use crate::arguments::Global;
    use kcp_client::{Connection, Error};

    fn parse(words: &str) -> Result<ContextsArgument, clap::Error> {
        let name = clap::Arg::new("name");
        let command = ContextsArgument::augment_args(Command::new("list").arg(name));
        let words = std::iter::once("list").chain(words.split_whitespace());
        ContextsArgument::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn contexts_are_separated_by_commas() {
        for (words, expected) in [
            ("", Some(vec![])),
            ("--contexts a", Some(vec!["a"])),
            ("--contexts a,b/c:1,d", Some(vec!["a", "b/c:1", "d"])),
            ("--contexts a,,b", None),
            ("--contexts a edge", None),
        ] {
            let contexts = parse(words).ok().map(|parsed| parsed.contexts);
            let expected: Option<Vec<String>> =
                expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(contexts, expected, "{words}");
        }
    }

    #[test]
    fn another_flag_may_not_select_the_cluster_as_well() {
        let global = |context: Option<&str>, server: Option<&str>| Global {
            context: context.map(str::to_owned),
            server: server.map(str::to_owned),
            ..Global::default()
        };
        for (words, global, expected) in [
            ("--contexts a", global(None, None), None),
            ("", global(Some("b"), Some("s")), None),
            ("--contexts a", global(Some("b"), None), Some("--context")),
            ("--contexts a", global(None, Some("s")), Some("--server")),
        ] {
            let message = parse(words).expect("parses").contradiction(&global);
            let expected = expected.map(|flag| {
                format!("--contexts cannot be used with {flag}, which applies to only one cluster")
            });
            assert_eq!(message, expected, "{words}");
        }
    }

    #[tokio::test]
    async fn a_context_that_fails_does_not_affect_the_others() {
        let connection = |context: &str| Connection {
            context: Some(context.to_owned()),
            ..Connection::canned(|_, _| (200, serde_json::Value::Null))
        };
        let out_of_time = || Error::CredentialsOutOfTime {
            after: Duration::from_secs(1),
        };
        let connections = vec![
            ("a".to_owned(), Ok(connection("a"))),
            ("b".to_owned(), Err(out_of_time())),
            ("c".to_owned(), Ok(connection("c"))),
            ("d".to_owned(), Ok(connection("d"))),
        ];
        let all = read_each(&connections, async |connection| {
            match connection.context.as_deref() {
                Some("c") => Err(out_of_time()),
                _ => Ok(connection.context.clone()),
            }
        })
        .await;
        let read: Vec<&str> = all.results.iter().map(|(context, _)| context.as_str()).collect();
        assert_eq!(read, ["a", "d"]);
        let unread = |context: &str| UnreadContext {
            context: context.to_owned(),
            error: out_of_time().to_string(),
        };
        assert_eq!(all.unread_contexts, [unread("b"), unread("c")]);
    }
}
