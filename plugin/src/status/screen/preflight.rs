//! What may be done now, and what keeps the rest.

use super::{
    Layout, style_of_no,
    subject::{is_of_whole, subjects},
};
use crate::{
    status::inspection::{Blocker, Inspection, Permission, Remediation},
    terminal::{
        escape,
        style::{GOOD, WARN},
        table::{Cell, Column, Table},
        width::shorten,
    },
};

const COLUMNS: &[Column] = &[
    Column::new("NOW").name(),
    Column::new("ALLOWED"),
    Column::new("BLOCKED BY"),
];

/// Cells that a name may take where room is scarce.
const NAME_LIMIT: usize = 24;

pub(super) fn preflight(inspection: &Inspection, layout: Layout) -> String {
    let mut table = Table::of(COLUMNS.iter().copied());
    let preflight = &inspection.preflight;
    let changes = vec![
        ("scale up".to_owned(), &preflight.scale_up),
        ("scale down".to_owned(), &preflight.scale_down),
        ("rollout".to_owned(), &preflight.rollout),
    ];
    let mut rows = alike(changes);
    rows.extend(remediations(inspection, layout));
    if let [(what, permission), (_, remediation)] = rows.as_slice()
        && what == "scale up, scale down, rollout"
        && permission == remediation
    {
        rows = vec![("scaling, rollout, remediation".to_owned(), permission)];
    }
    for (what, permission) in rows {
        let allowed = match permission.allowed {
            Some(true) => Cell::styled("yes", GOOD),
            Some(false) => Cell::styled("no", style_of_no(inspection)),
            None => Cell::styled("unknown", WARN),
        };
        let mut first = vec![Cell::from(what), allowed];
        let blockers = told(&permission.blocked_by, inspection, layout);
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

/// Of every Machine at once, where the same holds for all of them; else what holds for most of them comes last.
fn remediations(inspection: &Inspection, layout: Layout) -> Vec<(String, &Permission)> {
    let all = &inspection.preflight.remediation;
    let alike = |one: &Remediation| {
        let others = all.iter().filter(|other| other.permission == one.permission);
        others.count()
    };
    let Some(usual) = all.iter().max_by_key(|one| alike(one)) else {
        return Vec::new();
    };
    let most = alike(usual);
    if most == all.len() {
        return vec![("remediation".to_owned(), &usual.permission)];
    }
    let is_named = |one: &&Remediation| most == 1 || one.permission != usual.permission;
    let mut rows: Vec<(String, &Permission)> = all
        .iter()
        .filter(is_named)
        .map(|one| {
            (
                format!("remediation of {}", short(&one.machine, layout)),
                &one.permission,
            )
        })
        .collect();
    if most > 1 {
        rows.push(("other remediations".to_owned(), &usual.permission));
    }
    rows
}

/// The table of Machines has the names in full.
fn short(name: &str, layout: Layout) -> String {
    if layout.limit().is_some() {
        shorten(&escape(name), NAME_LIMIT).into_owned()
    } else {
        name.to_owned()
    }
}

/// What each check found wrong, by what it is about: the findings below say the rest. What none of them says is told
/// here.
fn told(blockers: &[Blocker], inspection: &Inspection, layout: Layout) -> Vec<String> {
    let is_found = |blocker: &Blocker| {
        let checked = inspection
            .checks
            .iter()
            .find(|checked| checked.id == blocker.check);
        let mut findings = checked.into_iter().flat_map(|checked| &checked.findings);
        findings.any(|finding| subjects(&finding.objects) == subjects(&blocker.objects))
    };
    let mut lines: Vec<String> = Vec::new();
    let mut found: Vec<(String, Vec<&'static str>)> = Vec::new();
    for blocker in blockers {
        let Blocker {
            check,
            objects,
            message,
        } = blocker;
        if !is_found(blocker) {
            lines.push(format!("{message} ({check})"));
            continue;
        }
        let about = if is_of_whole(objects) {
            String::new()
        } else {
            short(&subjects(objects).join(", "), layout)
        };
        match found.iter_mut().find(|(other, _)| *other == about) {
            Some((_, checks)) if checks.contains(check) => {}
            Some((_, checks)) => checks.push(check),
            None => found.push((about, vec![check])),
        }
    }
    lines.extend(found.into_iter().map(|(about, checks)| {
        let checks = checks.join(", ");
        if about.is_empty() {
            checks
        } else {
            format!("{about}: {checks}")
        }
    }));
    lines
}
