//! Holds what every command receives: the global flags and the terminal.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::{arguments::Global, terminal::Terminal};
use kcp_client::{Connection, ConnectionFlags, Error, RequestLog};

/// The lowest level of `-v` at which requests are logged, as in kubectl.
const REQUEST_LOG_LEVEL: u8 = 6;

/// The global flags of a command, and the terminal that it prints to.
#[derive(Debug)]
pub struct Session {
    pub global: Global,
    pub terminal: Terminal,
}

impl Session {
    /// Connects to the management cluster. Commands that need no cluster do not call this. An unreachable server is no error
    /// here; the first request to it fails instead.
    pub async fn connect(&self) -> Result<Connection, Error> {
        Connection::open(&self.global.connection(), self.request_log()).await
    }

    /// The log of requests on stderr; `None` below `-v 6`, as in kubectl.
    pub fn request_log(&self) -> Option<RequestLog> {
        let terminal = self.terminal.clone();
        (self.global.verbosity >= REQUEST_LOG_LEVEL)
            .then(|| -> RequestLog { Arc::new(move |line| terminal.note(line)) })
    }

    /// Connects like [`Session::connect`], but fails if a credential plugin takes longer than `limit`. The plugin keeps
    /// running.
    pub async fn connect_within(&self, limit: Duration) -> Result<Connection, Error> {
        self.open_within(self.global.connection(), limit).await
    }

    /// Like [`Session::connect_within`], but in another context of the kubeconfig.
    pub async fn connect_to(&self, context: &str, limit: Duration) -> Result<Connection, Error> {
        let flags = ConnectionFlags {
            context: Some(context.to_owned()),
            ..self.global.connection()
        };
        self.open_within(flags, limit).await
    }

    async fn open_within(&self, flags: ConnectionFlags, limit: Duration) -> Result<Connection, Error> {
        let log = self.request_log();
        let runtime = Handle::current();
        // Use a thread, because waiting for a credential plugin blocks the thread.
        let opened = spawn_blocking(move || runtime.block_on(Connection::open(&flags, log)));
        match timeout(limit, opened).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ended)) => Err(Error::Configuration {
                cause: ended.to_string(),
            }),
            Err(_) => Err(Error::CredentialsOutOfTime { after: limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::{Error, Session};
    use crate::{
        arguments::{Global, global::ColorWhen},
        terminal::Terminal,
    };

    #[test]
    fn a_wait_for_a_hanging_credential_plugin_ends() {
        let kubeconfig = std::env::temp_dir().join(format!("kcp-session-{}.kubeconfig", std::process::id()));
        let text = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
                    clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user: {exec: {apiVersion: \
                    client.authentication.k8s.io/v1, command: sleep, args: ['5'], interactiveMode: Never}}}]}";
        fs::write(&kubeconfig, text).expect("a file");
        let session = Session {
            global: Global {
                kubeconfig: Some(kubeconfig.clone()),
                ..Global::default()
            },
            terminal: Terminal::new(ColorWhen::Never),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let opened = runtime.block_on(session.connect_within(Duration::from_millis(300)));
        runtime.shutdown_background();
        fs::remove_file(&kubeconfig).expect("the file");
        let error = opened.err().expect("no credentials");
        assert!(matches!(error, Error::CredentialsOutOfTime { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the credential plugin in the kubeconfig did not provide credentials within 0.3s"
        );
    }
}
