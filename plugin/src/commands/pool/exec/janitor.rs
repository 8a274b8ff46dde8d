//! Runs `kubectl kcp pool exec --clean`: a command that cleans entries between two holders.

use std::{io, pin::pin, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use kcp_api::{ClusterPool, metadata::Object as _};
use kcp_client::{Error, retry_after_lost_server};
use kcp_pool::{
    acquire::wait::Timeout,
    cleaning::{After, Cleaner, CommandEnd, JanitorId, Next, Obstacle, after_command, finish, take},
    lease::{
        LeaseError,
        renewal::{Heartbeat, RenewedLease},
    },
    objects::cleaning::Janitor,
    store::{LeaseStore as _, Store},
};
use rustix::process::Signal;
use tokio::time::timeout;

use super::{
    CommandRun, EXIT_OWN_FAILURE, ExecArguments, RunEnd,
    process::{Signals, exit_code},
};
use crate::{session::Session, terminal::Terminal};

/// The exit code if an entry that this janitor took is not clean.
const EXIT_NOT_CLEAN: u8 = 1;

/// The pause after the first failure to clean an entry. Each later pause is twice as long, up to [`MAX_FAILURE_PAUSE`].
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The maximum pause after a failure to clean an entry. During a pause, the janitor cleans no other entry.
const MAX_FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// How long a janitor still tries to record the end of a cleaning after a signal.
const RECORD_LIMIT: Duration = Duration::from_secs(5);

struct Work<'w> {
    store: &'w Store<'w>,
    arguments: &'w ExecArguments,
    terminal: &'w Terminal,
    /// Whether each entry that this janitor took was cleaned.
    has_cleaned_all: bool,
    /// What this janitor has said about the entries that it does not clean.
    reported: String,
}

/// What a look at the pool has found.
enum Found {
    /// This janitor has taken the entry.
    Entry(TakenEntry),
    /// Another client has changed the entry that this janitor wanted to take.
    Changed,
    Nothing,
    /// Nothing may be cleaned, for this reason.
    Refused(String),
}

/// An entry that this janitor has taken.
struct TakenEntry {
    customization: String,
    last_holder: Option<String>,
    janitor: Janitor,
}

/// What the janitor does after the command for an entry.
enum Step {
    Continue,
    /// The command failed. The cause may need time to end.
    ContinueAfter(Duration),
    /// The janitor ends with this exit code.
    End(u8),
}

/// Cleans the entries of the pool, one after the other.
pub(super) async fn run_as_janitor(arguments: &ExecArguments, session: &Session) -> anyhow::Result<u8> {
    let terminal = &session.terminal;
    let connection = session.connect().await?;
    let store = Store::new(&connection, &arguments.field_manager);
    let mut signals = Signals::listen(io::IsTerminal::is_terminal(&io::stdin()))?;
    let pool = store.read_pool(&arguments.pool).await?;
    if let Some(refusal) = refusal(&store, &pool, arguments).await? {
        terminal.note(&refusal);
        return Ok(EXIT_OWN_FAILURE);
    }
    if !pool.asks_for_cleaning() {
        terminal.note(&format!(
            "pool {} does not ask for cleaning, so its entries are free after their leases; to change this, set annotation \
             kubectl-kcp.dev/clean-before-reuse to true",
            pool.name()
        ));
    }
    let mut work = Work {
        store: &store,
        arguments,
        terminal,
        has_cleaned_all: true,
        reported: String::new(),
    };
    work.run(&mut signals).await
}

/// Why this command cleans nothing; `None` if it can.
async fn refusal(
    store: &Store<'_>,
    pool: &ClusterPool,
    arguments: &ExecArguments,
) -> Result<Option<String>, Error> {
    let conclusion = store.read_hive(arguments.hive.into()).await?.conclude(pool);
    if conclusion.is_managed {
        return Ok(Some(format!(
            "blocked: Hive manages, or may manage, pool {} ({}), and frees its entries itself; add --hive=no if Hive does \
             not manage the pool",
            pool.name(),
            conclusion.evidence
        )));
    }
    Ok(match &arguments.customization {
        Some(name) if store.get(name).await?.is_none() => {
            Some(format!("no-such-entry: customization {name} does not exist"))
        }
        _ => None,
    })
}

impl<'w> Work<'w> {
    fn cleaner<'c>(&self, pool: &'c ClusterPool) -> Cleaner<'c>
    where
        'w: 'c,
    {
        Cleaner {
            pool,
            only: self.arguments.customization.as_deref(),
            ttl: self.arguments.ttl,
        }
    }

    async fn run(&mut self, signals: &mut Signals) -> anyhow::Result<u8> {
        let started_at = Timestamp::now();
        let mut looks = 0;
        loop {
            if let Some(signal) = signals.pending_end_signal() {
                return Ok(self.interrupted(signal));
            }
            looks += 1;
            let pause = match self.look().await {
                Ok(Found::Entry(entry)) => match self.clean(&entry, signals).await {
                    Ok(Step::Continue) => continue,
                    Ok(Step::ContinueAfter(pause)) => Some(pause),
                    Ok(Step::End(code)) => return Ok(code),
                    Err(error) if self.is_transient(&error) => {
                        self.has_cleaned_all = false;
                        self.terminal.warning(&format!("{error:#}"));
                        self.pause_between_looks(started_at, looks)
                    }
                    Err(error) => return Err(error),
                },
                Ok(Found::Changed) => continue,
                Ok(Found::Refused(why)) => {
                    self.terminal.note(&why);
                    return Ok(EXIT_OWN_FAILURE);
                }
                Ok(Found::Nothing) => self.pause_between_looks(started_at, looks),
                // With --wait, an outage of the API server is no reason to stop.
                Err(error) if looks > 1 && self.is_transient(&error) => {
                    self.terminal
                        .warning(&format!("could not look for entries to clean: {error:#}"));
                    self.pause_between_looks(started_at, looks)
                }
                Err(error) => return Err(error),
            };
            let Some(pause) = pause else {
                return Ok(if self.has_cleaned_all { 0 } else { EXIT_NOT_CLEAN });
            };
            tokio::select! {
                signal = signals.wait_for_end_signal() => return Ok(self.interrupted(signal)),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// `None` if the janitor does not wait, or no longer.
    fn pause_between_looks(&self, started_at: Timestamp, looks: u64) -> Option<Duration> {
        let timeout = Timeout {
            started_at,
            limit: self.arguments.wait?,
        };
        let random = u64::from(std::process::id()).wrapping_mul(looks);
        timeout.next_pause(Timestamp::now(), random)
    }

    fn interrupted(&self, signal: Signal) -> u8 {
        self.terminal.note("interrupted");
        exit_code(signal)
    }

    fn is_transient(&self, error: &anyhow::Error) -> bool {
        let cause = error.chain().find_map(|cause| cause.downcast_ref::<Error>());
        self.arguments.wait.is_some() && cause.is_some_and(Error::is_transient)
    }

    /// Looks for an entry to clean, and takes it. Reads the pool each time, and before it takes an entry also who manages the pool,
    /// because both may change while this janitor waits.
    async fn look(&mut self) -> anyhow::Result<Found> {
        let pool = self.store.read_pool(&self.arguments.pool).await?;
        let cleaner = self.cleaner(&pool);
        let entries = self.store.list().await?;
        let mut next = cleaner.next(&entries, None, self.store.now());
        let clusters;
        if matches!(next, Next::Take(..)) {
            if let Some(refusal) = refusal(self.store, &pool, self.arguments).await? {
                return Ok(Found::Refused(refusal));
            }
            // List the clusters after the entries: the write requires the version of the entry that was listed before.
            clusters = self.store.clusters().await?;
            next = cleaner.next(&entries, Some(&clusters), self.store.now());
            if let Some(error) = clusters.error() {
                // Otherwise, a janitor that may never clean anything would look as if nothing were to be cleaned.
                self.has_cleaned_all = false;
                self.terminal.warning(&error.to_string());
            }
        }
        let (entry, record) = match next {
            Next::Take(entry, record) => (entry, record),
            Next::Nothing(others) => {
                self.report_others(&others);
                return Ok(Found::Nothing);
            }
        };
        let customization = entry.name().to_owned();
        let taken = take(self.store, entry, &record).await.map_err(|error| {
            anyhow::Error::new(error.into_cause())
                .context(format!("could not take {customization} for cleaning"))
        });
        Ok(match record.janitor {
            Some(janitor) if taken? => Found::Entry(TakenEntry {
                customization,
                last_holder: record.holder,
                janitor,
            }),
            _ => Found::Changed,
        })
    }

    fn report_others(&mut self, others: &[(&str, Obstacle)]) {
        let lines: Vec<String> = others
            .iter()
            .map(|(name, why)| format!("{name} is not cleaned: {why}"))
            .collect();
        let text = lines.join("\n");
        if text != self.reported {
            for line in &lines {
                self.terminal.note(line);
            }
            self.reported = text;
        }
    }

    /// Runs the command for an entry that this janitor has taken, and writes what becomes of the entry.
    async fn clean(&mut self, entry: &TakenEntry, signals: &mut Signals) -> anyhow::Result<Step> {
        let terminal = self.terminal;
        let customization = entry.customization.as_str();
        let holder = entry.last_holder.as_deref();
        let after = holder.map_or(String::new(), |holder| format!(", which {holder} held"));
        terminal.note(&format!("cleaning {customization}{after}"));
        let id = JanitorId(&entry.janitor.id);
        let renewed = RenewedLease {
            store: self.store,
            customization,
            lease: id,
            heartbeat: Heartbeat {
                ttl: self.arguments.ttl,
            },
        };
        let run = CommandRun {
            command: &self.arguments.command,
            variables: [
                ("KCP_NAMESPACE", self.store.namespace()),
                ("KCP_POOL", self.arguments.pool.as_str()),
                ("KCP_CLUSTER_DEPLOYMENT", holder.unwrap_or_default()),
                ("KCP_CUSTOMIZATION", customization),
                ("KCP_LEASE_ID", &entry.janitor.id),
            ]
            .map(|(name, value)| (name, value.to_owned()))
            .into(),
            files: [("KCP_INSTALL_CONFIG", None), ("KCP_KUBECONFIG", None)],
            grace: Duration::try_from(renewed.heartbeat.grace()).unwrap_or_default(),
        };
        let not_renewed = |error: &Error| {
            terminal.warning(&format!(
                "could not check the cleaning of {customization}: {error}"
            ));
        };
        let lost = async {
            let why = renewed.wait_until_lost(entry.janitor.deadline, not_renewed).await;
            format!("lost {customization}, which another janitor may clean now: {why}")
        };
        let ended = run.run_until_lost(lost, signals, terminal).await?;
        let end = match ended {
            RunEnd::Lost => {
                self.has_cleaned_all = false;
                return Ok(Step::ContinueAfter(FAILURE_PAUSE));
            }
            RunEnd::Exited { code, signal: None } | RunEnd::Exited { code: code @ 0, .. } => {
                CommandEnd::Exited(code)
            }
            RunEnd::Exited { .. } | RunEnd::NotRun(_) => CommandEnd::Aborted,
        };
        // The command may have run for hours, so an outage of the API server must not make it run again.
        let written = retry_after_lost_server(|| async {
            let written = finish(self.store, customization, id, |record| {
                after_command(record, end, self.arguments.failures)
            });
            written.await.map_err(LeaseError::into_cause)
        });
        let mut written = pin!(written);
        let mut interrupted = None;
        let written = tokio::select! {
            biased;
            written = &mut written => written,
            signal = signals.wait_for_end_signal() => {
                interrupted = Some(signal);
                let Ok(written) = timeout(RECORD_LIMIT, &mut written).await else {
                    terminal.note(&format!(
                        "interrupted before the command knew whether the end of the cleaning of {customization} was recorded"
                    ));
                    return Ok(Step::End(exit_code(signal)));
                };
                written
            }
        };
        let written = written
            .with_context(|| format!("could not record the end of the cleaning of {customization}"))?;
        self.report_end(customization, end, written.as_ref());
        if let Some(signal) = interrupted {
            return Ok(Step::End(exit_code(signal)));
        }
        Ok(match ended {
            RunEnd::NotRun(code) => Step::End(code),
            RunEnd::Exited {
                signal: Some(signal), ..
            } => Step::End(exit_code(signal)),
            RunEnd::Exited { .. } | RunEnd::Lost => match written {
                Some(After::Wait(record)) => Step::ContinueAfter(pause_after(record.failures)),
                Some(_) => Step::Continue,
                None => Step::ContinueAfter(FAILURE_PAUSE),
            },
        })
    }

    fn report_end(&mut self, customization: &str, end: CommandEnd, after: Option<&After>) {
        self.has_cleaned_all &= matches!(after, Some(After::Free));
        self.terminal.note(&match (after, end) {
            // An earlier attempt of this janitor may have freed the entry, if its answer was lost.
            (None, _) => format!(
                "{customization} has changed: it is unknown whether the end of its cleaning was recorded"
            ),
            (Some(After::Free), _) => format!("{customization} is clean, and free"),
            (Some(After::Wait(record)), CommandEnd::Exited(code)) => format!(
                "{customization} is not clean: the command exited with {code}, failure {} of {}",
                record.failures, self.arguments.failures
            ),
            (Some(After::Wait(_)), CommandEnd::Aborted) => {
                format!("{customization} is not clean, and waits for another janitor")
            }
            (Some(After::Cordon(reason, _)), _) => {
                format!("{customization} is not clean, and cordoned: {reason}")
            }
        });
    }
}

/// The pause after this many failures in a row to clean an entry.
fn pause_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FAILURE_PAUSE.saturating_mul(doubled).min(MAX_FAILURE_PAUSE)
}

/// Whether this signal to the janitor means that the janitor should end.
pub(super) const fn is_end_signal(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

#[cfg(test)]
mod tests {
    use super::pause_after;

    #[test]
    fn the_pause_grows_with_each_failure() {
        let pauses = [1, 2, 3, 5, 6, 99].map(|failures| pause_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 16, 30, 30]);
    }
}
