//! Prints the changes of a control plane since the last poll, one line each.

use std::collections::BTreeMap;

use crate::commands::status::screen::summary::verdict;
use crate::wait::progress::machine_changes;
use kcp_control_plane::{
    checks::finding::CheckOutcome,
    inspection::{Inspection, Permission},
    snapshot::{EtcdSurvey, Snapshot, etcd::hexadecimal},
};

/// The changes between two polls, one line each. Without an earlier poll, returns the verdict and the findings. The
/// text is not escaped.
pub fn changes(before: Option<(&Snapshot, &Inspection)>, after: (&Snapshot, &Inspection)) -> Vec<String> {
    let (observed, inspection) = after;
    let Some((old_observed, old_inspection)) = before else {
        let findings = finding_lines(inspection).into_iter().map(|one| one.line);
        return [verdict(observed, inspection)]
            .into_iter()
            .chain(findings)
            .collect();
    };
    let mut lines = Vec::new();
    if old_inspection.health != inspection.health {
        lines.push(format!(
            "{} -> {}",
            old_inspection.health.as_str(),
            verdict(observed, inspection)
        ));
    }
    lines.extend(counts(old_observed, observed));
    let machines = |observed: &'_ Snapshot| {
        let machines = observed.machines.iter();
        machines.cloned().collect::<Vec<_>>()
    };
    lines.extend(machine_changes(&machines(old_observed), &machines(observed)));
    lines.extend(outdated(old_inspection, inspection));
    if let (Some(old), Some(new)) = (old_observed.etcd.value(), observed.etcd.value()) {
        lines.extend(etcd(old, new));
    }
    lines.extend(permissions(old_inspection, inspection));
    lines.extend(findings(old_inspection, inspection));
    lines
}

fn counts(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let counts = |observed: &Snapshot| {
        let control_plane = &observed.control_plane;
        format!(
            "{}/{} Machines, {} ready, {} up to date",
            control_plane.status.replicas,
            control_plane.desired_replicas(),
            control_plane.status.ready_replicas,
            control_plane.status.up_to_date_replicas
        )
    };
    let after = counts(after);
    (counts(before) != after).then_some(after)
}

fn outdated(before: &Inspection, after: &Inspection) -> Vec<String> {
    let mut lines = Vec::new();
    for verdict in &after.verdicts {
        let old = before.verdicts.iter().find(|old| old.machine == verdict.machine);
        let was_outdated = old.is_some_and(|old| !old.reasons.is_empty());
        if !was_outdated && !verdict.reasons.is_empty() {
            let reasons: Vec<String> = verdict
                .reasons
                .iter()
                .map(kcp_control_plane::plan::rollout_reason::Reason::message)
                .collect();
            lines.push(format!(
                "Machine {} is outdated: {}",
                verdict.machine,
                reasons.join("; ")
            ));
        } else if was_outdated && verdict.reasons.is_empty() {
            lines.push(format!("Machine {} is up to date", verdict.machine));
        }
    }
    lines
}

fn etcd(before: &EtcdSurvey, after: &EtcdSurvey) -> Vec<String> {
    let mut lines = Vec::new();
    let answers = |survey: &EtcdSurvey| -> BTreeMap<String, bool> {
        let asked = survey.queried.iter();
        asked
            .map(|asked| {
                let answered = asked.response.as_ref().is_ok_and(|answer| answer.status.is_ok());
                (asked.name.clone(), answered)
            })
            .collect()
    };
    let (old, new) = (answers(before), answers(after));
    for (name, answers) in &new {
        match (old.get(name), answers) {
            (None, true) => lines.push(format!("etcd member {name} appeared")),
            (Some(true) | None, false) => lines.push(format!("etcd member {name} does not respond")),
            (Some(false), true) => lines.push(format!("etcd member {name} responds again")),
            (Some(true), true) | (Some(false), false) => {}
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    lines.extend(gone.map(|name| format!("etcd member {name} was removed")));
    let (old, new) = (leaders(before), leaders(after));
    if old != new {
        lines.push(format!("etcd leader {old} -> {new}"));
    }
    let raised = alarms(after);
    let old = alarms(before);
    let new = raised.iter().filter(|alarm| !old.contains(alarm));
    lines.extend(new.map(|alarm| format!("etcd {alarm} raised")));
    let past_alarms = old.iter().filter(|alarm| !raised.contains(alarm));
    lines.extend(past_alarms.map(|alarm| format!("etcd {alarm} disarmed")));
    lines
}

/// The names of the members that report themselves as etcd's leader.
fn leaders(survey: &EtcdSurvey) -> String {
    let leaders = survey.queried.iter().filter(|asked| {
        let status = asked
            .response
            .as_ref()
            .ok()
            .and_then(|answer| answer.status.as_ref().ok());
        status.is_some_and(|status| status.leader == Some(status.member_id))
    });
    let names: Vec<&str> = leaders.map(|asked| asked.name.as_str()).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn alarms(survey: &EtcdSurvey) -> Vec<String> {
    let whose = |id: u64| {
        let asked = survey.queried.iter().find(|asked| {
            let status = asked
                .response
                .as_ref()
                .ok()
                .and_then(|answer| answer.status.as_ref().ok());
            status.is_some_and(|status| status.member_id == id)
        });
        asked.map_or_else(|| hexadecimal(id), |asked| asked.name.clone())
    };
    let raised = survey.alarms_by_member().into_iter();
    raised
        .map(|(id, alarm)| format!("alarm {alarm} of {}", whose(id)))
        .collect()
}

fn permissions(before: &Inspection, after: &Inspection) -> Vec<String> {
    let named = |inspection: &Inspection| -> Vec<(String, Option<bool>, Vec<&'static str>)> {
        let preflight = &inspection.preflight;
        let mut all: Vec<(String, &Permission)> = vec![
            ("scale up".to_owned(), &preflight.scale_up),
            ("scale down".to_owned(), &preflight.scale_down),
            ("rollout".to_owned(), &preflight.rollout),
        ];
        let remediation = preflight.remediation.iter();
        all.extend(remediation.map(|one| (format!("remediation of {}", one.machine), &one.permission)));
        let described = all.into_iter().map(|(what, permission)| {
            let mut checks: Vec<&'static str> = permission
                .blocked_by
                .iter()
                .map(|blocker| blocker.check)
                .collect();
            checks.dedup();
            (what, permission.allowed, checks)
        });
        described.collect()
    };
    let old = named(before);
    let changed = named(after).into_iter().filter(|(what, allowed, _)| {
        let before = old.iter().find(|(other, ..)| other == what);
        before.is_some_and(|(_, before, _)| before != allowed)
    });
    let lines = changed.map(|(what, allowed, checks)| match allowed {
        Some(true) => format!("{what} is allowed now"),
        Some(false) => format!("{what} is blocked by {}", checks.join(", ")),
        None => format!("it is unknown whether {what} is allowed: {}", checks.join(", ")),
    });
    lines.collect()
}

/// A finding as a line, with an identity that does not depend on the message, because the message may contain a time.
#[derive(Debug)]
struct FindingLine {
    id: &'static str,
    objects: String,
    outcome: CheckOutcome,
    line: String,
}

fn finding_lines(inspection: &Inspection) -> Vec<FindingLine> {
    let all = inspection.findings().into_iter();
    all.map(|(checked, finding)| {
        let objects = finding.objects.join(", ");
        let (outcome, id) = (finding.outcome.as_str(), checked.id);
        let line = format!("{outcome}: {objects}: {} ({id})", finding.message);
        FindingLine {
            id,
            objects,
            outcome: finding.outcome,
            line,
        }
    })
    .collect()
}

fn findings(before: &Inspection, after: &Inspection) -> Vec<String> {
    let (old, new) = (finding_lines(before), finding_lines(after));
    let same = |one: &FindingLine, other: &FindingLine| (one.id, &one.objects) == (other.id, &other.objects);
    let weighs_as_before = |one: &FindingLine| {
        let mut old = old.iter();
        old.any(|other| same(one, other) && one.outcome == other.outcome)
    };
    let appeared = new
        .iter()
        .filter(|one| !weighs_as_before(one))
        .map(|one| one.line.clone());
    let gone = old.iter().filter(|one| !new.iter().any(|other| same(one, other)));
    let gone = gone.map(|one| format!("resolved: {}: {}", one.objects, one.id));
    appeared.chain(gone).collect()
}
