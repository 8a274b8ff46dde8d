//! Prints a plan as text: a summary, the steps, and remarks.

use std::fmt::Write as _;

use kcp_api::KubeadmControlPlaneSpec;
use owo_colors::{OwoColorize as _, Style};

use crate::terminal::{
    escape,
    style::{BAD, FAINT, GOOD, HEADING, WARN},
    table::{Cell, Layout, Table},
};
use kcp_control_plane::{
    plan::{
        Plan, effect::Effect, kubeadm_config::replaced_by_earlier_releases, messages,
        rollout_reason::MachineDifference, simulate::PlanStep, step::Action,
    },
    topology::UpgradeStep,
};

pub fn render(plan: &Plan, layout: Layout) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str, style: Style| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<15}{}", format!("{label}:"), escape(value).style(style));
    };
    line(
        "Control plane",
        &format!("{}/{}", plan.namespace, plan.name),
        Style::new(),
    );
    line("Machines", &machines(plan), Style::new());
    line(
        "Version",
        &from_to(plan.current.version(), plan.desired.spec.version()),
        Style::new(),
    );
    if !plan.upgrade_steps.is_empty() {
        let steps: Vec<String> = plan.upgrade_steps.iter().map(UpgradeStep::text).collect();
        line("Topology", &steps.join(", "), Style::new());
    }
    line("Plan", &messages::summary(plan), summary_style(plan));
    let parts = [
        steps(plan.steps(), layout),
        blockers(plan, layout),
        problems(plan, layout),
        replaced(plan, layout),
        changes(plan, layout),
        remarks(plan, layout),
    ];
    for part in parts.iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        text.push_str(part);
    }
    text
}

fn summary_style(plan: &Plan) -> Style {
    match &plan.steps {
        Err(_) => BAD,
        Ok(_) if !plan.is_blocked() && plan.problems.is_empty() && plan.endless_step().is_none() => GOOD,
        Ok(_) => WARN,
    }
}

fn machines(
    Plan {
        replicas,
        current,
        desired,
        ..
    }: &Plan,
) -> String {
    let surge = |spec: &KubeadmControlPlaneSpec| spec.max_surge.to_string();
    format!(
        "{replicas} of {} desired, maxSurge {}",
        from_to(
            &current.replica_count().to_string(),
            &desired.spec.replica_count().to_string()
        ),
        from_to(&surge(current), &surge(&desired.spec))
    )
}

fn from_to(from: &str, to: &str) -> String {
    if from == to {
        from.to_owned()
    } else {
        format!("{from} -> {to}")
    }
}

fn steps(steps: &[PlanStep], layout: Layout) -> String {
    if steps.is_empty() {
        return String::new();
    }
    // Leave out columns in which no step has a value.
    let has_domains = steps
        .iter()
        .any(|step| !messages::failure_domains(step).is_empty());
    let has_votes = steps.iter().any(|step| step.votes.is_some());
    let mut header = vec!["STEP", "ACTION", "MACHINE"];
    header.extend(has_domains.then_some("DOMAIN"));
    header.extend(if has_votes {
        &["MEMBERS", "QUORUM", "CAN LOSE"][..]
    } else {
        &["MACHINES"]
    });
    header.push("WHY");
    let mut table = Table::new(&header);
    for (number, step) in (1..).zip(steps) {
        let mut row = vec![
            Cell::from(format!("{number}")),
            action(step),
            Cell::from(messages::names(step)),
        ];
        row.extend(has_domains.then(|| Cell::from(messages::failure_domains(step))));
        row.extend(if has_votes {
            votes(step)
        } else {
            vec![Cell::from(step.replicas.to_string())]
        });
        row.push(Cell::from(messages::why(step)).extend_to_line_end());
        table.add_row(row);
    }
    table.render(layout)
}

fn action(step: &PlanStep) -> Cell {
    let style = match step.action {
        Action::Create => GOOD,
        Action::Delete => BAD,
        Action::Wait => WARN,
    };
    Cell::styled(messages::action(step), style)
}

/// The columns with the members, the quorum and the tolerated failures after the step. If etcd tolerates fewer
/// failures during the step, the last column shows both numbers.
fn votes(step: &PlanStep) -> Vec<Cell> {
    let Some(votes) = step.votes else {
        return vec![Cell::from("-"), Cell::from("-"), Cell::from("-")];
    };
    let (during, after) = (votes.tolerance_during_step(), votes.after.failure_tolerance());
    let may_fail = if during == after {
        after.to_string()
    } else {
        format!("{during} -> {after}")
    };
    vec![
        Cell::from((votes.after.voters + votes.after.starting).to_string()),
        Cell::from(votes.after.quorum().to_string()),
        Cell::styled(may_fail, if during == 0 { WARN } else { Style::new() }),
    ]
}

fn section(title: &str, lines: impl IntoIterator<Item = (String, Option<String>)>, layout: Layout) -> String {
    let mut text = String::new();
    for (line, hint) in lines {
        if text.is_empty() {
            let _ = writeln!(text, "{}", title.style(HEADING));
        }
        text.push_str(&layout.wrap_paragraph(&line));
        if let Some(hint) = hint {
            let mut hint = layout.wrap_hint(&hint).into_iter();
            let _ = writeln!(
                text,
                "    {} {}",
                "hint:".style(FAINT),
                hint.next().unwrap_or_default()
            );
            text.extend(hint.map(|line| format!("          {line}\n")));
        }
    }
    text
}

fn blockers(plan: &Plan, layout: Layout) -> String {
    section("Blocking step 1:", plan.obstacles(), layout)
}

/// What is wrong with a control plane for which nothing is planned.
fn problems(plan: &Plan, layout: Layout) -> String {
    let mut lines = plan.problems();
    if !lines.is_empty() {
        let details = "`status` shows all problems".to_owned();
        let hint = format!("kubectl kcp status {} -n {}", plan.name, plan.namespace);
        lines.push((details, Some(hint)));
    }
    section("Problems:", lines, layout)
}

fn replaced(plan: &Plan, layout: Layout) -> String {
    let reasons = plan.verdicts.iter().flat_map(|verdict| {
        let reasons = verdict.reasons.iter();
        reasons.map(|reason| (reason.message(), verdict.machine.as_str()))
    });
    let lines = group_machines(reasons)
        .into_iter()
        .map(|(reason, machines)| (format!("{machines}: {reason}"), None));
    section("Outdated:", lines, layout)
}

/// Groups the Machines that have the same text, in one line for each text.
fn group_machines<'m>(texts: impl Iterator<Item = (String, &'m str)>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (line, machine) in texts {
        match groups.iter_mut().find(|(other, _)| *other == line) {
            Some((_, machines)) => machines.push(machine),
            None => groups.push((line, vec![machine])),
        }
    }
    let listed = groups
        .into_iter()
        .map(|(line, machines)| (line, messages::join_names(&machines, "and")));
    listed.collect()
}

fn changes(plan: &Plan, layout: Layout) -> String {
    let changes = plan.desired.changes.iter();
    section(
        "Changes:",
        changes.map(|change| {
            let template = change.template.as_ref();
            let prefix = template.map_or_else(String::new, |template| format!("{template} "));
            (
                format!("{prefix}{}: {}", change.field, messages::effect(change.effect)),
                None,
            )
        }),
        layout,
    )
}

fn remarks(plan: &Plan, layout: Layout) -> String {
    let mut remarks: Vec<(String, Option<String>)> = Vec::new();
    if let Err(no_plan) = &plan.steps {
        let hint = messages::no_plan_hint(no_plan, &plan.namespace, &plan.name);
        remarks.push((messages::no_plan(no_plan), hint));
    }
    remarks.extend(plan.endless_note().map(|(note, hint)| (note, Some(hint))));
    let fragile = messages::fragile_steps(&plan.fragile_steps());
    remarks.extend(fragile.into_iter().map(|stretch| (stretch, None)));
    remarks.extend(plan.version_note.clone().map(|note| (note, None)));
    remarks.extend(plan.join_estimate().map(|times| (times.message(), None)));
    remarks.extend(
        plan.startup_warnings()
            .iter()
            .map(|warning| (warning.clone(), None)),
    );
    let in_place = messages::in_place_note(plan);
    let differs = (1..).zip(plan.steps()).find(|(_, step)| step.may_differ);
    remarks.extend(differs.filter(|_| in_place.is_none()).map(|(number, _)| {
        let remark = "the actual steps may differ, because the controller makes some choices at random";
        (format!("from step {number} on, {remark}"), None)
    }));
    remarks.extend(in_place.map(|note| (note, None)));
    if plan
        .desired
        .changes
        .iter()
        .any(|change| change.effect != Effect::Scale)
        && plan.steps.is_ok()
        && !plan.rolls_out()
        && plan.planned_rollout_time.is_none()
    {
        remarks.push(("this change does not replace any Machines".to_owned(), None));
    }
    if let Some(after) = plan.planned_rollout_time {
        remarks.push((
            format!(
                "at {after}, the controller begins to replace every Machine that was created before that time"
            ),
            None,
        ));
    }
    if let Some(outlook) = &plan.remediation
        && let Some(blocker) = &outlook.blocked_by
    {
        let remark = format!(
            "the remediation of Machine {} is blocked: {}",
            outlook.machine,
            blocker.message()
        );
        remarks.push((remark, None));
    }
    remarks.extend(gaps(plan));
    remarks.extend(provider_updates(plan));
    if plan.are_members_unread && !plan.steps().is_empty() {
        remarks.push((
            "etcd could not be queried, so the plan assumes that every Machine with a node has an etcd member"
                .to_owned(),
            None,
        ));
    }
    section("Notes:", remarks, layout)
}

/// The Machines that the plan counts as up to date only because something could not be read.
fn gaps(plan: &Plan) -> Vec<(String, Option<String>)> {
    let restart = format!(
        "to replace all Machines: kubectl kcp rollout start {} -n {}",
        plan.name, plan.namespace
    );
    let texts = up_to_date(plan).flat_map(|verdict| {
        let gaps = verdict.gaps.iter();
        gaps.map(|gap| (gap.message().to_owned(), verdict.machine.as_str()))
    });
    let lines = group_machines(texts).into_iter().map(|(gap, machines)| {
        let line = format!("{machines}: assumed up to date without a check, because {gap}");
        (line, Some(restart.clone()))
    });
    lines.collect()
}

fn provider_updates(plan: &Plan) -> Vec<(String, Option<String>)> {
    let found = up_to_date(plan).filter(|verdict| !verdict.paths_ignored_by_controller.is_empty());
    let texts = found.map(|verdict| {
        (
            verdict.paths_ignored_by_controller.join(", "),
            verdict.machine.as_str(),
        )
    });
    let lines = group_machines(texts).into_iter().map(|(fields, machines)| {
        let line = format!(
            "an update of Cluster API to v1.14.2 would replace {machines}, because the configuration differs in {fields}"
        );
        (line, None)
    });
    lines.chain(earlier_releases(plan)).collect()
}

/// The Machines that only some releases of Cluster API replace, as one line.
fn earlier_releases(plan: &Plan) -> Option<(String, Option<String>)> {
    let found = up_to_date(plan).filter(|verdict| verdict.lacks_control_plane_of_join);
    let machines: Vec<&str> = found.map(|verdict| verdict.machine.as_str()).collect();
    let machines = messages::join_names(&machines, "and");
    (!machines.is_empty()).then(|| (replaced_by_earlier_releases(&machines), None))
}

fn up_to_date(plan: &Plan) -> impl Iterator<Item = &MachineDifference> {
    plan.verdicts.iter().filter(|verdict| verdict.reasons.is_empty())
}

#[cfg(test)]
pub(super) mod tests;
