use super::{Layout, Screen, changes::changes, list, one};
use crate::{
    control_plane::example::{minutes_ago, now},
    status::{
        inspection::Inspection,
        observed::{Observed, Reading, etcd::Alarms},
        screen::example::{self, Example},
    },
    terminal::{plain, width::width},
};

fn screen(example: &Example, width: Option<usize>, is_wide: bool) -> Screen {
    one(
        &example.observed,
        &example.inspection,
        now(),
        Layout { width, is_wide },
    )
}

/// Styles made visible: what a snapshot shows must be plain to read.
fn visible(text: &str) -> String {
    text.replace('\u{1b}', "␛")
}

#[test]
fn every_screen() {
    for (name, example) in example::all() {
        for columns in [80, 120] {
            let text = screen(&example, Some(columns), false).text();
            insta::assert_snapshot!(format!("{name}_{columns}"), plain(&text));
            insta::assert_snapshot!(format!("{name}_{columns}_colour"), visible(&text));
        }
    }
}

#[test]
fn wide_screens() {
    for (name, example) in [
        ("member_dead", example::member_dead()),
        ("no_etcd", example::no_etcd()),
        ("long_names", example::long_names()),
    ] {
        let text = screen(&example, Some(80), true).text();
        insta::assert_snapshot!(format!("{name}_wide"), plain(&text));
    }
}

#[test]
fn a_terminal_need_not_wrap() {
    for (name, example) in example::all() {
        for columns in [80, 100, 120] {
            let text = plain(&screen(&example, Some(columns), false).text());
            for line in text.lines() {
                // A command to paste stays whole.
                let is_command = line.trim_start().starts_with("kubectl ");
                assert!(width(line) <= columns || is_command, "{name} {columns}: {line}");
                assert!(!line.ends_with(' '), "{name} {columns}: {line:?}");
            }
        }
    }
}

#[test]
fn no_control_character_gets_through() {
    let example = example::control_characters();
    for text in [
        screen(&example, Some(80), false).text(),
        screen(&example, None, true).text(),
        list(
            [(&example.observed, &example.inspection)],
            None,
            now(),
            Layout::default(),
        )
        .text(),
    ] {
        let text = plain(&text);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        assert!(!text.contains(['\u{202e}', '\u{9b}']), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("ok")), "{text}");
    }
}

#[test]
fn a_low_terminal_does_without_parts() {
    let screen = screen(&example::member_dead(), Some(80), false);
    let all = screen.text();
    let height = all.lines().count();
    assert_eq!(screen.within(height), all);
    for lines in 3..height {
        let text = plain(&screen.within(lines));
        assert!(text.lines().count() <= lines, "{lines}:\n{text}");
        assert!(text.contains("\nno room for "), "{text}");
    }
    insta::assert_snapshot!("member_dead_24_lines", plain(&screen.within(24)));
    insta::assert_snapshot!("member_dead_12_lines", plain(&screen.within(12)));
}

fn pairs(examples: &[Example]) -> impl Iterator<Item = (&Observed, &Inspection)> {
    let examples = examples.iter();
    examples.map(|example| (&example.observed, &example.inspection))
}

#[test]
fn several_control_planes() {
    let mut paris = example::member_dead();
    let control_plane = &mut paris.observed.management.control_plane.control_plane;
    control_plane.name = "paris-control-plane".to_owned();
    control_plane.cluster = Some("paris".to_owned());
    let examples = vec![
        example::healthy(),
        example::mid_rollout(),
        paris,
        example::unreadable(),
        example::no_etcd(),
        example::control_characters(),
        example::long_names(),
    ];
    for columns in [80, 120] {
        let layout = Layout {
            width: Some(columns),
            is_wide: false,
        };
        let text = list(pairs(&examples), None, now(), layout).text();
        assert!(plain(&text).lines().all(|line| width(line) <= columns), "{text}");
        insta::assert_snapshot!(format!("list_{columns}"), plain(&text));
        insta::assert_snapshot!(format!("list_{columns}_colour"), visible(&text));
    }
    let text = list(pairs(&examples), Some("default"), now(), Layout::default()).text();
    insta::assert_snapshot!("list_of_a_namespace", plain(&text));
    let layout = Layout {
        width: Some(80),
        is_wide: true,
    };
    insta::assert_snapshot!(
        "list_wide",
        plain(&list(pairs(&examples), None, now(), layout).text())
    );
}

#[test]
fn no_control_plane() {
    for (namespace, text) in [
        (Some("d"), "No control planes found in d namespace.\n"),
        (None, "No control planes found.\n"),
    ] {
        assert_eq!(list([], namespace, now(), Layout::default()).text(), text);
    }
}

fn changed(before: &Example, after: &Example) -> Vec<String> {
    changes(
        Some((&before.observed, &before.inspection)),
        (&after.observed, &after.inspection),
    )
}

#[test]
fn the_first_look_tells_where_things_stand() {
    let dead = example::member_dead();
    assert_eq!(
        changes(None, (&dead.observed, &dead.inspection)),
        [
            "Degraded: 3 wrong",
            "fail: KubeadmControlPlane/edge: no more etcd members may fail: 2 of 3 voters are healthy, 2 are needed \
             (etcd-tolerance)",
            "fail: Machine/edge-b8v4q: etcd member node-b8v4q does not answer: connection refused: nothing listens on \
             port 2379 of the pod (etcd-members-answer)",
            "fail: Pod/kube-apiserver-node-b8v4q: not ready: CrashLoopBackOff (api-servers-ready)",
        ]
    );
}

#[test]
fn what_changes_when_a_member_dies_and_comes_back() {
    let (healthy, dead) = (example::healthy(), example::member_dead());
    assert_eq!(changed(&healthy, &healthy), Vec::<String>::new());
    let blocked = "is blocked by etcd-members-answer, api-servers-ready";
    assert_eq!(
        changed(&healthy, &dead),
        [
            "Healthy -> Degraded: 3 wrong",
            "3/3 Machines, 2 ready, 3 up to date",
            "Machine edge-b8v4q is not ready any more",
            "etcd member node-b8v4q does not answer",
            &format!("scale up {blocked}"),
            &format!("scale down {blocked}"),
            &format!("rollout {blocked}"),
            "remediation of edge-5xk2p is blocked by etcd-quorum",
            "remediation of edge-tw7zn is blocked by etcd-quorum",
            "fail: KubeadmControlPlane/edge: no more etcd members may fail: 2 of 3 voters are healthy, 2 are needed \
             (etcd-tolerance)",
            "fail: Machine/edge-b8v4q: etcd member node-b8v4q does not answer: connection refused: nothing listens on \
             port 2379 of the pod (etcd-members-answer)",
            "fail: Pod/kube-apiserver-node-b8v4q: not ready: CrashLoopBackOff (api-servers-ready)",
        ]
    );
    assert_eq!(
        changed(&dead, &healthy),
        [
            "Degraded -> Healthy",
            "3/3 Machines, 3 ready, 3 up to date",
            "Machine edge-b8v4q is ready",
            "etcd member node-b8v4q answers again",
            "scale up is allowed now",
            "scale down is allowed now",
            "rollout is allowed now",
            "remediation of edge-5xk2p is allowed now",
            "remediation of edge-tw7zn is allowed now",
            "no longer: KubeadmControlPlane/edge: etcd-tolerance",
            "no longer: Machine/edge-b8v4q: etcd-members-answer",
            "no longer: Pod/kube-apiserver-node-b8v4q: api-servers-ready",
        ]
    );
}

#[test]
fn what_changes_in_a_rollout() {
    let (healthy, rollout) = (example::healthy(), example::mid_rollout());
    let lines = changed(&healthy, &rollout);
    for expected in [
        "4/3 Machines, 3 ready, 1 up to date",
        "Machine edge-new9c appeared",
        "Machine edge-b8v4q is outdated: version v1.33.4, v1.34.1 asked for",
        "etcd member node-new9c appeared",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} is not in {lines:#?}"
        );
    }
    let lines = changed(&rollout, &healthy);
    for expected in [
        "Machine edge-new9c is gone",
        "Machine edge-b8v4q is up to date",
        "etcd member node-new9c is gone",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} is not in {lines:#?}"
        );
    }
}

#[test]
fn a_finding_is_the_same_whatever_time_it_tells() {
    let before = example::member_dead();
    let mut after = before.clone();
    for checked in &mut after.inspection.checks {
        for finding in &mut checked.findings {
            finding.message.push_str(", for 3m");
        }
    }
    after.observed.management.control_plane.machines[0]
        .machine
        .created = Some(minutes_ago(1));
    assert_eq!(changed(&before, &after), Vec::<String>::new());
}

#[test]
fn a_change_of_leader_or_alarm_is_told() {
    let before = example::external_etcd();
    let mut after = before.clone();
    let Reading::Read(survey) = &mut after.observed.etcd else {
        panic!("no survey");
    };
    survey.alarms = Alarms::Listed(Vec::new());
    let statuses = survey
        .asked
        .iter_mut()
        .filter_map(|asked| asked.answer.as_mut().ok());
    let mut statuses: Vec<_> = statuses
        .filter_map(|answer| answer.status.as_mut().ok())
        .collect();
    let second = statuses[1].member_id;
    for status in &mut statuses {
        status.leader = Some(second);
    }
    let expected = [
        "etcd leader 10.0.0.1:2379 -> 10.0.0.2:2379",
        "etcd alarm NOSPACE of 10.0.0.3:2379 disarmed",
    ];
    assert_eq!(changed(&before, &after), expected);
    assert_eq!(
        changed(&after, &before),
        [
            "etcd leader 10.0.0.2:2379 -> 10.0.0.1:2379",
            "etcd alarm NOSPACE of 10.0.0.3:2379 raised"
        ]
    );
}
