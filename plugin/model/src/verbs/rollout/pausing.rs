//! Whether a control plane is left alone or no longer, and what is written for it.
//!
//! As `clusterctl alpha rollout pause` and `resume` do: by the annotation `cluster.x-k8s.io/paused`, whose presence
//! counts. A Cluster that is paused pauses its control plane too, whatever that says itself.

use kcp_rules::api::DecodeError;
use serde_json::{Value, json};

use crate::verbs::rollout::{
    permission::{Permission, permission},
    progress::progress,
};
use crate::{
    change::{
        decision::{Decision, Proposal},
        event::Occurrence,
        situation::Situation,
    },
    control_plane::{ControlPlane, PAUSED_ANNOTATION},
    judgement::Surroundings,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That the controllers leave it alone.
    Pause,
    /// That they go on.
    Resume,
}

/// Decides on a control plane.
///
/// # Errors
/// When it does not have its kind's types.
pub fn decide(
    situation: &Situation,
    wish: Wish,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    let control_plane = situation.control_plane();
    if control_plane.paused == (wish == Wish::Pause) {
        return Ok(Decision::Unchanged);
    }
    let value = match wish {
        Wish::Pause => json!("true"),
        Wish::Resume => Value::Null,
    };
    let patch = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: value}}});
    let warnings = match permission(situation, &patch, surroundings)? {
        Permission::Denied(refusal) => return Ok(Decision::Refused(refusal)),
        Permission::Granted(warnings) => warnings,
    };
    Ok(Decision::Write(Proposal {
        patch,
        subresource: None,
        warnings,
        consequences: consequences(control_plane, wish),
        occurrence: match wish {
            Wish::Pause => Occurrence {
                reason: "Paused",
                action: "Pause",
                done: "paused",
                detail: String::new(),
            },
            Wish::Resume => Occurrence {
                reason: "Resumed",
                action: "Resume",
                done: "resumed",
                detail: String::new(),
            },
        },
    }))
}

/// What comes of it that one has to know.
fn consequences(control_plane: &ControlPlane, wish: Wish) -> Vec<String> {
    let mut consequences = Vec::new();
    if let Some(progress) = progress(control_plane) {
        consequences.push(match wish {
            Wish::Pause => format!("{progress}; it goes on when the control plane is resumed"),
            Wish::Resume => format!("{progress}; it goes on"),
        });
    }
    if control_plane.deleting_since.is_some() && wish == Wish::Pause {
        consequences.push("the control plane is being deleted: that goes on when it is resumed".to_owned());
    }
    consequences
}

#[cfg(test)]
mod tests {
    use kcp_rules::view::View;
    use serde_json::{Value, json};

    use super::{Wish, decide};
    use crate::{
        change::{
            decision::{Decision, Proposal, Refusal, RefusedBy},
            example::situation,
            situation::Situation,
        },
        control_plane::{
            ControlPlane,
            example::{minutes_ago, now},
        },
        judgement::Surroundings,
    };

    fn decided(situation: &Situation, wish: Wish) -> Decision {
        let surroundings = Surroundings {
            now: now(),
            field_manager: "kubectl-kcp",
            view: &View::default(),
            configuration: None,
        };
        decide(situation, wish, surroundings).expect("decodes")
    }

    fn that(change: fn(&mut ControlPlane)) -> Situation {
        let mut situation = situation();
        change(&mut situation.observed.control_plane);
        situation
    }

    fn proposal(decision: Decision) -> Proposal {
        match decision {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    #[test]
    fn the_annotation_comes_and_goes() {
        let paused = that(|control_plane| control_plane.paused = true);
        for (name, situation, wish, expected) in [
            (
                "pause",
                situation(),
                Wish::Pause,
                Some((json!("true"), "paused by alice")),
            ),
            ("pause_again", paused, Wish::Pause, None),
            (
                "resume",
                that(|c| c.paused = true),
                Wish::Resume,
                Some((Value::Null, "resumed by alice")),
            ),
            ("resume_again", self::situation(), Wish::Resume, None),
        ] {
            let decision = decided(&situation, wish);
            let Some((value, note)) = expected else {
                assert_eq!(decision, Decision::Unchanged, "{name}");
                continue;
            };
            let proposal = proposal(decision);
            let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
            assert_eq!(proposal.patch, patch, "{name}");
            assert_eq!(proposal.occurrence.note("alice"), note, "{name}");
            assert_eq!(proposal.consequences, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn says_what_stops_and_what_goes_on() {
        type Case = (&'static str, fn(&mut ControlPlane), Wish, &'static str);
        let cases: &[Case] = &[
            (
                "pause_in_a_rollout",
                |c| c.up_to_date_replicas = 1,
                Wish::Pause,
                "a rollout is in progress: 1 of 3 Machines are up to date; it goes on when the control plane is resumed",
            ),
            (
                "resume_in_a_rollout",
                |c| {
                    c.paused = true;
                    c.up_to_date_replicas = 1;
                },
                Wish::Resume,
                "a rollout is in progress: 1 of 3 Machines are up to date; it goes on",
            ),
            (
                "pause_a_deletion",
                |c| c.deleting_since = Some(minutes_ago(1)),
                Wish::Pause,
                "the control plane is being deleted: that goes on when it is resumed",
            ),
        ];
        for (name, change, wish, expected) in cases {
            let proposal = proposal(decided(&that(*change), *wish));
            assert_eq!(proposal.consequences, [*expected], "{name}");
        }
    }

    #[test]
    fn a_managed_topology_is_paused_by_its_cluster() {
        let mut owned = situation();
        let mut object: Value = serde_json::from_str(&owned.object).expect("JSON");
        object["metadata"]["labels"]["topology.cluster.x-k8s.io/owned"] = json!("");
        owned.object = object.to_string();
        let why = "metadata.annotations[cluster.x-k8s.io/paused] is of the managed topology of Cluster c1: set spec.paused \
                   of Cluster c1 instead";
        assert_eq!(
            decided(&owned, Wish::Pause),
            Decision::Refused(Refusal::new(RefusedBy::Command, vec![why.to_owned()]))
        );
        // What somebody has paused all the same can be resumed.
        owned.observed.control_plane.paused = true;
        assert!(matches!(decided(&owned, Wish::Resume), Decision::Write(_)));
    }
}
