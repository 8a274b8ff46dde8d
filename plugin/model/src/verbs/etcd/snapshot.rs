//! The decision of `etcd snapshot`: which member sends the snapshot, and the record of it on the control
//! plane. [`place`] is where it is stored, and [`name`] its name in a folder; [`verification`] compares it with its etcd.

pub mod name;
pub mod place;
pub mod verification;

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use kcp_api::{KubeadmControlPlane, names::annotation, snapshot_record::SnapshotRecord};
use kcp_etcd::{AlarmKind, Status};
use serde_json::json;

use crate::{
    change::decision::{ChangeEvent, Decision, ObjectWrite, Proposal, Refusal},
    checks::{etcd_agreement::RAFT_LAG_LIMIT, membership::Membership},
    problem::alarm_message,
    snapshot::{
        Snapshot,
        etcd::{Alarms, CORRUPT, EtcdSurvey, QueriedMember},
    },
    verbs::etcd::members::{no_such_member, read_refusal, refusal, require_survey},
};

/// The member that sends the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSource {
    pub member: QueriedMember,
    /// Warnings about a snapshot of this member, one line each.
    pub warnings: Vec<String>,
}

/// Decides how to store a record, unless a newer one is stored.
pub fn record_decision(
    record: &SnapshotRecord,
    control_plane: &KubeadmControlPlane,
    now: Timestamp,
) -> Decision {
    let stored = SnapshotRecord::from_control_plane(control_plane, now);
    if let Some(stored) = stored.filter(|stored| stored.completed >= record.completed) {
        return Decision::Unchanged(format!(
            "a newer snapshot, from {}, is already recorded",
            stored.completed
        ));
    }
    // A record always has a JSON form.
    let text = serde_json::to_string(record).unwrap_or_default();
    Decision::Write(Proposal {
        write: ObjectWrite::Patch {
            patch: json!({"metadata": {"annotations": {annotation::ETCD_SNAPSHOT: text}}}),
            subresource: None,
        },
        outcome: "has a record of the snapshot".to_owned(),
        warnings: Vec::new(),
        consequences: Vec::new(),
        event: ChangeEvent {
            reason: "EtcdSnapshotTaken",
            action: "EtcdSnapshot",
            note_verb: "etcd snapshot taken",
            detail: format!("from member {}, {} bytes", record.member, record.bytes),
        },
    })
}

/// How long a recorded snapshot counts as recent, before a change that replaces Machines.
pub(super) const RECENT: SignedDuration = SignedDuration::from_hours(24);

/// Returns a warning if no snapshot was recorded within [`RECENT`], before a change that replaces Machines.
/// `None` if etcd is external, because the change then does not replace etcd members, or if the control plane
/// has no data yet. The text does not contain the age, so that it is the same after the user has confirmed
/// the change.
pub fn recent_snapshot_warning(control_plane: &KubeadmControlPlane, now: Timestamp) -> Option<String> {
    let has_data = control_plane.status.initialized;
    if !has_data || control_plane.spec.kubeadm_config_spec.has_external_etcd() {
        return None;
    }
    let recorded = match SnapshotRecord::from_control_plane(control_plane, now) {
        Some(record) if now.duration_since(record.completed) <= RECENT => return None,
        Some(record) => format!("the last recorded snapshot of etcd is from {}", record.completed),
        None => "no snapshot of etcd is recorded".to_owned(),
    };
    Some(format!(
        "{recorded}; to save a snapshot before the change, use --snapshot FILE"
    ))
}

/// Selects the member that sends the snapshot: a follower that has applied the latest writes, so that the
/// leader gets no extra load. `requested` is the name of a member or of its Machine.
pub fn select_source(observed: &Snapshot, requested: Option<&str>) -> Result<SnapshotSource, Refusal> {
    let survey = require_survey(observed)?;
    match requested {
        Some(name) => requested_member(survey, name),
        None => suitable_member(survey),
    }
}

fn suitable_member(survey: &EtcdSurvey) -> Result<SnapshotSource, Refusal> {
    let membership = Membership::new(survey);
    if let Err(no_result) = membership.require_one_cluster() {
        return Err(with_choice(no_result.reason(), survey));
    }
    let with_leader = || {
        membership.statuses().filter(|(_, status)| {
            !status.is_learner && status.leader.is_some() && !is_corrupt(survey, status)
        })
    };
    let newest = with_leader().map(|(_, status)| status.raft_applied_index).max();
    let Some(newest) = newest else {
        return Err(with_choice("no responding etcd member has a leader", survey));
    };
    let up_to_date = with_leader()
        .filter(|(_, status)| newest.saturating_sub(status.raft_applied_index) <= RAFT_LAG_LIMIT);
    let best = up_to_date.min_by_key(|(queried, status)| {
        let is_leader = status.leader == Some(status.member_id);
        (is_leader, Reverse(status.raft_applied_index), &queried.name)
    });
    match best {
        Some((queried, _)) => Ok(SnapshotSource {
            member: queried.clone(),
            warnings: Vec::new(),
        }),
        None => Err(with_choice("no responding etcd member has a leader", survey)),
    }
}

fn requested_member(survey: &EtcdSurvey, name: &str) -> Result<SnapshotSource, Refusal> {
    let found = survey
        .queried
        .iter()
        .find(|queried| queried.name == name || queried.machine.as_deref() == Some(name));
    let names = survey.queried.iter().map(|queried| queried.name.as_str());
    let queried = found.ok_or_else(|| no_such_member(name, names))?;
    let status = match &queried.response {
        Ok(response) => response.status.as_ref(),
        Err(failure) => Err(failure),
    };
    let status = status.map_err(read_refusal)?;
    let mut warnings = Vec::new();
    if status.leader.is_none() {
        warnings.push(format!(
            "etcd member {} has no leader: the snapshot may lack the latest writes",
            queried.name
        ));
    }
    if is_corrupt(survey, status) {
        warnings.push(alarm_message(Some(&queried.name), CORRUPT));
    }
    if status.is_learner {
        warnings.push(format!(
            "etcd member {} is a learner: the snapshot may lack the latest writes",
            queried.name
        ));
    }
    Ok(SnapshotSource {
        member: queried.clone(),
        warnings,
    })
}

fn is_corrupt(survey: &EtcdSurvey, status: &Status) -> bool {
    match &survey.alarms {
        Alarms::Listed(alarms) => alarms
            .iter()
            .any(|alarm| alarm.member_id == status.member_id && alarm.kind == AlarmKind::Corrupt),
        Alarms::FromStatus | Alarms::Failed(_) => status.errors.iter().any(|error| error.contains("CORRUPT")),
    }
}

/// The refusal if the user must select a member. Names the members that respond.
fn with_choice(why: &str, survey: &EtcdSurvey) -> Refusal {
    let mut refusal = refusal(why.to_owned());
    let names: Vec<&str> = survey
        .statuses()
        .map(|(queried, _)| queried.name.as_str())
        .collect();
    if !names.is_empty() {
        refusal.remedies.push(format!(
            "to take a snapshot that may lack the latest writes, set --member to {}",
            names.join(" or ")
        ));
    }
    refusal
}

#[cfg(test)]
mod tests {
    use kcp_etcd::{Alarm, AlarmKind};

    use super::{SnapshotRecord, recent_snapshot_warning, record_decision, select_source};
    use crate::{
        change::decision::Decision,
        snapshot::{Reading, Snapshot, etcd::Alarms},
        testing::{
            objects::{now, use_external_etcd},
            snapshot::observed as snapshot,
        },
    };
    use kcp_api::Object as _;

    fn selected(observed: &Snapshot, requested: Option<&str>) -> Result<(String, Vec<String>), Vec<String>> {
        match select_source(observed, requested) {
            Ok(source) => Ok((source.member.name, source.warnings)),
            Err(refusal) => Err(refusal.why.into_iter().chain(refusal.remedies).collect()),
        }
    }

    #[test]
    fn an_up_to_date_follower_sends_the_snapshot() {
        let mut observed = snapshot();
        assert_eq!(
            selected(&observed, None),
            Ok(("node-m2".to_owned(), Vec::new())),
            "node-m1 leads"
        );
        observed.status(3).raft_applied_index += 10;
        assert_eq!(
            selected(&observed, None),
            Ok(("node-m3".to_owned(), Vec::new())),
            "node-m3 has applied more"
        );
        observed.kill(3);
        assert_eq!(selected(&observed, None), Ok(("node-m2".to_owned(), Vec::new())));
        observed.status(2).raft_applied_index -= 5_001;
        assert_eq!(
            selected(&observed, None),
            Ok(("node-m1".to_owned(), Vec::new())),
            "node-m2 lags behind"
        );
    }

    #[test]
    fn a_learner_and_a_corrupt_member_send_none() {
        let mut observed = snapshot();
        observed.status(2).is_learner = true;
        assert_eq!(selected(&observed, None), Ok(("node-m3".to_owned(), Vec::new())));
        let member_id = observed.status(3).member_id;
        observed.survey().alarms = Alarms::Listed(vec![Alarm {
            member_id,
            kind: AlarmKind::Corrupt,
        }]);
        assert_eq!(selected(&observed, None), Ok(("node-m1".to_owned(), Vec::new())));
        let (name, warnings) = selected(&observed, Some("m3")).expect("the Machine has a member");
        assert_eq!(name, "node-m3");
        assert_eq!(
            warnings,
            [
                "etcd member node-m3 has raised the alarm CORRUPT: its data differs from that of the other members"
            ]
        );
    }

    #[test]
    fn without_a_leader_the_user_selects_the_member() {
        let mut observed = snapshot();
        observed.kill(2);
        observed.kill(3);
        observed.status(1).leader = None;
        assert_eq!(
            selected(&observed, None),
            Err(vec![
                "no responding etcd member has a leader".to_owned(),
                "to take a snapshot that may lack the latest writes, set --member to node-m1".to_owned()
            ])
        );
        assert_eq!(
            selected(&observed, Some("node-m1")),
            Ok((
                "node-m1".to_owned(),
                vec!["etcd member node-m1 has no leader: the snapshot may lack the latest writes".to_owned()]
            ))
        );
        assert_eq!(
            selected(&observed, Some("node-m9")),
            Err(vec![
                "etcd has no member node-m9; the members are node-m1, node-m2, node-m3".to_owned()
            ])
        );
    }

    #[test]
    fn an_etcd_that_was_not_read_sends_none() {
        let mut observed = snapshot();
        observed.etcd = Reading::NotYet;
        assert_eq!(
            selected(&observed, None),
            Err(vec!["the control plane is not initialized yet".to_owned()])
        );
    }

    #[test]
    fn warns_without_a_snapshot_of_the_last_day() {
        let warning = |hours: Option<i64>, change: fn(&mut Snapshot)| {
            let mut observed = snapshot();
            change(&mut observed);
            let control_plane = &mut observed.control_plane;
            if let Some(hours) = hours {
                let record = SnapshotRecord {
                    uid: control_plane.uid().to_owned(),
                    completed: now() - jiff::SignedDuration::from_hours(hours),
                    member: "node-m2".to_owned(),
                    bytes: 544,
                    place: None,
                };
                let text = serde_json::to_string(&record).expect("JSON");
                let annotations = [("kubectl-kcp.dev/etcd-snapshot".to_owned(), text)];
                control_plane.metadata.annotations = Some(annotations.into());
            }
            recent_snapshot_warning(control_plane, now())
        };
        let none = "no snapshot of etcd is recorded; to save a snapshot before the change, use --snapshot \
            FILE";
        let old = "the last recorded snapshot of etcd is from 2026-08-20T11:00:00Z; to save a snapshot \
            before the change, use --snapshot FILE";
        let external: fn(&mut Snapshot) = |o| use_external_etcd(&mut o.control_plane.spec);
        let uninitialized: fn(&mut Snapshot) = |o| o.control_plane.status.initialized = false;
        assert_eq!(warning(None, |_| {}).as_deref(), Some(none));
        assert_eq!(warning(Some(24), |_| {}), None);
        assert_eq!(warning(Some(25), |_| {}).as_deref(), Some(old));
        assert_eq!(warning(None, external), None);
        assert_eq!(warning(None, uninitialized), None);
    }

    #[test]
    fn an_older_snapshot_does_not_replace_the_record_of_a_newer_one() {
        let mut control_plane = snapshot().control_plane;
        let newer = SnapshotRecord {
            uid: control_plane.uid().to_owned(),
            completed: now(),
            member: "node-m2".to_owned(),
            bytes: 544,
            place: Some("s3://backups/edge.db".to_owned()),
        };
        let Decision::Write(proposal) = record_decision(&newer, &control_plane, now()) else {
            panic!("not written");
        };
        let text = serde_json::to_string(&newer).expect("JSON");
        assert_eq!(
            proposal.event.note("alice"),
            "etcd snapshot taken by alice from member node-m2, 544 bytes"
        );
        let annotations = [("kubectl-kcp.dev/etcd-snapshot".to_owned(), text)];
        control_plane.metadata.annotations = Some(annotations.into());
        let recorded = |time| SnapshotRecord::from_control_plane(&control_plane, time);
        assert_eq!(recorded(now()), Some(newer.clone()));
        let minutes = jiff::SignedDuration::from_mins;
        assert_eq!(recorded(now() - minutes(5)), Some(newer.clone()));
        assert_eq!(recorded(now() - minutes(6)), None);
        let mut copied = control_plane.clone();
        copied.metadata.uid = Some("another".to_owned());
        assert_eq!(SnapshotRecord::from_control_plane(&copied, now()), None);
        let older = SnapshotRecord {
            completed: now() - jiff::SignedDuration::from_secs(1),
            ..newer
        };
        assert!(matches!(
            record_decision(&older, &control_plane, now()),
            Decision::Unchanged(_)
        ));
    }
}
