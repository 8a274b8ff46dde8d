//! Prints the table of etcd members, with what each member reports about itself. The findings say why a member did not
//! respond.

use std::collections::BTreeSet;

use kcp_etcd::{Member, Status};
use owo_colors::Style;

use crate::commands::status::screen::Layout;
use crate::terminal::{
    style::{BAD, FAINT, GOOD, WARN},
    table::{Cell, Column, Table, format_percentage, format_size},
};
use kcp_control_plane::{
    plan::messages::join_names,
    snapshot::{
        EtcdSurvey, Snapshot,
        etcd::{
            Alarms, MemberResponse, QueriedMember, hexadecimal,
            metrics::{EtcdMetrics, Latency},
        },
    },
};

const COLUMNS: &[Column] = &[
    Column::new("MEMBER"),
    Column::new("DB SIZE"),
    Column::new("IN USE"),
    Column::new("QUOTA").wide(),
    Column::new("FSYNC P50/P99").wide(),
    Column::new("COMMIT P50/P99").wide(),
    Column::new("LEADER"),
    Column::new("RAFT INDEX").wide(),
    Column::new("TERM").wide(),
    Column::new("LEARNER").expendable(1),
    Column::new("ALARMS"),
    Column::new("VERSION").wide(),
    Column::new("ID").wide(),
    Column::new("MACHINE").wide(),
];

pub(super) fn members(observed: &Snapshot, layout: Layout) -> String {
    // The summary already says why etcd was not read.
    let Some(survey) = observed.etcd.value() else {
        return String::new();
    };
    if survey.queried.is_empty() {
        return layout.styled_lines("etcd members: none to query", Style::new());
    }
    let mut text = if responding_members(survey).next().is_none() {
        let names: Vec<&str> = survey.queried.iter().map(|asked| asked.name.as_str()).collect();
        let silent = format!("etcd members: no response from {}", join_names(&names, "and"));
        layout.styled_lines(&silent, BAD)
    } else {
        table(survey, layout)
    };
    for note in notes(observed, survey, layout) {
        text.push_str(&layout.styled_lines(&note, FAINT));
    }
    text
}

fn table(survey: &EtcdSurvey, layout: Layout) -> String {
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    for asked in &survey.queried {
        table.add_row(row(survey, asked));
    }
    for member in unqueried_members(survey) {
        let (name, what) = if member.name.is_empty() {
            ("(not started)", "the member has never started")
        } else {
            (member.name.as_str(), "not queried: no Machine has this node")
        };
        table.add_row([Cell::from(name), Cell::styled(what, WARN).extend_to_line_end()]);
    }
    table.render(layout)
}

fn row(survey: &EtcdSurvey, asked: &QueriedMember) -> Vec<Cell> {
    let name = Cell::from(&asked.name);
    let Ok(MemberResponse {
        status: Ok(status),
        metrics,
        ..
    }) = &asked.response
    else {
        return vec![name, Cell::styled("no response", BAD).extend_to_line_end()];
    };
    let latency = |of_metrics: fn(&EtcdMetrics) -> Option<Latency>| {
        let measured = metrics.as_ref().ok().and_then(of_metrics);
        Cell::from(measured.map_or_else(|| "?".to_owned(), |latency| latency.to_string()))
    };
    vec![
        name,
        Cell::from(format_size(status.db_size)),
        Cell::from(format_percentage(status.db_size_in_use, status.db_size)),
        Cell::from(status.db_size_quota.map_or_else(|| "?".to_owned(), format_size)),
        latency(|metrics| metrics.wal_fsync),
        latency(|metrics| metrics.backend_commit),
        leader(survey, status),
        Cell::from(status.raft_index.to_string()),
        Cell::from(status.raft_term.to_string()),
        if status.is_learner {
            Cell::styled("yes", WARN)
        } else {
            Cell::from("")
        },
        alarms(survey, status),
        Cell::from(&status.version),
        Cell::from(hexadecimal(status.member_id)),
        Cell::from(asked.machine.as_deref().unwrap_or("none")),
    ]
}

/// The cell that says whether the member is etcd's leader. If the members disagree, it says which leader this member
/// follows.
fn leader(survey: &EtcdSurvey, status: &Status) -> Cell {
    let followed: BTreeSet<u64> = responding_members(survey)
        .filter_map(|(status, _)| status.leader)
        .collect();
    match status.leader {
        None => Cell::styled("none", BAD),
        Some(id) if id == status.member_id => Cell::styled("yes", GOOD),
        Some(id) if followed.len() > 1 => {
            let leader = listed_members(survey).into_iter().find(|member| member.id == id);
            let name = leader.map_or_else(|| hexadecimal(id), |member| member.name.clone());
            Cell::styled(format!("follows {name}"), BAD)
        }
        Some(_) => Cell::from("no"),
    }
}

fn alarms(survey: &EtcdSurvey, status: &Status) -> Cell {
    let raised = survey.alarms_by_member().into_iter();
    let own: Vec<String> = raised
        .filter(|(id, _)| *id == status.member_id)
        .map(|(_, alarm)| alarm)
        .collect();
    match &survey.alarms {
        _ if !own.is_empty() => Cell::styled(own.join(", "), BAD),
        Alarms::Failed(_) => Cell::styled("?", WARN),
        Alarms::Listed(_) | Alarms::FromStatus => Cell::from(""),
    }
}

/// The members that responded, each with its own status and its list of members.
fn responding_members(survey: &EtcdSurvey) -> impl Iterator<Item = (&Status, &[Member])> {
    let answers = survey
        .queried
        .iter()
        .filter_map(|asked| asked.response.as_ref().ok());
    answers.filter_map(|answer| {
        let members = answer.members.as_ref().map_or(&[][..], |list| &list.members);
        Some((answer.status.as_ref().ok()?, members))
    })
}

/// The members that any member lists, without duplicates.
fn listed_members(survey: &EtcdSurvey) -> Vec<&Member> {
    let mut known: Vec<&Member> = responding_members(survey)
        .flat_map(|(_, members)| members)
        .collect();
    known.sort_by_key(|member| member.id);
    known.dedup_by_key(|member| member.id);
    known
}

/// The listed members that were not queried. Empty if etcd is external, because each listed member may be an
/// endpoint that was queried and did not respond.
fn unqueried_members(survey: &EtcdSurvey) -> Vec<&Member> {
    if !survey.stacked {
        return Vec::new();
    }
    let answered: BTreeSet<u64> = responding_members(survey)
        .map(|(status, _)| status.member_id)
        .collect();
    let is_asked = |member: &Member| survey.queried.iter().any(|asked| asked.name == member.name);
    let known = listed_members(survey).into_iter();
    known
        .filter(|member| !answered.contains(&member.id) && !is_asked(member))
        .collect()
}

fn notes(observed: &Snapshot, survey: &EtcdSurvey, layout: Layout) -> Vec<String> {
    let mut notes = Vec::new();
    if survey.used_ca_key && layout.is_wide {
        let cluster = &observed.control_plane.cluster();
        let secret = format!("{}-etcd", cluster.as_deref().unwrap_or_default());
        notes.push(format!(
            "queried with a certificate signed by the CA key in Secret/{secret}"
        ));
    }
    if survey.alarms == Alarms::FromStatus && responding_members(survey).next().is_some() {
        notes.push("etcd has no leader, so the alarms come from each member's own status".to_owned());
    }
    let misnamed: Vec<&str> = survey
        .queried
        .iter()
        .filter(|asked| {
            asked
                .response
                .as_ref()
                .is_ok_and(|answer| !answer.has_matching_name)
        })
        .map(|asked| asked.name.as_str())
        .collect();
    if !misnamed.is_empty() {
        notes.push(format!(
            "members with a valid certificate for another name: {}",
            misnamed.join(", ")
        ));
    }
    notes
}
