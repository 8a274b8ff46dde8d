//! `pool exec`: a command that runs while a lease is held.
//!
//! - [`heartbeat`], [`keeping`]: the lease is renewed until it is lost
//! - [`process`], [`signals`]: the command

mod heartbeat;
mod keeping;
mod process;
mod signals;

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

use anyhow::Context as _;
use jiff::Timestamp;
use rustix::process::Signal;
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::{
    pool::{
        arguments::ExecArguments,
        document::PoolLease,
        install_config::InstallConfig,
        lease::{
            generated_name,
            patience::Patience,
            taking::{Wish, take},
            waiting::wait_for,
        },
        objects::{entry::Holder, record::LeaseClaim},
        release::{command::give_back, held::Held},
        store::Store,
    },
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};
use heartbeat::Heartbeat;
use keeping::Keeping;
use process::{Process, code_of};
use signals::Signals;

/// No lease, or a lease that was lost: what `timeout` and `env` use for failures of their own.
pub const NO_LEASE: u8 = 125;

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
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let name = arguments.lessee.name();
    let name = name.unwrap_or_else(|| generated_name::generate("exec-"));
    let is_name_given = arguments.lessee.cluster_deployment.is_some();
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    // Until here they end this process, which has taken nothing yet.
    let has_terminal = io::stdin().is_terminal();
    let mut signals = Signals::listen(has_terminal)?;
    let wish = Wish {
        claim: LeaseClaim {
            holder: Holder {
                pool: &arguments.pool,
                cluster_deployment: &name,
            },
            duration: Some(arguments.ttl),
            cluster_deployment_uid: None,
            is_creating: false,
        },
        install_config: install_config.as_ref(),
        // Nobody else has a name that was just made up.
        is_new: is_name_given,
    };
    let mut taken = Instant::now();
    let mut attempt = async || {
        taken = Instant::now();
        take(&store, wish).await
    };
    let waited = match arguments.wait {
        None => attempt().await.map(Ok),
        Some(limit) => {
            let patience = Patience {
                since: Timestamp::now(),
                limit,
            };
            wait_for(attempt, patience, signals.end(), terminal).await
        }
    };
    // Under a name that nobody else has, also what an attempt took whose end is not known.
    let of_name = || (!is_name_given).then(|| Held::FromPool(arguments.pool.clone()));
    let (code, held) = match waited {
        Err(error) => (Err(error), of_name()),
        Ok(Err(signal)) => (Ok(interrupted(signal, terminal)), of_name()),
        Ok(Ok(lease)) => {
            for warning in lease.warnings() {
                terminal.warning(warning);
            }
            let Some(customization) = lease.customization() else {
                terminal.note(&lease.refusal().unwrap_or_default());
                return Ok(NO_LEASE);
            };
            let keeping = Keeping {
                store: &store,
                customization,
                claim: wish.claim,
                heartbeat: Heartbeat { ttl: arguments.ttl },
                terminal,
            };
            let code = match signals.ended() {
                Some(signal) => Ok(interrupted(signal, terminal)),
                None => run_under(&lease, keeping, taken, arguments, &mut signals).await,
            };
            (code, Some(Held::Customization(customization.to_owned())))
        }
    };
    if let Some(held) = held {
        give_back_or_warn(&store, &held, &name, terminal).await;
    }
    code
}

/// The command's own code counts, and the lease ends by itself.
async fn give_back_or_warn(store: &Store<'_>, held: &Held, name: &str, terminal: &Terminal) {
    match give_back(store, held, name, false).await {
        Ok(result) => {
            for note in result.warnings().iter().cloned().chain(result.refusal()) {
                terminal.warning(&note);
            }
        }
        Err(error) => terminal.warning(&format!("the lease of {name} is not given back: {error:#}")),
    }
}

fn interrupted(signal: Signal, terminal: &Terminal) -> u8 {
    terminal.note("interrupted before the command was run");
    code_of(signal)
}

/// Runs the command to its end, or to that of the lease.
async fn run_under(
    lease: &PoolLease,
    keeping: Keeping<'_>,
    taken: Instant,
    arguments: &ExecArguments,
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Ok(NO_LEASE);
    };
    let lost = |why: String| {
        let note = format!("lost the lease on {}: {why}", keeping.customization);
        keeping.terminal.note(&note);
        NO_LEASE
    };
    let taken = match keeping.begin(taken).await {
        Ok(taken) => taken,
        Err(why) => return Ok(lost(why)),
    };
    let mut command = Command::new(program);
    command.args(rest).envs(lease.variables().into_iter().flatten());
    let file = match lease.install_config() {
        Some(install_config) => Some(private_file(&install_config.to_yaml()?)?),
        None => None,
    };
    match &file {
        Some(file) => command.env("KCP_INSTALL_CONFIG", file.path()),
        // Of a lease that this one runs under.
        None => command.env_remove("KCP_INSTALL_CONFIG"),
    };
    let mut process = match Process::start(command, io::stdin().is_terminal()) {
        Ok(process) => process,
        Err(error) => {
            let code = error.code();
            keeping.terminal.error(&error.into(), None);
            return Ok(code);
        }
    };
    let mut kept = std::pin::pin!(keeping.keep(taken));
    loop {
        tokio::select! {
            code = process.ended() => return Ok(code?),
            signal = signals.next() => process.forward(signal),
            why = &mut kept => {
                let code = lost(why);
                process.end(keeping.heartbeat.grace()).await?;
                return Ok(code);
            }
        }
    }
}

/// A file that only this user may read, and that goes with its value.
fn private_file(content: &str) -> anyhow::Result<NamedTempFile> {
    let write = || -> io::Result<NamedTempFile> {
        let mut file = NamedTempFile::with_prefix("kcp-install-config-")?;
        file.write_all(content.as_bytes())?;
        Ok(file)
    };
    write().context("cannot write a file for the install-config")
}
