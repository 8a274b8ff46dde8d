//! Signals, and the phases of a server's life.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

/// A server's life. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Ready.
    Serving,
    /// Not ready any more; still accepts connections, and asks each client to leave with `Connection: close`.
    Draining,
    /// Accepts no connection; ends when the last review has been answered.
    Closing,
}

/// Waits for [`Phase::Closing`]. Without anybody to announce it, it never comes.
pub(crate) async fn closing(phase: &mut watch::Receiver<Phase>) {
    if phase.wait_for(|phase| *phase == Phase::Closing).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Asks a server to stop. The first request drains it, the second aborts.
#[derive(Debug)]
pub struct Stop(mpsc::UnboundedReceiver<&'static str>);

impl Stop {
    /// Stops on request of the sender's owner, who says why. A dropped sender never stops anything.
    pub fn channel() -> (mpsc::UnboundedSender<&'static str>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }

    /// Stops on SIGTERM and SIGINT. From now on neither ends the process by itself.
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

    /// Waits for the next request to stop.
    pub(crate) async fn requested(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
