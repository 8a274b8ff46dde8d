//! Signals, and the phases of a shutdown.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

/// The phases of a server, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The server is ready.
    Serving,
    /// The server is no longer ready. It still accepts connections, and tells each client to disconnect with
    /// `Connection: close`.
    Draining,
    /// The server accepts no connections, and ends after the last response.
    Closing,
}

/// Waits for [`Phase::Closing`]. If the sender of phases is dropped, waits forever.
pub(crate) async fn wait_for_closing(phase: &mut watch::Receiver<Phase>) {
    if phase.wait_for(|phase| *phase == Phase::Closing).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Requests to stop a server. The first request drains the server, and the second one aborts it.
#[derive(Debug)]
pub struct Stop(mpsc::UnboundedReceiver<&'static str>);

impl Stop {
    /// Returns a sender of stop requests, each with its reason. Dropping the sender does not stop the server.
    pub fn channel() -> (mpsc::UnboundedSender<&'static str>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }

    /// Turns SIGTERM and SIGINT into stop requests. The signals then no longer end the process directly.
    pub fn on_signals() -> io::Result<Self> {
        let (sender, stop) = Self::channel();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if sender.send(name).is_err() {
                    break;
                }
            }
        });
        Ok(stop)
    }

    /// Waits for the next stop request, and returns its reason.
    pub(crate) async fn wait_for_request(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
