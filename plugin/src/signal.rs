//! The signals that end a process, for commands that have something to clean up.

use std::{fs, future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals that end a process. A signal that has been ignored since the process started, as under `nohup`, stays ignored.
pub(crate) struct EndSignal(Vec<unix::Signal>);

impl EndSignal {
    /// Makes this process receive the signals, instead of ending because of them.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        [Signal::INT, Signal::TERM, Signal::HUP]
            .into_iter()
            .filter(|signal| !is_in(ignored, *signal))
            .map(|which| signal(SignalKind::from_raw(which.as_raw())))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the second signal. The first one ends a command after its next step; a user who sends another one does not wait
    /// for this.
    pub(crate) async fn wait_for_second(&mut self) {
        self.wait().await;
        self.wait().await;
    }

    pub(crate) async fn wait(&mut self) {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            if signals.any(|signal| signal.poll_recv(context).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A bit mask of the signals that this process ignores, with signal 1 in the lowest bit; zero if the system does not report
/// it.
pub(crate) fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

pub(crate) fn is_in(mask: u64, signal: Signal) -> bool {
    u32::try_from(signal.as_raw() - 1)
        .ok()
        .and_then(|bit| mask.checked_shr(bit))
        .is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::{ignored_signals, is_in};

    /// The mask's format is that of `proc_pid_status(5)`; Rust ignores SIGPIPE at start.
    #[test]
    fn finds_ignored_signals() {
        assert!(is_in(0b1, Signal::HUP));
        assert!(!is_in(0b1, Signal::INT));
        assert!(is_in(0x1000, Signal::PIPE));
        assert!(is_in(ignored_signals(), Signal::PIPE));
        assert!(!is_in(ignored_signals(), Signal::TERM));
    }
}
