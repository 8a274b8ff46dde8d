//! Whether a rollout may start, and what is written for it.

use jiff::Timestamp;
use kcp_rules::api::{DecodeError, control_plane::Shape};
use serde_json::{Value, json};

use crate::{
    change::event::Occurrence,
    control_plane::ControlPlane,
    edit::{Decision, Proposal, Refusal, RefusedBy},
    judgement::{Surroundings, judge_update},
    plan::ask::patched,
};

/// Decides on a control plane as the server wrote it, in the version of `api_version`.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    text: &str,
    control_plane: &ControlPlane,
    api_version: &str,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    let now = surroundings.now;
    let mut why = obstacles(control_plane, surroundings.cluster_is_paused(), now);
    let patch = json!({ "spec": restart(api_version, now) });
    let judgement = judge_update(text, &patched(text, &patch)?, surroundings)?;
    let by = if judgement.denials.is_empty() {
        RefusedBy::Command
    } else {
        RefusedBy::Rules
    };
    why.extend(judgement.denials);
    if !why.is_empty() {
        return Ok(Decision::Refused(Refusal { why, by }));
    }
    Ok(Decision::Write(Proposal {
        patch,
        subresource: None,
        warnings: judgement.warnings,
        consequences: Vec::new(),
        occurrence: Occurrence {
            reason: "RolloutStarted",
            action: "StartRollout",
            done: "rollout started",
            detail: String::new(),
        },
    }))
}

/// The fields of a spec that have every Machine replaced that is there now.
pub fn restart(api_version: &str, now: Timestamp) -> Value {
    // Whole seconds: the API's times have no fraction.
    let after = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match Shape::of(api_version) {
        Shape::V1Beta1 => json!({"rolloutAfter": after.to_string()}),
        Shape::V1Beta2 => json!({"rollout": {"after": after.to_string()}}),
    }
}

fn obstacles(control_plane: &ControlPlane, cluster_is_paused: bool, now: Timestamp) -> Vec<String> {
    let mut why = Vec::new();
    if control_plane.deleting_since.is_some() {
        why.push("the control plane is being deleted".to_owned());
    }
    if control_plane.paused {
        why.push("the control plane is paused by its annotation cluster.x-k8s.io/paused".to_owned());
    }
    if cluster_is_paused {
        why.push("the control plane's Cluster is paused: spec.paused is true".to_owned());
    }
    if !control_plane.initialized {
        why.push("the control plane has not come up yet: there is nothing to replace".to_owned());
    } else if !control_plane.is_observed() {
        why.push("the controller has not seen the latest change of the spec yet".to_owned());
    } else if control_plane.is("RollingOut") || control_plane.up_to_date_replicas < control_plane.replicas {
        why.push(format!(
            "a rollout is in progress: {} of {} Machines are up to date",
            control_plane.up_to_date_replicas,
            control_plane.desired()
        ));
    }
    if let Some(planned) = control_plane.rollout_after.filter(|after| *after > now) {
        why.push(format!("a rollout is planned for {planned} already"));
    }
    why
}

#[cfg(test)]
mod tests {
    use kcp_rules::{
        case::{Base, V1BETA1, V1BETA2},
        view::{Cluster, View},
    };
    use serde_json::json;

    use super::{Decision, Refusal, RefusedBy, Surroundings, decide};
    use crate::control_plane::{
        ConditionStatus::True,
        ControlPlane,
        example::{condition, healthy, minutes_ago, now, set},
    };

    fn decision(control_plane: &ControlPlane, cluster_is_paused: bool, version: &str) -> Decision {
        let object = Base::ControlPlane(if version == "v1beta1" { V1BETA1 } else { V1BETA2 }).object();
        let api_version = format!("controlplane.cluster.x-k8s.io/{version}");
        let cluster = Cluster {
            paused: cluster_is_paused,
            ..Cluster::default()
        };
        let view = View {
            cluster: Some(cluster).into(),
            ..View::default()
        };
        let surroundings = Surroundings {
            now: now() + jiff::SignedDuration::from_millis(700),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        decide(&object.to_string(), control_plane, &api_version, surroundings).expect("decodes")
    }

    #[test]
    fn each_version_has_its_own_field() {
        let time = "2026-08-21T12:00:00Z";
        for (version, spec) in [
            ("v1beta1", json!({"rolloutAfter": time})),
            ("v1beta2", json!({"rollout": {"after": time}})),
            ("v1beta3", json!({"rollout": {"after": time}})),
        ] {
            let Decision::Write(proposal) = decision(&healthy(3).control_plane, false, version) else {
                panic!("{version} is not written");
            };
            assert_eq!(proposal.patch, json!({ "spec": spec }), "{version}");
            assert_eq!(proposal.occurrence.note("alice"), "rollout started by alice");
        }
    }

    #[test]
    fn refuses_what_would_not_roll_out() {
        type Case = (&'static str, bool, fn(&mut ControlPlane), &'static str);
        let cases: &[Case] = &[
            ("paused", false, |c| c.paused = true, "paused by its annotation"),
            ("cluster_paused", true, |_| {}, "Cluster is paused"),
            (
                "deleting",
                false,
                |c| c.deleting_since = Some(minutes_ago(1)),
                "being deleted",
            ),
            (
                "not_initialized",
                false,
                |c| c.initialized = false,
                "has not come up yet",
            ),
            (
                "not_observed",
                false,
                |c| c.generation += 1,
                "has not seen the latest change",
            ),
            (
                "outdated_machines",
                false,
                |c| c.up_to_date_replicas = 1,
                "in progress: 1 of 3",
            ),
            (
                "rolling_out",
                false,
                |c| set(&mut c.conditions, condition("RollingOut", True, "")),
                "in progress",
            ),
            (
                "planned",
                false,
                |c| c.rollout_after = Some(minutes_ago(-5)),
                "planned for 2026-08-21T12:05:00Z",
            ),
        ];
        for (name, cluster_is_paused, change, reason) in cases {
            let mut control_plane = healthy(3).control_plane;
            change(&mut control_plane);
            let decision = decision(&control_plane, *cluster_is_paused, "v1beta2");
            let Decision::Refused(Refusal {
                why,
                by: RefusedBy::Command,
            }) = decision
            else {
                panic!("{name} is not refused");
            };
            assert!(
                matches!(&why[..], [only] if only.contains(reason)),
                "{name}: {why:?}"
            );
        }
    }
}
