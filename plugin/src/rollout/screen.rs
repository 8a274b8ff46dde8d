//! The text of `rollout`.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;

use crate::{
    arguments::DryRun,
    control_plane::ControlPlane,
    follow::{Standing, goal},
    terminal::{
        escape,
        style::{BAD, GOOD, WARN},
    },
};

/// The rollout was asked for.
pub fn started(name: &str, dry_run: Option<DryRun>) -> String {
    format!(
        "kubeadmcontrolplane/{} rollout started{}\n",
        escape(name),
        DryRun::mark(dry_run)
    )
}

/// It was refused, here or by the server.
pub fn refused(name: &str, by: &str, why: &[String]) -> String {
    let heading = format!(
        "kubeadmcontrolplane/{} rollout {}: refused by {by}\n",
        escape(name),
        "not started".style(BAD)
    );
    with_lines(heading, why)
}

/// How far it is.
pub fn status(control_plane: &ControlPlane, standing: &Standing) -> String {
    let name = escape(&control_plane.name);
    let counts = format!(
        "{} of {} Machines up to date",
        control_plane.up_to_date_replicas,
        control_plane.desired()
    );
    match standing {
        Standing::Reached => {
            format!(
                "kubeadmcontrolplane/{name} rollout {}: {counts}\n",
                "complete".style(GOOD)
            )
        }
        Standing::OutOfReach(why) => format!(
            "kubeadmcontrolplane/{name} rollout {}: {counts}; {}\n",
            "stopped".style(BAD),
            escape(why)
        ),
        Standing::WaitingFor(what) => {
            let heading = format!(
                "kubeadmcontrolplane/{name} rollout {}: {counts}; waiting for\n",
                "in progress".style(WARN)
            );
            let what: Vec<String> = what.iter().cloned().chain(goal::reasons(control_plane)).collect();
            with_lines(heading, &what)
        }
    }
}

fn with_lines(mut text: String, lines: &[String]) -> String {
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}", escape(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{refused, started, status};
    use crate::{
        control_plane::{
            ConditionStatus::True,
            example::{condition, healthy, minutes_ago, now, set},
        },
        follow::Goal,
        terminal::plain,
    };

    #[test]
    fn says_how_far_it_is() {
        let mut snapshot = healthy(3);
        let show = |snapshot: &_| {
            let crate::control_plane::Snapshot { control_plane, .. } = snapshot;
            plain(&status(
                control_plane,
                &Goal::RolledOut.standing(snapshot, None, now()),
            ))
        };
        insta::assert_snapshot!(show(&snapshot), @"kubeadmcontrolplane/c1-cp rollout complete: 3 of 3 Machines up to date");

        snapshot.control_plane.up_to_date_replicas = 1;
        snapshot.control_plane.replicas = 4;
        snapshot.machines[0].deleting_since = Some(minutes_ago(1));
        let message = "Rolling out 2 not up-to-date replicas\n* rolloutAfter expired";
        set(
            &mut snapshot.control_plane.conditions,
            condition("RollingOut", True, message),
        );
        insta::assert_snapshot!(show(&snapshot), @r"
        kubeadmcontrolplane/c1-cp rollout in progress: 1 of 3 Machines up to date; waiting for
          Machines up to date: 1 of 3
          number of Machines: 4, wanted 3
          Machine c1-cp-m1 to be deleted
          Cluster API: Rolling out 2 not up-to-date replicas; rolloutAfter expired
        ");

        snapshot.control_plane.paused = true;
        insta::assert_snapshot!(show(&snapshot), @"kubeadmcontrolplane/c1-cp rollout stopped: 1 of 3 Machines up to date; the control plane is paused: it goes on when that is lifted");
    }

    #[test]
    fn says_what_was_done() {
        assert_eq!(
            started("c1-cp", None),
            "kubeadmcontrolplane/c1-cp rollout started\n"
        );
        insta::assert_snapshot!(plain(&refused("c1-cp", "kubectl kcp", &["the control plane is paused".to_owned()])), @r"
        kubeadmcontrolplane/c1-cp rollout not started: refused by kubectl kcp
          the control plane is paused
        ");
    }
}
