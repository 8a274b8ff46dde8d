//! What may be done now, and what keeps the rest.

use super::{Layout, style_of_no};
use crate::{
    status::{
        inspection::{Blocker, Inspection, Permission},
        observed::Observed,
    },
    terminal::{
        style::{GOOD, WARN},
        table::{Cell, Column, Table},
    },
};

const COLUMNS: &[Column] = &[
    Column::new("NOW").name(),
    Column::new("ALLOWED"),
    Column::new("BLOCKED BY"),
];

pub(super) fn preflight(observed: &Observed, inspection: &Inspection, layout: Layout) -> String {
    let mut table = Table::of(COLUMNS.iter().copied());
    let preflight = &inspection.preflight;
    let mut rows = vec![
        ("scale up".to_owned(), &preflight.scale_up),
        ("scale down".to_owned(), &preflight.scale_down),
        ("rollout".to_owned(), &preflight.rollout),
    ];
    rows.extend(remediations(observed, inspection));
    let all = rows.len();
    let mut rows = alike(rows);
    if let ([(what, _)], true) = (rows.as_mut_slice(), all > 3) {
        "scaling, rollout, remediation".clone_into(what);
    }
    let own = &observed.management.control_plane.control_plane.name;
    for (what, permission) in rows {
        let allowed = match permission.allowed {
            Some(true) => Cell::styled("yes", GOOD),
            Some(false) => Cell::styled("no", style_of_no(inspection)),
            None => Cell::styled("unknown", WARN),
        };
        let mut first = vec![Cell::from(what), allowed];
        let blockers = by_check(&permission.blocked_by, &format!("KubeadmControlPlane/{own}"));
        for blocker in &blockers {
            first.push(Cell::from(blocker).rest());
            table.row(std::mem::replace(
                &mut first,
                vec![Cell::from(""), Cell::from("")],
            ));
        }
        if blockers.is_empty() {
            table.row(first);
        }
    }
    table.render_within(layout.limit(), layout.is_wide)
}

/// What is allowed, or blocked, for the same reasons shares a row with its neighbour.
fn alike(rows: Vec<(String, &Permission)>) -> Vec<(String, &Permission)> {
    let mut shown: Vec<(String, &Permission)> = Vec::new();
    for (what, permission) in rows {
        match shown.last_mut() {
            Some((before, same)) if *same == permission => {
                before.push_str(", ");
                before.push_str(&what);
            }
            _ => shown.push((what, permission)),
        }
    }
    shown
}

/// Of every Machine at once, where the same holds for all of them.
fn remediations<'i>(observed: &Observed, inspection: &'i Inspection) -> Vec<(String, &'i Permission)> {
    let remediations = &inspection.preflight.remediation;
    let Some(first) = remediations.first() else {
        return Vec::new();
    };
    let is_same = remediations
        .iter()
        .all(|other| other.permission == first.permission);
    let is_of_all = remediations.len() == observed.management.control_plane.machines.len();
    if is_same && is_of_all {
        return vec![("remediation".to_owned(), &first.permission)];
    }
    let named = remediations.iter();
    named
        .map(|one| (format!("remediation of {}", one.machine), &one.permission))
        .collect()
}

/// Each check with its objects; its findings below say the rest. The control plane itself goes without saying.
fn by_check(blockers: &[Blocker], control_plane: &str) -> Vec<String> {
    let mut checks: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for Blocker { check, objects, .. } in blockers {
        let objects = objects
            .iter()
            .map(String::as_str)
            .filter(|object| *object != control_plane);
        match checks.iter_mut().find(|(other, _)| other == check) {
            Some((_, known)) => known.extend(objects),
            None => checks.push((check, objects.collect())),
        }
    }
    let told = checks.into_iter().map(|(check, objects)| {
        if objects.is_empty() {
            check.to_owned()
        } else {
            format!("{check}: {}", objects.join(", "))
        }
    });
    told.collect()
}
