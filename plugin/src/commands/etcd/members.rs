//! `kubectl kcp etcd members`: shows the members of a control plane's etcd.

use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use kcp_api::{Condition, ConditionStatus, Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::reads::{self, Excluded};
use kcp_control_plane::{
    change::decision::Refusal,
    inspection::{Health, Inspection, inspect},
    snapshot::{Snapshot, etcd::hexadecimal},
    verbs::etcd::listing::{Counterpart, DescribedMember, EtcdListing, MemberRole, list},
};
use serde::Serialize;

use crate::{
    arguments::{ControlPlaneName, parse_control_plane, parse_timeout},
    commands::{
        plan::document::EtcdVotes,
        status::{document::CheckFinding, read_one, screen::findings},
    },
    document::{Document, ObjectName, Versioned, resource_name},
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table, format_percentage, format_size},
    },
    verdict::Verdict,
};

const COLUMNS: &[Column] = &[
    Column::new("ID"),
    Column::new("NAME"),
    Column::new("MACHINE"),
    Column::new("NODE").expendable(2),
    Column::new("ROLE"),
    Column::new("VERSION"),
    Column::new("DB SIZE"),
    Column::new("IN USE").expendable(1),
    Column::new("LATENCY"),
    Column::new("FOLLOWS").wide(),
    Column::new("CONTROLLER"),
    Column::new("PROBLEM"),
];

/// Show the members of a control plane's etcd.
#[derive(Debug, Args)]
#[command(
    after_help = "The command asks each member through the API server of the workload cluster. LATENCY is how long a member took to respond, \
        including the way through the API server. CONTROLLER is what Cluster API's controller thinks of the member: the condition \
        EtcdMemberHealthy of its Machine. Exits with 1 if a check of etcd fails or a member has another problem, with 2 if something is \
        unknown instead, and otherwise with 0.

Examples:
  kubectl kcp etcd members edge
  kubectl kcp etcd members edge -o wide
  kubectl kcp etcd members edge -o jsonpath={.members[*].id}"
)]
pub struct MembersArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,

    /// Time limit for all reads, such as 30s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "10s")]
    pub timeout: Duration,
}

pub async fn run(arguments: MembersArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let connection = session.connect_within(arguments.timeout).await?;
    let remaining = end.saturating_duration_since(Instant::now());
    let reader = reads::discover(&connection, reads::list_limit(remaining)).await?;
    let observed = Box::pin(read_one(&reader, &arguments.name, Excluded::default(), end)).await?;
    let report = MembersReport::new(&observed, connection.now());
    print(&report, &arguments.output, &session.terminal)?;
    Ok(Verdict::from(report.health()))
}

struct MembersReport<'r> {
    observed: &'r Snapshot,
    listing: Result<EtcdListing, Refusal>,
    inspection: Inspection,
}

impl<'r> MembersReport<'r> {
    fn new(observed: &'r Snapshot, now: Timestamp) -> Self {
        Self {
            observed,
            listing: list(observed),
            inspection: inspect(observed, now).of_etcd(),
        }
    }

    fn health(&self) -> Health {
        match &self.listing {
            Ok(listing) => listing.health(&self.inspection),
            // Checks of etcd rely on conditions and Pods if the members were not queried, and can fail.
            Err(_) if self.inspection.health == Health::Healthy => Health::Unknown,
            Err(_) => self.inspection.health,
        }
    }

    /// Why the members are unknown. `None` if they are known.
    fn unknown_because(&self) -> Option<String> {
        match &self.listing {
            Ok(listing) => listing.unknown_because.clone(),
            Err(refusal) => Some(refusal.why.join("; ")),
        }
    }

    fn members(&self) -> &[DescribedMember] {
        self.listing.as_ref().map_or(&[], |listing| &listing.members)
    }

    fn as_document(&self) -> MemberListDocument<'_> {
        let findings = self.inspection.findings().into_iter();
        MemberListDocument {
            metadata: ObjectName::from(&self.observed.control_plane),
            verdict: self.health(),
            unknown_because: self.unknown_because(),
            votes: self.inspection.votes.map(EtcdVotes::new),
            members: self.members().iter().map(MemberDocument::new).collect(),
            findings: findings
                .map(|(checked, finding)| CheckFinding::new(checked, finding))
                .collect(),
        }
    }
}

impl Report for MembersReport<'_> {
    fn table(&self, layout: Layout) -> String {
        let mut parts = Vec::new();
        if !self.members().is_empty() {
            let mut table = Table::with_columns(COLUMNS.iter().copied());
            for member in self.members() {
                table.add_row(row(member));
            }
            parts.push(table.render(layout));
        }
        let unknown = self
            .unknown_because()
            .map(|why| format!("the members are unknown: {why}"));
        let votes = self.inspection.votes.map(|votes| format!("etcd: {votes}"));
        if let Some(line) = unknown.or(votes) {
            parts.push(layout.wrap_lines(&line, 0).join("\n") + "\n");
        }
        parts.push(findings(&self.inspection, layout));
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    fn names(&self) -> Vec<String> {
        let name = self.observed.control_plane.name();
        vec![resource_name(&KUBEADM_CONTROL_PLANE, name)]
    }
}

fn row(member: &DescribedMember) -> Vec<Cell> {
    let unknown = || "-".to_owned();
    let status = member.status.as_ref();
    let of_status = |text: fn(&kcp_etcd::Status) -> String| status.map_or_else(unknown, text);
    let name = Some(&member.name).filter(|name| !name.is_empty());
    vec![
        Cell::from(member.id.map_or_else(unknown, hexadecimal)),
        Cell::from(name.cloned().unwrap_or_else(unknown)),
        counterpart(member.machine.as_ref()),
        counterpart(member.node.as_ref()),
        match member.role {
            Some(MemberRole::Leader) => Cell::styled("leader", GOOD),
            Some(role) => Cell::from(role.as_str()),
            None => Cell::styled("?", WARN),
        },
        Cell::from(of_status(|status| status.version.clone())),
        Cell::from(of_status(|status| format_size(status.db_size))),
        Cell::from(of_status(|status| {
            format_percentage(status.db_size_in_use, status.db_size)
        })),
        Cell::from(
            member
                .latency
                .map_or_else(unknown, |latency| format!("{} ms", latency.as_millis())),
        ),
        Cell::from(of_status(|status| {
            status.leader.map_or_else(|| "none".to_owned(), hexadecimal)
        })),
        match member.condition.as_ref().map(|condition| condition.status) {
            Some(ConditionStatus::True) => Cell::from("healthy"),
            Some(ConditionStatus::False) => Cell::styled("unhealthy", BAD),
            Some(ConditionStatus::Unknown) => Cell::styled("unknown", WARN),
            None => Cell::from("-"),
        },
        Cell::styled(member.faults.join("; "), BAD).extend_to_line_end(),
    ]
}

fn counterpart(counterpart: Option<&Counterpart>) -> Cell {
    match counterpart {
        Some(Counterpart::Named(name)) => Cell::from(name),
        Some(Counterpart::Unread) => Cell::styled("?", WARN),
        None => Cell::from("none"),
    }
}

/// The members of a control plane's etcd.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberListDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    /// The health of etcd.
    verdict: Health,
    /// Why the members are unknown. Absent if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_because: Option<String>,
    /// etcd's votes; null if etcd is external or its members are unknown.
    votes: Option<EtcdVotes>,
    members: Vec<MemberDocument<'r>>,
    /// The findings of the checks of etcd, most severe first.
    findings: Vec<CheckFinding>,
}

impl Document for MemberListDocument<'_> {
    const KIND: &'static str = "EtcdMemberList";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberDocument<'r> {
    /// The id of the member, as etcdctl prints it; null if no member lists it and it did not respond.
    id: Option<String>,
    /// The name of the member's node, or the endpoint of an external etcd; empty until the member has started.
    name: &'r str,
    /// The Machine of the member; null if the Machines could not be read. Absent if no Machine has the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'r Counterpart>,
    /// The Node of the member; null if the Nodes could not be read. Absent if no Node has the member's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'r Counterpart>,
    /// The role of the member; null if it is unknown.
    role: Option<MemberRole>,
    /// What the member reports; null if it did not respond.
    status: Option<MemberReport<'r>>,
    /// What the controller thinks of the member: the condition `EtcdMemberHealthy` of its Machine. Absent without such a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<&'r Condition>,
    /// What is wrong with the member, such as why it did not respond. Empty if nothing is.
    problems: &'r [String],
}

/// What a member reports about itself.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MemberReport<'r> {
    version: &'r str,
    /// The size of the member's database in bytes.
    db_size: u64,
    /// The part of the database that is in use, in bytes.
    db_size_in_use: u64,
    /// The id of the member that this member follows as leader; null if it has no leader.
    leader: Option<String>,
    /// How long the member took to respond, through the API server.
    latency_milliseconds: u128,
}

impl<'r> MemberDocument<'r> {
    fn new(member: &'r DescribedMember) -> Self {
        Self {
            id: member.id.map(hexadecimal),
            name: &member.name,
            machine: member.machine.as_ref(),
            node: member.node.as_ref(),
            role: member.role,
            status: member.status.as_ref().map(|status| MemberReport {
                version: &status.version,
                db_size: status.db_size,
                db_size_in_use: status.db_size_in_use,
                leader: status.leader.map(hexadecimal),
                latency_milliseconds: member.latency.unwrap_or_default().as_millis(),
            }),
            controller: member.condition.as_ref(),
            problems: &member.faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use kcp_control_plane::{
        snapshot::Reading,
        testing::{
            objects::{condition, now, set, use_external_etcd},
            snapshot::{failure, member, observed},
        },
    };

    use super::{ConditionStatus, Health, MemberListDocument, MembersReport, Snapshot};
    use crate::{
        document::Versioned,
        output::Report as _,
        printer::yaml,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    /// A control plane in which each fault is found.
    type Case = (&'static str, fn(&mut Snapshot), Health);

    const CASES: &[Case] = &[
        ("healthy", |_| {}, Health::Healthy),
        ("a member does not respond", |o| o.kill(3), Health::Degraded),
        (
            "added and never started",
            |o| {
                let mut ghost = member(0x00ab, "");
                ghost.is_learner = true;
                o.each_list(|list| list.members.push(ghost.clone()));
            },
            Health::Degraded,
        ),
        (
            "a learner that has caught up",
            |o| {
                o.status(3).is_learner = true;
                o.each_list(|list| list.members[2].is_learner = true);
            },
            Health::Degraded,
        ),
        (
            "the Node and the Machine are gone",
            |o| {
                o.machines.remove(2);
                o.nodes().remove(2);
                o.survey().queried.remove(2);
            },
            Health::Degraded,
        ),
        (
            "members list different members",
            |o| {
                o.survey().queried.remove(2);
                o.each_list_of(&[1], |list| list.members.truncate(1));
                o.status(2).leader = Some(2);
            },
            Health::Degraded,
        ),
        (
            "no member responds",
            |o| (1..=3).for_each(|number| o.kill(number)),
            Health::Blocked,
        ),
        (
            "etcd was not queried",
            |o| o.etcd = Reading::Failed(failure("Secret/c1-etcd", "not found")),
            Health::Unknown,
        ),
        ("not initialized", |o| o.etcd = Reading::NotYet, Health::Unknown),
        (
            "no member was queried",
            |o| o.survey().queried.clear(),
            Health::Unknown,
        ),
        (
            "external",
            |o| {
                use_external_etcd(&mut o.control_plane.spec);
                o.survey().stacked = false;
            },
            Health::Healthy,
        ),
        (
            "external, with unread Machines and Nodes",
            |o| {
                use_external_etcd(&mut o.control_plane.spec);
                o.survey().stacked = false;
                o.machines.clear();
                o.failed_reads.push(failure("Machine", "no response"));
                o.workload().nodes = Reading::Failed(failure("Node", "no response"));
            },
            Health::Healthy,
        ),
        (
            "a member of an unread Machine and Node",
            |o| {
                o.machines.clear();
                o.failed_reads.push(failure("Machine", "no response"));
                o.workload().nodes = Reading::Failed(failure("Node", "no response"));
            },
            Health::Unknown,
        ),
    ];

    #[test]
    fn each_member_is_listed_with_what_is_known() {
        let mut text = String::new();
        for (name, change, health) in CASES {
            let mut observed = observed();
            change(&mut observed);
            let report = MembersReport::new(&observed, now());
            assert_eq!(report.health(), *health, "{name}");
            schema::conforms(&report.as_document());
            assert_every_format(&report);
            for is_wide in [false, true] {
                let layout = Layout {
                    is_wide,
                    ..Layout::default()
                };
                let table = plain(&report.table(layout));
                writeln!(text, "== {name}{}\n{table}", if is_wide { ", wide" } else { "" }).unwrap();
            }
        }
        insta::assert_snapshot!(text);
        schema::checked_in::<MemberListDocument<'_>>("etcdmemberlist.json");
    }

    #[test]
    fn a_problem_outweighs_what_is_unknown() {
        type Case = (fn(&mut Snapshot), Health);
        let cases: [Case; 3] = [
            (
                |o| {
                    o.etcd = Reading::Failed(failure("Secret/c1-etcd", "not found"));
                    let failed = condition("EtcdPodHealthy", ConditionStatus::False, "CrashLoopBackOff");
                    set(&mut o.machine(2).status.conditions, failed);
                },
                Health::Degraded,
            ),
            (
                |o| {
                    o.etcd = Reading::Failed(failure("Secret/c1-etcd", "not found"));
                    for number in [2, 3] {
                        let failed = condition("EtcdPodHealthy", ConditionStatus::False, "CrashLoopBackOff");
                        set(&mut o.machine(number).status.conditions, failed);
                    }
                },
                Health::Blocked,
            ),
            (
                |o| o.etcd = Reading::Failed(failure("Secret/c1-etcd", "not found")),
                Health::Unknown,
            ),
        ];
        for (change, expected) in cases {
            let mut observed = observed();
            change(&mut observed);
            assert_eq!(MembersReport::new(&observed, now()).health(), expected);
        }
    }

    #[test]
    fn the_document_names_what_belongs_to_a_member() {
        let mut observed = observed();
        observed.kill(3);
        let report = MembersReport::new(&observed, now());
        insta::assert_snapshot!(yaml(&Versioned(report.as_document())).unwrap());
    }
}
