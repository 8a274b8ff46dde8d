//! Asks the user before a command deletes or replaces something. Every command that asks does so here.

use clap::Args;
use jiff::Timestamp;
use kcp_api::{
    Object as _,
    kind::{KUBEADM_CONTROL_PLANE, MACHINE},
};
use kcp_client::{
    reads::machine::FoundMachine,
    update::{ReadObject as _, WriteMode},
};
use kcp_control_plane::{
    change::{
        confirmation::{Agreement, Confirmation, Question},
        decision::{Decision, Proposal},
        replacement::apply_replacement_refusal,
    },
    drain::forecast,
    plan::DeletedMachines,
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, MachineSnapshot, ReadScope},
    verbs::machine::replace::add_drain_warnings,
};

use crate::{
    change::engine::{Changed, Engine, MachineScope, Verb},
    terminal::Terminal,
};

/// The flag of every command that asks.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ConfirmArguments {
    /// Do not ask for confirmation; without a terminal, a command that asks needs this flag
    #[arg(short, long)]
    pub yes: bool,
}

/// A command must ask, but there is no terminal.
#[derive(Debug, thiserror::Error)]
#[error("cannot {goal} without confirmation: stdin or stderr is not a terminal")]
pub(crate) struct NotConfirmed {
    goal: String,
}

impl NotConfirmed {
    pub(crate) const HINT: &str = "confirm with --yes";

    fn check(confirmation: Confirmation, goal: &str) -> Result<(), Self> {
        match confirmation {
            Confirmation::NotNeeded | Confirmation::Asked => Ok(()),
            Confirmation::Missing => Err(Self {
                goal: goal.to_owned(),
            }),
        }
    }
}

impl ConfirmArguments {
    fn confirmation(self, is_dry_run: bool) -> Confirmation {
        Confirmation::new(self.yes, is_dry_run, Terminal::can_prompt())
    }

    /// Fails if [`Self::confirm`] would have to ask whether to do `goal`, but cannot. For a command that does something else before it
    /// asks.
    pub(crate) fn check_answerable(self, goal: &str) -> Result<(), NotConfirmed> {
        NotConfirmed::check(self.confirmation(false), goal)
    }

    /// Asks whether to do `goal`, such as `delete Machine m1`, unless a flag makes that unnecessary. `place` is the rest
    /// of the question. False if the user answers no.
    pub(crate) async fn confirm(
        self,
        goal: &str,
        place: &str,
        is_dry_run: bool,
        terminal: &Terminal,
    ) -> anyhow::Result<bool> {
        let confirmation = self.confirmation(is_dry_run);
        NotConfirmed::check(confirmation, goal)?;
        if confirmation == Confirmation::Asked {
            terminal.confirm(&format!("{goal} {place}?")).await
        } else {
            Ok(true)
        }
    }
}

impl Engine<'_> {
    /// Like [`Engine::change_control_plane`], but first asks `question`. There is no question if the change deletes
    /// nothing.
    pub async fn change_control_plane_if_confirmed(
        &self,
        verb: &Verb<'_>,
        confirm: ConfirmArguments,
        question: impl Fn(&ChangeSnapshot) -> Option<Question>,
        decide: impl Fn(&ChangeSnapshot, ReviewContext<'_>) -> anyhow::Result<Decision>,
    ) -> anyhow::Result<Changed> {
        let (mut agreement, mut first) = (Agreement::Any, None);
        if self.must_ask(confirm) {
            let snapshot = Box::pin(self.read(verb.name, ReadScope::All)).await?;
            let view = snapshot.view();
            let decision = decide(&snapshot, self.context(&view))?;
            let refusal = self.refusal_during_replacement(verb, &snapshot, None);
            let decision = apply_replacement_refusal(decision, refusal);
            agreement = if let (Decision::Write(proposal), Some(asked)) = (&decision, question(&snapshot)) {
                if !self.ask(confirm, &asked, proposal, &[]).await? {
                    let control_plane = snapshot.control_plane();
                    let json = &snapshot.json;
                    return Ok(Changed::unconfirmed(
                        &KUBEADM_CONTROL_PLANE,
                        verb.name,
                        json,
                        control_plane,
                    ));
                }
                Agreement::To(Some(asked))
            } else {
                // The user was not asked, so no time has passed, and the change below does not read again.
                first = Some(snapshot);
                Agreement::To(None)
            };
        }
        let decide = |snapshot: &ChangeSnapshot, context: ReviewContext<'_>| {
            let refusal = self.refusal_during_replacement(verb, snapshot, None);
            let decision = apply_replacement_refusal(decide(snapshot, context)?, refusal);
            Ok(agreement.apply(decision, |_| question(snapshot)))
        };
        Box::pin(self.change_control_plane_from(first, verb, ReadScope::All, decide)).await
    }

    /// Like [`Engine::change_machine`], but first asks `question`.
    pub async fn change_machine_if_confirmed(
        &self,
        verb: &Verb<'_>,
        scope: MachineScope,
        confirm: ConfirmArguments,
        question: impl Fn(&MachineSnapshot, &Proposal) -> Question,
        decide: impl Fn(&MachineSnapshot, Timestamp) -> Decision,
    ) -> anyhow::Result<Changed> {
        let mut agreement = Agreement::Any;
        if self.must_ask(confirm) {
            agreement = Agreement::To(None);
            let with_health_checks = scope == MachineScope::MachineAndHealthChecks;
            let found = Box::pin(self.read_machine(verb, with_health_checks)).await?;
            if let (Decision::Write(proposal), FoundMachine::OfControlPlane(machine)) =
                (self.decide_machine(verb, &found, &decide), &found)
            {
                let asked = question(machine, &proposal);
                let drain = forecast(machine.observed(), &DeletedMachines::one(machine.object.name()));
                if !self.ask(confirm, &asked, &proposal, &drain).await? {
                    let control_plane = machine.control_plane_snapshot.control_plane();
                    return Ok(Changed::unconfirmed(
                        &MACHINE,
                        verb.name,
                        found.object(),
                        control_plane,
                    ));
                }
                agreement = Agreement::To(Some(asked));
            }
        }
        let decide = |machine: &MachineSnapshot, now| {
            let name = Some(machine.object.name());
            let refusal = self.refusal_during_replacement(verb, &machine.control_plane_snapshot, name);
            let decision = apply_replacement_refusal(decide(machine, now), refusal);
            let decision = agreement.apply(decision, |proposal| Some(question(machine, proposal)));
            add_drain_warnings(decision, machine)
        };
        Box::pin(self.change_machine(verb, scope, decide)).await
    }

    fn must_ask(&self, confirm: ConfirmArguments) -> bool {
        confirm.confirmation(self.is_dry_run()) != Confirmation::NotNeeded
    }

    fn is_dry_run(&self) -> bool {
        self.arguments.mode() != WriteMode::Store
    }

    /// Shows what the change does, and asks the user.
    pub(crate) async fn ask(
        &self,
        confirm: ConfirmArguments,
        Question { goal, .. }: &Question,
        proposal: &Proposal,
        drain: &[String],
    ) -> anyhow::Result<bool> {
        self.warn(&proposal.warnings);
        for consequence in proposal.consequences.iter().chain(drain) {
            self.terminal.note(consequence);
        }
        let place = self.reader.connection.describe_target();
        confirm
            .confirm(goal, &place, self.is_dry_run(), self.terminal)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::{Confirmation, NotConfirmed};

    #[test]
    fn only_a_question_that_nobody_can_answer_is_an_error() {
        let error = "cannot delete it without confirmation: stdin or stderr is not a terminal";
        for (is_given, can_prompt, expected) in [
            (true, true, None),
            (true, false, None),
            (false, true, None),
            (false, false, Some(error)),
        ] {
            let confirmation = Confirmation::new(is_given, false, can_prompt);
            let found = NotConfirmed::check(confirmation, "delete it").err();
            let found = found.map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{confirmation:?}");
        }
    }
}
