//! The process of a command.

use std::{
    io::{self, IsTerminal as _},
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

/// A command that cannot be run, as in shells.
const CANNOT_RUN: u8 = 126;
/// A command that is not there, as in shells.
const NOT_FOUND: u8 = 127;
/// A command that a signal ended has this and the signal's number, as in shells.
const BY_SIGNAL: i32 = 128;

/// The command's process.
pub(super) struct Process {
    child: Child,
    /// Whether it has a process group of its own.
    has_group: bool,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be run.
    pub(super) fn start(mut command: Command) -> Result<Self, CannotRun> {
        // A terminal signals all of its foreground: a group of its own would not be that.
        let has_group = !io::stdin().is_terminal();
        if has_group {
            command.process_group(0);
        }
        match command.spawn() {
            Ok(child) => Ok(Self { child, has_group }),
            Err(error) => Err(CannotRun {
                program: command.as_std().get_program().to_string_lossy().into_owned(),
                error,
            }),
        }
    }

    /// Its exit code, once it has ended.
    pub(super) async fn ended(&mut self) -> io::Result<u8> {
        self.child.wait().await.map(code)
    }

    /// Hands a signal on. On a terminal those of its keys have reached the command already.
    pub(super) fn forward(&self, signal: Signal) {
        if self.has_group || !matches!(signal, Signal::INT | Signal::QUIT) {
            self.signal(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let Some(pid) = id.and_then(Pid::from_raw) else {
            return;
        };
        // The only failure is a process that is gone.
        let _ = if self.has_group {
            kill_process_group(pid, signal)
        } else {
            kill_process(pid, signal)
        };
    }

    /// Ends it: TERM, and after the time of grace KILL.
    pub(super) async fn end(&mut self, grace: Duration) -> io::Result<()> {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            self.child.wait().await?;
        }
        Ok(())
    }
}

/// A command that cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {}", self.why())]
pub(super) struct CannotRun {
    program: String,
    error: io::Error,
}

impl CannotRun {
    fn why(&self) -> String {
        match self.error.kind() {
            io::ErrorKind::NotFound => "there is no such program".to_owned(),
            io::ErrorKind::PermissionDenied => "it may not be executed".to_owned(),
            _ => self.error.to_string(),
        }
    }

    /// As shells have it.
    pub(super) fn code(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound {
            NOT_FOUND
        } else {
            CANNOT_RUN
        }
    }
}

/// The code of one whom this signal ended, as shells have it.
pub(super) fn code_of(signal: Signal) -> u8 {
    u8::try_from(BY_SIGNAL + signal.as_raw()).unwrap_or(u8::MAX)
}

/// The command's code, as shells have it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| Some(BY_SIGNAL + status.signal()?))
        .unwrap_or(BY_SIGNAL);
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

    use super::code;

    /// As `waitpid` has them: the code in the second byte, a signal in the first.
    #[test]
    fn codes_are_those_of_a_shell() {
        for (raw, expected) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(code(ExitStatus::from_raw(raw)), expected, "{raw}");
        }
    }
}
