//! The decision of `rollout cancel`, which cancels a rollout that is planned or in progress.
//!
//! The command keeps the time of a complete rollout in the spec, because its removal would not change which Machines
//! are outdated.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _};
use kcp_rules::api::{DecodeError, control_plane::Shape, decode};
use serde_json::{Value, json};

use crate::{
    change::{
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal, RefusedBy},
        preflight::{preflight, preflight_without_plan},
    },
    plan::{messages, rollout_reason::verdicts, state::PlanState},
    review::ReviewContext,
    snapshot::change::ChangeSnapshot,
    topology,
    verbs::rollout::progress,
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestedRollout {
    None,
    Complete {
        after: Timestamp,
    },
    InProgress {
        after: Timestamp,
        replacements: Vec<String>,
        /// The names of the Machines that have not been replaced yet.
        left: Vec<String>,
    },
    Planned {
        after: Timestamp,
    },
}

impl RequestedRollout {
    fn new(snapshot: &ChangeSnapshot, now: Timestamp) -> Self {
        let Some(after) = snapshot.observed.control_plane.spec.rollout_after else {
            return Self::None;
        };
        // The Machines are read only after the rollout's time. If that time passed during the read, no Machine has been
        // replaced yet.
        if after > now || !snapshot.are_machines_read {
            return Self::Planned { after };
        }
        let machines = snapshot.observed.machines.iter();
        let staying = machines.filter(|machine| machine.deletion_timestamp().is_none());
        let (left, replacements): (Vec<_>, Vec<_>) = staying.partition(|machine| {
            machine
                .creation_timestamp()
                .is_some_and(|created| created < after)
        });
        if left.is_empty() {
            return Self::Complete { after };
        }
        let names =
            |machines: Vec<&Machine>| machines.iter().map(|machine| machine.name().to_owned()).collect();
        Self::InProgress {
            after,
            replacements: names(replacements),
            left: names(left),
        }
    }
}

/// Decides whether a rollout can be cancelled. `api_version` is the API version of the control plane's JSON; `running`
/// says whether a rollout in progress may be cancelled.
pub fn decide(
    snapshot: &ChangeSnapshot,
    running: bool,
    api_version: &str,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    if let Some(refusal) = refused_while_carried_over(snapshot) {
        return Ok(Decision::Refused(refusal));
    }
    let requested = RequestedRollout::new(snapshot, context.now);
    if let Some(progress) = progress_of_change(snapshot, &requested, context.now) {
        return Ok(Decision::Refused(refused_without_time(snapshot, progress)));
    }
    let (after, in_progress) = match requested {
        RequestedRollout::None => return Ok(Decision::Unchanged("no rollout is planned".to_owned())),
        RequestedRollout::Complete { after } => {
            return Ok(Decision::Unchanged(format!(
                "no rollout is planned; the rollout at {after} is complete, and its time stays in the spec"
            )));
        }
        RequestedRollout::Planned { after } => (after, None),
        RequestedRollout::InProgress {
            after,
            replacements,
            left,
        } => (after, Some((replacements, left))),
    };
    let patch = removal_patch(&decode(&snapshot.json)?, api_version);
    let mut warnings = match preflight_without_plan(snapshot, &patch, context)? {
        Ok(warnings) => warnings,
        Err(refusal) => return Ok(Decision::Refused(refusal)),
    };
    if let Some((replacements, left)) = &in_progress
        && let Some(refusal) = refused_for_only_machine(snapshot, after, replacements, left)
    {
        return Ok(Decision::Refused(refusal));
    }
    let mut consequences = Vec::new();
    let mut detail = format!("(planned for {after})");
    if let Some((replacements, left)) = in_progress {
        (warnings, consequences) = after_cancelling(snapshot, &patch, context, &replacements, &left)?;
        if !running {
            return Ok(Decision::Refused(refused_without_running(
                snapshot,
                after,
                consequences,
            )));
        }
        detail = format!("(running since {after})");
    }
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: format!("rollout at {after} cancelled"),
        warnings,
        consequences,
        event: ChangeEvent {
            reason: "RolloutCancelled",
            action: "CancelRollout",
            note_verb: "rollout cancelled",
            detail,
        },
    }))
}

/// Refuses to cancel a rollout if the topology of the Cluster has a different rollout time than the control plane. The topology
/// controller would still set that time, so the command would cancel nothing.
fn refused_while_carried_over(snapshot: &ChangeSnapshot) -> Option<Refusal> {
    let observed = &snapshot.observed;
    let cluster = observed.cluster.value()?;
    let after = observed.topology()?.control_plane.rollout.after;
    if after.is_none() || after == snapshot.control_plane().spec.rollout_after {
        return None;
    }
    let error = topology::failed(observed);
    let remedy = if error.is_some() {
        format!(
            "remove the time from the Cluster: kubectl patch cluster {} -n {} --type=merge -p \
             '{{\"spec\":{{\"topology\":{{\"controlPlane\":{{\"rollout\":null}}}}}}}}'",
            cluster.name(),
            snapshot.control_plane().namespace()
        )
    } else {
        "run the command again once the topology controller has set the time".to_owned()
    };
    let pending = observed.pending_topology_values();
    let why = pending.into_iter().chain(error.map(|error| error.message()));
    Some(Refusal {
        remedies: vec![remedy],
        ..Refusal::new(RefusedBy::Command, why.collect())
    })
}

/// Returns the warnings about cancelling a rollout in progress, and the state of the control plane
/// afterwards.
fn after_cancelling(
    snapshot: &ChangeSnapshot,
    patch: &Value,
    context: ReviewContext<'_>,
    replacements: &[String],
    left: &[String],
) -> Result<(Vec<String>, Vec<String>), DecodeError> {
    // Removing the time is always safe. The plan after the removal is only shown to the user, hence `force`.
    let preflight = preflight(snapshot, patch, true, context)?;
    let replaced = if replacements.is_empty() {
        "no Machine has been replaced yet".to_owned()
    } else {
        format!(
            "new Machines are kept: {}",
            messages::join_names(replacements, "and")
        )
    };
    let plan = match &preflight.plan.steps {
        Ok(_) => format!("next plan: {}", messages::summary(&preflight.plan)),
        Err(no_plan) => format!("no plan: {}", messages::no_plan(no_plan)),
    };
    let outdated = format!(
        "outdated Machines are not replaced: {}; {plan}",
        messages::join_names(left, "and")
    );
    Ok((preflight.warnings, vec![replaced, outdated]))
}

/// Returns the progress of a rollout that a change to the spec has started. `None` if no such rollout is in progress.
fn progress_of_change(
    snapshot: &ChangeSnapshot,
    requested: &RequestedRollout,
    now: Timestamp,
) -> Option<String> {
    let is_started_by_change = match requested {
        RequestedRollout::None => true,
        RequestedRollout::Complete { .. } => PlanState::new(
            &snapshot.observed,
            &verdicts(&snapshot.observed, &snapshot.control_plane().spec, now),
        )
        .needs_rollout(),
        RequestedRollout::InProgress { .. } | RequestedRollout::Planned { .. } => false,
    };
    progress(snapshot.control_plane()).filter(|_| is_started_by_change)
}

/// The refusal to cancel a rollout that a change to the spec has started.
fn refused_without_time(snapshot: &ChangeSnapshot, progress: String) -> Refusal {
    let control_plane = snapshot.control_plane();
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    // The rule `joining-machine-outdated` denies the revert once the second Machine joins.
    let may_revert = control_plane.spec.replicas != Some(1) && !snapshot.observed.has_managed_topology();
    let revert = may_revert
        .then(|| format!("revert the change to the spec: kubectl kcp rollout undo {name} -n {namespace}"));
    let pause = format!("pause the rollout: kubectl kcp rollout pause {name} -n {namespace}");
    Refusal {
        remedies: revert.into_iter().chain([pause]).collect(),
        ..Refusal::new(
            RefusedBy::Command,
            vec![
                progress,
                "a change to the spec started the rollout, so there is no rollout time to cancel".to_owned(),
            ],
        )
    }
}

/// The refusal to cancel a rollout of one replica once its new Machine exists. Afterwards, both Machines match the spec, and
/// the controller deletes the oldest one, as the rollout does.
fn refused_for_only_machine(
    snapshot: &ChangeSnapshot,
    after: Timestamp,
    replacements: &[String],
    left: &[String],
) -> Option<Refusal> {
    let control_plane = snapshot.control_plane();
    let ([new, ..], [old], Some(1)) = (replacements, left, control_plane.spec.replicas) else {
        return None;
    };
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    Some(Refusal {
        remedies: vec![format!(
            "let the rollout finish, or pause it: kubectl kcp rollout pause {name} -n {namespace}"
        )],
        ..Refusal::new(
            RefusedBy::Command,
            vec![format!(
                "the rollout at {after} has already created Machine {new}: whether you cancel it or not, the controller keeps \
                 one Machine, the newest, and deletes Machine {old}"
            )],
        )
    })
}

fn refused_without_running(
    snapshot: &ChangeSnapshot,
    after: Timestamp,
    consequences: Vec<String>,
) -> Refusal {
    let control_plane = snapshot.control_plane();
    let (name, namespace) = (&control_plane.name(), &control_plane.namespace());
    let mut why = vec![format!(
        "the rollout at {after} is already in progress; if you cancel it:"
    )];
    why.extend(consequences);
    Refusal {
        remedies: vec![format!(
            "add --running to cancel the rollout, or pause it: kubectl kcp rollout pause {name} -n {namespace}"
        )],
        ..Refusal::new(RefusedBy::Command, why)
    }
}

/// Returns the merge patch that removes the time of the rollout. v1beta2 does not allow an empty `rollout`, so the
/// patch removes the whole `rollout` if it has no other field.
fn removal_patch(object: &Value, api_version: &str) -> Value {
    if Shape::from_api_version(api_version) == Shape::V1Beta1 {
        return json!({"spec": {"rolloutAfter": null}});
    }
    let rollout = object.pointer("/spec/rollout").and_then(Value::as_object);
    if rollout.is_some_and(|rollout| rollout.keys().all(|key| key == "after")) {
        json!({"spec": {"rollout": null}})
    } else {
        json!({"spec": {"rollout": {"after": null}}})
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::metadata::Time;
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{ObjectWrite, RequestedRollout, decide, removal_patch};
    use crate::{
        change::decision::{Decision, Proposal, Refusal, RefusedBy},
        review::ReviewContext,
        snapshot::{EtcdMember, EtcdMembers, change::ChangeSnapshot},
        testing::{
            change::{fail, snapshot},
            objects::{minutes_ago, now},
        },
    };

    /// A snapshot whose Machines are five, four and three hours old, with a rollout this number of minutes ago.
    fn rollout_at(minutes: i64) -> ChangeSnapshot {
        let mut snapshot = snapshot();
        let after = Some(minutes_ago(minutes));
        snapshot.observed.control_plane.spec.rollout_after = after;
        let mut object: Value = serde_json::from_str(&snapshot.json).expect("JSON");
        object["spec"]["rollout"]["after"] = json!(minutes_ago(minutes).to_string());
        snapshot.json = object.to_string();
        snapshot
    }

    fn decided(snapshot: &ChangeSnapshot, running: bool) -> Decision {
        let context = ReviewContext {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(snapshot, running, "g/v1beta2", context).expect("decodes")
    }

    fn proposal(decision: Decision) -> Proposal {
        match decision {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn finds_the_requested_rollout() {
        let running = |left: &[&str], replacements: &[&str], minutes| RequestedRollout::InProgress {
            after: minutes_ago(minutes),
            left: left.iter().map(|name| (*name).to_owned()).collect(),
            replacements: replacements.iter().map(|name| (*name).to_owned()).collect(),
        };
        let requested = |snapshot: &ChangeSnapshot| RequestedRollout::new(snapshot, now());
        assert_eq!(requested(&snapshot()), RequestedRollout::None);
        for (minutes, expected) in [
            (
                -60,
                RequestedRollout::Planned {
                    after: minutes_ago(-60),
                },
            ),
            (0, running(&["m1", "m2", "m3"], &[], 0)),
            (210, running(&["m1", "m2"], &["m3"], 210)),
            (
                600,
                RequestedRollout::Complete {
                    after: minutes_ago(600),
                },
            ),
        ] {
            assert_eq!(requested(&rollout_at(minutes)), expected, "{minutes}");
        }
        // The rollout's time passed between the read and the decision.
        let mut unread = rollout_at(0);
        unread.are_machines_read = false;
        unread.observed.machines.clear();
        assert_eq!(requested(&unread), RequestedRollout::Planned { after: now() });
        // A rollout is complete once its last old Machine is being deleted.
        let mut ending = rollout_at(270);
        assert_eq!(requested(&ending), running(&["m1"], &["m2", "m3"], 270));
        ending.observed.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        assert_eq!(
            requested(&ending),
            RequestedRollout::Complete {
                after: minutes_ago(270)
            }
        );
    }

    #[test]
    fn a_rollout_started_by_a_change_of_the_spec_is_named() {
        let expected = Refusal {
            remedies: vec![
                "revert the change to the spec: kubectl kcp rollout undo c1-cp -n d".to_owned(),
                "pause the rollout: kubectl kcp rollout pause c1-cp -n d".to_owned(),
            ],
            ..Refusal::new(
                RefusedBy::Command,
                vec![
                    "a rollout is in progress: 1 of 3 Machines up to date".to_owned(),
                    "a change to the spec started the rollout, so there is no rollout time to cancel"
                        .to_owned(),
                ],
            )
        };
        for mut rolling in [snapshot(), rollout_at(600)] {
            for machine in &mut rolling.observed.machines[..2] {
                machine.spec.version = Some("v1.33.0".to_owned());
            }
            rolling.observed.control_plane.status.up_to_date_replicas = 1;
            assert_eq!(decided(&rolling, false), Decision::Refused(expected.clone()));
        }
    }

    #[test]
    fn a_rollout_of_one_replica_is_not_cancelled_once_its_new_machine_exists() {
        let mut rolling = rollout_at(270);
        rolling.observed.control_plane.spec.replicas = Some(1);
        rolling.observed.machines.truncate(2);
        for running in [false, true] {
            let Decision::Refused(refusal) = decided(&rolling, running) else {
                panic!("{running}");
            };
            let expected = format!(
                "the rollout at {} has already created Machine m2: whether you cancel it or not, the controller keeps one \
                 Machine, the newest, and deletes Machine m1",
                minutes_ago(270)
            );
            assert_eq!(refusal.why, [expected]);
        }
    }

    #[test]
    fn a_planned_rollout_is_cancelled() {
        for running in [false, true] {
            for idle in [snapshot(), rollout_at(600)] {
                let unchanged = decided(&idle, running);
                assert!(matches!(unchanged, Decision::Unchanged(_)), "{unchanged:?}");
            }
            let mut planned = rollout_at(-60);
            // The command does not refuse if the controller could not take a step now.
            fail(&mut planned, 2, "EtcdPodHealthy", "crashed");
            let Proposal {
                write,
                warnings,
                consequences,
                event,
                ..
            } = proposal(decided(&planned, running));
            assert_eq!(
                write,
                ObjectWrite::patch(json!({"spec": {"rollout": {"after": null}}}))
            );
            assert_eq!((warnings, consequences), (Vec::<String>::new(), vec![]));
            assert_eq!(
                event.note("alice"),
                "rollout cancelled by alice (planned for 2026-08-21T13:00:00Z)"
            );
        }
    }

    #[test]
    fn a_rollout_in_progress_is_cancelled_with_running_only() {
        let mut snapshot = rollout_at(210);
        let stay = "new Machines are kept: m3";
        let rest = "outdated Machines are not replaced: m1 and m2; next plan: nothing to do";
        assert_eq!(
            decided(&snapshot, false),
            Decision::Refused(Refusal {
                remedies: vec![
                    "add --running to cancel the rollout, or pause it: kubectl kcp rollout pause c1-cp -n d"
                        .to_owned(),
                ],
                ..Refusal::new(
                    RefusedBy::Command,
                    [
                        "the rollout at 2026-08-21T08:30:00Z is already in progress; if you cancel it:",
                        stay,
                        rest,
                    ]
                    .map(str::to_owned)
                    .to_vec()
                )
            })
        );
        let cancelled = proposal(decided(&snapshot, true));
        assert_eq!(cancelled.consequences, [stay, rest]);

        // Between a creation and a deletion there is one Machine more than the spec asks for.
        let mut surplus = snapshot.observed.machines[2].clone();
        surplus.metadata.name = Some("m4".to_owned());
        surplus.status.node_name = Some("node-m4".to_owned());
        snapshot.observed.machines.push(surplus);
        let rest =
            "outdated Machines are not replaced: m1 and m2; next plan: 1 step: 0 to create, 1 to delete";
        assert_eq!(
            proposal(decided(&snapshot, true)).consequences,
            ["new Machines are kept: m3 and m4", rest]
        );
    }

    #[test]
    fn a_rollout_in_progress_is_cancelled_without_quorum_too() {
        let mut lost = rollout_at(210);
        let dead = |node: &str| EtcdMember {
            name: node.to_owned(),
            fault: Some("gone".to_owned()),
            ..EtcdMember::default()
        };
        lost.observed.etcd_members = EtcdMembers::Read(["node-m1", "node-m2", "node-m3"].map(dead).to_vec());
        let Proposal {
            write, consequences, ..
        } = proposal(decided(&lost, true));
        assert_eq!(
            write,
            ObjectWrite::patch(json!({"spec": {"rollout": {"after": null}}}))
        );
        assert_eq!(
            consequences,
            [
                "new Machines are kept: m3",
                "outdated Machines are not replaced: m1 and m2; no plan: etcd has lost quorum: 0 of 3 \
                 voting members healthy, 2 needed for quorum"
            ]
        );
    }

    #[test]
    fn an_empty_rollout_is_removed() {
        let patch = |rollout: Value| removal_patch(&json!({"spec": {"rollout": rollout}}), "g/v1beta2");
        let after = "2026-08-21T13:00:00Z";
        let only_the_time = json!({"spec": {"rollout": {"after": null}}});
        assert_eq!(patch(json!({"after": after, "strategy": {}})), only_the_time);
        assert_eq!(patch(json!({"after": after})), json!({"spec": {"rollout": null}}));
        let v1beta1 = removal_patch(&json!({"spec": {"rolloutAfter": after}}), "g/v1beta1");
        assert_eq!(v1beta1, json!({"spec": {"rolloutAfter": null}}));
    }
}
