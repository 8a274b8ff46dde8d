//! The pending change: outdated Machines, and the number of Machines.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::{
    checks::{
        Check,
        finding::{Finding, Judgement, machine},
        machine_grace::machines_read,
    },
    plan::rollout_reason::{Standard, Verdict, judge},
    snapshot::Snapshot,
};

pub const CHECKS: &[Check] = &[
    Check::new(
        "machines-up-to-date",
        "no Machine is outdated",
        machines_up_to_date,
    ),
    Check::new("rollout-ends", "new Machines are not outdated", ends),
    Check::new("replicas", "the number of Machines is the desired one", replicas),
];

/// Whether each Machine is to be replaced, and why, by name.
pub fn up_to_date(observed: &Snapshot, now: Timestamp) -> Vec<Verdict> {
    let plan = observed;
    let standard = Standard {
        current: &plan.control_plane.spec,
        asked: &plan.control_plane.spec,
        is_observed: plan.control_plane.is_observed(),
        now,
    };
    let mut verdicts: Vec<Verdict> = plan
        .machines
        .iter()
        .map(|machine| judge(machine, standard))
        .collect();
    verdicts.sort_by(|a, b| a.machine.cmp(&b.machine));
    verdicts
}

pub fn is_rolling_out(observed: &Snapshot, now: Timestamp) -> bool {
    up_to_date(observed, now)
        .iter()
        .any(|verdict| !verdict.reasons.is_empty())
}

/// Whether the control plane differs from its spec.
pub fn has_pending_change(observed: &Snapshot, now: Timestamp) -> bool {
    let control_plane = &observed.control_plane;
    !control_plane.is_observed()
        || control_plane.status.replicas != control_plane.desired_replicas()
        || control_plane.status.up_to_date_replicas < control_plane.status.replicas
        || is_rolling_out(observed, now)
}

pub fn machines_up_to_date(observed: &Snapshot, now: Timestamp) -> Judgement {
    machines_read(observed)?;
    let control_plane = &observed.control_plane;
    let verdicts = up_to_date(observed, now);
    let outdated = || verdicts.iter().filter(|verdict| !verdict.reasons.is_empty());
    let all = verdicts.len();
    let is_rolling_out = outdated().next().is_some() || control_plane.is("RollingOut");
    if !is_rolling_out {
        return Ok(Vec::new());
    }
    let current = all.saturating_sub(outdated().count());
    let why = control_plane
        .condition("RollingOut")
        .filter(|condition| condition.is_true() && outdated().next().is_none())
        .map_or_else(String::new, |condition| format!(": {}", condition.one_line()));
    let message = format!("rollout in progress, {current} of {all} Machines up to date{why}");
    let summary = Finding::info(format!("KubeadmControlPlane/{}", control_plane.name()), message);
    let each = outdated().map(|verdict| {
        let reasons: Vec<String> = verdict
            .reasons
            .iter()
            .map(crate::plan::rollout_reason::Reason::message)
            .collect();
        Finding::info(
            machine(&verdict.machine),
            format!("outdated: {}", reasons.join("; ")),
        )
    });
    Ok([summary].into_iter().chain(each).collect())
}

pub fn replicas(observed: &Snapshot, _: Timestamp) -> Judgement {
    let control_plane = &observed.control_plane;
    let (desired, there) = (control_plane.desired_replicas(), control_plane.status.replicas);
    // What the status says of an older spec is no number to compare with.
    if there == desired || control_plane.is_rolling_out() || !control_plane.is_observed() {
        return Ok(Vec::new());
    }
    let direction = if there < desired { "up" } else { "down" };
    let message = format!("scaling {direction}: {there} of {desired} Machines");
    Ok(vec![Finding::info(
        format!("KubeadmControlPlane/{}", control_plane.name()),
        message,
    )])
}

/// Whether new Machines would not be replaced at once.
pub fn ends(observed: &Snapshot, _: Timestamp) -> Judgement {
    let plan = observed;
    if !plan.control_plane.spec.rolls_out_without_end() {
        return Ok(Vec::new());
    }
    let message = format!(
        "Machines are replaced {} days before their certificates expire, and new certificates last {} days: the rollout \
         never ends",
        plan.control_plane
            .spec
            .certificates_expiry_days
            .unwrap_or_default(),
        plan.control_plane.spec.certificate_validity_days()
    );
    let object = format!("KubeadmControlPlane/{}", plan.control_plane.name());
    Ok(vec![
        Finding::fail(object, message).hint("lower certificatesExpiryDays in the spec"),
    ])
}

#[cfg(test)]
pub(super) mod cases {
    use kcp_api::ConditionStatus::True;

    use crate::{
        checks::tests::Case,
        testing::objects::{condition, set},
    };

    pub(crate) const CASES: &[Case] = &[
        ("machines-up-to-date", "version", |o| {
            o.machine(1).spec.version = Some("v1.33.0".to_owned());
        }),
        ("machines-up-to-date", "the_controller_alone_says_so", |o| {
            let rolling_out = condition("RollingOut", True, "Rolling out 1 not up-to-date replicas");
            set(&mut o.control_plane().status.conditions, rolling_out);
        }),
        ("rollout-ends", "never", |o| {
            o.control_plane.spec.certificates_expiry_days = Some(365);
        }),
        ("replicas", "up", |o| o.control_plane().spec.replicas = Some(5)),
        ("replicas", "down", |o| {
            o.control_plane().spec.replicas = Some(1);
        }),
        ("replicas", "during_a_rollout", |o| {
            o.control_plane().status.replicas = 4;
            o.control_plane().status.up_to_date_replicas = 1;
        }),
    ];
}
