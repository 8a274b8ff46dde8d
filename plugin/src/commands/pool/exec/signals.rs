//! The signals that are handed on to a command.

use std::{fs, future::poll_fn, io, task::Poll};

use futures_util::FutureExt as _;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// Which are handed on.
const FORWARDED: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
];

/// Those too where no terminal stops the command: this process goes on, since a lease that is not renewed ends.
const JOB_CONTROL: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The signals that this process gets.
pub(crate) struct Signals(Vec<(Signal, SignalStream)>);

impl Signals {
    /// From here on they do not end this process. What it was started to ignore, as by `nohup`, it ignores.
    pub(crate) fn listen(has_terminal: bool) -> io::Result<Self> {
        let ignored = ignored();
        let listen = |which: Signal| Ok((which, signal(SignalKind::from_raw(which.as_raw()))?));
        let job_control = JOB_CONTROL.into_iter().filter(|_| !has_terminal);
        FORWARDED
            .into_iter()
            .chain(job_control)
            .filter(|signal| !is_in(ignored, *signal))
            .map(listen)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
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

    /// The next one that is to end this process.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !JOB_CONTROL.contains(&signal) {
                return signal;
            }
        }
    }

    /// One that has come already, and is to end this process.
    pub(crate) fn ended(&mut self) -> Option<Signal> {
        self.end().now_or_never()
    }
}

/// A bit for each signal that is ignored, the first for signal 1; none where the system does not say.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    u32::try_from(signal.as_raw() - 1)
        .ok()
        .and_then(|bit| mask.checked_shr(bit))
        .is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::{ignored, is_in};

    /// As `proc_pid_status(5)` has the mask; SIGPIPE is ignored by Rust's own start.
    #[test]
    fn what_is_ignored() {
        assert!(is_in(0b1, Signal::HUP));
        assert!(!is_in(0b1, Signal::INT));
        assert!(is_in(0x1000, Signal::PIPE));
        assert!(is_in(ignored(), Signal::PIPE));
        assert!(!is_in(ignored(), Signal::TERM));
    }
}
