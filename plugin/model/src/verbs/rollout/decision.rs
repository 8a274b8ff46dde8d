//! Whether a rollout may start, and what is written for it.

use jiff::Timestamp;
use kcp_rules::api::{DecodeError, control_plane::Shape};
use serde_json::{Value, json};

use crate::verbs::rollout::{progress::progress, schedule::Begin};
use crate::{
    change::{
        consent::{Demand, consent},
        decision::{Decision, Proposal, Refusal, RefusedBy},
        event::Occurrence,
        situation::Situation,
    },
    control_plane::ControlPlane,
    judgement::{Surroundings, judge_update},
    plan::ask::patched,
};

/// How long after its time a planned rollout begins at the latest: nothing wakes the controller then, and it looks at
/// every object again after its `--sync-period`, which is ten minutes unless set otherwise.
const LATEST_BEGIN: &str = "ten minutes";

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// When it is to begin.
    pub begin: Begin,
    /// Whether to go on though the preflight blocks it.
    pub force: bool,
}

/// Decides on a control plane in the version of `api_version`, and what surrounds it.
///
/// # Errors
/// When the control plane does not have its kind's types.
pub fn decide(
    situation: &Situation,
    wanted: Wanted,
    api_version: &str,
    surroundings: Surroundings<'_>,
) -> Result<Decision, DecodeError> {
    let now = surroundings.now;
    let mut refusal = obstacles(situation.control_plane(), surroundings.cluster_is_paused(), now);
    let after = match wanted.begin.after(now) {
        Ok(after) => after,
        Err(no_time) => {
            refusal.why.push(no_time.to_string());
            return Ok(Decision::Refused(refusal));
        }
    };
    if situation.control_plane().rollout_after == Some(after) {
        return Ok(Decision::Unchanged);
    }
    let patch = json!({ "spec": rollout_after(api_version, after) });
    let judgement = judge_update(
        &situation.object,
        &patched(&situation.object, &patch)?,
        surroundings,
    )?;
    let consent = consent(
        situation,
        Demand {
            patch: &patch,
            judgement: &judgement,
            field_manager: surroundings.field_manager,
            force: wanted.force,
            now,
        },
    )?;
    if !refusal.why.is_empty() {
        // What stands in its way goes before what it would come to.
        return Ok(Decision::Refused(refusal));
    }
    let mut consequences = consent.consequences();
    if let Some(refusal) = consent.refusal {
        return Ok(Decision::Refused(refusal));
    }
    let is_planned = wanted.begin.is_planned();
    if is_planned {
        consequences.push(format!(
            "every Machine made before {after} is replaced; it begins then or at most {LATEST_BEGIN} later"
        ));
    }
    Ok(Decision::Write(Proposal {
        patch,
        subresource: None,
        warnings: consent.warnings,
        consequences,
        occurrence: if is_planned {
            Occurrence {
                reason: "RolloutPlanned",
                action: "StartRollout",
                done: "rollout planned",
                detail: format!("for {after}"),
            }
        } else {
            Occurrence {
                reason: "RolloutStarted",
                action: "StartRollout",
                done: "rollout started",
                detail: String::new(),
            }
        },
    }))
}

/// The fields of a spec that have every Machine replaced that is there now.
pub fn restart(api_version: &str, now: Timestamp) -> Value {
    // The API's times reach as far as ours.
    rollout_after(api_version, Begin::Now.after(now).unwrap_or(now))
}

/// The fields of a spec that have every Machine replaced that was made before a time, once that has come.
fn rollout_after(api_version: &str, after: Timestamp) -> Value {
    match Shape::of(api_version) {
        Shape::V1Beta1 => json!({"rolloutAfter": after.to_string()}),
        Shape::V1Beta2 => json!({"rollout": {"after": after.to_string()}}),
    }
}

/// What stands in the way of any rollout; nothing does where it gives no reason.
fn obstacles(control_plane: &ControlPlane, cluster_is_paused: bool, now: Timestamp) -> Refusal {
    let ControlPlane { name, namespace, .. } = control_plane;
    let mut refusal = Refusal::new(RefusedBy::Command, Vec::new());
    let Refusal { why, remedies, .. } = &mut refusal;
    if control_plane.deleting_since.is_some() {
        why.push("the control plane is being deleted".to_owned());
    }
    if control_plane.paused {
        why.push("the control plane is paused by its annotation cluster.x-k8s.io/paused".to_owned());
        remedies.push(format!(
            "resume it with: kubectl kcp rollout resume {name} -n {namespace}"
        ));
    }
    if cluster_is_paused {
        why.push("the control plane's Cluster is paused: spec.paused is true".to_owned());
        remedies.push("set spec.paused of the Cluster to false".to_owned());
    }
    if !control_plane.initialized {
        why.push("the control plane has not come up yet: there is nothing to replace".to_owned());
    } else if !control_plane.is_observed() {
        why.push("the controller has not seen the latest change of the spec yet".to_owned());
    } else if let Some(progress) = progress(control_plane) {
        why.push(progress);
        remedies.push(format!(
            "follow it with: kubectl kcp rollout status {name} -n {namespace} -w"
        ));
    }
    if let Some(planned) = control_plane.rollout_after.filter(|after| *after > now) {
        why.push(format!(
            "a rollout is planned for {planned} already: kubectl kcp rollout cancel {name} -n {namespace}"
        ));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_rules::{
        case::{Base, V1BETA1},
        view::{Cluster, View},
    };
    use serde_json::json;

    use super::{Decision, Refusal, RefusedBy, Surroundings, Wanted, decide, restart};
    use crate::{
        change::{
            decision::Proposal,
            example::{fail, situation},
            situation::Situation,
        },
        control_plane::{
            ConditionStatus::True,
            ControlPlane,
            example::{condition, minutes_ago, now, set},
        },
        verbs::rollout::schedule::Begin,
    };

    fn decided(situation: &Situation, wanted: Wanted, version: &str, cluster_is_paused: bool) -> Decision {
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
        let api_version = format!("controlplane.cluster.x-k8s.io/{version}");
        decide(situation, wanted, &api_version, surroundings).expect("decodes")
    }

    fn proposal(decision: Decision) -> Proposal {
        match decision {
            Decision::Write(proposal) => proposal,
            other => panic!("not written: {other:?}"),
        }
    }

    fn refusal(decision: Decision) -> Refusal {
        match decision {
            Decision::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn beginning(begin: Begin) -> Wanted {
        Wanted { begin, force: false }
    }

    #[test]
    fn each_version_has_its_own_field() {
        let time = "2026-08-21T12:00:00Z";
        for (version, spec) in [
            ("v1beta1", json!({"rolloutAfter": time})),
            ("v1beta2", json!({"rollout": {"after": time}})),
            ("v1beta3", json!({"rollout": {"after": time}})),
        ] {
            let mut situation = situation();
            if version == "v1beta1" {
                situation.object = Base::ControlPlane(V1BETA1).object().to_string();
            }
            let proposal = proposal(decided(&situation, Wanted::default(), version, false));
            assert_eq!(proposal.patch, json!({ "spec": spec }), "{version}");
            assert_eq!(restart(version, now()), spec);
            assert_eq!(proposal.occurrence.note("alice"), "rollout started by alice");
            assert_eq!(proposal.subresource, None);
        }
    }

    #[test]
    fn says_what_etcd_cannot_stand_meanwhile() {
        let started = proposal(decided(&situation(), Wanted::default(), "v1beta2", false));
        assert_eq!(
            started.consequences,
            ["etcd cannot lose a member during steps 1, 3 and 5"]
        );
    }

    #[test]
    fn a_rollout_to_come_is_planned() {
        let wanted = beginning(Begin::In(Duration::from_secs(3600)));
        let planned = proposal(decided(&situation(), wanted, "v1beta2", false));
        let time = "2026-08-21T13:00:01Z";
        assert_eq!(planned.patch, json!({"spec": {"rollout": {"after": time}}}));
        assert_eq!(
            planned.occurrence.note("alice"),
            format!("rollout planned by alice for {time}")
        );
        assert_eq!(
            planned.consequences,
            [format!(
                "every Machine made before {time} is replaced; it begins then or at most ten minutes later"
            )]
        );
        let over = beginning(Begin::At(minutes_ago(1)));
        let why = "2026-08-21T11:59:00Z is over, and a rollout of that time would begin at once: leave out --at to start \
                   one now";
        assert_eq!(
            refusal(decided(&situation(), over, "v1beta2", false)),
            Refusal::new(RefusedBy::Command, vec![why.to_owned()])
        );
    }

    #[test]
    fn what_stands_in_the_way_is_told_with_what_to_do() {
        let resume = "resume it with: kubectl kcp rollout resume c1-cp -n d";
        let unpause = "set spec.paused of the Cluster to false";
        let follow = "follow it with: kubectl kcp rollout status c1-cp -n d -w";
        let mut all = situation();
        all.observed.control_plane.paused = true;
        all.observed.control_plane.up_to_date_replicas = 1;
        let refused = refusal(decided(&all, Wanted::default(), "v1beta2", true));
        assert_eq!(refused.remedies, [resume, unpause, follow]);
        let mut leaving = situation();
        leaving.observed.control_plane.deleting_since = Some(minutes_ago(1));
        let refused = refusal(decided(&leaving, Wanted::default(), "v1beta2", false));
        assert_eq!(refused.remedies, Vec::<String>::new());
    }

    #[test]
    fn a_time_that_is_asked_for_already_is_not_asked_for_again() {
        let mut situation = situation();
        let planned = minutes_ago(-5);
        situation.observed.control_plane.rollout_after = Some(planned);
        let again = decided(&situation, beginning(Begin::At(planned)), "v1beta2", false);
        assert_eq!(again, Decision::Unchanged);
        let other = decided(
            &situation,
            beginning(Begin::At(minutes_ago(-6))),
            "v1beta2",
            false,
        );
        assert!(matches!(other, Decision::Refused(_)), "{other:?}");
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
                "planned for 2026-08-21T12:05:00Z already: kubectl kcp rollout cancel c1-cp -n d",
            ),
        ];
        for (name, cluster_is_paused, change, reason) in cases {
            for begin in [Begin::Now, Begin::In(Duration::from_secs(60))] {
                let mut situation = situation();
                change(&mut situation.observed.control_plane);
                let wanted = Wanted { begin, force: true };
                let Refusal { why, by, .. } =
                    refusal(decided(&situation, wanted, "v1beta2", *cluster_is_paused));
                assert_eq!(by, RefusedBy::Command, "{name}");
                assert!(
                    matches!(&why[..], [only] if only.contains(reason)),
                    "{name}: {why:?}"
                );
            }
        }
    }

    #[test]
    fn a_machine_that_is_not_well_blocks_what_begins_now() {
        let mut sick = situation();
        fail(&mut sick, 2, "EtcdPodHealthy", "crashed");
        let why = vec!["EtcdPodHealthy of Machine m2 is False: crashed".to_owned()];
        assert_eq!(
            refusal(decided(&sick, Wanted::default(), "v1beta2", false)),
            Refusal::new(RefusedBy::Preflight, why.clone())
        );
        let forced = Wanted {
            force: true,
            ..Wanted::default()
        };
        assert_eq!(proposal(decided(&sick, forced, "v1beta2", false)).warnings, why);
        // What it will be like then is not known now.
        let planned = beginning(Begin::In(Duration::from_secs(3600)));
        let planned = proposal(decided(&sick, planned, "v1beta2", false));
        assert_eq!(planned.warnings, Vec::<String>::new());
    }
}
