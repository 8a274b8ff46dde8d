//! The signals that are handed on to a command.

use std::{future::poll_fn, io, task::Poll};

use futures_util::FutureExt as _;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// Which are handed on.
const FORWARDED: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// The signals that this process gets.
pub(super) struct Signals(Vec<(Signal, SignalStream)>);

impl Signals {
    /// From here on they do not end this process.
    pub(super) fn listen() -> io::Result<Self> {
        let listen = |which: Signal| Ok((which, signal(SignalKind::from_raw(which.as_raw()))?));
        FORWARDED
            .into_iter()
            .map(listen)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// One that has come already.
    pub(super) fn pending(&mut self) -> Option<Signal> {
        self.next().now_or_never()
    }
}
