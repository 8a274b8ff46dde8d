//! Takes a step of a migration: reads the workload cluster, decides, writes, and waits.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use kcp_client::{
    Connection, ReadLimit,
    reader::Reader,
    reads::{
        change::LIMIT,
        leader_migration::{connect_to_workload, permissions::read_permissions, read_leader_migration},
        workers::read_workers,
    },
};
use kcp_control_plane::{
    change::decision::{Decision, Refusal, RefusedBy},
    kubelet_skew::Workers,
    leader_migration::{ObservedManagers, permissions::Identity},
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, ReadScope},
    verbs::{
        leader_migration::{Facts, phase::Managers},
        rollout::start::{StartTime, question},
    },
    wait::WaitCondition,
};
use kcp_rules::leader_migration::Lock;
use serde_json::Value;

use crate::{
    change::engine::{ChangeOutcome, Changed, Engine, Verb},
    commands::leader_migration::{left_over, step_arguments::StepArguments},
    session::Session,
    terminal::escape,
    verdict::Verdict,
    wait::{Wait, deadline},
};

/// The namespace in which kubeadm creates its objects.
const KUBE_SYSTEM: &str = "kube-system";

/// The time between two reads of `--wait`, after the rollout.
const INTERVAL: Duration = Duration::from_secs(2);

/// A step, and what to read for it.
pub(super) struct Step<'s> {
    pub(super) arguments: &'s StepArguments,
    /// The verb for error messages, before the name of the control plane.
    pub(super) infinitive: &'static str,
    pub(super) not_done: &'s str,
    /// The identities that need the migration lock.
    pub(super) identities: Vec<Identity>,
    /// The name of the migration lock; `None` for the name in the control plane's configuration.
    pub(super) leader_name: Option<&'s str>,
    /// Whether the command must decide again after the rollout, to confirm that the step has taken effect.
    pub(super) is_confirmed: bool,
    /// Whether the command deletes the Leases that a migration left behind, once the step has taken effect.
    pub(super) deletes_leases: bool,
}

/// What was read for a step.
pub(super) struct Reads {
    observed: ObservedManagers,
    missing_permissions: Vec<String>,
    pub(super) workers: Workers,
    /// The control plane.
    pub(super) control_plane: Value,
}

impl Reads {
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts {
            observed: &self.observed,
            missing_permissions: &self.missing_permissions,
        }
    }
}

impl Step<'_> {
    /// Takes the step.
    ///
    /// # Errors
    /// A read fails, it is unknown whether the change was written, or the result cannot be printed.
    pub(super) async fn take(
        &self,
        session: &Session,
        decide: impl Fn(&ChangeSnapshot, &Reads, ReviewContext<'_>) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Verdict> {
        let StepArguments {
            name, write, review, ..
        } = self.arguments;
        let configuration = review.read()?;
        let connection = session.connect().await?;
        let reader = Reader::discover(&connection).await?;
        let reads = Box::pin(self.read(&reader)).await?;
        let before = match self.arguments.wait {
            Some(_) => Some(reader.read_snapshot(&connection.namespace, name).await?),
            None => None,
        };
        let engine = Engine {
            reader: &reader,
            terminal: &session.terminal,
            arguments: write,
            configuration: configuration.as_ref(),
        };
        let verb = Verb {
            name,
            infinitive: self.infinitive,
            not_done: self.not_done,
            force_effect: None,
            waits_for_replacement: true,
        };
        let changed = engine.change_control_plane_if_confirmed(
            &verb,
            self.arguments.confirm,
            |snapshot| Some(question(snapshot, StartTime::Now)),
            |snapshot, context| decide(snapshot, &reads, context),
        );
        let changed = Box::pin(changed).await?;
        let verdict = engine.report(&verb, &changed).await?;
        if let ChangeOutcome::Unchanged(_) = changed.outcome {
            return Box::pin(self.delete_leases(verdict, &reader, &reads, session)).await;
        }
        let (ChangeOutcome::Done { .. }, Some(timeout)) = (&changed.outcome, self.arguments.wait) else {
            return Ok(verdict);
        };
        let end = deadline((!timeout.is_zero()).then_some(timeout));
        let wait = Wait {
            name,
            condition: WaitCondition::RolledOut,
            timeout,
            before,
            interrupt_message: format!(
                "the rollout continues; watch with: kubectl kcp rollout status {name} -n {}",
                connection.namespace
            ),
            done_message: format!(
                "the rollout of kubeadmcontrolplane/{} is complete\n",
                escape(name)
            ),
        };
        let verdict = Box::pin(wait.run(&reader, &session.terminal)).await?;
        if verdict != Verdict::Met || !self.is_confirmed {
            return Ok(verdict);
        }
        loop {
            let reads = Box::pin(self.read(&reader)).await?;
            let snapshot = Box::pin(engine.read(name, ReadScope::All)).await?;
            let view = snapshot.view();
            let outcome = match decide(&snapshot, &reads, engine.context(&view))? {
                Decision::Refused(_) if tokio::time::Instant::now() + INTERVAL < end => {
                    tokio::time::sleep(INTERVAL).await;
                    continue;
                }
                Decision::Unchanged(why) => ChangeOutcome::Unchanged(why),
                Decision::Refused(refusal) => ChangeOutcome::Refused(refusal),
                Decision::Write(_) => ChangeOutcome::Refused(Refusal::new(
                    RefusedBy::Command,
                    vec!["another client has changed the control plane; run the command again".to_owned()],
                )),
            };
            let changed = Changed::without_write(&snapshot, outcome);
            let verdict = engine.report(&verb, &changed).await?;
            return match changed.outcome {
                ChangeOutcome::Unchanged(_) => {
                    Box::pin(self.delete_leases(verdict, &reader, &reads, session)).await
                }
                _ => Ok(verdict),
            };
        }
    }

    /// Deletes the Leases that the migration left behind. Does nothing unless `verdict` is [`Verdict::Met`],
    /// because the step has not taken effect then.
    async fn delete_leases(
        &self,
        verdict: Verdict,
        reader: &Reader<'_>,
        reads: &Reads,
        session: &Session,
    ) -> anyhow::Result<Verdict> {
        let StepArguments {
            name, timeout, write, ..
        } = self.arguments;
        if !self.deletes_leases || verdict != Verdict::Met || reads.observed.leftover_locks().is_empty() {
            return Ok(verdict);
        }
        let management = reader.connection;
        let (_, control_plane) = reader.read_control_plane(&management.namespace, name).await?;
        let end = Instant::now() + *timeout;
        let cluster = connect_to_workload(management, &control_plane, end).await;
        let cluster =
            cluster.map_err(|failure| anyhow!("cannot read {}: {}", failure.object, failure.message))?;
        left_over::delete(&cluster, &reads.observed, write, &session.terminal).await
    }

    async fn read(&self, reader: &Reader<'_>) -> anyhow::Result<Reads> {
        let StepArguments {
            name,
            ccm_namespace,
            timeout,
            write,
            ..
        } = self.arguments;
        let management = reader.connection;
        let end = Instant::now() + *timeout;
        let (text, control_plane) = reader.read_control_plane(&management.namespace, name).await?;
        let object: Value = serde_json::from_str(&text)?;
        let observed = Box::pin(read_leader_migration(
            management,
            &control_plane,
            ccm_namespace,
            end,
        ))
        .await;
        let leader_name = match self.leader_name {
            Some(leader_name) => Some(leader_name.to_owned()),
            None => Managers::from_control_plane(&object)?
                .ok()
                .and_then(|managers| Some(managers.kube.migration_lock()?.name)),
        };
        let missing_permissions = match leader_name {
            Some(leader_name) if !self.identities.is_empty() => {
                let workload = connect_to_workload(management, &control_plane, end).await;
                let lock = Lock {
                    namespace: KUBE_SYSTEM.to_owned(),
                    name: leader_name,
                };
                match workload {
                    Ok(cluster) => missing(&cluster, &self.identities, &lock, &write.field_manager).await,
                    Err(failure) => vec![format!(
                        "could not check the permissions of the controller managers, because {} could not be read: {}",
                        failure.object, failure.message
                    )],
                }
            }
            _ => Vec::new(),
        };
        let limit = ReadLimit::per_read(LIMIT);
        let workers = Box::pin(read_workers(reader, control_plane.cluster(), limit)).await;
        Ok(Reads {
            observed,
            missing_permissions,
            workers,
            control_plane: object,
        })
    }
}

/// The permissions for the Lease that the controller managers lack, one line each.
async fn missing(
    cluster: &Connection,
    identities: &[Identity],
    lock: &Lock,
    field_manager: &str,
) -> Vec<String> {
    match read_permissions(cluster, identities, lock, field_manager).await {
        Ok(permissions) => permissions
            .into_iter()
            .filter(|permission| !permission.is_allowed)
            .map(|permission| match permission.verb {
                "create" => format!(
                    "{} is not allowed to create Leases in {KUBE_SYSTEM}",
                    permission.user
                ),
                verb => format!("{} is not allowed to {verb} Lease {}", permission.user, lock.name),
            })
            .collect(),
        Err(error) => vec![format!(
            "could not check the permissions of the controller managers: {error}"
        )],
    }
}
