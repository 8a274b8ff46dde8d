//! `supervise -- PROGRAM [ARGUMENT...]` runs a program that cannot outlive whoever asked for it.
//!
//! Standard input is the lifeline: a pipe whose other end the asker holds. When it closes, because the asker
//! closed it or died of any cause (kill -9 included), the program's whole process group is ended: TERM, a
//! moment, KILL. A line `KILL` ends the group at once, which is how a test pulls the plug of a machine; a line `TERM` asks
//! it to end and leaves it the time it takes, as a kubelet with a long grace period does.
//!
//! The program is in a process group of its own, so Ctrl-C in a terminal reaches the asker alone. Should this
//! supervisor be killed itself, the kernel kills the program: its parent-death signal is set between fork and
//! exec. (It cannot be set on the supervisor for the asker: it fires when the *thread* that spawned it ends.)
//!
//! The exit code is the program's, or 128 plus the signal that ended it, as in shells; 125 is our own failure.

#![expect(
    clippy::print_stderr,
    reason = "it shares the program's log, where the asker looks"
)]

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

/// How long a group may take to end after TERM. An etcd member that is the last of its cluster never would.
const GRACE: Duration = Duration::from_secs(1);

/// What `supervise` calls itself with for the moment between fork and exec.
const EXEC: &str = "--exec-as-child-of";

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
        Some(flag) if flag == EXEC => become_program(arguments),
        _ => bail!("usage: supervise -- PROGRAM [ARGUMENT...]"),
    }
}

/// Replaces this process by the program, with the kernel told to kill it when the supervisor dies.
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
    /// The asker wants the group killed without notice.
    Kill,
    /// The asker wants the group asked to end.
    Terminate,
    /// The lifeline closed.
    Abandoned,
    /// The program ended; its process group may still have members.
    Ended,
}

fn supervise(command: Vec<OsString>) -> Result<u8> {
    ensure!(!command.is_empty(), "no program named");
    // The main thread starts the program: the parent-death signal follows the thread.
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
        // Not reaped: as long as its leader is a zombie the group's number cannot be given to another.
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), unreaped) {}
        from_waiter.send(Event::Ended)
    });
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("KILL") => events.send(Event::Kill)?,
                Ok("TERM") => events.send(Event::Terminate)?,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        events.send(Event::Abandoned)
    });

    let mut deadline: Option<Instant> = None;
    loop {
        let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        match inbox.recv_timeout(left) {
            Ok(Event::Abandoned) => {
                signal(group, Signal::TERM)?;
                deadline = Some(Instant::now() + GRACE);
            }
            Ok(Event::Kill) => signal(group, Signal::KILL)?,
            Ok(Event::Terminate) => signal(group, Signal::TERM)?,
            Err(RecvTimeoutError::Timeout) => {
                signal(group, Signal::KILL)?;
                deadline = None;
            }
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // What the program left in its group goes with it.
    signal(group, Signal::KILL)?;
    let status = child.wait().context("reaping the program")?;
    Ok(exit_code(status))
}

fn signal(group: Pid, signal: Signal) -> Result<()> {
    match kill_process_group(group, signal) {
        // Nothing is left of the group: that is what the caller wanted.
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
