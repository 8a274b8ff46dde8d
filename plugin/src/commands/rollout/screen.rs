//! Prints the output of `rollout status` as text.

use std::fmt::Write as _;

use kcp_api::Object as _;
use owo_colors::OwoColorize as _;

use crate::commands::rollout::report::{RolloutProgress, RolloutReport};
use crate::{
    terminal::{
        escape,
        style::{BAD, GOOD, WARN},
        table::Layout,
    },
    wait::ending::push_obstacles,
};
use kcp_control_plane::{plan::messages::up_to_date_count, problem::reported_pause};

pub fn render(report: &RolloutReport, layout: Layout) -> String {
    let control_plane = &report.snapshot.control_plane;
    let status = &control_plane.status;
    let counts = up_to_date_count(status.up_to_date_replicas, control_plane.desired_replicas());
    let (word, style) = match report.progress {
        RolloutProgress::Complete => ("complete", GOOD),
        RolloutProgress::InProgress | RolloutProgress::TimedOut => ("in progress", WARN),
        RolloutProgress::Stuck => ("stuck", BAD),
        RolloutProgress::Stopped if reported_pause(control_plane, None).is_some() => ("paused", WARN),
        RolloutProgress::Stopped => ("stopped", BAD),
    };
    let rest = match report.progress {
        RolloutProgress::Complete => String::new(),
        RolloutProgress::InProgress | RolloutProgress::TimedOut => "; waiting for:".to_owned(),
        RolloutProgress::Stuck => "; blocked by:".to_owned(),
        RolloutProgress::Stopped => format!("; {}", report.remarks.join("; ")),
    };
    let mut text = format!(
        "kubeadmcontrolplane/{} rollout {}: {counts}{}\n",
        escape(control_plane.name()),
        word.style(style),
        escape(&rest)
    );
    match report.progress {
        RolloutProgress::Complete => text = layout.append_paragraphs(text, &report.remarks),
        RolloutProgress::Stopped => {}
        RolloutProgress::InProgress | RolloutProgress::TimedOut => {
            text = layout.append_paragraphs(text, &report.waiting_for);
            text = layout.append_paragraphs(text, &report.remarks);
        }
        RolloutProgress::Stuck => {
            push_obstacles(&mut text, &report.obstacles, control_plane, report.at);
            text.push_str("still waiting for:\n");
            text = layout.append_paragraphs(text, &report.waiting_for);
            text = layout.append_paragraphs(text, &report.remarks);
        }
    }
    text = layout.append_paragraphs(text, report.join_times.map(|times| times.message()).as_slice());
    if let Some(planned) = report.planned_start {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "a rollout is planned: at {planned}, the controller begins to replace every Machine that was created \
            before that time"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use kcp_api::{
        ConditionStatus::{False, True},
        metadata::Time,
    };
    use kcp_control_plane::{
        join_times::JoinTimes,
        snapshot::Snapshot,
        testing::objects::{condition, healthy, minutes_ago, now, pause, set},
    };

    use super::{Layout, render};
    use crate::{commands::rollout::report::RolloutReport, terminal::plain};

    fn show(snapshot: &Snapshot) -> String {
        plain(&render(
            &RolloutReport::from_poll(snapshot.clone(), now()),
            Layout::default(),
        ))
    }

    #[test]
    fn shows_the_progress() {
        let mut snapshot = healthy(3);
        insta::assert_snapshot!(show(&snapshot), @"kubeadmcontrolplane/c1-cp rollout complete: 3 of 3 Machines up to date");

        let left = "* Machine c1-cp-m2:\n  * APIServerPodHealthy: Pod does not exist\n\
            * Control plane Node node-m0 does not have a corresponding Machine";
        let healthy = snapshot.clone();
        set(
            &mut snapshot.control_plane.status.conditions,
            condition("ControlPlaneComponentsHealthy", False, left),
        );
        insta::assert_snapshot!(show(&snapshot), @r"
        kubeadmcontrolplane/c1-cp rollout complete: 3 of 3 Machines up to date
          Cluster API: Control plane Node node-m0 does not have a corresponding Machine; for what to do, see: kubectl kcp status c1-cp -n d
        ");
        snapshot = healthy;

        snapshot.control_plane.spec.rollout_after = Some(minutes_ago(-60));
        insta::assert_snapshot!(show(&snapshot), @r"
        kubeadmcontrolplane/c1-cp rollout complete: 3 of 3 Machines up to date
        a rollout is planned: at 2026-08-21T13:00:00Z, the controller begins to replace every Machine that was created before that time
        ");

        snapshot.control_plane.spec.rollout_after = None;
        snapshot.control_plane.status.up_to_date_replicas = 1;
        snapshot.control_plane.status.replicas = 4;
        snapshot.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        let message = "Rolling out 2 not up-to-date replicas\n* rolloutAfter expired";
        set(
            &mut snapshot.control_plane.status.conditions,
            condition("RollingOut", True, message),
        );
        insta::assert_snapshot!(show(&snapshot), @r"
        kubeadmcontrolplane/c1-cp rollout in progress: 1 of 3 Machines up to date; waiting for:
          Machines up to date: 1 of 3
          number of Machines: 4, desired 3
          Machine c1-cp-m1 has not been deleted yet
          Cluster API: Rolling out 2 not up-to-date replicas; rolloutAfter expired
        ");

        let mut report = RolloutReport::from_poll(snapshot.clone(), now());
        assert_eq!(report.join_times, None);
        report.join_times = Some(JoinTimes {
            shortest_seconds: 240,
            longest_seconds: 420,
            machines: 3,
        });
        let shown = plain(&render(&report, Layout::default()));
        let estimate = "  each new Machine takes about 4m to 7m to join, based on 3 earlier Machines";
        assert_eq!(shown.lines().last(), Some(estimate));

        pause(&mut snapshot.control_plane.metadata);
        insta::assert_snapshot!(show(&snapshot), @"kubeadmcontrolplane/c1-cp rollout paused: 1 of 3 Machines up to date; the control plane is paused: no controller reconciles it; resume the control plane: kubectl kcp rollout resume c1-cp -n d");
    }

    #[test]
    fn shows_what_blocks_the_rollout() {
        let mut snapshot = healthy(3);
        snapshot.control_plane.status.up_to_date_replicas = 2;
        for machine in &mut snapshot.machines {
            machine.metadata.creation_timestamp = Some(Time(minutes_ago(600)));
            machine
                .status
                .conditions
                .retain(|condition| condition.type_ != "Ready");
        }
        snapshot.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(41)));
        insta::assert_snapshot!(show(&snapshot), @r"
        kubeadmcontrolplane/c1-cp rollout stuck: 2 of 3 Machines up to date; blocked by:
          for 41m: Machine c1-cp-m1 is being deleted
            hint: kubectl kcp machine diagnose c1-cp-m1 -n d
        still waiting for:
          Machines up to date: 2 of 3
          Machine c1-cp-m1 has not been deleted yet
        ");
    }
}
