//! `etcd recover --continue`: replaces the Machines that have lost their members, one guarded step after the other.

use std::time::{Duration, Instant};

use kcp_api::Object as _;
use kcp_client::{Error, ReadLimit, reader::Reader, reads::machine::NoSuchMachine};
use kcp_control_plane::{
    change::decision::Refusal,
    snapshot::{Snapshot, change::ReadScope},
    verbs::{
        etcd::recover::steps::{Remainder, Step, decide_deletion, remainder},
        reconcile,
        rollout::pause::{self, PauseAction},
    },
};
use tokio::time::sleep;

use crate::{
    arguments::{ControlPlaneName, format_duration},
    change::{
        confirmation::ConfirmArguments,
        engine::{ChangeOutcome, Changed, Engine, MachineScope, Verb},
    },
    commands::etcd::{
        EtcdMembers,
        maintenance::{MaintenanceArguments, MaintenanceOptions, MaintenanceTarget},
        recover::{READ_LIMIT, RecoverArguments, members, note_lines, refuse, report},
        remove_member::{RemoveMemberArguments, remove_member},
        report::Collected,
    },
    output::{OutputArguments, OutputFormat, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};
use report::{RecoveryOutcome, RecoveryReport, continue_command};

const NOT_DONE: &str = "not recovered";

/// How long etcd may have no quorum at the beginning: a member that joins changes the quorum, and an election takes seconds.
const QUORUM_LIMIT: Duration = Duration::from_secs(30);

/// The time between two observations. Each step takes about a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(arguments: &RecoverArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(READ_LIMIT).await?;
    let reader = Reader::discover(&connection).await?;
    let name = arguments
        .name
        .read(&reader, ReadLimit::per_read(READ_LIMIT))
        .await?;
    let recovery = Recovery {
        arguments,
        session,
        reader: &reader,
        members: members(&name, &reader),
        engine: Engine {
            reader: &reader,
            terminal: &session.terminal,
            arguments: &arguments.write,
            configuration: None,
        },
        end,
    };
    Box::pin(recovery.run()).await
}

struct Recovery<'r> {
    arguments: &'r RecoverArguments,
    session: &'r Session,
    reader: &'r Reader<'r>,
    members: EtcdMembers<'r>,
    engine: Engine<'r>,
    end: Instant,
}

impl Recovery<'_> {
    async fn run(&self) -> anyhow::Result<Verdict> {
        let (observed, first) = self.observe_quorum().await?;
        let first = match first {
            Ok(first) => first,
            Err(refusal) => return self.refuse(&observed, &refusal),
        };
        if first.is_empty() {
            return self.report(&observed, RecoveryOutcome::Recovered { done: &[] });
        }
        if self.arguments.write.dry_run.is_some() {
            return self.report(&observed, RecoveryOutcome::DryRun(&first));
        }
        if !self.confirm(&first).await? {
            return self.refuse(&observed, &Refusal::unconfirmed());
        }
        self.session.terminal.set_interrupt_note(format!(
            "the recovery is not finished; continue with: {}",
            continue_command(self.members.control_plane, observed.control_plane.namespace())
        ));
        self.wake_controllers(&observed).await?;
        let mut done = Vec::new();
        let agreed = [first.steps, first.may_follow].concat();
        let why = self.work(&agreed, &mut done).await?;
        let outcome = if why.is_empty() {
            RecoveryOutcome::Recovered { done: &done }
        } else {
            RecoveryOutcome::Unfinished {
                done: &done,
                why: &why,
            }
        };
        self.report(&observed, outcome)
    }

    fn refuse(&self, observed: &Snapshot, refusal: &Refusal) -> anyhow::Result<Verdict> {
        refuse(
            &self.arguments.write.output,
            self.session,
            observed,
            NOT_DONE,
            refusal,
        )
    }

    /// Observes until etcd has a quorum, but not for longer than [`QUORUM_LIMIT`].
    async fn observe_quorum(&self) -> anyhow::Result<(Snapshot, Result<Remainder, Refusal>)> {
        let limit = self.end.min(Instant::now() + QUORUM_LIMIT);
        loop {
            let observed = self.members.observe().await?;
            let left = remainder(&observed, self.engine.now());
            if left.is_ok() || Instant::now() >= limit {
                return Ok((observed, left));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Shows what the command will do, and asks.
    async fn confirm(&self, first: &Remainder) -> anyhow::Result<bool> {
        let steps = first.plan();
        for line in steps.iter().chain(&first.waits_for) {
            self.session.terminal.note(line);
        }
        if steps.is_empty() {
            return Ok(true);
        }
        let place = self.reader.connection.describe_target();
        let confirm = self.arguments.confirm;
        confirm
            .confirm(&steps.join(", "), &place, false, &self.session.terminal)
            .await
    }

    /// Takes the agreed steps until every member is healthy. Returns why the recovery is not finished, or nothing if it is.
    async fn work(&self, agreed: &[Step], done: &mut Vec<String>) -> anyhow::Result<Vec<String>> {
        let terminal = &self.session.terminal;
        loop {
            let mut why = match self.members.observe().await {
                Ok(observed) => match remainder(&observed, self.engine.now()) {
                    Ok(left) if left.is_empty() => return Ok(Vec::new()),
                    Ok(left) => match left.next_step() {
                        Some(step) if !is_agreed(agreed, step) => {
                            return Ok(vec![format!(
                                "a step is necessary that was not necessary when you confirmed: {}",
                                step.describe()
                            )]);
                        }
                        Some(step) => match self.take(step).await {
                            Ok(Ok(())) => {
                                terminal.note(&format!("done: {}", step.describe()));
                                done.push(step.describe());
                                continue;
                            }
                            Ok(Err(why)) => why,
                            Err(error) => vec![format!("{error:#}")],
                        },
                        None => left.waits_for,
                    },
                    // While members join, the quorum changes, so a refusal may be temporary.
                    Err(refusal) => refusal.why,
                },
                // The recovery may restart the API server that was asked, so an error may be temporary.
                Err(error) => vec![format!("{error:#}")],
            };
            terminal.spin(&format!("waiting: {}", why.join(", ")));
            if Instant::now() + POLL_INTERVAL >= self.end {
                let limit = format_duration(self.arguments.timeout);
                why.insert(0, format!("the time limit of {limit} has passed"));
                return Ok(why);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Takes a step. The inner error says why the step was not taken.
    async fn take(&self, step: &Step) -> anyhow::Result<Result<(), Vec<String>>> {
        match step {
            Step::Resume => {
                let verb = verb(self.members.control_plane, "resume");
                let changed = self
                    .engine
                    .change_control_plane(&verb, ReadScope::All, |snapshot, context| {
                        Ok(pause::decide(snapshot, PauseAction::Resume, context)?)
                    });
                Ok(outcome(Box::pin(changed).await?))
            }
            Step::DeleteMachine { name, uid, .. } => {
                let verb = verb(name, "delete");
                let changed = self
                    .engine
                    .change_machine(&verb, MachineScope::Machine, |machine, now| {
                        decide_deletion(machine, uid, now)
                    });
                match Box::pin(changed).await {
                    Ok(changed) => Ok(outcome(changed)),
                    Err(error) if is_gone(&error, name) => Ok(Ok(())),
                    Err(error) => Err(error),
                }
            }
            Step::RemoveMember { id, name } => {
                let removed = Box::pin(self.remove(*id)).await?;
                let refused = || vec![format!("etcd member {name} is not removed yet")];
                Ok(if removed == Verdict::Met {
                    Ok(())
                } else {
                    Err(refused())
                })
            }
        }
    }

    /// Removes a member as `etcd remove-member` does.
    async fn remove(&self, id: u64) -> anyhow::Result<Verdict> {
        let options = MaintenanceOptions {
            dry_run: None,
            confirm: ConfirmArguments { yes: true },
            output: OutputArguments {
                output: Some(OutputFormat::Json),
                no_headers: false,
            },
            timeout: READ_LIMIT,
        };
        let arguments = RemoveMemberArguments {
            maintenance: MaintenanceArguments {
                name: ControlPlaneName::Own(self.members.control_plane.to_owned()),
                options,
            },
            member: format!("{id:x}"),
        };
        let target = MaintenanceTarget {
            connection: self.reader.connection,
            control_plane: self.members.control_plane,
            collected: Some(&Collected::default()),
        };
        let options = &arguments.maintenance.options;
        let terminal = &self.session.terminal;
        let removal = target.maintain(options, terminal, async |maintenance, observed| {
            remove_member(&arguments, maintenance, &observed).await
        });
        removal.await
    }

    /// Makes the controllers try again now. They have failed since etcd lost its quorum, and may wait for minutes before they try
    /// again.
    async fn wake_controllers(&self, observed: &Snapshot) -> anyhow::Result<()> {
        if observed.is_paused() {
            return Ok(());
        }
        let control_plane = verb(self.members.control_plane, "reconcile");
        let changed =
            self.engine
                .change_control_plane(&control_plane, ReadScope::ControlPlane, |snapshot, context| {
                    Ok(reconcile::decide(snapshot, context)?)
                });
        let mut results = vec![outcome(Box::pin(changed).await?)];
        let deleting = observed.machines.iter().filter(|machine| machine.is_deleting());
        for machine in deleting {
            let verb = verb(machine.name(), "reconcile");
            let changed = self
                .engine
                .change_machine(&verb, MachineScope::Machine, reconcile::decide_machine);
            match Box::pin(changed).await {
                Ok(changed) => results.push(outcome(changed)),
                Err(error) if is_gone(&error, machine.name()) => {}
                Err(error) => return Err(error),
            }
        }
        for why in results.into_iter().filter_map(Result::err).flatten() {
            self.session
                .terminal
                .warning(&format!("a controller may wait for up to ten minutes: {why}"));
        }
        Ok(())
    }

    fn report(&self, observed: &Snapshot, outcome: RecoveryOutcome<'_>) -> anyhow::Result<Verdict> {
        let report = RecoveryReport {
            control_plane: &observed.control_plane,
            outcome,
        };
        let (output, terminal) = (&self.arguments.write.output, &self.session.terminal);
        terminal.stop_spinning();
        terminal.clear_interrupt_note();
        if !output.is_text() {
            note_lines(terminal, &report.summary(Layout::default()));
        }
        print(&report, output, terminal)?;
        Ok(report.verdict())
    }
}

const fn verb<'v>(name: &'v str, infinitive: &'static str) -> Verb<'v> {
    Verb {
        name,
        infinitive,
        not_done: NOT_DONE,
        force_effect: None,
        // The command deletes only Machines without a member, so etcd loses nothing.
        waits_for_replacement: false,
    }
}

/// Whether the user has agreed to the step. The user was told whether the host of the deleted Machine runs. The agreement still
/// holds if the host has stopped since.
fn is_agreed(agreed: &[Step], step: &Step) -> bool {
    agreed.iter().any(|agreed| match (agreed, step) {
        (
            Step::DeleteMachine { uid, runs, .. },
            Step::DeleteMachine {
                uid: own, runs: now, ..
            },
        ) => uid == own && (*runs == Some(true) || runs == now || *now == Some(false)),
        _ => agreed == step,
    })
}

/// Whether an error says that the Machine does not exist any more.
fn is_gone(error: &anyhow::Error, machine: &str) -> bool {
    let is_not_found = |error: &Error| matches!(error, Error::NotFound { action } if action.name.as_deref() == Some(machine));
    error.is::<NoSuchMachine>() || error.downcast_ref().is_some_and(is_not_found)
}

/// Why a change was not written. `Ok` if it was, or if it was not necessary.
fn outcome(changed: Changed) -> Result<(), Vec<String>> {
    match changed.outcome {
        ChangeOutcome::Done { .. } | ChangeOutcome::Unchanged(_) => Ok(()),
        ChangeOutcome::Refused(refusal) => Err(refusal.why),
        ChangeOutcome::Rejected(why) => Err(why),
        ChangeOutcome::Conflict(fields) => {
            Err(vec![format!("changed by another client: {}", fields.join(", "))])
        }
    }
}
