use kcp_api::{ConditionStatus, Remediation, metadata::Time, names::annotation};
use serde_json::json;

use super::{EntrySource, EventReach, Records, Timeline, timeline};
use crate::{
    ownership::FieldWriter,
    rollout_events::{RolloutEvent, RolloutEvents},
    snapshot::{Failure, Reading, Snapshot},
    testing::objects::{annotate, condition, healthy, minutes_ago, now, record, set},
};

/// One Machine. No condition has a time.
fn observed() -> Snapshot {
    let mut observed = healthy(1);
    observed.control_plane.status.conditions.clear();
    observed.control_plane.metadata.creation_timestamp = Some(Time(minutes_ago(300)));
    observed.machines[0].status.conditions.clear();
    observed
}

fn event(name: &str, reason: &str, note: &str, minutes: i64) -> RolloutEvent {
    let kind = if name == "c1-cp" {
        "KubeadmControlPlane"
    } else {
        "Machine"
    };
    RolloutEvent {
        first: minutes_ago(minutes),
        last: minutes_ago(minutes),
        kind: kind.to_owned(),
        name: name.to_owned(),
        deleted: false,
        warning: false,
        reason: reason.to_owned(),
        note: note.to_owned(),
        reporter: Some("reporter".to_owned()),
    }
}

fn reach() -> EventReach {
    EventReach {
        count: 240,
        has_more: false,
        oldest: Some(minutes_ago(60)),
    }
}

fn listed(observed: &Snapshot, events: Vec<RolloutEvent>, since: Option<i64>) -> Timeline {
    let events = RolloutEvents {
        events,
        ..RolloutEvents::default()
    };
    let records = Records {
        observed,
        writers: &writers(),
        events: &Reading::Read(events),
        cluster_writers: &Reading::NotYet,
        reach: &Reading::Read(reach()),
    };
    timeline(&records, since.map(minutes_ago), now())
}

fn writers() -> [FieldWriter; 2] {
    [
        FieldWriter {
            manager: "kubectl-edit".to_owned(),
            last_write: Some(minutes_ago(250)),
            is_scale: false,
            fields: vec!["spec.rollout".to_owned(), "spec.version".to_owned()],
        },
        FieldWriter {
            manager: "kubectl".to_owned(),
            last_write: None,
            is_scale: true,
            fields: vec!["spec.replicas".to_owned()],
        },
    ]
}

/// Each entry as a line: minutes ago, object, what, and who.
fn lines(timeline: &Timeline) -> Vec<String> {
    let minutes = |time| now().duration_since(time).as_secs() / 60;
    let entries = timeline.entries.iter();
    entries
        .map(|entry| {
            let until = entry
                .until
                .map_or_else(String::new, |until| format!("-{}", minutes(until)));
            let who = entry
                .who
                .as_deref()
                .map_or_else(String::new, |who| format!(" [{who}]"));
            let mark = if entry.warning { "!" } else { "" };
            format!(
                "{}{until} {}: {mark}{}{who}",
                minutes(entry.at),
                entry.object,
                entry.what
            )
        })
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_source_has_its_entries_in_the_order_of_time() {
    type Case = (
        &'static str,
        fn(&mut Snapshot),
        Vec<RolloutEvent>,
        &'static [&'static str],
    );
    let cases: Vec<Case> = vec![
        ("nothing more", |_| (), vec![], &[]),
        (
            "deletions",
            |observed| {
                observed.control_plane.metadata.deletion_timestamp = Some(Time(minutes_ago(4)));
                observed.machines[0].metadata.deletion_timestamp = Some(Time(minutes_ago(3)));
            },
            vec![],
            &[
                "4 KubeadmControlPlane/c1-cp: deletion requested",
                "3 Machine/c1-cp-m1: deletion requested",
            ],
        ),
        (
            "a rollout",
            |observed| observed.control_plane.spec.rollout_after = Some(minutes_ago(30)),
            vec![],
            &["30 KubeadmControlPlane/c1-cp: rollout of all Machines, as requested (rollout.after)"],
        ),
        (
            "a rollout to come",
            |observed| observed.control_plane.spec.rollout_after = Some(minutes_ago(-30)),
            vec![],
            &[],
        ),
        (
            "a snapshot",
            |observed| {
                let record = json!({"uid": "u1", "completed": minutes_ago(20), "member": "node-m1", "bytes": 7,
                    "place": "a.db"});
                annotate(
                    &mut observed.control_plane.metadata,
                    annotation::ETCD_SNAPSHOT,
                    &record.to_string(),
                );
            },
            vec![],
            &[
                "20 KubeadmControlPlane/c1-cp: snapshot of etcd complete: from member node-m1, 7 bytes, in a.db",
            ],
        ),
        (
            "remediations",
            |observed| {
                let remediation = |retry_count, minutes| Remediation {
                    machine: "m0".to_owned(),
                    timestamp: Some(minutes_ago(minutes)),
                    retry_count,
                    is_malformed: false,
                };
                let metadata = &mut observed.control_plane.metadata;
                record(metadata, annotation::REMEDIATION_IN_PROGRESS, &remediation(2, 8));
                record(
                    &mut observed.machines[0].metadata,
                    annotation::REMEDIATION_FOR,
                    &remediation(0, 119),
                );
            },
            vec![],
            &[
                "119 Machine/m0 (deleted): !deletion by a remediation, replaced by c1-cp-m1",
                "8 Machine/m0 (deleted): !deletion by a remediation (retry 2), not replaced yet",
            ],
        ),
        (
            "a Machine that a remediation is deleting, and an outdated record",
            |observed| {
                let remediation = |machine: &str, minutes| Remediation {
                    machine: machine.to_owned(),
                    timestamp: Some(minutes_ago(minutes)),
                    ..Remediation::default()
                };
                let metadata = &mut observed.machines[0].metadata;
                record(metadata, annotation::REMEDIATION_FOR, &remediation("c1-cp-m1", 3));
                // The Machine was created two hours ago.
                let metadata = &mut observed.control_plane.metadata;
                record(
                    metadata,
                    annotation::REMEDIATION_IN_PROGRESS,
                    &remediation("m0", 121),
                );
            },
            vec![],
            &["3 Machine/c1-cp-m1: !deletion by a remediation, replaced by c1-cp-m1"],
        ),
        (
            "conditions that changed together",
            |observed| {
                let conditions = &mut observed.control_plane.status.conditions;
                set(
                    conditions,
                    condition("EtcdClusterHealthy", ConditionStatus::True, ""),
                );
                set(conditions, condition("Available", ConditionStatus::True, ""));
                set(conditions, condition("RollingOut", ConditionStatus::False, ""));
                set(
                    conditions,
                    condition("Remediating", ConditionStatus::False, "a\nb"),
                );
            },
            vec![],
            &[
                "5 KubeadmControlPlane/c1-cp: EtcdClusterHealthy, Available: True",
                "5 KubeadmControlPlane/c1-cp: Remediating: False: a; b",
                "5 KubeadmControlPlane/c1-cp: RollingOut: False",
            ],
        ),
        (
            "Events",
            |_| (),
            vec![
                RolloutEvent {
                    deleted: true,
                    ..event("c1-cp-m0", "SuccessfulDrainNode", "drained", 9)
                },
                RolloutEvent {
                    last: minutes_ago(7),
                    warning: true,
                    ..event("c1-cp", "Denied", "denied update by jane: spec.replicas", 12)
                },
            ],
            &[
                "12-7 KubeadmControlPlane/c1-cp: !Denied: denied update by jane: spec.replicas [reporter]",
                "9 Machine/c1-cp-m0 (deleted): SuccessfulDrainNode: drained [reporter]",
            ],
        ),
    ];
    for (name, change, events, expected) in cases {
        let mut observed = observed();
        change(&mut observed);
        let (life, found): (Vec<String>, Vec<String>) = lines(&listed(&observed, events, None))
            .into_iter()
            .partition(|line| line.ends_with(": created") || line.starts_with("250 "));
        assert_eq!(
            life,
            [
                "300 KubeadmControlPlane/c1-cp: created",
                "250 KubeadmControlPlane/c1-cp: last write of a manager that owns spec.rollout, spec.version [kubectl-edit]",
                "120 Machine/c1-cp-m1: created"
            ],
            "{name}"
        );
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn entries_with_the_same_time_are_in_the_order_of_their_sources() {
    let mut observed = observed();
    let mut ready = condition("Ready", ConditionStatus::True, "");
    ready.last_transition_time = Some(minutes_ago(120));
    set(&mut observed.machines[0].status.conditions, ready);
    let events = vec![event("c1-cp", "Scaled", "scaled by jane from 1 to 3", 120)];
    let sources: Vec<EntrySource> = listed(&observed, events, None)
        .entries
        .iter()
        .map(|entry| entry.source)
        .collect();
    assert_eq!(
        sources,
        [
            EntrySource::Object,
            EntrySource::Object,
            EntrySource::Object,
            EntrySource::Condition,
            EntrySource::Event
        ]
    );
}

/// `status.lastUpdated` is the time of the phase `Running`. An Event about the node says the same.
#[test]
fn a_node_joins_once() {
    let mut observed = observed();
    let mut deleting = condition("Deleting", ConditionStatus::False, "");
    deleting.last_transition_time = Some(minutes_ago(120));
    observed.machines[0].status.conditions.push(deleting);
    observed.machines[0].status.last_updated = Some(minutes_ago(115));
    let joined = |events| -> Vec<String> {
        let found = lines(&listed(&observed, events, None));
        found
            .into_iter()
            .filter(|line| line.starts_with("115 "))
            .collect()
    };
    assert_eq!(
        joined(vec![]),
        ["115 Machine/c1-cp-m1: node node-c1-cp-m1 joined"]
    );
    let reported = event("c1-cp-m1", "SuccessfulSetNodeRef", "node-c1-cp-m1", 115);
    assert_eq!(
        joined(vec![reported]),
        ["115 Machine/c1-cp-m1: SuccessfulSetNodeRef: node-c1-cp-m1 [reporter]"]
    );
}

#[test]
fn only_what_was_reported_since_a_time_is_listed() {
    let repeated = RolloutEvent {
        last: minutes_ago(10),
        ..event("c1-cp", "ControlPlaneUnhealthy", "waits", 200)
    };
    for (since, expected) in [
        (None, 4),
        (Some(300), 4),
        (Some(150), 2),
        (Some(11), 1),
        (Some(9), 0),
    ] {
        let found = listed(&observed(), vec![repeated.clone()], since);
        assert_eq!(found.entries.len(), expected, "{since:?}");
        assert_eq!(found.unknown.len(), 4, "{since:?}");
    }
}

#[test]
fn the_writers_of_the_cluster_are_listed() {
    let [writer, _] = writers();
    let records = Records {
        observed: &observed(),
        writers: &[],
        cluster_writers: &Reading::Read(vec![writer]),
        events: &Reading::Read(RolloutEvents::default()),
        reach: &Reading::Read(reach()),
    };
    let found = lines(&timeline(&records, None, now()));
    let expected =
        "250 Cluster/c1: last write of a manager that owns spec.rollout, spec.version [kubectl-edit]";
    assert!(found.iter().any(|line| line == expected), "{found:#?}");
}

#[test]
fn a_timeline_says_what_it_cannot_know() {
    let mut overridden = observed();
    let value = format!(
        "version-lowered={}, joining-machine-outdated={}",
        minutes_ago(-60),
        minutes_ago(60)
    );
    annotate(
        &mut overridden.control_plane.metadata,
        annotation::OVERRIDE_RULES,
        &value,
    );
    record(
        &mut overridden.machines[0].metadata,
        annotation::REMEDIATION_FOR,
        &Remediation::default(),
    );
    let mut without_cluster = observed();
    without_cluster.cluster = Reading::Failed(failure("clusters is forbidden"));
    let events = Reading::Read(RolloutEvents::default());
    let more = EventReach {
        has_more: true,
        ..reach()
    };
    let texts: Vec<String> = [
        (&observed(), &events, Reading::Read(reach())),
        (&observed(), &events, Reading::Read(more)),
        (&without_cluster, &events, Reading::Read(EventReach::default())),
        (
            &observed(),
            &events,
            Reading::Failed(failure("no answer within 2s")),
        ),
        (
            &overridden,
            &Reading::Failed(failure("events.k8s.io is forbidden")),
            Reading::Read(reach()),
        ),
    ]
    .into_iter()
    .map(|(observed, events, reach)| {
        let records = Records {
            observed,
            writers: &writers(),
            cluster_writers: &Reading::NotYet,
            events,
            reach: &reach,
        };
        timeline(&records, None, now()).unknown.join("\n")
    })
    .collect();
    insta::assert_snapshot!(texts.join("\n\n"));
}

fn failure(message: &str) -> Failure {
    Failure {
        message: message.to_owned(),
        ..Failure::default()
    }
}
