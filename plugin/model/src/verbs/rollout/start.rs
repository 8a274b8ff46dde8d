//! The decision of `rollout start`, which replaces every Machine, now or at a planned time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kcp_api::Object as _;
use kcp_rules::api::DecodeError;
use serde_json::json;

use crate::{
    change::{
        confirmation::Question,
        decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal},
        preflight::preflight,
    },
    duration::format_duration,
    plan::{
        blockers::{processing_blockers, reconciliation_blockers},
        options::rollout_after,
    },
    problem::Problem,
    review::ReviewContext,
    snapshot::{Snapshot, change::ChangeSnapshot},
    verbs::rollout::progress,
};

/// The maximum delay of a planned rollout, for messages. No event wakes the controller at the planned time; it
/// reconciles every object after its `--sync-period`, by default ten minutes.
const MAX_START_DELAY: &str = "ten minutes";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartOptions {
    pub start: StartTime,
    pub force: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTime {
    #[default]
    Now,
    At(Timestamp),
    In(Duration),
}

/// Why a rollout cannot be planned for a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStartTime {
    #[error("{at} is in the past: to start the rollout now, omit --at")]
    Past { at: Timestamp },
    #[error("the start time of the rollout is too far in the future")]
    TooFar,
}

impl StartTime {
    /// Returns the time that the patch contains, in whole seconds, as the API stores times: a planned time is rounded
    /// up, the current time down. Fails if the time is in the past, or cannot be represented.
    pub fn time(self, now: Timestamp) -> Result<Timestamp, InvalidStartTime> {
        match self {
            Self::Now | Self::In(Duration::ZERO) => {
                Timestamp::from_second(now.as_second()).map_err(|_| InvalidStartTime::TooFar)
            }
            Self::At(time) if time <= now => Err(InvalidStartTime::Past { at: time }),
            Self::At(time) => whole_second_from(time),
            Self::In(duration) => SignedDuration::try_from(duration)
                .ok()
                .and_then(|duration| now.checked_add(duration).ok())
                .ok_or(InvalidStartTime::TooFar)
                .and_then(whole_second_from),
        }
    }

    pub fn is_planned(self) -> bool {
        match self {
            Self::Now => false,
            Self::At(_) => true,
            Self::In(duration) => !duration.is_zero(),
        }
    }
}

fn whole_second_from(time: Timestamp) -> Result<Timestamp, InvalidStartTime> {
    let has_fraction = time.subsec_nanosecond() > 0;
    Timestamp::from_second(time.as_second() + i64::from(has_fraction)).map_err(|_| InvalidStartTime::TooFar)
}

/// Decides whether a rollout can start. `api_version` is the API version of the control plane's JSON.
pub fn decide(
    snapshot: &ChangeSnapshot,
    options: StartOptions,
    api_version: &str,
    context: ReviewContext<'_>,
) -> Result<Decision, DecodeError> {
    let control_plane = snapshot.control_plane();
    let mut refusal = refusal_to_start(&snapshot.observed, context.is_cluster_paused(), context.now);
    let after = match options.start.time(context.now) {
        Ok(after) => after,
        Err(invalid) => {
            refusal.why.push(invalid.to_string());
            return Ok(Decision::Refused(refusal));
        }
    };
    if control_plane.spec.rollout_after == Some(after) {
        return Ok(Decision::Unchanged(format!(
            "a rollout at {after} is already in the spec"
        )));
    }
    if !refusal.why.is_empty() {
        return Ok(Decision::Refused(refusal));
    }
    let patch = json!({ "spec": rollout_after(api_version, after) });
    let preflight = preflight(snapshot, &patch, options.force, context)?;
    let mut consequences = preflight.consequences();
    if let Some(refusal) = preflight.refusal {
        return Ok(Decision::Refused(refusal));
    }
    let (reason, done, detail) = if options.start.is_planned() {
        consequences.push(format!(
            "the controller replaces every Machine created before {after}; the rollout starts at most \
             {MAX_START_DELAY} after that time"
        ));
        ("RolloutPlanned", "rollout planned", format!("for {after}"))
    } else {
        ("RolloutStarted", "rollout started", String::new())
    };
    Ok(Decision::Write(Proposal {
        write: ObjectWrite::patch(patch),
        outcome: done.to_owned(),
        warnings: preflight.warnings,
        consequences,
        event: ChangeEvent {
            reason,
            action: "StartRollout",
            note_verb: done,
            detail,
        },
    }))
}

/// What the user confirms before every Machine is replaced, now or later.
pub fn question(snapshot: &ChangeSnapshot, start: StartTime) -> Question {
    let when = match start {
        StartTime::Now | StartTime::In(Duration::ZERO) => String::new(),
        StartTime::At(time) => format!(" at {time}"),
        StartTime::In(after) => format!(" in {}", format_duration(after)),
    };
    Question {
        goal: format!(
            "replace all Machines of control plane {}{when}",
            snapshot.control_plane().name()
        ),
        details: Vec::new(),
    }
}

/// Whether no other part of the refusal reports the blocker. Other parts report the pauses.
const fn is_unreported(blocker: &Problem) -> bool {
    !matches!(blocker, Problem::Paused | Problem::ClusterPaused { .. })
}

/// Returns a refusal with the reasons why no rollout can start. The reasons are empty if a rollout can start.
fn refusal_to_start(observed: &Snapshot, cluster_is_paused: bool, now: Timestamp) -> Refusal {
    let control_plane = &observed.control_plane;
    let (name, namespace) = (control_plane.name(), control_plane.namespace());
    let mut refusal = Refusal::while_paused(observed, cluster_is_paused);
    let Refusal { why, remedies, .. } = &mut refusal;
    if control_plane.deletion_timestamp().is_some() {
        why.insert(0, "the control plane is being deleted".to_owned());
    }
    if !control_plane.status.initialized {
        why.push("the control plane is not initialized yet, so there is no Machine to replace".to_owned());
    } else if !control_plane.has_compared_machines() {
        why.push("the controller has not processed the latest change to the spec yet".to_owned());
        let blockers = processing_blockers(observed).into_iter().filter(is_unreported);
        for blocker in blockers {
            why.push(blocker.message());
            remedies.extend(blocker.hint(namespace, name));
        }
    } else if let Some(progress) = progress(control_plane) {
        why.push(progress);
        let blockers = reconciliation_blockers(observed, &control_plane.spec);
        let mut blockers = blockers.into_iter().filter(is_unreported).peekable();
        if blockers.peek().is_none() {
            remedies.push(format!(
                "watch the rollout: kubectl kcp rollout status {name} -n {namespace}"
            ));
        }
        for blocker in blockers {
            why.push(blocker.message());
            remedies.extend(blocker.hint(namespace, name));
        }
    }
    if let Some(planned) = control_plane.spec.rollout_after.filter(|after| *after > now) {
        why.push(format!("a rollout is already planned for {planned}"));
        remedies.push(format!(
            "cancel the planned rollout: kubectl kcp rollout cancel {name} -n {namespace}"
        ));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_api::{ConditionStatus::True, KubeadmControlPlane, metadata::Time};
    use kcp_rules::{
        testing::case::{Base, V1BETA1},
        view::{Cluster, View},
    };
    use serde_json::json;

    use super::{Decision, ObjectWrite, Refusal, ReviewContext, StartOptions, decide, question};
    use crate::plan::options::PlanOptions;
    use crate::{
        change::decision::{Proposal, RefusedBy},
        problem::Problem,
        snapshot::{Reading, change::ChangeSnapshot},
        testing::{
            change::{fail, snapshot},
            objects::{condition, minutes_ago, now, pause, set},
        },
        verbs::rollout::start::{InvalidStartTime, StartTime},
    };

    #[test]
    fn the_user_confirms_when_every_machine_is_replaced() {
        let planned = StartTime::At("2026-12-24T02:00:00Z".parse().expect("a time"));
        for (start, when) in [
            (StartTime::Now, ""),
            (StartTime::In(Duration::ZERO), ""),
            (StartTime::In(Duration::from_secs(8 * 3600)), " in 8h"),
            (planned, " at 2026-12-24T02:00:00Z"),
        ] {
            let goal = format!("replace all Machines of control plane c1-cp{when}");
            assert_eq!(question(&snapshot(), start).goal, goal);
        }
    }

    fn decided(
        snapshot: &ChangeSnapshot,
        options: StartOptions,
        version: &str,
        cluster_is_paused: bool,
    ) -> Decision {
        let cluster = Cluster {
            paused: cluster_is_paused,
            ..Cluster::default()
        };
        let view = View {
            cluster: Some(cluster).into(),
            ..View::default()
        };
        let context = ReviewContext {
            now: now() + jiff::SignedDuration::from_millis(700),
            field_manager: "kubectl-kcp",
            view: &view,
            configuration: None,
        };
        let api_version = format!("controlplane.cluster.x-k8s.io/{version}");
        decide(snapshot, options, &api_version, context).expect("decodes")
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

    fn startning(start: StartTime) -> StartOptions {
        StartOptions { start, force: false }
    }

    #[test]
    fn each_version_has_its_own_field() {
        let time = "2026-08-21T12:00:00Z";
        for (version, spec) in [
            ("v1beta1", json!({"rolloutAfter": time})),
            ("v1beta2", json!({"rollout": {"after": time}})),
            ("v1beta3", json!({"rollout": {"after": time}})),
        ] {
            let mut snapshot = snapshot();
            if version == "v1beta1" {
                snapshot.json = Base::ControlPlane(V1BETA1).object().to_string();
            }
            let proposal = proposal(decided(&snapshot, StartOptions::default(), version, false));
            assert_eq!(
                proposal.write,
                ObjectWrite::patch(json!({ "spec": spec })),
                "{version}"
            );
            let restart = PlanOptions {
                restart: true,
                ..PlanOptions::default()
            };
            assert_eq!(restart.patch(version, now()), json!({ "spec": spec }));
            assert_eq!(proposal.event.note("alice"), "rollout started by alice");
        }
    }

    #[test]
    fn says_when_etcd_cannot_lose_a_member() {
        let started = proposal(decided(&snapshot(), StartOptions::default(), "v1beta2", false));
        assert_eq!(
            started.consequences,
            ["etcd tolerates no member failure while each new Machine joins"]
        );
    }

    #[test]
    fn a_later_rollout_is_planned() {
        let options = startning(StartTime::In(Duration::from_secs(3600)));
        let planned = proposal(decided(&snapshot(), options, "v1beta2", false));
        let time = "2026-08-21T13:00:01Z";
        assert_eq!(
            planned.write,
            ObjectWrite::patch(json!({"spec": {"rollout": {"after": time}}}))
        );
        assert_eq!(
            planned.event.note("alice"),
            format!("rollout planned by alice for {time}")
        );
        assert_eq!(
            planned.consequences,
            [format!(
                "the controller replaces every Machine created before {time}; the rollout starts at most ten \
                 minutes after that time"
            )]
        );
        let past_start = startning(StartTime::At(minutes_ago(1)));
        let why = "2026-08-21T11:59:00Z is in the past: to start the rollout now, omit --at";
        assert_eq!(
            refusal(decided(&snapshot(), past_start, "v1beta2", false)),
            Refusal::new(RefusedBy::Command, vec![why.to_owned()])
        );
    }

    #[test]
    fn obstacles_come_with_remedies() {
        let resume = "resume the control plane: kubectl kcp rollout resume c1-cp -n d";
        let unpause = "resume the Cluster: kubectl patch cluster c1 -n d --type=merge -p '{\"spec\":{\"paused\":false}}'";
        let watch = "watch the rollout: kubectl kcp rollout status c1-cp -n d";
        let mut all = snapshot();
        pause(&mut all.observed.control_plane.metadata);
        all.observed.control_plane.status.up_to_date_replicas = 1;
        let refused = refusal(decided(&all, StartOptions::default(), "v1beta2", true));
        assert_eq!(refused.remedies, [resume, unpause, watch]);
        let mut deleted = snapshot();
        deleted.observed.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        let refused = refusal(decided(&deleted, StartOptions::default(), "v1beta2", false));
        assert_eq!(refused.remedies, Vec::<String>::new());
    }

    #[test]
    fn a_missing_template_is_named_instead_of_waiting() {
        let mut snapshot = snapshot();
        let reference = snapshot.observed.control_plane.spec.infrastructure_ref.clone();
        let missing = Problem::no_template(&reference);
        snapshot.observed.templates = [(reference, Reading::Read(false))].into();
        let refused = |snapshot: &ChangeSnapshot| {
            let refusal = refusal(decided(snapshot, StartOptions::default(), "v1beta2", false));
            assert_eq!(refusal.remedies, Vec::from_iter(missing.hint("d", "c1-cp")));
            refusal.why
        };
        assert_eq!(refused(&snapshot), [missing.message()]);
        let status = &mut snapshot.observed.control_plane.status;
        status.up_to_date_replicas = 1;
        let progress = "a rollout is in progress: 1 of 3 Machines up to date";
        assert_eq!(refused(&snapshot), [progress.to_owned(), missing.message()]);
        snapshot.observed.control_plane.metadata.generation = Some(8);
        let unprocessed = "the controller has not processed the latest change to the spec yet";
        assert_eq!(refused(&snapshot), [unprocessed.to_owned(), missing.message()]);
    }

    #[test]
    fn the_same_time_is_not_written_again() {
        let mut snapshot = snapshot();
        let planned = minutes_ago(-5);
        snapshot.observed.control_plane.spec.rollout_after = Some(planned);
        let again = decided(&snapshot, startning(StartTime::At(planned)), "v1beta2", false);
        assert_eq!(
            again,
            Decision::Unchanged(format!("a rollout at {planned} is already in the spec"))
        );
        let other = decided(
            &snapshot,
            startning(StartTime::At(minutes_ago(-6))),
            "v1beta2",
            false,
        );
        assert!(matches!(other, Decision::Refused(_)), "{other:?}");
    }

    #[test]
    fn refuses_while_no_rollout_can_start() {
        type Case = (&'static str, bool, fn(&mut KubeadmControlPlane), &'static str);
        let cases: &[Case] = &[
            (
                "paused",
                false,
                |c| pause(&mut c.metadata),
                "the control plane is paused",
            ),
            ("cluster_paused", true, |_| {}, "Cluster is paused"),
            (
                "deleting",
                false,
                |c| c.metadata.deletion_timestamp = Some(Time(minutes_ago(1))),
                "being deleted",
            ),
            (
                "not_initialized",
                false,
                |c| c.status.initialized = false,
                "is not initialized yet",
            ),
            (
                "not_observed",
                false,
                |c| c.metadata.generation = Some(8),
                "has not processed the latest change",
            ),
            (
                "outdated_machines",
                false,
                |c| c.status.up_to_date_replicas = 1,
                "in progress: 1 of 3",
            ),
            (
                "rolling_out",
                false,
                |c| set(&mut c.status.conditions, condition("RollingOut", True, "")),
                "in progress",
            ),
            (
                "planned",
                false,
                |c| c.spec.rollout_after = Some(minutes_ago(-5)),
                "already planned for 2026-08-21T12:05:00Z",
            ),
        ];
        for (name, cluster_is_paused, change, reason) in cases {
            for start in [StartTime::Now, StartTime::In(Duration::from_secs(60))] {
                let mut snapshot = snapshot();
                change(&mut snapshot.observed.control_plane);
                let options = StartOptions { start, force: true };
                let Refusal { why, refused_by, .. } =
                    refusal(decided(&snapshot, options, "v1beta2", *cluster_is_paused));
                assert_eq!(refused_by, RefusedBy::Command, "{name}");
                assert!(
                    matches!(&why[..], [only] if only.contains(reason)),
                    "{name}: {why:?}"
                );
            }
        }
    }

    #[test]
    fn an_unhealthy_machine_blocks_a_rollout_that_starts_now() {
        let mut unhealthy = snapshot();
        fail(&mut unhealthy, 2, "EtcdPodHealthy", "crashed");
        let why = vec!["EtcdPodHealthy of Machine m2 is False: crashed".to_owned()];
        assert_eq!(
            refusal(decided(&unhealthy, StartOptions::default(), "v1beta2", false)),
            Refusal::new(RefusedBy::Preflight, why.clone())
        );
        let forced = StartOptions {
            force: true,
            ..StartOptions::default()
        };
        assert_eq!(
            proposal(decided(&unhealthy, forced, "v1beta2", false)).warnings,
            why
        );
        // The Machine may be healthy by then.
        let planned = startning(StartTime::In(Duration::from_secs(3600)));
        let planned = proposal(decided(&unhealthy, planned, "v1beta2", false));
        assert_eq!(planned.warnings, Vec::<String>::new());
    }

    #[test]
    fn rounds_the_time_to_whole_seconds() {
        let now = "2026-08-21T12:00:00.7Z".parse().expect("a time");
        let due = |text: &str| StartTime::At(text.parse().expect("a time"));
        let past = |text: &str| {
            Err(InvalidStartTime::Past {
                at: text.parse().expect("a time"),
            })
        };
        for (start, expected, is_planned) in [
            (StartTime::Now, Ok("2026-08-21T12:00:00Z"), false),
            (StartTime::In(Duration::ZERO), Ok("2026-08-21T12:00:00Z"), false),
            (
                StartTime::In(Duration::from_secs(3600)),
                Ok("2026-08-21T13:00:01Z"),
                true,
            ),
            (StartTime::In(Duration::MAX), Err(InvalidStartTime::TooFar), true),
            (due("2026-08-22T02:00:00+02:00"), Ok("2026-08-22T00:00:00Z"), true),
            (due("2026-08-21T12:00:00.8Z"), Ok("2026-08-21T12:00:01Z"), true),
            (
                due("2026-08-21T12:00:00.7Z"),
                past("2026-08-21T12:00:00.7Z"),
                true,
            ),
            (due("2020-01-01T00:00:00Z"), past("2020-01-01T00:00:00Z"), true),
        ] {
            let after = start.time(now).map(|after| after.to_string());
            assert_eq!(after, expected.map(str::to_owned), "{start:?}");
            assert_eq!(start.is_planned(), is_planned, "{start:?}");
        }
    }
}
