//! `supervise [--finally COMMAND [ARGUMENT...]] -- PROGRAM [ARGUMENT...]` runs a program that ends with its caller at the
//! latest, and then COMMAND, which removes what does not end with the program.
//!
//! Its standard input is a pipe from the caller. When the pipe closes, because the caller closed it or died of any
//! cause (kill -9 included), `supervise` ends the program's process group: TERM, a second, KILL. A line on the pipe
//! names a signal that is sent to the group at once: `KILL`, as a machine that loses power; `TERM`, without the KILL
//! after a second, as a kubelet with a long grace period; `STOP` and `CONT`.
//!
//! The program has a process group of its own, so Ctrl-C in a terminal reaches the caller only. If `supervise` itself
//! is killed, the kernel kills the program, whose parent-death signal is set between fork and exec. (It cannot be set
//! on `supervise` for the caller, because it fires when the *thread* that spawned it ends.)
//!
//! The exit code is the program's, or 128 plus the signal that ended it, as in shells. 125 means that `supervise`
//! itself failed.

#![expect(clippy::print_stderr, reason = "it shares the program's log")]

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process_group, set_parent_process_death_signal, waitid,
};

/// The time after which a group that received TERM is killed. The last etcd member of a cluster would never end by
/// itself.
const GRACE: Duration = Duration::from_secs(1);

/// The argument with which `supervise` runs itself between fork and exec.
const EXEC: &str = "--exec-as-child-of";

const FINALLY: &str = "--finally";

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: supervise: {error:#}");
            ExitCode::from(125)
        }
    }
}

fn run() -> Result<u8> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next() {
        Some(flag) if flag == "--" => supervise(arguments.collect()),
        Some(flag) if flag == FINALLY => {
            let cleanup: Vec<_> = arguments.by_ref().take_while(|word| word != "--").collect();
            let code = supervise(arguments.collect())?;
            clean_up(&cleanup)?;
            Ok(code)
        }
        Some(flag) if flag == EXEC => become_program(arguments),
        _ => bail!("usage: supervise [--finally COMMAND [ARGUMENT...]] -- PROGRAM [ARGUMENT...]"),
    }
}

fn clean_up(command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no cleanup named")?;
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(())
}

/// Replaces this process by the program, which the kernel kills when the supervisor dies.
fn become_program(mut arguments: impl Iterator<Item = OsString>) -> Result<u8> {
    let supervisor = arguments.next().context("no supervisor named")?;
    let program = arguments.next().context("no program named")?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("setting the parent-death signal")?;
    // The supervisor may have died before the signal was set.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    ensure!(parent.as_deref() == supervisor.to_str(), "the supervisor is gone");
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

enum Event {
    /// The caller sent the name of a signal.
    Signal(Signal),
    /// The caller closed the pipe.
    Abandoned,
    /// The program ended. Its process group may still have members.
    CommandOutput,
}

fn supervise(command: Vec<OsString>) -> Result<u8> {
    ensure!(!command.is_empty(), "no program named");
    // The main thread starts the program, because the parent-death signal depends on the thread.
    let mut child = Command::new(env::current_exe().context("finding this program")?)
        .arg(EXEC)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .context("starting the program")?;
    let group = Pid::from_child(&child);

    let (events, inbox) = mpsc::channel();
    let from_waiter = events.clone();
    thread::spawn(move || {
        // The program is not reaped: while the leader is a zombie, no other group can get its number.
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), unreaped) {}
        from_waiter.send(Event::CommandOutput)
    });
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let signal = match line.as_deref() {
                Ok("KILL") => Signal::KILL,
                Ok("TERM") => Signal::TERM,
                Ok("STOP") => Signal::STOP,
                Ok("CONT") => Signal::CONT,
                Ok(_) => continue,
                Err(_) => break,
            };
            events.send(Event::Signal(signal))?;
        }
        events.send(Event::Abandoned)
    });

    let mut deadline: Option<Instant> = None;
    loop {
        let left = deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        match inbox.recv_timeout(left) {
            Ok(Event::Abandoned) => {
                signal(group, Signal::TERM)?;
                deadline = Some(Instant::now() + GRACE);
            }
            Ok(Event::Signal(named)) => signal(group, named)?,
            Err(RecvTimeoutError::Timeout) => {
                signal(group, Signal::KILL)?;
                deadline = None;
            }
            Ok(Event::CommandOutput) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // End whatever the program left in its group.
    signal(group, Signal::KILL)?;
    let status = child.wait().context("reaping the program")?;
    Ok(exit_code(status))
}

fn signal(group: Pid, signal: Signal) -> Result<()> {
    match kill_process_group(group, signal) {
        // The group has no members any more.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("signalling the process group"),
    }
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125)
}
