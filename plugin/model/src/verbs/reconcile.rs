//! The decision of `reconcile`, which makes a controller reconcile a control plane or a Machine now.
//!
//! After an error, a controller waits before it tries again: from Cluster API 1.13 on a second plus 5 ms, of which the 5 ms double with
//! each error, up to 1000 s (`util/controller/builder.go`, gate `ReconcilerRateLimiting`). But each controller reconciles every object
//! after its `--sync-period`, by default ten minutes. Any write to the object ends the wait, because the controllers watch the object.
//! This verb writes only an annotation with the current time.

use jiff::Timestamp;
use kcp_api::{Object as _, names::annotation::RECONCILE_REQUESTED};
use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::preflight_without_plan,
    },
    problem::{Problem, machine_pauses},
    review::ReviewContext,
    snapshot::change::{ChangeSnapshot, MachineSnapshot},
};

/// Decides whether the controller of the control plane can reconcile it now.
pub fn decide(snapshot: &ChangeSnapshot, context: ReviewContext<'_>) -> Result<Decision, DecodeError> {
    let is_cluster_paused = context.is_cluster_paused() || snapshot.observed.is_cluster_paused();
    let refusal = Refusal::while_paused(&snapshot.observed, is_cluster_paused);
    if !refusal.why.is_empty() {
        return Ok(Decision::Refused(refusal));
    }
    let patch = patch(context.now);
    Ok(match preflight_without_plan(snapshot, &patch, context)? {
        Ok(warnings) => proposal(patch, warnings, String::new()),
        Err(refusal) => Decision::Refused(refusal),
    })
}

/// Decides whether the controller of Machines can reconcile the Machine now.
pub fn decide_machine(machine: &MachineSnapshot, now: Timestamp) -> Decision {
    let mut pauses = machine_pauses(machine);
    // Cluster API's controller of Machines asks only for the pauses of the Machine and its Cluster.
    pauses.retain(|pause| *pause != Problem::Paused);
    if !pauses.is_empty() {
        let control_plane = machine.control_plane_snapshot.control_plane();
        return Decision::Refused(Refusal::because_of(&pauses, RefusedBy::Command, control_plane));
    }
    let detail = format!("for Machine {}", machine.object.name());
    proposal(patch(now), Vec::new(), detail)
}

fn patch(now: Timestamp) -> Value {
    json!({"metadata": {"annotations": {RECONCILE_REQUESTED: now.to_string()}}})
}

fn proposal(patch: Value, warnings: Vec<String>, detail: String) -> Decision {
    Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: "written: its controller reconciles it now".to_owned(),
        warnings,
        consequences: Vec::new(),
        event: ChangeEvent {
            reason: "ReconcileRequested",
            action: "Reconcile",
            note_verb: "reconciliation requested",
            detail,
        },
    })
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::json;

    use super::{decide, decide_machine};
    use crate::{
        change::decision::{Decision, ObjectWrite, RefusedBy},
        review::ReviewContext,
        snapshot::change::{ChangeSnapshot, MachineSnapshot},
        testing::{
            change, machine,
            objects::{annotate, now, pause},
        },
    };

    fn decided(snapshot: &ChangeSnapshot) -> Decision {
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(snapshot, context).expect("decodes")
    }

    fn written() -> ObjectWrite {
        ObjectWrite::patch(json!({"metadata": {"annotations": {
            "kubectl-kcp.dev/reconcile-requested-at": "2026-08-21T12:00:00Z"}}}))
    }

    #[test]
    fn only_an_annotation_is_written() {
        let Decision::Write(proposal) = decided(&change::snapshot()) else {
            panic!("refused");
        };
        assert_eq!(proposal.write, written());
        assert_eq!(proposal.event.note("alice"), "reconciliation requested by alice");
        let Decision::Write(proposal) = decide_machine(&machine::snapshot("m1"), now()) else {
            panic!("refused");
        };
        assert_eq!(proposal.write, written());
        assert_eq!(
            proposal.event.note("alice"),
            "reconciliation requested by alice for Machine m1"
        );
    }

    #[test]
    fn a_machine_that_is_being_deleted_can_be_reconciled() {
        let mut deleting = machine::snapshot("m1");
        deleting.object.machine.metadata.deletion_timestamp = Some(kcp_api::metadata::Time(now()));
        assert!(matches!(decide_machine(&deleting, now()), Decision::Write(_)));
    }

    #[test]
    fn a_machine_of_a_paused_control_plane_can_be_reconciled() {
        let mut machine = machine::snapshot("m1");
        pause(&mut machine.control_plane_snapshot.observed.control_plane.metadata);
        assert!(matches!(decide_machine(&machine, now()), Decision::Write(_)));
    }

    #[test]
    fn what_no_controller_reconciles_is_refused() {
        let refused = |decision: Decision| match decision {
            Decision::Refused(refusal) => {
                assert_eq!(refusal.refused_by, RefusedBy::Command);
                (refusal.why.join("; "), refusal.remedies.join("; "))
            }
            other => panic!("not refused: {other:?}"),
        };
        let mut paused = change::snapshot();
        pause(&mut paused.observed.control_plane.metadata);
        assert_eq!(
            refused(decided(&paused)),
            (
                "the control plane is paused: no controller reconciles it".to_owned(),
                "resume the control plane: kubectl kcp rollout resume c1-cp -n d".to_owned()
            )
        );
        let mut paused = change::snapshot();
        paused.observed.cluster_mut().spec.paused = true;
        assert_eq!(
            refused(decided(&paused)),
            (
                "the Cluster is paused: no controller reconciles the control plane".to_owned(),
                "resume the Cluster: kubectl patch cluster c1 -n d --type=merge -p '{\"spec\":{\"paused\":false}}'".to_owned()
            )
        );
        let mut paused: MachineSnapshot = machine::snapshot("m1");
        annotate(&mut paused.object.machine.metadata, "cluster.x-k8s.io/paused", "");
        assert_eq!(
            refused(decide_machine(&paused, now())).0,
            "Machine m1 is paused: no controller provisions, updates or deletes it"
        );
    }
}
