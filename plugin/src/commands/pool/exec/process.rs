//! Starts, signals and ends the command of `pool exec`.

use std::{
    future::poll_fn, io, os::unix::process::ExitStatusExt as _, process::ExitStatus, task::Poll,
    time::Duration,
};

use futures_util::FutureExt as _;
use rustix::process::{
    Pid, Signal, kill_current_process_group, kill_process, kill_process_group, test_kill_process_group,
};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

use crate::signal::{ignored_signals, is_in};

/// The exit code if the command exists but cannot be run, the same as in shells.
const EXIT_CANNOT_RUN: u8 = 126;
/// The exit code if the command does not exist, the same as in shells.
const EXIT_NOT_FOUND: u8 = 127;
/// If a signal ended the command, the exit code is this number plus the signal's, the same as in shells.
const SIGNAL_EXIT_CODE_BASE: i32 = 128;

/// The pause between two checks of whether the command's process group has ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct Process {
    child: Child,
    pid: Pid,
    /// Whether the command has a process group of its own.
    has_group: bool,
}

impl Process {
    /// Starts the command.
    pub(crate) fn start(mut command: Command, has_terminal: bool) -> Result<Self, CannotRun> {
        // On a terminal, the command stays in the foreground process group, which gets the signals of the terminal's keys.
        let has_group = !has_terminal;
        if has_group {
            command.process_group(0);
        }
        let child = command.spawn();
        let cannot_run = |error| CannotRun {
            program: command.as_std().get_program().to_string_lossy().into_owned(),
            error,
        };
        let child = child.map_err(cannot_run)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        // The process still has an id, because nothing has waited for its end yet.
        let pid = id
            .and_then(Pid::from_raw)
            .ok_or_else(|| cannot_run(io::ErrorKind::Other.into()))?;
        Ok(Self {
            child,
            pid,
            has_group,
        })
    }

    /// Waits until the command has ended, and returns its exit code.
    pub(crate) async fn wait_for_end(&mut self) -> io::Result<u8> {
        self.child.wait().await.map(code)
    }

    /// Forwards a signal to the command, unless the terminal has already sent the signal to both processes, as it does
    /// for Ctrl-C.
    pub(crate) fn forward(&self, signal: Signal) {
        if self.has_group || !matches!(signal, Signal::INT | Signal::QUIT) {
            self.signal(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        // Ignore the error: the signal cannot be sent only if the process has ended.
        let _ = if self.has_group {
            kill_process_group(self.pid, signal)
        } else {
            kill_process(self.pid, signal)
        };
    }

    /// Ends the command and its process group with the signal TERM, and after the grace period with KILL. On a terminal,
    /// this process is in the same group, so it ignores TERM from then on.
    pub(crate) async fn end(&mut self, grace: Duration) -> io::Result<()> {
        if self.has_group {
            self.signal(Signal::TERM);
        } else {
            // Ignore the error: the signal cannot be sent only if the group has no process.
            let _ = kill_current_process_group(Signal::TERM);
        }
        let ended = async {
            let status = self.child.wait().await;
            while self.has_group && test_kill_process_group(self.pid).is_ok() {
                tokio::time::sleep(END_POLL_INTERVAL).await;
            }
            status
        };
        if let Ok(status) = tokio::time::timeout(grace, ended).await {
            return status.map(drop);
        }
        self.signal(Signal::KILL);
        self.child.wait().await.map(drop)
    }
}

/// Why the command cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {}", self.why())]
pub(crate) struct CannotRun {
    program: String,
    error: io::Error,
}

impl CannotRun {
    fn why(&self) -> String {
        match self.error.kind() {
            io::ErrorKind::NotFound if self.program.contains(' ') => {
                "program not found; do not put the program and its arguments into one pair of quotes"
                    .to_owned()
            }
            io::ErrorKind::NotFound => "program not found".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => self.error.to_string(),
        }
    }

    /// The exit code for a command that cannot be run, the same as in shells.
    pub(crate) fn code(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound {
            EXIT_NOT_FOUND
        } else {
            EXIT_CANNOT_RUN
        }
    }
}

/// The exit code of a process that this signal ended, the same as in shells.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(SIGNAL_EXIT_CODE_BASE + signal.as_raw()).unwrap_or(u8::MAX)
}

/// The exit code for the command's exit status, the same as in shells.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| Some(SIGNAL_EXIT_CODE_BASE + status.signal()?))
        .unwrap_or(SIGNAL_EXIT_CODE_BASE);
    u8::try_from(code).unwrap_or(u8::MAX)
}

const FORWARDED_SIGNALS: [Signal; 7] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
];

/// The signals that stop and continue a process. This process forwards them to the command, but does not stop itself, because it
/// must renew the lease.
const JOB_CONTROL_SIGNALS: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The signals to this process while a command runs.
pub(crate) struct Signals(Vec<(Signal, SignalStream)>);

impl Signals {
    /// Makes this process receive signals, instead of ending because of them. A signal that has been ignored since the
    /// process started, as under `nohup`, stays ignored.
    pub(crate) fn listen(has_terminal: bool) -> io::Result<Self> {
        let ignored = ignored_signals();
        let listen = |which: Signal| Ok((which, signal(SignalKind::from_raw(which.as_raw()))?));
        let job_control = JOB_CONTROL_SIGNALS.into_iter().filter(|_| !has_terminal);
        FORWARDED_SIGNALS
            .into_iter()
            .chain(job_control)
            .filter(|signal| !is_in(ignored, *signal))
            .map(listen)
            .collect::<io::Result<_>>()
            .map(Self)
    }

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

    /// Waits for the next signal whose default effect is to end a process.
    pub(crate) async fn wait_for_end_signal(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !JOB_CONTROL_SIGNALS.contains(&signal) {
                return signal;
            }
        }
    }

    /// Waits for the second such signal. The first one ends `pool exec` only between two attempts to get a lease; a user who sends
    /// another one does not wait for this.
    pub(crate) async fn wait_for_second_end_signal(&mut self) -> Signal {
        self.wait_for_end_signal().await;
        self.wait_for_end_signal().await
    }

    /// A signal whose default effect is to end a process, if one has already arrived.
    pub(crate) fn pending_end_signal(&mut self) -> Option<Signal> {
        self.wait_for_end_signal().now_or_never()
    }
}

#[cfg(test)]
mod tests {
    use std::{io, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};

    use tokio::{io::AsyncReadExt as _, process::Command};

    use super::{CannotRun, Process, code};

    /// Exit statuses in the format of `waitpid`: the code is in the second byte, a signal in the first.
    #[test]
    fn exit_codes_are_those_of_a_shell() {
        for (raw, expected) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(code(ExitStatus::from_raw(raw)), expected, "{raw}");
        }
    }

    #[test]
    fn a_command_that_cannot_run_says_why() {
        for (program, kind, expected) in [
            (
                "tset",
                io::ErrorKind::NotFound,
                "cannot run tset: program not found",
            ),
            (
                "ls -l /",
                io::ErrorKind::NotFound,
                "cannot run ls -l /: program not found; do not put the program and its arguments into one pair of quotes",
            ),
            (
                "./x",
                io::ErrorKind::PermissionDenied,
                "cannot run ./x: permission denied",
            ),
        ] {
            let program = program.to_owned();
            let error = CannotRun {
                program,
                error: kind.into(),
            };
            assert_eq!(error.to_string(), expected);
        }
    }

    /// The pipe ends when no process has it open.
    #[tokio::test]
    async fn the_process_group_ends_with_the_command() {
        let mut command = Command::new("sh");
        let script = "(trap '' TERM; echo up; while :; do sleep 0.1; done) & wait";
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let mut process = Process::start(command, false).unwrap();
        let mut pipe = process.child.stdout.take().unwrap();
        let mut up = [0; 3];
        pipe.read_exact(&mut up).await.unwrap();
        process.end(Duration::from_millis(200)).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), pipe.read_to_end(&mut Vec::new())).await;
        assert_eq!(ended.unwrap().unwrap(), 0);
    }
}
