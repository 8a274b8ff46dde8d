//! The decisions of `rollout pause` and `rollout resume`, which stop and restart the reconciliation of a
//! control plane.
//!
//! Like `clusterctl alpha rollout pause` and `resume`, these verbs set and remove the annotation
//! `cluster.x-k8s.io/paused`. A paused Cluster also pauses its control plane.

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _, names::annotation::PAUSED};
use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::preflight_without_plan,
    },
    checks::joining::needed_joining_machine,
    plan::{Desired, plan},
    problem::Problem,
    review::ReviewContext,
    snapshot::{Snapshot, change::ChangeSnapshot},
    verbs::rollout::progress,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseAction {
    Pause,
    Resume,
}

pub fn decide(
    snapshot: &ChangeSnapshot,
    action: PauseAction,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let control_plane = snapshot.control_plane();
    // A control plane of a managed topology is paused with its Cluster.
    let is_paused_by_topology = !control_plane.is_paused()
        && snapshot.observed.has_managed_topology()
        && snapshot.observed.is_cluster_paused();
    let cluster_is_paused =
        action == PauseAction::Resume && snapshot.observed.is_cluster_paused() && !is_paused_by_topology;
    if (control_plane.is_paused() || is_paused_by_topology) == (action == PauseAction::Pause) {
        return Ok(Decision::Unchanged(match action {
            PauseAction::Pause => "already paused".to_owned(),
            PauseAction::Resume if cluster_is_paused => {
                let problem = Problem::cluster_paused(control_plane, snapshot.observed.cluster_paused_by());
                format!("annotation {PAUSED} is not set; {}", problem.message())
            }
            PauseAction::Resume => format!("annotation {PAUSED} is not set"),
        }));
    }
    if action == PauseAction::Resume
        && let Some(refusal) = refuse_to_resume(&snapshot.observed, context.now)
    {
        return Ok(Decision::Refused(refusal));
    }
    let (value, reason, verb, done) = match action {
        PauseAction::Pause => (json!("true"), "Paused", "Pause", "paused"),
        PauseAction::Resume => (Value::Null, "Resumed", "Resume", "resumed"),
    };
    let patch = json!({"metadata": {"annotations": {PAUSED: value}}});
    let mut warnings = match preflight_without_plan(snapshot, &patch, context)? {
        Ok(warnings) => warnings,
        Err(refusal) => return Ok(Decision::Refused(refusal)),
    };
    if cluster_is_paused {
        warnings
            .push(Problem::cluster_paused(control_plane, snapshot.observed.cluster_paused_by()).message());
    }
    let mut consequences = consequences(control_plane, action);
    if snapshot.observed.has_managed_topology() && (action == PauseAction::Pause || is_paused_by_topology) {
        consequences.push(format!(
            "the infrastructure, the workers and the topology of the Cluster are {done} too"
        ));
    }
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: done.to_owned(),
        warnings,
        consequences,
        event: ChangeEvent {
            reason,
            action: verb,
            note_verb: done,
            detail: String::new(),
        },
    }))
}

/// Refuses to resume if Cluster API would then delete a joining Machine and leave its member behind, although etcd needs this
/// member for its quorum.
fn refuse_to_resume(observed: &Snapshot, now: Timestamp) -> Option<Refusal> {
    let machine = needed_joining_machine(observed).ok().flatten()?;
    let plan = plan(observed, &Desired::current(observed), now);
    let mut verdicts = plan.verdicts.iter();
    verdicts.find(|verdict| verdict.machine == machine.name() && !verdict.reasons.is_empty())?;
    let control_plane = &observed.control_plane;
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    Some(Refusal {
        remedies: vec![format!(
            "make the Machine up to date again; or remove its etcd member first: kubectl kcp etcd remove-member {name} MEMBER -n \
             {namespace}; to see the members: kubectl kcp status {name} -n {namespace}"
        )],
        ..Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "Machine {} has no node yet and is outdated: Cluster API would delete it and leave its etcd member behind, and etcd \
                 would lose its quorum",
                machine.name()
            )],
        )
    })
}

fn consequences(control_plane: &KubeadmControlPlane, action: PauseAction) -> Vec<String> {
    let mut consequences = Vec::new();
    if let Some(progress) = progress(control_plane) {
        consequences.push(match action {
            PauseAction::Pause => {
                format!("{progress}; the rollout continues after the control plane is resumed")
            }
            PauseAction::Resume => format!("{progress}; the rollout continues"),
        });
    }
    if control_plane.deletion_timestamp().is_some() && action == PauseAction::Pause {
        consequences.push(
            "the control plane is being deleted; the deletion continues after the control plane is resumed"
                .to_owned(),
        );
    }
    consequences
}

#[cfg(test)]
mod tests {
    use kcp_api::{KubeadmControlPlane, metadata::Time};
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{ObjectWrite, PauseAction, decide};
    use crate::{
        change::decision::{Decision, Proposal},
        checks::joining::test_cases::second_joins,
        review::ReviewContext,
        snapshot::change::ChangeSnapshot,
        testing::{
            change::snapshot,
            objects::{minutes_ago, now, pause},
            snapshot::observed,
        },
    };

    fn decided(snapshot: &ChangeSnapshot, action: PauseAction) -> Decision {
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(snapshot, action, context).expect("decodes")
    }

    fn changed(change: fn(&mut KubeadmControlPlane)) -> ChangeSnapshot {
        let mut snapshot = snapshot();
        change(&mut snapshot.observed.control_plane);
        snapshot
    }

    fn proposal(decision: Decision) -> Proposal {
        match decision {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn sets_and_removes_the_annotation() {
        let paused = changed(|control_plane| pause(&mut control_plane.metadata));
        for (name, snapshot, action, expected) in [
            (
                "pause",
                Box::new(snapshot()),
                PauseAction::Pause,
                Some((json!("true"), "paused by alice")),
            ),
            ("pause_again", Box::new(paused), PauseAction::Pause, None),
            (
                "resume",
                Box::new(changed(|c| pause(&mut c.metadata))),
                PauseAction::Resume,
                Some((Value::Null, "resumed by alice")),
            ),
            (
                "resume_again",
                Box::new(self::snapshot()),
                PauseAction::Resume,
                None,
            ),
        ] {
            let decision = decided(&snapshot, action);
            let Some((value, note)) = expected else {
                assert!(matches!(decision, Decision::Unchanged(_)), "{name}");
                continue;
            };
            let proposal = proposal(decision);
            let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
            assert_eq!(proposal.write, ObjectWrite::patch(patch), "{name}");
            assert_eq!(proposal.event.note("alice"), note, "{name}");
            assert_eq!(proposal.consequences, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn says_what_stops_and_what_continues() {
        type Case = (
            &'static str,
            fn(&mut KubeadmControlPlane),
            PauseAction,
            &'static str,
        );
        let cases: &[Case] = &[
            (
                "pause_in_a_rollout",
                |c| c.status.up_to_date_replicas = 1,
                PauseAction::Pause,
                "a rollout is in progress: 1 of 3 Machines up to date; the rollout continues after the control plane is resumed",
            ),
            (
                "resume_in_a_rollout",
                |c| {
                    pause(&mut c.metadata);
                    c.status.up_to_date_replicas = 1;
                },
                PauseAction::Resume,
                "a rollout is in progress: 1 of 3 Machines up to date; the rollout continues",
            ),
            (
                "pause_a_deletion",
                |c| c.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                PauseAction::Pause,
                "the control plane is being deleted; the deletion continues after the control plane is resumed",
            ),
        ];
        for (name, change, action, expected) in cases {
            let proposal = proposal(decided(&changed(*change), *action));
            assert_eq!(proposal.consequences, [*expected], "{name}");
        }
    }

    #[test]
    fn a_managed_topology_is_paused_by_its_cluster() {
        let mut owned = snapshot();
        let mut object: Value = serde_json::from_str(&owned.json).expect("JSON");
        object["metadata"]["labels"]["topology.cluster.x-k8s.io/owned"] = json!("");
        owned.json = object.to_string();
        owned.observed.set_topology("v1.34.1");
        let whole = |done: &str| {
            format!("the infrastructure, the workers and the topology of the Cluster are {done} too")
        };
        assert_eq!(
            proposal(decided(&owned, PauseAction::Pause)).consequences,
            [whole("paused")]
        );
        owned.observed.cluster_mut().spec.paused = true;
        assert_eq!(
            decided(&owned, PauseAction::Pause),
            Decision::Unchanged("already paused".to_owned())
        );
        let resumed = proposal(decided(&owned, PauseAction::Resume));
        assert_eq!(
            (resumed.consequences, resumed.warnings),
            (vec![whole("resumed")], Vec::new())
        );
        // A pause set by another client can be resumed.
        pause(&mut owned.observed.control_plane.metadata);
        let resumed = proposal(decided(&owned, PauseAction::Resume));
        assert_eq!(resumed.consequences, Vec::<String>::new());
    }

    #[test]
    fn a_paused_cluster_keeps_a_resumed_control_plane_paused() {
        let mut snapshot = changed(|control_plane| pause(&mut control_plane.metadata));
        snapshot.observed.cluster_mut().spec.paused = true;
        let resumed = proposal(decided(&snapshot, PauseAction::Resume));
        let paused = "the Cluster is paused: no controller reconciles the control plane";
        assert_eq!(resumed.warnings, [paused]);
        snapshot.observed.control_plane.metadata.annotations = None;
        assert_eq!(
            decided(&snapshot, PauseAction::Resume),
            Decision::Unchanged(format!("annotation cluster.x-k8s.io/paused is not set; {paused}"))
        );
    }

    #[test]
    fn a_needed_joining_machine_is_not_given_up() {
        let mut paused = snapshot();
        paused.observed = observed();
        pause(&mut paused.observed.control_plane.metadata);
        second_joins(&mut paused.observed, 2);
        assert!(matches!(
            decided(&paused, PauseAction::Resume),
            Decision::Write(_)
        ));
        paused.observed.control_plane.spec.version = Some("v1.99.0".to_owned());
        let Decision::Refused(refusal) = decided(&paused, PauseAction::Resume) else {
            panic!("it is resumed");
        };
        assert_eq!(
            refusal.why,
            [
                "Machine m2 has no node yet and is outdated: Cluster API would delete it and leave its etcd member behind, and etcd would \
              lose its quorum"
            ]
        );
    }
}
