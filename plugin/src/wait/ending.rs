//! Describes how a wait for a change ended.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _};

use crate::{terminal::escape, verdict::Verdict};
use kcp_control_plane::{
    duration::format_duration,
    snapshot::Snapshot,
    staleness::StuckProblem,
    wait::{self, WaitCondition, WaitProgress},
};

#[derive(Clone, Debug, PartialEq)]
pub struct WaitEnding {
    pub snapshot: Snapshot,
    pub kind: WaitEndingKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEndingKind {
    Met,
    /// The condition can no longer be met, for this reason.
    Impossible(String),
    /// The same blockers have blocked the change for too long.
    Stuck(Vec<StuckProblem>),
    TimedOut(Duration),
}

impl WaitEnding {
    pub const fn verdict(&self) -> Verdict {
        match self.kind {
            WaitEndingKind::Met => Verdict::Met,
            WaitEndingKind::Impossible(_) | WaitEndingKind::Stuck(_) | WaitEndingKind::TimedOut(_) => {
                Verdict::Negative
            }
        }
    }

    /// The text to print at the end of a wait; empty if the condition is met.
    pub fn text(&self, condition: &WaitCondition, now: Timestamp) -> String {
        let waiting = || match condition.progress(&self.snapshot, None, now) {
            WaitProgress::WaitingFor(what) => what,
            WaitProgress::Met | WaitProgress::Impossible(_) => Vec::new(),
        };
        let control_plane = &self.snapshot.control_plane;
        match &self.kind {
            WaitEndingKind::Met => String::new(),
            WaitEndingKind::Impossible(why) => format!("{}\n", escape(why)),
            WaitEndingKind::Stuck(obstacles) => {
                let mut text = "stuck, blocked by:\n".to_owned();
                push_obstacles(&mut text, obstacles, control_plane, now);
                text.push_str("still waiting for:\n");
                push_lines(&mut text, &waiting());
                text
            }
            WaitEndingKind::TimedOut(after) => {
                let mut text = format!(
                    "timed out after {}, still waiting for:\n",
                    format_duration(*after)
                );
                push_lines(&mut text, &waiting());
                push_lines(&mut text, &wait::reported_reasons(control_plane));
                text
            }
        }
    }
}

pub(crate) fn push_obstacles(
    text: &mut String,
    obstacles: &[StuckProblem],
    control_plane: &KubeadmControlPlane,
    now: Timestamp,
) {
    for stuck in obstacles {
        let hint = stuck.hint(control_plane.namespace(), control_plane.name());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", escape(&stuck.message(now)));
        let _ = writeln!(text, "    hint: {}", escape(&hint));
    }
}

fn push_lines(text: &mut String, lines: &[String]) {
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", escape(line));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcp_api::ConditionStatus::True;
    use kcp_control_plane::{
        problem::Problem,
        snapshot::Snapshot,
        staleness::StuckProblem,
        testing::objects::{condition, healthy, minutes_ago, now, set},
        wait::WaitCondition,
    };

    use super::{WaitEnding, WaitEndingKind};
    use crate::verdict::Verdict::{self, Met, Negative};

    fn snapshot_during_rollout() -> Snapshot {
        let mut snapshot = healthy(3);
        snapshot.control_plane.status.up_to_date_replicas = 1;
        let message = "Rolling out 2 not up-to-date replicas\n* rolloutAfter expired";
        set(
            &mut snapshot.control_plane.status.conditions,
            condition("RollingOut", True, message),
        );
        snapshot
    }

    fn ended(kind: WaitEndingKind) -> (Verdict, String) {
        let ending = WaitEnding {
            snapshot: snapshot_during_rollout(),
            kind,
        };
        (ending.verdict(), ending.text(&WaitCondition::RolledOut, now()))
    }

    #[test]
    fn says_why_the_wait_ended() {
        assert_eq!(ended(WaitEndingKind::Met), (Met, String::new()));
        assert_eq!(
            ended(WaitEndingKind::Impossible("it is paused".to_owned())),
            (Negative, "it is paused\n".to_owned())
        );
        let (verdict, text) = ended(WaitEndingKind::TimedOut(Duration::from_secs(90)));
        assert_eq!(verdict, Negative);
        insta::assert_snapshot!(text, @r"
        timed out after 1m30s, still waiting for:
          Machines up to date: 1 of 3
          Cluster API: Rolling out 2 not up-to-date replicas; rolloutAfter expired
        ");
        let stuck = StuckProblem {
            blocker: Problem::BeingDeleted {
                machine: "c1-cp-m1".to_owned(),
                message: Some("DrainingNode: Pod d/web: cannot evict".to_owned()),
            },
            since: minutes_ago(41),
        };
        let (verdict, text) = ended(WaitEndingKind::Stuck(vec![stuck]));
        assert_eq!(verdict, Negative);
        insta::assert_snapshot!(text, @r"
        stuck, blocked by:
          for 41m: Machine c1-cp-m1 is being deleted: DrainingNode: Pod d/web: cannot evict
            hint: kubectl kcp machine diagnose c1-cp-m1 -n d
        still waiting for:
          Machines up to date: 1 of 3
        ");
    }
}
