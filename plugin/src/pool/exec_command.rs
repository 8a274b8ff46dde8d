//! `pool exec`: a command that runs while a lease is held.

use std::{
    future::poll_fn,
    io::{self, IsTerminal as _},
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
    task::Poll,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
};

use super::{
    arguments::ExecArguments,
    document::PoolLease,
    entry::Holder,
    generated_name,
    heartbeat::Heartbeat,
    held::Held,
    install_config::InstallConfig,
    lease_command::{Wish, take, wait_for},
    patience::Patience,
    private_file::PrivateFile,
    record::{LeaseClaim, first},
    release_command::give_back,
    store::{Customizations as _, Records as _, Store},
};
use crate::{
    cluster::{Created, Error, Written},
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};

/// No lease, or a lease that was lost: what `timeout` and `env` use for failures of their own.
const NO_LEASE: u8 = 125;
/// A command that cannot be run, as in shells.
const CANNOT_RUN: u8 = 126;
/// A command that is not there, as in shells.
const NOT_FOUND: u8 = 127;
/// A command that a signal ended has this and the signal's number, as in shells.
const BY_SIGNAL: i32 = 128;

/// The signals that are handed on.
const FORWARDED: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Runs `pool exec`.
///
/// # Errors
/// Never: what goes wrong is told here, because its exit code is one that the command would not use.
pub(super) async fn run(arguments: ExecArguments, session: &Session) -> anyhow::Result<Verdict> {
    let code = match hold(&arguments, session).await {
        Ok(code) => code,
        Err(error) => {
            session.terminal.error(&error, crate::hint(&error).as_deref());
            NO_LEASE
        }
    };
    Ok(Verdict::Command(code))
}

/// Takes a lease, runs the command, and gives the lease back.
async fn hold(arguments: &ExecArguments, session: &Session) -> anyhow::Result<u8> {
    let terminal = &session.terminal;
    let mut signals = Signals::listen()?;
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let name = arguments.lessee.name();
    let name = name.unwrap_or_else(|| generated_name::generate("exec-"));
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    let claim = LeaseClaim {
        holder: Holder {
            pool: &arguments.pool,
            cluster_deployment: &name,
        },
        duration: Some(arguments.ttl),
        cluster_deployment_uid: None,
        is_creating: false,
    };
    let wish = Wish {
        claim,
        install_config: install_config.as_ref(),
        is_new: true,
    };
    let taking = async {
        match arguments.wait {
            None => take(&store, wish).await,
            Some(limit) => {
                let patience = Patience {
                    since: Timestamp::now(),
                    limit,
                };
                wait_for(&store, wish, patience, terminal).await
            }
        }
    };
    let taken = tokio::select! {
        taken = taking => Ok(taken?),
        signal = signals.next() => Err(signal),
    };
    let code = match taken {
        Err(signal) => {
            terminal.note("interrupted before the command was run");
            u8::try_from(BY_SIGNAL + signal.as_raw())?
        }
        Ok(lease) => {
            for warning in lease.warnings() {
                terminal.warning(warning);
            }
            if let Some(refusal) = lease.refusal() {
                terminal.note(&refusal);
                return Ok(NO_LEASE);
            }
            let running = Running {
                store: &store,
                claim,
                heartbeat: Heartbeat { ttl: arguments.ttl },
                terminal,
            };
            running.run(arguments, &lease, &mut signals).await?
        }
    };
    let release = Held::FromPool(arguments.pool.clone());
    match give_back(&store, &release, &name, false).await {
        Ok(result) => {
            for note in result.warnings().iter().cloned().chain(result.refusal()) {
                terminal.warning(&note);
            }
        }
        // The command's own code counts; the lease ends by itself.
        Err(error) => terminal.warning(&format!("the lease of {name} is not given back: {error:#}")),
    }
    Ok(code)
}

/// A command under a lease.
struct Running<'r> {
    store: &'r Store<'r>,
    claim: LeaseClaim<'r>,
    heartbeat: Heartbeat,
    terminal: &'r Terminal,
}

impl Running<'_> {
    /// Runs the command to its end, or to that of the lease.
    async fn run(
        &self,
        arguments: &ExecArguments,
        lease: &PoolLease,
        signals: &mut Signals,
    ) -> anyhow::Result<u8> {
        let file = match lease.install_config() {
            Some(install_config) => Some(PrivateFile::create(&install_config.to_yaml()?)?),
            None => None,
        };
        let Some((program, rest)) = arguments.command.split_first() else {
            return Ok(NOT_FOUND);
        };
        // A terminal signals all of its foreground: a group of its own would not be that.
        let has_group = !io::stdin().is_terminal();
        let mut command = Command::new(program);
        command.args(rest).envs(lease.variables().into_iter().flatten());
        if let Some(file) = &file {
            command.env("KCP_INSTALL_CONFIG", file.path());
        }
        if has_group {
            command.process_group(0);
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let program = program.to_string_lossy();
                self.terminal
                    .error(&anyhow::Error::new(error_of(&program, &error)), None);
                return Ok(if error.kind() == io::ErrorKind::NotFound {
                    NOT_FOUND
                } else {
                    CANNOT_RUN
                });
            }
        };
        let mut process = Process { child, has_group };
        let customization = lease.customization().unwrap_or_default();
        let mut keeping = std::pin::pin!(self.keep(customization));
        loop {
            tokio::select! {
                status = process.child.wait() => return Ok(code(status?)),
                signal = signals.next() => process.forward(signal),
                why = &mut keeping => {
                    self.terminal.note(&format!("lost the lease on {customization}: {why}"));
                    process.end(self.heartbeat.grace()).await?;
                    return Ok(NO_LEASE);
                }
            }
        }
    }

    /// Renews the lease until it is lost; returns why.
    async fn keep(&self, customization: &str) -> String {
        let mut last = Instant::now();
        let mut failed = false;
        loop {
            tokio::time::sleep(self.heartbeat.until_renewal(last.elapsed(), failed)).await;
            let started = Instant::now();
            let left = self.heartbeat.left(last.elapsed());
            match tokio::time::timeout(left, self.renew(customization)).await {
                Ok(Ok(Renewal::Renewed)) => {
                    last = started;
                    failed = false;
                }
                Ok(Ok(Renewal::Lost(why))) => return why,
                Ok(Err(error)) => {
                    self.terminal
                        .warning(&format!("the lease on {customization} is not renewed: {error}"));
                    failed = true;
                }
                Ok(Ok(Renewal::Changed)) | Err(_) => failed = true,
            }
            if self.heartbeat.left(last.elapsed()).is_zero() {
                return format!("it was not renewed for {} s", last.elapsed().as_secs());
            }
        }
    }

    /// Renews the lease once, if it is still ours.
    async fn renew(&self, customization: &str) -> Result<Renewal, Error> {
        let entry = self.store.get(customization).await?;
        if !entry.is_some_and(|entry| entry.is_held_by(self.claim.holder)) {
            return Ok(Renewal::Lost("the customization no longer names us".to_owned()));
        }
        let now = Timestamp::now();
        let written = match self.store.record(customization).await? {
            Some(record) if record.is_revoked() => {
                return Ok(Renewal::Lost("it was taken away".to_owned()));
            }
            Some(record) => {
                let patch = record.claimed(self.claim, now);
                self.store.write_record(customization, &patch).await?
            }
            None => match self
                .store
                .create_record(&first(customization, self.claim, now))
                .await?
            {
                Created::Stored(_) => Written::Stored,
                Created::Exists => Written::Changed,
                Created::Unknown(error) => Written::Unknown(error),
            },
        };
        match written {
            Written::Stored => Ok(Renewal::Renewed),
            Written::Changed => Ok(Renewal::Changed),
            Written::Unknown(error) => Err(error),
        }
    }
}

/// What came of a renewal.
enum Renewal {
    Renewed,
    /// Somebody else wrote the record at the same time.
    Changed,
    Lost(String),
}

/// The command's process.
struct Process {
    child: Child,
    /// Whether it has a process group of its own.
    has_group: bool,
}

impl Process {
    /// Hands a signal on. On a terminal those of its keys have reached the command already.
    fn forward(&self, signal: Signal) {
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
    async fn end(&mut self, grace: Duration) -> io::Result<()> {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            self.child.wait().await?;
        }
        Ok(())
    }
}

/// The signals that this process gets.
struct Signals(Vec<(Signal, SignalStream)>);

impl Signals {
    fn listen() -> io::Result<Self> {
        let listen = |which: Signal| Ok((which, signal(SignalKind::from_raw(which.as_raw()))?));
        FORWARDED
            .into_iter()
            .map(listen)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    async fn next(&mut self) -> Signal {
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
}

/// A command that cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {program}: {why}")]
struct CannotRun {
    program: String,
    why: String,
}

fn error_of(program: &str, error: &io::Error) -> CannotRun {
    CannotRun {
        program: program.to_owned(),
        why: match error.kind() {
            io::ErrorKind::NotFound => "there is no such program".to_owned(),
            io::ErrorKind::PermissionDenied => "it may not be executed".to_owned(),
            _ => error.to_string(),
        },
    }
}

/// The command's code, as shells have it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| Some(BY_SIGNAL + status.signal()?))
        .unwrap_or(BY_SIGNAL);
    u8::try_from(code).unwrap_or(NO_LEASE)
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
