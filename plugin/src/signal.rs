//! The signals that end a process, for commands that have something to clean up.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a process.
pub(crate) struct EndSignal([Signal; 3]);

impl EndSignal {
    /// Makes this process receive the signals, instead of ending because of them.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    pub(crate) async fn wait(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
