//! Describes how far the rollout of a control plane has progressed.

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    verdict::Verdict,
    wait::{WaitEnding, WaitEndingKind},
};
use kcp_control_plane::{
    join_times::JoinTimes,
    snapshot::Snapshot,
    staleness::{StuckProblem, find_stuck},
    wait::{self, WaitCondition, WaitProgress},
};

#[derive(Clone, Debug, PartialEq)]
pub struct RolloutReport {
    pub snapshot: Snapshot,
    pub progress: RolloutProgress,
    /// What the rollout waits for, one line each.
    pub waiting_for: Vec<String>,
    /// What has blocked the rollout for too long.
    pub obstacles: Vec<StuckProblem>,
    /// What the controller reports about the rollout, or why the rollout has stopped. For a complete rollout, the Nodes that are
    /// left from replaced Machines.
    pub remarks: Vec<String>,
    /// How long earlier Machines took to join. `None` if the rollout is not in progress, or if no Machine's time is
    /// known.
    pub join_times: Option<JoinTimes>,
    /// When a planned rollout begins; `None` if none is planned.
    pub planned_start: Option<Timestamp>,
    /// The time at which the control plane was read.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum RolloutProgress {
    /// Every Machine of the control plane is up to date.
    Complete,
    InProgress,
    /// The same problem has blocked the rollout for too long.
    Stuck,
    /// The rollout does not continue by itself, for example because the control plane is paused.
    Stopped,
    /// The rollout was still in progress when the wait timed out.
    TimedOut,
}

impl RolloutReport {
    /// Creates a report from one poll of the control plane.
    pub fn from_poll(snapshot: Snapshot, now: Timestamp) -> Self {
        let progress = WaitCondition::RolledOut.progress(&snapshot, None, now);
        let kind = match progress {
            WaitProgress::Met => Some(WaitEndingKind::Met),
            WaitProgress::Impossible(why) => Some(WaitEndingKind::Impossible(why)),
            WaitProgress::WaitingFor(_) => {
                let stuck = find_stuck(&snapshot, now);
                (!stuck.is_empty()).then_some(WaitEndingKind::Stuck(stuck))
            }
        };
        Self::new(snapshot, kind, now)
    }

    /// Creates a report from the last poll of a wait for the rollout.
    pub fn from_ending(WaitEnding { snapshot, kind }: WaitEnding, now: Timestamp) -> Self {
        Self::new(snapshot, Some(kind), now)
    }

    /// Creates a report. `kind` says how the wait ended; `None` if it has not ended.
    fn new(snapshot: Snapshot, kind: Option<WaitEndingKind>, now: Timestamp) -> Self {
        let waiting_for = match WaitCondition::RolledOut.progress(&snapshot, None, now) {
            WaitProgress::WaitingFor(what) => what,
            WaitProgress::Met | WaitProgress::Impossible(_) => Vec::new(),
        };
        let says = wait::reported_reasons(&snapshot.control_plane);
        let (progress, obstacles, remarks) = match kind {
            None => (RolloutProgress::InProgress, Vec::new(), says),
            Some(WaitEndingKind::Met) => {
                let left = wait::nodes_without_machine(&snapshot.control_plane);
                (RolloutProgress::Complete, Vec::new(), left)
            }
            Some(WaitEndingKind::Impossible(why)) => (RolloutProgress::Stopped, Vec::new(), vec![why]),
            Some(WaitEndingKind::Stuck(obstacles)) => (RolloutProgress::Stuck, obstacles, says),
            Some(WaitEndingKind::TimedOut(_)) => (RolloutProgress::TimedOut, Vec::new(), says),
        };
        let is_in_progress = matches!(
            progress,
            RolloutProgress::InProgress | RolloutProgress::Stuck | RolloutProgress::TimedOut
        );
        Self {
            join_times: JoinTimes::measure(&snapshot.machines).filter(|_| is_in_progress),
            planned_start: snapshot
                .control_plane
                .spec
                .rollout_after
                .filter(|after| *after > now),
            snapshot,
            progress,
            waiting_for,
            obstacles,
            remarks,
            at: now,
        }
    }

    pub const fn verdict(&self) -> Verdict {
        match self.progress {
            RolloutProgress::Complete => Verdict::Met,
            RolloutProgress::InProgress
            | RolloutProgress::Stuck
            | RolloutProgress::Stopped
            | RolloutProgress::TimedOut => Verdict::Negative,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::False, metadata::Time};
    use std::time::Duration;

    use super::{
        RolloutProgress, RolloutProgress::Complete, RolloutProgress::InProgress, RolloutProgress::Stopped,
        RolloutProgress::Stuck, RolloutProgress::TimedOut, RolloutReport,
    };
    use crate::{
        verdict::Verdict,
        wait::{WaitEnding, WaitEndingKind},
    };
    use kcp_control_plane::{
        snapshot::Snapshot,
        testing::objects::{condition, healthy, minutes_ago, now, pause, set},
    };

    fn unhealthy(snapshot: &mut Snapshot, minutes: i64) {
        snapshot.control_plane.status.up_to_date_replicas = 1;
        for machine in &mut snapshot.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(600)));
            machine
                .status
                .conditions
                .retain(|condition| condition.type_ != "Ready");
        }
        let mut failed = condition("EtcdMemberHealthy", False, "no answer");
        failed.last_transition_time = Some(minutes_ago(minutes));
        set(&mut snapshot.machines[0].status.conditions, failed);
    }

    #[test]
    fn the_progress_of_each_poll() {
        type Case = (&'static str, fn(&mut Snapshot), RolloutProgress);
        let cases: &[Case] = &[
            ("as_asked", |_| {}, Complete),
            (
                "goes_on",
                |s| s.control_plane.status.up_to_date_replicas = 1,
                InProgress,
            ),
            ("in_the_way", |s| unhealthy(s, 5), InProgress),
            ("in_the_way_for_long", |s| unhealthy(s, 15), Stuck),
            (
                "paused_and_complete",
                |s| pause(&mut s.control_plane.metadata),
                Complete,
            ),
            (
                "paused_during_a_rollout",
                |s| {
                    pause(&mut s.control_plane.metadata);
                    s.control_plane.status.up_to_date_replicas = 1;
                },
                Stopped,
            ),
            (
                "planned",
                |s| s.control_plane.spec.rollout_after = Some(minutes_ago(-5)),
                Complete,
            ),
        ];
        for (name, change, progress) in cases {
            let mut snapshot = healthy(3);
            change(&mut snapshot);
            let report = RolloutReport::from_poll(snapshot, now());
            assert_eq!(report.progress, *progress, "{name}");
            let is_complete = *progress == Complete;
            assert_eq!(report.verdict() == Verdict::Met, is_complete, "{name}");
            assert_eq!(report.obstacles.is_empty(), *progress != Stuck, "{name}");
            assert_eq!(report.planned_start.is_some(), *name == "planned");
        }
    }

    #[test]
    fn the_progress_at_the_end_of_a_wait() {
        for (kind, progress) in [
            (WaitEndingKind::Met, Complete),
            (WaitEndingKind::Impossible("paused".to_owned()), Stopped),
            (WaitEndingKind::Stuck(Vec::new()), Stuck),
            (WaitEndingKind::TimedOut(Duration::from_secs(1)), TimedOut),
        ] {
            let mut snapshot = healthy(3);
            snapshot.control_plane.status.up_to_date_replicas = 1;
            let report = RolloutReport::from_ending(WaitEnding { snapshot, kind }, now());
            assert_eq!(report.progress, progress);
            assert_eq!(report.waiting_for, ["Machines up to date: 1 of 3"]);
        }
    }
}
