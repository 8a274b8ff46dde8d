//! What every command is given.

use crate::{
    arguments::Global,
    cluster::{Connection, Error},
    terminal::Terminal,
};

/// The global flags and the terminal of one run.
#[derive(Debug)]
pub struct Session {
    /// The global flags.
    pub global: Global,
    /// Where results and errors go.
    pub terminal: Terminal,
}

impl Session {
    /// Connects to the management cluster that the flags and the kubeconfig name. Not done before a command asks for
    /// it: some need no cluster.
    ///
    /// # Errors
    /// When no cluster is configured or the configuration is wrong. The server itself is first met by a request.
    pub async fn connect(&self) -> Result<Connection, Error> {
        Connection::open(&self.global, self.terminal.clone()).await
    }
}
