//! Runs `kubectl kcp pool exec`: a command that runs while this process holds a lease or a ClusterClaim, or cleans an entry.

mod claimed;
mod janitor;
mod process;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, value_parser};
use jiff::Timestamp;
use kcp_client::Error;
use kcp_pool::{
    acquire::{
        LeaseRequest, Selection, acquire,
        answer::{LeaseOutcome, LeaseResult},
        turn::QueuedLessee,
        wait::{Timeout, WaitLimit, wait_for},
    },
    cleaning::DEFAULT_FAILURES,
    lease::{
        LeaseError, Ttl, generated_name,
        queue::Place,
        renewal::{Heartbeat, LeaseName, RenewedLease},
    },
    objects::{Holder, record::LeaseRecord},
    release::{
        decision::{ReleaseRequest, ReleaseTarget},
        release,
    },
    store::Store,
};
use rustix::process::Signal;
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::{
    arguments::{parse_cluster_pool, parse_duration, parse_object_name},
    commands::pool::{
        HiveArgument, InstallConfigSource, WaitProgress,
        lease::{
            ClaimArguments, HolderArguments,
            document::{PoolLease, install_config},
            possible_lease,
        },
        parse_wait,
        release::PoolRelease,
        reported,
    },
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
};
use janitor::is_end_signal;
use process::{Process, Signals, exit_code};

/// Arguments of `pool exec`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool exec hosts --wait=1h -- ./install-and-test.sh
  kubectl kcp pool exec hosts --customization host-a --ttl 30m -- make e2e
  kubectl kcp pool exec hosts --claim --lifetime 4h --wait=1h -- ./test.sh
  kubectl kcp pool exec hosts --clean --wait -- ./wipe.sh")]
pub struct ExecArguments {
    /// Name of the cluster pool
    #[arg(value_parser = parse_cluster_pool)]
    pub pool: String,

    #[command(flatten)]
    pub holder: HolderArguments,

    #[command(flatten)]
    pub claim: ClaimArguments,

    /// Clean the customizations of the pool whose leases have ended, one after the other: free each if the command exits with 0
    #[arg(long, conflicts_with_all = [
        "cluster_deployment", "generate_name", "new", "claim", "install_config", "selector",
    ])]
    pub clean: bool,

    /// With --clean, cordon a customization after this many failures in a row
    #[arg(long, value_name = "NUMBER", requires = "clean", default_value_t = DEFAULT_FAILURES)]
    #[arg(value_parser = value_parser!(u32).range(1..))]
    pub failures: u32,

    /// How long the lease or claim lasts if `pool exec` does not renew it, for example because `pool exec` is killed; with
    /// --clean, when another janitor may take the customization
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl, default_value = "15m")]
    pub ttl: Duration,

    /// Wait in the queue of the pool until a customization is free or, with --claim, until Hive has assigned a cluster, for at
    /// most the given duration; without a duration, for ever [default with --claim: 1h]. With --clean, keep looking for
    /// customizations to clean
    #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wait: Option<WaitLimit>,

    /// Apply the customization's patches to this install-config: a file, - for stdin, or secret/NAME with the key
    /// install-config.yaml
    #[arg(long, value_name = "FILE|secret/NAME")]
    pub install_config: Option<InstallConfigSource>,

    /// Lease or clean this customization only
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub customization: Option<String>,

    /// Lease a customization that matches this label selector, such as rack=b,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// Whether Hive manages the pool
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// Name under which the server records the change
    #[arg(long, value_name = "NAME", default_value = "kubectl-kcp")]
    pub field_manager: String,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// The minimum `--ttl`. It leaves enough time for three renewals, and for the command to end.
const MIN_TTL: Duration = Duration::from_secs(3);

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl < MIN_TTL {
        return Err(format!(
            "the ttl must be at least {} s, so that `pool exec` can renew the lease in time",
            MIN_TTL.as_secs()
        ));
    }
    Ok(ttl)
}

/// The exit code of `pool exec` itself if it fails or loses its lease, the same as `timeout` and `env` use for their own
/// failures.
pub const EXIT_OWN_FAILURE: u8 = 125;

/// The exit code if no customization or cluster was free in time: `EX_TEMPFAIL` of `sysexits.h`.
const EXIT_NOTHING_FREE: u8 = 75;

/// Runs `pool exec`. Never fails: prints errors itself, because their exit code must differ from the exit codes of the command.
pub(crate) async fn run(arguments: ExecArguments, session: &Session) -> anyhow::Result<Verdict> {
    let held = if arguments.clean {
        Box::pin(janitor::run_as_janitor(&arguments, session)).await
    } else if arguments.claim.claim {
        Box::pin(claimed::run_with_claim(&arguments, session)).await
    } else {
        run_with_lease(&arguments, session).await
    };
    let code = match held {
        Ok(code) => code,
        Err(error) => {
            session.terminal.error(&error, crate::hint(&error).as_deref());
            EXIT_OWN_FAILURE
        }
    };
    Ok(Verdict::Command(code))
}

/// Acquires a lease, runs the command, and releases the lease.
async fn run_with_lease(arguments: &ExecArguments, session: &Session) -> anyhow::Result<u8> {
    let terminal = &session.terminal;
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let generate = || generated_name::generate("exec-");
    let name = arguments.holder.name().unwrap_or_else(generate);
    let is_name_given = arguments.holder.cluster_deployment.is_some();
    let install_config = match &arguments.install_config {
        Some(source) => Some(source.read(&connection).await?),
        None => None,
    };
    // Before this line, a signal ends the process. This is safe, because the process holds no lease yet.
    let listen = || Signals::listen(io::stdin().is_terminal());
    let (mut signals, mut second_signal) = (listen()?, listen()?);
    let holder = Holder {
        pool: &arguments.pool,
        cluster_deployment: &name,
    };
    let request = LeaseRequest {
        holder,
        count: 1,
        ttl: Some(Ttl::For(arguments.ttl)),
        // The request names no cluster, so the lease ends without a grace period, even if the command creates a cluster.
        cluster: None,
        install_config: install_config.as_ref(),
        // No other process can hold a lease with a generated name.
        must_be_new: is_name_given,
        selection: Selection {
            customization: arguments.customization.as_deref(),
            labels: arguments.selector.as_deref(),
        },
        hive: arguments.hive.into(),
        overtaken: &[],
    };
    let attempt = async |overtaken: Vec<Place>| acquire(&store, request.overtaking(&overtaken)).await;
    let started_at = Timestamp::now();
    let waited = async {
        let Some(limit) = arguments.wait else {
            return attempt(Vec::new()).await.map(Ok);
        };
        let turn = QueuedLessee::new(&store, request, is_name_given);
        let (timeout, stop) = (Timeout { started_at, limit }, signals.wait_for_end_signal());
        wait_for(attempt, turn, timeout, stop, &WaitProgress(terminal)).await
    };
    let waited = tokio::select! {
        biased;
        waited = waited => waited,
        signal = second_signal.wait_for_second_end_signal() => {
            terminal.note(&possible_lease(holder, &connection.namespace));
            Ok(Err(signal))
        }
    };
    // With a generated name, also release a lease whose write got no response, because no other process can hold it.
    let of_name = || (!is_name_given).then(|| (ReleaseTarget::Pool(arguments.pool.clone()), None));
    let (code, held) = match waited {
        Err(error) => {
            let held = of_name().filter(|_| may_be_leased(&error));
            (Err(reported(error)), held)
        }
        Ok(Err(signal)) => (Ok(interrupted(signal, terminal)), of_name()),
        Ok(Ok(answer)) => {
            let lease = PoolLease::new(&answer);
            for warning in lease.warnings() {
                terminal.warning(warning);
            }
            let LeaseOutcome::Leased(held) = &answer.outcome else {
                terminal.note(&lease.refusal().unwrap_or_default());
                return Ok(if answer.is_exhausted() {
                    EXIT_NOTHING_FREE
                } else {
                    EXIT_OWN_FAILURE
                });
            };
            let (customization, record) = (&held.entry.customization, &held.entry.record);
            let renewed = RenewedLease {
                store: &store,
                customization,
                lease: LeaseName {
                    holder,
                    id: Some(&record.id),
                },
                heartbeat: Heartbeat { ttl: arguments.ttl },
            };
            let code = match signals.pending_end_signal() {
                Some(signal) => Ok(interrupted(signal, terminal)),
                None => run_under_lease(&answer, renewed, record, arguments, &mut signals, terminal).await,
            };
            let target = ReleaseTarget::Customization(customization.clone());
            (code, Some((target, Some(record.id.clone()))))
        }
    };
    if let Some((target, id)) = held {
        let request = ReleaseRequest {
            target: &target,
            cluster_deployment: &name,
            id: id.as_deref(),
            force: false,
            delete_cluster: false,
            hive: arguments.hive.into(),
        };
        release_or_warn(&store, &request, terminal).await;
    }
    code
}

/// Whether a request that failed may have stored a lease. If the pool does not exist, nothing was leased.
fn may_be_leased(error: &LeaseError) -> bool {
    !matches!(error, LeaseError::Api(Error::NotFound { action }) if action.resource.starts_with("clusterpools"))
}

/// Releases the lease. A failure causes only a warning, because the lease ends after its ttl.
async fn release_or_warn(store: &Store<'_>, request: &ReleaseRequest<'_>, terminal: &Terminal) {
    let name = request.cluster_deployment;
    match release(store, request).await {
        Ok(release) => {
            let result = PoolRelease::new(&release);
            for note in result.warnings().iter().cloned().chain(result.refusal()) {
                terminal.warning(&note);
            }
        }
        Err(error) => {
            let error = anyhow::Error::new(error);
            terminal.warning(&format!("could not release the lease of {name}: {error:#}"));
        }
    }
}

fn interrupted(signal: Signal, terminal: &Terminal) -> u8 {
    terminal.note("interrupted before the command started");
    exit_code(signal)
}

/// Runs the command until it ends, or until the lease is lost.
async fn run_under_lease(
    answer: &LeaseResult,
    renewed: RenewedLease<'_, Store<'_>, LeaseName<'_>>,
    record: &LeaseRecord,
    arguments: &ExecArguments,
    signals: &mut Signals,
    terminal: &Terminal,
) -> anyhow::Result<u8> {
    let customization = renewed.customization;
    let not_renewed = |error: &Error| {
        terminal.warning(&format!("could not check the lease on {customization}: {error}"));
    };
    let grace = Duration::try_from(renewed.heartbeat.grace()).unwrap_or_default();
    // If it took too long to acquire the lease, the lease may have ended already.
    let deadline = record.deadline.unwrap_or(Timestamp::MAX);
    let lost = async {
        let why = renewed.wait_until_lost(deadline, not_renewed).await;
        format!("lost the lease on {customization}: {why}")
    };
    let file = match install_config(answer) {
        Some(install_config) => Some(private_file(
            "install-config",
            install_config.to_yaml()?.as_bytes(),
        )?),
        None => None,
    };
    let lease = PoolLease::new(answer);
    let run = CommandRun {
        command: &arguments.command,
        variables: lease.variables().unwrap_or_default(),
        files: [("KCP_INSTALL_CONFIG", file.as_ref()), ("KCP_KUBECONFIG", None)],
        grace,
    };
    Ok(run.run_until_lost(lost, signals, terminal).await?.code())
}

/// A command, and what it needs to run while this process holds a lease or a claim, or cleans an entry.
struct CommandRun<'r> {
    command: &'r [OsString],
    /// The environment variables that describe what this process holds.
    variables: Vec<(&'static str, String)>,
    /// The environment variables of the command that contain paths of files. A variable without a file is removed from the
    /// environment, because it comes from an outer `pool exec`.
    files: [(&'static str, Option<&'r NamedTempFile>); 2],
    /// How much time the command has to end after the lease has been lost.
    grace: Duration,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// The command ended by itself, with this exit code.
    Exited {
        code: u8,
        /// The first signal before the end of the command that asked this process to end.
        signal: Option<Signal>,
    },
    /// The command cannot be run.
    NotRun(u8),
    /// This process has lost what it held, and ended the command.
    Lost,
}

impl RunEnd {
    /// The exit code of `pool exec`.
    const fn code(self) -> u8 {
        match self {
            Self::Exited { code, .. } | Self::NotRun(code) => code,
            Self::Lost => EXIT_OWN_FAILURE,
        }
    }
}

impl CommandRun<'_> {
    /// Runs the command until it ends. If `lost` returns first, prints why the lease or cluster was lost, and ends the
    /// command.
    async fn run_until_lost(
        &self,
        lost: impl Future<Output = String>,
        signals: &mut Signals,
        terminal: &Terminal,
    ) -> anyhow::Result<RunEnd> {
        let Some((program, rest)) = self.command.split_first() else {
            return Ok(RunEnd::NotRun(EXIT_OWN_FAILURE));
        };
        let mut command = Command::new(program);
        let variables = self.variables.iter();
        command
            .args(rest)
            .envs(variables.map(|(name, value)| (name, value)));
        for (variable, file) in self.files {
            match file {
                Some(file) => command.env(variable, file.path()),
                None => command.env_remove(variable),
            };
        }
        let mut process = match Process::start(command, io::stdin().is_terminal()) {
            Ok(process) => process,
            Err(error) => {
                let code = error.code();
                terminal.error(&error.into(), None);
                return Ok(RunEnd::NotRun(code));
            }
        };
        let mut lost = std::pin::pin!(lost);
        let mut end_signal = None;
        loop {
            tokio::select! {
                code = process.wait_for_end() => {
                    return Ok(RunEnd::Exited { code: code?, signal: end_signal });
                }
                signal = signals.next() => {
                    end_signal = end_signal.or(Some(signal).filter(|signal| is_end_signal(*signal)));
                    process.forward(signal);
                }
                why = &mut lost => {
                    terminal.note(&why);
                    process.end(self.grace).await?;
                    return Ok(RunEnd::Lost);
                }
            }
        }
    }
}

/// Creates a temporary file that only this user may read. It is deleted when the returned value is dropped.
fn private_file(content: &str, bytes: &[u8]) -> anyhow::Result<NamedTempFile> {
    let write = || -> io::Result<NamedTempFile> {
        let mut file = NamedTempFile::with_prefix(format!("kcp-{content}-"))?;
        file.write_all(bytes)?;
        Ok(file)
    };
    write().with_context(|| format!("cannot write a temporary file for the {content}"))
}

#[cfg(test)]
mod tests {
    use kcp_api::kind::{CLUSTER_DEPLOYMENT_CUSTOMIZATION, CLUSTER_POOL};
    use kcp_client::{Action, Error};
    use kcp_pool::lease::LeaseError;

    use super::may_be_leased;

    #[test]
    fn nothing_is_released_if_the_pool_does_not_exist() {
        let missing = |action: Action| LeaseError::Api(Error::NotFound { action });
        let pool = Action::new("get", &CLUSTER_POOL.api_resource("v1")).with_name("nopool");
        assert!(!may_be_leased(&missing(pool)));
        let entry =
            || Action::new("patch", &CLUSTER_DEPLOYMENT_CUSTOMIZATION.api_resource("v1")).with_name("a");
        assert!(may_be_leased(&missing(entry())));
        assert!(may_be_leased(&LeaseError::InDoubt {
            customization: "a".to_owned(),
            source: Box::new(Error::NotFound { action: entry() }),
        }));
    }
}
