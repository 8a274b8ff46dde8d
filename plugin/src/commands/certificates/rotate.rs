//! `kubectl kcp certificates rotate`: changes the Secrets with CAs to their next phase, and replaces every Machine.

use std::time::Duration;

use clap::{Args, ValueEnum};
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    ReadLimit, Written,
    ca_rotation::{KeyPairSecret, read_key_pair},
    events::Events,
    reader::Reader,
    reads::{change::LIMIT, controller_lease::read_controller_lease},
    update::WriteMode,
};
use kcp_control_plane::{
    certificates::Purpose,
    change::{
        decision::{ActionEvent, Decision, ObjectReference, Proposal, Refusal, RefusedBy},
        replacement::apply_replacement_refusal,
    },
    review::ReviewContext,
    snapshot::{
        Reading,
        change::{ChangeSnapshot, ReadScope},
    },
    verbs::{
        ca_rotation::{
            PhaseOfSecret, RotationDecision, RotationOptions, RotationStep, decide, refusal_of_purposes,
        },
        rollout::start::{self, StartOptions},
    },
};

use crate::{
    arguments::{ControlPlaneName, DryRun, parse_control_plane},
    change::{
        arguments::{ReviewArguments, WriteArguments},
        confirmation::ConfirmArguments,
        engine::{ChangeOutcome, Changed, Engine, Verb},
    },
    commands::etcd::snapshot_first::SnapshotFirstArguments,
    session::Session,
    terminal::escape,
    verdict::Verdict,
};

/// How long the command waits after it changes the Secrets, before it starts the rollout. The creation time of a Machine has whole
/// seconds. So without the wait, a Machine could seem older than its Secret.
const BEFORE_ROLLOUT: Duration = Duration::from_secs(2);

const NOT_DONE: &str = "CA not rotated";

/// Replace CAs and the keys of service accounts in three phases.
#[derive(Debug, Args)]
#[command(
    after_help = "Each run does the next phase: it changes the Secret of each CA once, and replaces every Machine in one rollout. \
        Phase 1 trusts a new key in addition to the old one, phase 2 signs with the new key, and phase 3 trusts only the new key. \
        Run the command again once the rollout is complete. The command refuses to begin a phase if the previous phase has not \
        reached every Machine, or if something is unhealthy. If the command is interrupted, run it again.

Examples:
  kubectl kcp certificates rotate edge --ca etcd,front-proxy
  kubectl kcp certificates rotate edge --ca service-account --dry-run
  kubectl kcp certificates rotate edge --ca etcd --snapshot edge.db --yes"
)]
pub struct RotateArguments {
    /// Control plane whose CAs to rotate, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// What to rotate; one rollout for each phase serves all of them
    #[arg(
        long,
        value_name = "CA,...",
        value_enum,
        required = true,
        value_delimiter = ','
    )]
    pub ca: Vec<AuthorityName>,

    /// Begin another rotation of a CA whose rotation is complete
    #[arg(long)]
    pub again: bool,

    /// Confirm that you have restarted the control plane controller since phase 2 of the etcd CA, and begin phase 3 although
    /// nothing shows the restart
    #[arg(long)]
    pub controller_restarted: bool,

    /// Confirm that no token of the old key is in use, and begin phase 3 of the keys of service accounts
    #[arg(long)]
    pub tokens_renewed: bool,

    #[command(flatten)]
    pub confirm: ConfirmArguments,

    #[command(flatten)]
    pub snapshot: SnapshotFirstArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub review: ReviewArguments,
}

/// A CA, or the keys of service accounts, as `--ca` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthorityName {
    /// The CA of the API servers and kubelets, which the command refuses to rotate
    Kubernetes,
    /// The CA of etcd's members and clients
    Etcd,
    /// The CA with which extension API servers verify API servers
    FrontProxy,
    /// The keys that sign the tokens of service accounts
    ServiceAccount,
}

impl AuthorityName {
    const fn purpose(self) -> Purpose {
        match self {
            Self::Kubernetes => Purpose::ClusterCa,
            Self::Etcd => Purpose::EtcdCa,
            Self::FrontProxy => Purpose::FrontProxyCa,
            Self::ServiceAccount => Purpose::ServiceAccountKeys,
        }
    }
}

pub(super) async fn run(arguments: &RotateArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.review.read()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let name = &arguments.name.read(&reader, ReadLimit::per_read(LIMIT)).await?;
    let mut purposes: Vec<Purpose> = arguments.ca.iter().map(|ca| ca.purpose()).collect();
    purposes.sort_unstable();
    purposes.dedup();
    let rotation = Rotation {
        arguments,
        purposes,
        verb: Verb {
            name,
            infinitive: "roll out",
            not_done: NOT_DONE,
            force_effect: None,
            waits_for_replacement: true,
        },
        engine: Engine {
            reader: &reader,
            terminal: &session.terminal,
            arguments: &arguments.write,
            configuration: configuration.as_ref(),
        },
    };
    Box::pin(rotation.run()).await
}

struct Rotation<'r> {
    arguments: &'r RotateArguments,
    purposes: Vec<Purpose>,
    verb: Verb<'r>,
    engine: Engine<'r>,
}

/// What the command has read, and the next step that it derives from the objects.
struct Judged {
    snapshot: ChangeSnapshot,
    secrets: Vec<KeyPairSecret>,
    /// The next step and its rollout, or why there is none.
    next: Result<(RotationStep, Proposal), ChangeOutcome>,
}

impl Rotation<'_> {
    async fn run(&self) -> anyhow::Result<Verdict> {
        let mut judged = Box::pin(self.judge()).await?;
        let (step, proposal) = match judged.next {
            Ok(next) => next,
            Err(outcome) => return self.stop(&judged.snapshot, outcome).await,
        };
        let control_plane = judged.snapshot.control_plane();
        let (engine, terminal) = (&self.engine, self.engine.terminal);
        let snapshot = &self.arguments.snapshot;
        snapshot.warn(control_plane, engine.now(), terminal);
        let asks = !self.arguments.confirm.yes && self.arguments.write.dry_run.is_none();
        if asks {
            let question = step.question(self.verb.name);
            let answer = engine.ask(self.arguments.confirm, &question, &proposal, &[]);
            if !answer.await? {
                let refusal = Refusal::unconfirmed();
                return self.stop(&judged.snapshot, ChangeOutcome::Refused(refusal)).await;
            }
        }
        Box::pin(snapshot.save(control_plane, engine.reader, terminal)).await?;
        if asks || snapshot.is_set() {
            // The question and the snapshot take time, so the objects may have changed.
            judged = Box::pin(self.judge()).await?;
            match judged.next {
                Ok((now, _)) if now == step => {}
                Ok(_) => {
                    let why = "the next step has changed in the meantime: run the command again";
                    let refusal = Refusal::new(RefusedBy::Command, vec![why.to_owned()]);
                    return self.stop(&judged.snapshot, ChangeOutcome::Refused(refusal)).await;
                }
                Err(outcome) => return self.stop(&judged.snapshot, outcome).await,
            }
        }
        Box::pin(self.take(&step, &judged.snapshot, &judged.secrets)).await
    }

    async fn judge(&self) -> anyhow::Result<Judged> {
        let engine = &self.engine;
        let reader = engine.reader;
        let snapshot = Box::pin(engine.read(self.verb.name, ReadScope::All)).await?;
        let refused = |snapshot, refusal| Judged {
            snapshot,
            secrets: Vec::new(),
            next: Err(ChangeOutcome::Refused(refusal)),
        };
        if let Some(refusal) = refusal_of_purposes(&snapshot.observed, &self.purposes) {
            return Ok(refused(snapshot, refusal));
        }
        let Some(cluster) = snapshot.control_plane().cluster() else {
            let why = vec!["the control plane has no Cluster yet".to_owned()];
            return Ok(refused(snapshot, Refusal::new(RefusedBy::Command, why)));
        };
        let limit = ReadLimit::per_read(LIMIT);
        let mut secrets = Vec::new();
        for purpose in &self.purposes {
            let place = (reader.connection.namespace.as_str(), cluster);
            secrets.push(read_key_pair(reader.connection, place, *purpose, limit).await?);
        }
        let lease = if self.purposes.contains(&Purpose::EtcdCa) {
            read_controller_lease(reader, limit).await
        } else {
            Reading::NotYet
        };
        let states: Vec<_> = secrets.iter().map(|secret| secret.state.clone()).collect();
        let options = RotationOptions {
            again: self.arguments.again,
            is_controller_restarted: self.arguments.controller_restarted,
            are_tokens_renewed: self.arguments.tokens_renewed,
        };
        let next = match decide(&snapshot, &states, &lease, options, engine.now()) {
            RotationDecision::Complete(why) => Err(ChangeOutcome::Unchanged(why)),
            RotationDecision::Refused(refusal) => Err(ChangeOutcome::Refused(refusal)),
            RotationDecision::Step(step) => {
                let view = snapshot.view();
                let refusal = engine.refusal_during_replacement(&self.verb, &snapshot, None);
                let rollout = self.decide_rollout(&snapshot, engine.context(&view))?;
                match apply_replacement_refusal(rollout, refusal) {
                    Decision::Write(proposal) => Ok((step, proposal)),
                    Decision::Refused(refusal) => Err(ChangeOutcome::Refused(refusal)),
                    Decision::Unchanged(why) => Err(ChangeOutcome::Refused(Refusal::new(
                        RefusedBy::Command,
                        vec![why],
                    ))),
                }
            }
        };
        Ok(Judged {
            snapshot,
            secrets,
            next,
        })
    }

    fn decide_rollout(
        &self,
        snapshot: &ChangeSnapshot,
        context: ReviewContext<'_>,
    ) -> anyhow::Result<Decision> {
        let api_version = &self.engine.reader.control_plane_resource.api_version;
        Ok(start::decide(
            snapshot,
            StartOptions::default(),
            api_version,
            context,
        )?)
    }

    /// Changes the Secrets, and then starts the rollout. A command that is killed in between starts the rollout when it runs again.
    async fn take(
        &self,
        step: &RotationStep,
        snapshot: &ChangeSnapshot,
        secrets: &[KeyPairSecret],
    ) -> anyhow::Result<Verdict> {
        let (engine, terminal) = (&self.engine, self.engine.terminal);
        let is_stored = engine.arguments.mode() == WriteMode::Store;
        let control_plane = snapshot.control_plane();
        if is_stored {
            terminal.set_interrupt_note(
                "the phase may have begun already; to continue, run the same command again".to_owned(),
            );
        }
        let mut has_begun = false;
        for phase in &step.writes {
            let secret = secrets
                .iter()
                .find(|secret| secret.state.purpose == phase.purpose);
            let Some(secret) = secret else { continue };
            let written = Box::pin(self.write(secret, phase, snapshot)).await;
            if has_begun && !matches!(written, Ok(true)) {
                terminal.hint(
                    "some Secrets have changed already; to change the others, run the same command again",
                );
            }
            if !written? {
                let why = vec![format!(
                    "Secret {} has changed in the meantime: run the command again",
                    phase.secret
                )];
                let refusal = Refusal::new(RefusedBy::Command, why);
                return self.stop(snapshot, ChangeOutcome::Refused(refusal)).await;
            }
            if is_stored {
                has_begun = true;
                self.record_event(phase, snapshot).await;
            }
        }
        if has_begun {
            tokio::time::sleep(BEFORE_ROLLOUT).await;
        }
        let changed = engine.change_control_plane(&self.verb, ReadScope::All, |snapshot, context| {
            self.decide_rollout(snapshot, context)
        });
        let verdict = engine.report(&self.verb, &Box::pin(changed).await?).await?;
        if is_stored {
            if verdict == Verdict::Met {
                let cluster = control_plane.cluster().unwrap_or_default();
                for action in step.next_actions(control_plane.name(), cluster, control_plane.namespace()) {
                    terminal.hint(&action);
                }
            } else {
                terminal.hint(
                    "the Secrets have their new content; to start the rollout, run the same command again",
                );
            }
        }
        Ok(verdict)
    }

    /// Changes one Secret. False if it has changed since it was read.
    async fn write(
        &self,
        secret: &KeyPairSecret,
        phase: &PhaseOfSecret,
        snapshot: &ChangeSnapshot,
    ) -> anyhow::Result<bool> {
        let engine = &self.engine;
        let mode = engine.arguments.mode();
        if mode != WriteMode::ClientDryRun {
            let is_dry_run = mode == WriteMode::ServerDryRun;
            let manager = &engine.arguments.field_manager;
            let machines = &snapshot.observed.machines;
            let written = secret.write(
                engine.reader.connection,
                phase.phase,
                machines,
                manager,
                is_dry_run,
            );
            if !matches!(written.await?, Written::Stored) {
                return Ok(false);
            }
        }
        engine.print_text(&format!(
            "secret/{} changed: {}{}\n",
            escape(&phase.secret),
            phase.phase.describe(),
            DryRun::suffix(engine.arguments.dry_run)
        ))?;
        Ok(true)
    }

    /// Records an Event on the control plane. A failure is only a warning, because the Secret has changed already.
    async fn record_event(&self, phase: &PhaseOfSecret, snapshot: &ChangeSnapshot) {
        let engine = &self.engine;
        let regarding = ObjectReference::new(
            snapshot.control_plane(),
            &KUBEADM_CONTROL_PLANE,
            &engine.reader.control_plane_resource.api_version,
        );
        let events = Events {
            connection: engine.reader.connection,
            field_manager: &engine.arguments.field_manager,
        };
        if let Err(error) = events.write_action(&ActionEvent(phase.event()), &regarding).await {
            engine.warn(&[format!("could not record an Event on the control plane: {error}")]);
        }
    }

    async fn stop(&self, snapshot: &ChangeSnapshot, outcome: ChangeOutcome) -> anyhow::Result<Verdict> {
        let changed = Changed::without_write(snapshot, outcome);
        self.engine.report(&self.verb, &changed).await
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::AuthorityName;

    #[test]
    fn hints_name_a_ca_as_the_flag_does() {
        for name in AuthorityName::value_variants() {
            let value = name.to_possible_value().expect("a value");
            let rotated = name.purpose().rotated_name();
            if *name == AuthorityName::Kubernetes {
                assert_eq!(rotated, None);
            } else {
                assert_eq!(rotated, Some(value.get_name()));
            }
        }
    }
}
