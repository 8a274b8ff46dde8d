//! Prints the table of changes: whether the controller allows each change now, and what blocks the change.

use crate::commands::status::screen::{
    Layout, style_of_no,
    subject::{names_control_plane, subjects},
};
use crate::terminal::{
    style::{GOOD, WARN},
    table::{Cell, Column, Table},
};
use kcp_control_plane::{
    inspection::{BlockedBy, Inspection, Permission, Remediation},
    snapshot::Snapshot,
};

const COLUMNS: &[Column] = &[
    Column::new("OPERATION"),
    Column::new("ALLOWED NOW"),
    Column::new("BLOCKED BY"),
];

/// A row of the table: one change, or several changes with the same blockers.
#[derive(Clone, Debug)]
struct PreflightRow {
    what: String,
    allowed: Option<bool>,
    /// What blocks the change, or why it never ends.
    blocked_by: Vec<String>,
}

impl PreflightRow {
    fn new(what: &str, permission: &Permission, inspection: &Inspection) -> Self {
        let never_ends = permission.never_ends.iter();
        let never_ends = never_ends.map(|never| format!("never ends: {} ({})", never.message, never.check));
        let blocked_by = blocking_checks(&permission.blocked_by, inspection);
        Self {
            what: what.to_owned(),
            allowed: permission.allowed,
            blocked_by: blocked_by.into_iter().chain(never_ends).collect(),
        }
    }

    /// Whether both rows have the same result and the same blockers.
    fn is_like(&self, other: &Self) -> bool {
        (self.allowed, &self.blocked_by) == (other.allowed, &other.blocked_by)
    }

    fn named(self, what: &str) -> Self {
        Self {
            what: what.to_owned(),
            ..self
        }
    }
}

pub(super) fn preflight(observed: &Snapshot, inspection: &Inspection, layout: Layout) -> String {
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    for PreflightRow {
        what,
        allowed,
        blocked_by,
    } in rows(inspection)
    {
        let allowed = match allowed {
            // Nothing blocks the change, but it never ends.
            Some(true) if !blocked_by.is_empty() => Cell::styled("yes", WARN),
            Some(true) => Cell::styled("yes", GOOD),
            Some(false) => Cell::styled("no", style_of_no(inspection)),
            None => Cell::styled("unknown", WARN),
        };
        let mut first = vec![Cell::from(what), allowed];
        for blocker in &blocked_by {
            first.push(Cell::from(blocker).extend_to_line_end());
            table.add_row(std::mem::replace(
                &mut first,
                vec![Cell::from(""), Cell::from("")],
            ));
        }
        if blocked_by.is_empty() {
            table.add_row(first);
        }
    }
    let note = observed.version_note().map(|note| layout.wrap_paragraph(&note));
    table.render(layout) + &note.unwrap_or_default()
}

/// Merges neighbouring rows that have the same result.
fn rows(inspection: &Inspection) -> Vec<PreflightRow> {
    let preflight = &inspection.preflight;
    let changes = [
        ("scale up", &preflight.scale_up),
        ("scale down", &preflight.scale_down),
        ("rollout", &preflight.rollout),
    ];
    let mut rows: Vec<PreflightRow> = Vec::new();
    for (what, permission) in changes {
        let row = PreflightRow::new(what, permission, inspection);
        match rows.last_mut() {
            Some(before) if before.is_like(&row) => {
                before.what.push_str(", ");
                before.what.push_str(what);
            }
            _ => rows.push(row),
        }
    }
    let remediations = remediations(inspection);
    if let ([changes], [remediation]) = (rows.as_slice(), remediations.as_slice())
        && changes.is_like(remediation)
    {
        let mut all = vec![remediation.clone().named("scaling, rollout, remediation")];
        all.extend(replacements(inspection));
        return all;
    }
    rows.extend(remediations);
    rows.extend(replacements(inspection));
    rows
}

fn remediations(inspection: &Inspection) -> Vec<PreflightRow> {
    of_machines("remediation", inspection.preflight.remediation.iter(), inspection)
}

/// The check that says that etcd loses its quorum if Cluster API deletes this Machine.
const MEMBER_NEEDED: &str = "joining-member-needed";

/// What the controller does not consider when it remediates a Machine.
fn effect_of_remediation(machine: &str, inspection: &Inspection) -> Option<String> {
    let object = format!("Machine/{machine}");
    let checked = inspection
        .checks
        .iter()
        .find(|checked| checked.id == MEMBER_NEEDED)?;
    let is_needed = checked
        .findings
        .iter()
        .any(|finding| finding.objects.contains(&object));
    is_needed.then(|| format!("nothing, but etcd then loses its quorum ({MEMBER_NEEDED})"))
}

/// The rows about `machine replace`, for each Machine whose replacement and remediation have different
/// results.
fn replacements(inspection: &Inspection) -> Vec<PreflightRow> {
    let preflight = &inspection.preflight;
    let differs = |one: &&Remediation| {
        let mut remediations = preflight.remediation.iter();
        let same = remediations.find(|other| other.machine == one.machine);
        same.is_some_and(|same| same.permission.allowed != one.permission.allowed)
    };
    let replacements: Vec<&Remediation> = preflight.replacement.iter().filter(differs).collect();
    let is_of_all = replacements.len() == preflight.replacement.len();
    let mut rows = of_machines("replacement", replacements.iter().copied(), inspection);
    if let ([only], false) = (rows.as_mut_slice(), is_of_all) {
        let machines: Vec<&str> = replacements.iter().map(|one| one.machine.as_str()).collect();
        only.what = match machines.as_slice() {
            [machine] => format!("replacement of {machine}"),
            _ => "other replacements".to_owned(),
        };
    }
    rows
}

/// Merges the rows of Machines that have the same result. The most frequent result comes last.
fn of_machines<'i>(
    verb: &str,
    permissions: impl Iterator<Item = &'i Remediation>,
    inspection: &Inspection,
) -> Vec<PreflightRow> {
    let of_machine = |one: &Remediation| {
        let what = format!("{verb} of {}", one.machine);
        let mut row = PreflightRow::new(&what, &one.permission, inspection);
        if row.allowed == Some(true) {
            row.blocked_by
                .extend(effect_of_remediation(&one.machine, inspection));
        }
        row
    };
    let all: Vec<PreflightRow> = permissions.map(of_machine).collect();
    let alike = |row: &PreflightRow| all.iter().filter(|other| other.is_like(row)).count();
    let Some(usual) = all.iter().max_by_key(|row| alike(row)).cloned() else {
        return Vec::new();
    };
    let most = alike(&usual);
    if most == all.len() {
        return vec![usual.named(verb)];
    }
    if most == 1 {
        return all;
    }
    let mut rows = all;
    rows.retain(|row| !row.is_like(&usual));
    rows.push(usual.named(&format!("other {verb}s")));
    rows
}

/// The checks that block a change, grouped by object. The message of a blocker is included only if its check has no finding
/// about the same object: otherwise the screen already shows the finding.
fn blocking_checks(blockers: &[BlockedBy], inspection: &Inspection) -> Vec<String> {
    let is_found = |blocker: &BlockedBy| {
        let checked = inspection
            .checks
            .iter()
            .find(|checked| checked.id == blocker.check);
        let mut findings = checked.into_iter().flat_map(|checked| &checked.findings);
        findings.any(|finding| subjects(&finding.objects) == subjects(&blocker.objects))
    };
    let mut by_subject: Vec<(Vec<&str>, Vec<&BlockedBy>)> = Vec::new();
    for blocker in blockers {
        let subjects = subjects(&blocker.objects);
        match by_subject.iter_mut().find(|(other, _)| *other == subjects) {
            Some((_, same)) if same.iter().any(|other| other.check == blocker.check) => {}
            Some((_, same)) => same.push(blocker),
            None => by_subject.push((subjects, vec![blocker])),
        }
    }
    let blocking_checks = by_subject.into_iter().map(|(subjects, blockers)| {
        if let [only] = blockers.as_slice()
            && !is_found(only)
        {
            return format!("{} ({})", only.message, only.check);
        }
        let checks: Vec<&str> = blockers.iter().map(|blocker| blocker.check).collect();
        let checks = checks.join(", ");
        // Leave out the name of the control plane itself.
        if blockers
            .iter()
            .any(|blocker| names_control_plane(&blocker.objects))
        {
            checks
        } else {
            format!("{}: {checks}", subjects.join(", "))
        }
    });
    blocking_checks.collect()
}

#[cfg(test)]
mod tests {
    use kcp_api::{ConditionStatus::Unknown, metadata::Time};
    use kcp_control_plane::{
        snapshot::Snapshot,
        testing::objects::{condition, minutes_ago, set},
    };

    use super::{Layout, preflight};
    use crate::{
        commands::status::screen::example::{Example, healthy, member_dead, mid_rollout, no_leader, single},
        terminal::plain,
    };

    fn shown(example: &Example) -> String {
        let text = preflight(&example.observed, &example.inspection, Layout::default());
        plain(&text).lines().skip(1).collect::<Vec<_>>().join("\n")
    }

    fn start(observed: &mut Snapshot) {
        for kind in ["EtcdPodHealthy", "APIServerPodHealthy", "SchedulerPodHealthy"] {
            let waiting = condition(kind, Unknown, "Waiting for a Node to exist");
            set(&mut observed.machine(4).status.conditions, waiting);
        }
    }

    type Case = (&'static str, fn() -> Example, &'static str);

    fn leaving() -> Example {
        healthy().after(|observed| {
            observed.machine(3).metadata.deletion_timestamp = Some(Time(minutes_ago(1)));
        })
    }

    #[test]
    fn lists_allowed_changes_and_their_blockers() {
        let cases: &[Case] = &[
            ("all_is_allowed", healthy, "scaling, rollout, remediation   yes"),
            (
                "what_is_no_finding_is_told",
                single,
                "scale up      yes\n\
                 scale down    no            the control plane has no other Machine (etcd-no-quorum)\n\
                 rollout       yes\n\
                 remediation   no            the control plane has no other Machine (etcd-no-quorum)",
            ),
            (
                "findings_are_told_below",
                member_dead,
                "scale up             no            etcd-voters-unhealthy\n\
                 \x20                                  Machine/m2: etcd-members-unresponsive, etcd-pods-not-ready\n\
                 scale down           yes\n\
                 rollout              no            etcd-voters-unhealthy\n\
                 \x20                                  Machine/m2: etcd-members-unresponsive, etcd-pods-not-ready\n\
                 remediation of m2    yes\n\
                 other remediations   yes           never ends: etcd refuses to remove a running member while member node-m2 of Machine m2 does not respond (etcd-refuses-removal)\n\
                 other replacements   no            etcd could lose quorum: after the change, 1 of 2 voting members healthy, 2 needed for quorum (etcd-no-quorum)",
            ),
            (
                "much_of_one_machine_is_not_told_one_by_one",
                || mid_rollout().after(start),
                "scale up, scale down, rollout   no            Machine/m4: etcd-learners-stuck, etcd-members-unresponsive, \
                 etcd-pods-not-ready, api-servers-not-ready, schedulers-not-ready\n\
                 remediation of m4               yes\n\
                 other remediations              no            etcd could lose quorum: after the change, 2 of 2 voting members healthy, 2 needed for quorum, \
                 1 not voting yet (etcd-no-quorum)",
            ),
            (
                "the_same_words_share_a_row",
                leaving,
                "scaling, rollout, remediation   no            Machine m3 is being deleted (machine-deletions-slow)",
            ),
            (
                "the_usual_comes_last",
                no_leader,
                "scale up, scale down, rollout   no            etcd-no-quorum\n\
                 \x20                                             Machine/m2: etcd-members-unresponsive, etcd-pods-not-ready\n\
                 \x20                                             Machine/m3: etcd-members-unresponsive, etcd-pods-not-ready\n\
                 \x20                                             Machine/m1: etcd-no-leader, etcd-alarms\n\
                 remediation of m1               no            no other Machine has healthy control plane components \
                 (components-unhealthy)\n\
                 other remediations              no            etcd-no-quorum",
            ),
        ];
        for (name, example, expected) in cases {
            assert_eq!(shown(&example()), *expected, "{name}");
        }
    }
}
