//! The decision of `scale`, which changes the number of Machines.

use kcp_api::Object as _;
use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::{
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::{preflight_reviewed, refusal_while_paused},
    },
    ownership::{Ownership, last_writer, ownership},
    review::{ReviewContext, review_scale},
    snapshot::change::ChangeSnapshot,
};

#[derive(Clone, Copy, Debug)]
pub struct ScaleOptions {
    pub replicas: i64,
    /// The current number that `--current-replicas` requires. `None` accepts any number.
    pub current: Option<i64>,
    pub force: bool,
}

pub fn decide(
    snapshot: &ChangeSnapshot,
    options: ScaleOptions,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let ScaleOptions { replicas, force, .. } = options;
    let desired = snapshot.observed.asked_replicas();
    if let Some(current) = options.current.filter(|current| desired != Some(*current)) {
        return Ok(Decision::Refused(Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "replicas is {}, but --current-replicas is {current}",
                replicas_text(desired)
            )],
        )));
    }
    if desired == Some(replicas) {
        return Ok(Decision::Unchanged(format!("replicas is already {replicas}")));
    }
    let patch = json!({ "spec": { "replicas": replicas } });
    if let Some(refusal) = refusal_beside_topology(snapshot, &patch, replicas, context)? {
        return Ok(Decision::Refused(refusal));
    }
    let review = review_scale(&snapshot.json, replicas, context)?;
    let preflight = preflight_reviewed(snapshot, &patch, review, force, context)?;
    let consequences = preflight.consequences();
    let refusal = preflight.refusal;
    if let Some(refusal) = refusal.or_else(|| refusal_while_paused(&snapshot.observed, force)) {
        return Ok(Decision::Refused(refusal));
    }
    let from_to = format!("from {} to {replicas}", replicas_text(desired));
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::Patch {
            patch,
            // Without `spec.replicas`, the API server responds with 500 for the scale subresource.
            subresource: desired.map(|_| "scale"),
        },
        outcome: format!("scaled {from_to}"),
        warnings: preflight.warnings,
        consequences,
        event: ChangeEvent {
            reason: "Scaled",
            action: "Scale",
            note_verb: "scaled",
            detail: from_to,
        },
    }))
}

/// Refuses to write the number if the topology of the Cluster sets it, but another client has taken over the field of the control
/// plane, as `kubectl scale` does. The topology controller sets the field again, so the written number would not last.
fn refusal_beside_topology(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    replicas: i64,
    context: ReviewContext<'_>,
) -> Result<Option<Refusal>, DecodeError> {
    let topology = snapshot.observed.topology();
    let Some(of_topology) = topology.and_then(|topology| topology.control_plane.replicas) else {
        return Ok(None);
    };
    if let Ownership::FromCluster(_) = ownership(&snapshot.json, patch, context.field_manager)? {
        return Ok(None);
    }
    let control_plane = snapshot.control_plane();
    let writer = last_writer(&snapshot.json, &["spec", "replicas"]);
    let writer = writer.as_deref().unwrap_or("another client");
    Ok(Some(Refusal {
        remedies: vec![format!(
            "set the number in the Cluster: kubectl patch cluster {} -n {} --type=merge -p \
             '{{\"spec\":{{\"topology\":{{\"controlPlane\":{{\"replicas\":{replicas}}}}}}}}}'",
            control_plane.cluster().unwrap_or("NAME"),
            control_plane.namespace()
        )],
        ..Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "{writer} has set spec.replicas of the control plane, and Cluster API's topology controller sets it back to \
                 {of_topology}, the number in spec.topology.controlPlane.replicas of the Cluster"
            )],
        )
    }))
}

/// What the user confirms before the number of Machines is changed; `None` if no Machine is deleted.
pub fn question(snapshot: &ChangeSnapshot, replicas: i64) -> Option<Question> {
    let current = snapshot.control_plane().desired_replicas();
    let deleted = current.checked_sub(replicas).filter(|deleted| *deleted > 0)?;
    Some(Question {
        goal: format!(
            "delete {deleted} of {current} Machines of control plane {}",
            snapshot.control_plane().name()
        ),
        details: Vec::new(),
    })
}

fn replicas_text(replicas: Option<i64>) -> String {
    replicas.map_or_else(|| "unset".to_owned(), |replicas| replicas.to_string())
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_rules::view::View;
    use serde_json::json;

    use super::{Decision, ObjectWrite, Refusal, RefusedBy, ReviewContext, ScaleOptions, decide, question};
    use crate::{
        snapshot::change::ChangeSnapshot,
        testing::{
            change::{fail, snapshot},
            objects::{minutes_ago, now, pause},
        },
    };

    fn decision(snapshot: &ChangeSnapshot, options: ScaleOptions) -> Decision {
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(snapshot, options, context).expect("decodes")
    }

    fn to(replicas: i64) -> ScaleOptions {
        ScaleOptions {
            replicas,
            current: None,
            force: false,
        }
    }

    fn refusal(decision: Decision) -> Refusal {
        match decision {
            Decision::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn refused(by: RefusedBy, why: &str) -> Refusal {
        Refusal::new(by, vec![why.to_owned()])
    }

    #[test]
    fn only_a_scale_down_is_confirmed() {
        let goal = |replicas| question(&snapshot(), replicas).map(|question| question.goal);
        for (replicas, expected) in [
            (1, Some("delete 2 of 3 Machines of control plane c1-cp")),
            (3, None),
            (5, None),
        ] {
            assert_eq!(goal(replicas).as_deref(), expected, "{replicas}");
        }
    }

    #[test]
    fn follows_the_rules() {
        let three = snapshot();
        assert_eq!(
            decision(&three, to(3)),
            Decision::Unchanged("replicas is already 3".to_owned())
        );
        for replicas in [-1, 0, 2, 4] {
            let refusal = refusal(decision(
                &three,
                ScaleOptions {
                    force: true,
                    ..to(replicas)
                },
            ));
            assert_eq!(refusal.refused_by, RefusedBy::Rules, "{replicas}");
        }
    }

    #[test]
    fn writes_the_number_and_an_event() {
        let Decision::Write(proposal) = decision(&snapshot(), to(5)) else {
            panic!("not written");
        };
        let patch = |subresource| ObjectWrite::Patch {
            patch: json!({"spec": {"replicas": 5}}),
            subresource,
        };
        assert_eq!(proposal.write, patch(Some("scale")));
        assert_eq!(proposal.outcome, "scaled from 3 to 5");
        assert_eq!(proposal.warnings, Vec::<String>::new());
        assert_eq!(
            proposal.consequences,
            ["etcd tolerates no member failure until the first new Machine has joined"]
        );
        assert_eq!(proposal.event.note("alice"), "scaled by alice from 3 to 5");

        let mut unset = snapshot();
        unset.observed.control_plane.spec.replicas = None;
        let Decision::Write(proposal) = decision(&unset, to(5)) else {
            panic!("not written");
        };
        assert_eq!(proposal.write, patch(None));
        assert_eq!(proposal.event.note("alice"), "scaled by alice from unset to 5");
    }

    #[test]
    fn a_number_of_the_topology_is_not_written_beside_it() {
        let replicas_of = |manager: &str, operation: &str| {
            let mut snapshot = snapshot();
            let version = snapshot.control_plane().spec.version().to_owned();
            snapshot.observed.set_topology(&version);
            let topology = snapshot.observed.cluster_mut().spec.topology.as_mut();
            topology.expect("a topology").control_plane.replicas = Some(1);
            let mut object: serde_json::Value = serde_json::from_str(&snapshot.json).expect("JSON");
            object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": operation,
                "time": "2026-08-21T11:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
            snapshot.json = object.to_string();
            snapshot
        };
        let taken_over = refusal(decision(&replicas_of("kubectl", "Update"), to(5)));
        assert_eq!(
            taken_over,
            Refusal {
                remedies: vec![
                    "set the number in the Cluster: kubectl patch cluster c1 -n d --type=merge -p \
                     '{\"spec\":{\"topology\":{\"controlPlane\":{\"replicas\":5}}}}'"
                        .to_owned()
                ],
                ..refused(
                    RefusedBy::Command,
                    "kubectl has set spec.replicas of the control plane, and Cluster API's topology controller sets it back \
                     to 1, the number in spec.topology.controlPlane.replicas of the Cluster"
                )
            }
        );
        let owned = decision(&replicas_of("capi-topology", "Apply"), to(5));
        assert!(matches!(owned, Decision::Write(_)), "{owned:?}");
    }

    #[test]
    fn checks_the_expected_number() {
        let options = |replicas, current| ScaleOptions {
            current: Some(current),
            ..to(replicas)
        };
        assert!(matches!(decision(&snapshot(), options(5, 3)), Decision::Write(_)));
        assert_eq!(
            refusal(decision(&snapshot(), options(5, 1))),
            refused(RefusedBy::Command, "replicas is 3, but --current-replicas is 1")
        );
        // The number is as requested, but was not the expected one.
        assert_eq!(
            refusal(decision(&snapshot(), options(3, 1))),
            refused(RefusedBy::Command, "replicas is 3, but --current-replicas is 1")
        );
    }

    #[test]
    fn an_unhealthy_machine_blocks() {
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        let blocked = refused(
            RefusedBy::Preflight,
            "EtcdPodHealthy of Machine m2 is False: crashed",
        );
        for replicas in [1, 5] {
            assert_eq!(refusal(decision(&unhealthy, to(replicas))), blocked, "{replicas}");
            let forced = decision(
                &unhealthy,
                ScaleOptions {
                    force: true,
                    ..to(replicas)
                },
            );
            assert!(
                matches!(&forced, Decision::Write(proposal) if proposal.warnings == blocked.why),
                "{forced:?}"
            );
        }
        // The oldest Machine is deleted first: its own health does not matter.
        let mut oldest = snapshot();
        fail(&mut oldest, 1, "EtcdPodHealthy", "crashed");
        assert!(matches!(decision(&oldest, to(1)), Decision::Write(_)));
        assert!(matches!(decision(&oldest, to(5)), Decision::Refused(_)));
    }

    #[test]
    fn a_paused_control_plane_is_scaled_only_by_force_and_a_deleted_one_is_not() {
        let mut of_cluster = snapshot();
        of_cluster.observed.cluster_mut().spec.paused = true;
        let refusal_of = refusal(decision(&of_cluster, to(5)));
        assert_eq!(
            (refusal_of.refused_by, refusal_of.why, refusal_of.remedies),
            (
                RefusedBy::Preflight,
                vec!["the Cluster is paused: no controller reconciles the control plane".to_owned()],
                vec!["resume the Cluster: kubectl patch cluster c1 -n d --type=merge -p '{\"spec\":{\"paused\":false}}'".to_owned()]
            )
        );
        let mut paused = snapshot();
        pause(&mut paused.observed.control_plane.metadata);
        let refusal_of = refusal(decision(&paused, to(5)));
        assert_eq!(
            refusal_of.why,
            ["the control plane is paused: no controller reconciles it"]
        );
        let decided = decision(&paused, ScaleOptions { force: true, ..to(5) });
        assert!(
            matches!(&decided, Decision::Write(proposal)
                if proposal.warnings == ["the control plane is paused: no controller reconciles it"]),
            "{decided:?}"
        );
        let mut deleted = snapshot();
        deleted.observed.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        assert_eq!(
            refusal(decision(&deleted, ScaleOptions { force: true, ..to(5) })),
            refused(RefusedBy::Command, "the control plane is being deleted")
        );
    }
}
