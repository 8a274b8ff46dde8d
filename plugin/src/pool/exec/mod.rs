//! `pool exec`: a command that runs while a lease is held.
//!
//! - [`heartbeat`], [`keeping`]: the lease is renewed until it is lost
//! - [`process`], [`signals`]: the command

mod heartbeat;
mod keeping;
mod process;
mod signals;

use std::{io::Write as _, time::Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use rustix::process::Signal;
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{
    arguments::ExecArguments,
    document::PoolLease,
    entry::Holder,
    generated_name,
    held::Held,
    install_config::InstallConfig,
    patience::Patience,
    record::LeaseClaim,
    release_command::give_back,
    store::Store,
    taking::{Wish, take},
    waiting::wait_for,
};
use crate::{session::Session, terminal::Terminal, verdict::Verdict};
use heartbeat::Heartbeat;
use keeping::Keeping;
use process::{Process, code_of};
use signals::Signals;

/// No lease, or a lease that was lost: what `timeout` and `env` use for failures of their own.
const NO_LEASE: u8 = 125;

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
    let given_name = arguments.lessee.name();
    let name = given_name
        .clone()
        .unwrap_or_else(|| generated_name::generate("exec-"));
    let install_config = match &arguments.install_config {
        Some(source) => Some(InstallConfig::read(source, &connection).await?),
        None => None,
    };
    let wish = Wish {
        claim: LeaseClaim {
            holder: Holder {
                pool: &arguments.pool,
                cluster_deployment: &name,
            },
            duration: Some(arguments.ttl),
            cluster_deployment_uid: None,
        },
        install_config: install_config.as_ref(),
        // Nobody else has a name that was just made up.
        is_new: given_name.is_some(),
    };
    let mut taken = Instant::now();
    let mut attempt = async || {
        taken = Instant::now();
        take(&store, wish).await
    };
    let waited = match arguments.wait {
        None => Ok(attempt().await?),
        Some(limit) => {
            let patience = Patience {
                since: Timestamp::now(),
                limit,
            };
            wait_for(attempt, patience, signals.next(), terminal).await?
        }
    };
    let lease = match waited {
        Ok(lease) => lease,
        Err(signal) => return Ok(interrupted(signal, terminal)),
    };
    for warning in lease.warnings() {
        terminal.warning(warning);
    }
    if let Some(refusal) = lease.refusal() {
        terminal.note(&refusal);
        return Ok(NO_LEASE);
    }
    let code = if let Some(signal) = signals.pending() {
        Ok(interrupted(signal, terminal))
    } else {
        let keeping = Keeping {
            store: &store,
            customization: lease.customization().unwrap_or_default(),
            claim: wish.claim,
            heartbeat: Heartbeat { ttl: arguments.ttl },
            terminal,
        };
        run_under(&lease, keeping, taken, arguments, &mut signals).await
    };
    let held = Held::FromPool(arguments.pool.clone());
    match give_back(&store, &held, &name, false).await {
        Ok(result) => {
            for note in result.warnings().iter().cloned().chain(result.refusal()) {
                terminal.warning(&note);
            }
        }
        // The command's own code counts; the lease ends by itself.
        Err(error) => terminal.warning(&format!("the lease of {name} is not given back: {error:#}")),
    }
    code
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
    let mut command = Command::new(program);
    command.args(rest).envs(lease.variables().into_iter().flatten());
    let file = match lease.install_config() {
        Some(install_config) => Some(private_file(&install_config.to_yaml()?)?),
        None => None,
    };
    if let Some(file) = &file {
        command.env("KCP_INSTALL_CONFIG", file.path());
    }
    let mut process = match Process::start(command) {
        Ok(process) => process,
        Err(error) => {
            let code = error.code();
            keeping.terminal.error(&error.into(), None);
            return Ok(code);
        }
    };
    let mut lost = std::pin::pin!(keeping.keep(taken));
    loop {
        tokio::select! {
            code = process.ended() => return Ok(code?),
            signal = signals.next() => process.forward(signal),
            why = &mut lost => {
                let note = format!("lost the lease on {}: {why}", keeping.customization);
                keeping.terminal.note(&note);
                process.end(keeping.heartbeat.grace()).await?;
                return Ok(NO_LEASE);
            }
        }
    }
}

/// A file that only this user may read, and that goes with its value.
fn private_file(content: &str) -> anyhow::Result<NamedTempFile> {
    let write = || {
        let mut file = NamedTempFile::with_prefix("kcp-install-config-")?;
        file.write_all(content.as_bytes())?;
        Ok(file)
    };
    write()
        .map_err(|error: std::io::Error| error)
        .context("cannot write a file for the install-config")
}
