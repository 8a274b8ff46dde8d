//! Prints several control planes as a table.

use jiff::Timestamp;
use kcp_api::Object as _;

use crate::commands::status::screen::{
    Layout, Part, Screen, age,
    findings::outcome_style,
    summary::{health_word, is_by_conditions},
};
use crate::{
    fleet::{UnreadContext, no_control_planes},
    terminal::table::{Cell, Column, Table},
};
use kcp_control_plane::{
    checks::finding::CheckOutcome,
    inspection::{Health, Inspection},
    quorum::Votes,
    snapshot::{Reading, Snapshot},
};

const COLUMNS: &[Column] = &[
    Column::new("CONTEXT"),
    Column::new("NAMESPACE"),
    Column::new("NAME"),
    Column::new("CLUSTER").expendable(3),
    Column::new("VERSION").expendable(0),
    Column::new("THERE").wide(),
    Column::new("READY"),
    Column::new("UP TO DATE").expendable(1),
    Column::new("ETCD"),
    Column::new("AGE").expendable(2),
    Column::new("VERDICT"),
    Column::new("FINDINGS"),
];

/// The facts about one control plane that a table of control planes prints.
#[derive(Clone, Debug)]
pub struct ListRow {
    /// The kubeconfig context; `None` unless the list covers several contexts.
    context: Option<String>,
    /// Why the context of this row could not be read. The other facts are then unknown.
    failure: Option<String>,
    namespace: String,
    name: String,
    /// The name of the Cluster; `None` if the control plane has the same name, so that the column can be left out.
    cluster: Option<String>,
    version: Option<String>,
    replicas: i64,
    ready: i64,
    up_to_date: i64,
    desired: i64,
    /// The number of healthy etcd members and of all etcd members, such as `2/3`, or `?/3` if none responds; `None` if
    /// etcd was not queried.
    members: Option<String>,
    is_by_conditions: bool,
    created: Option<Timestamp>,
    pub health: Health,
    /// The ids of the checks that have findings, most severe first.
    checks: Vec<&'static str>,
    most_severe: Option<CheckOutcome>,
    /// Whether the control plane itself could be decoded. If not, the counts are unknown.
    is_decoded: bool,
    /// Messages about the management cluster's objects that could not be read.
    unread: Vec<String>,
}

/// Maximum number of messages below the table.
const MAX_UNREAD: usize = 5;

impl ListRow {
    pub fn new(observed: &Snapshot, inspection: &Inspection) -> Self {
        let control_plane = &observed.control_plane;
        let cluster = control_plane.cluster().unwrap_or("-");
        let findings = inspection.findings();
        let mut checks: Vec<&'static str> = Vec::new();
        for (checked, _) in &findings {
            if !checks.contains(&checked.id) {
                checks.push(checked.id);
            }
        }
        Self {
            context: None,
            failure: None,
            namespace: control_plane.namespace().to_owned(),
            name: control_plane.name().to_owned(),
            cluster: (cluster != control_plane.name()).then(|| cluster.to_owned()),
            version: version(observed),
            replicas: control_plane.status.replicas,
            ready: control_plane.status.ready_replicas,
            up_to_date: control_plane.status.up_to_date_replicas,
            desired: control_plane.desired_replicas(),
            members: members(observed, inspection),
            is_by_conditions: is_by_conditions(observed),
            created: control_plane.creation_timestamp(),
            health: inspection.health,
            checks,
            most_severe: findings.first().map(|(_, finding)| finding.outcome),
            is_decoded: control_plane.spec.version.is_some() || observed.failed_reads.is_empty(),
            unread: findings
                .iter()
                .filter(|(checked, _)| checked.id == "management-unreadable")
                .map(|(_, finding)| finding.message.clone())
                .collect(),
        }
    }

    pub fn in_context(self, context: Option<String>) -> Self {
        Self { context, ..self }
    }

    /// The row of a context whose control planes could not be listed.
    pub fn unread_context(UnreadContext { context, error }: &UnreadContext) -> Self {
        Self {
            context: Some(context.clone()),
            failure: Some(format!("not read: {error}")),
            namespace: String::new(),
            name: String::new(),
            cluster: None,
            version: None,
            replicas: 0,
            ready: 0,
            up_to_date: 0,
            desired: 0,
            members: None,
            is_by_conditions: false,
            created: None,
            health: Health::Unknown,
            checks: Vec::new(),
            most_severe: Some(CheckOutcome::Fail),
            is_decoded: false,
            unread: Vec::new(),
        }
    }

    fn cells(&self, is_of_all: bool, now: Timestamp) -> Vec<Cell> {
        let desired = self.desired;
        let (health, style) = health_word(self.health, self.is_by_conditions);
        let verdict = if self.is_by_conditions {
            format!("{health} (by conditions)")
        } else {
            health.to_owned()
        };
        let findings = self.failure.clone().unwrap_or_else(|| self.checks.join(", "));
        let count = |text: String| if self.is_decoded { text } else { "-".to_owned() };
        vec![
            Cell::from(self.context.as_deref().unwrap_or_default()),
            Cell::from(if is_of_all { self.namespace.as_str() } else { "" }),
            Cell::from(self.name.as_str()),
            Cell::from(self.cluster.as_deref().unwrap_or_default()),
            Cell::from(self.version.as_deref().unwrap_or("-")),
            Cell::from(count(self.replicas.to_string())),
            Cell::from(count(format!("{}/{desired}", self.ready))),
            Cell::from(count(format!("{}/{desired}", self.up_to_date))),
            Cell::from(self.members.as_deref().unwrap_or_default()),
            Cell::from(age(self.created, now)),
            Cell::styled(verdict, style),
            match self.most_severe {
                Some(outcome) => Cell::styled(findings, outcome_style(outcome)).extend_to_line_end(),
                None => Cell::from(""),
            },
        ]
    }
}

/// The version of the control plane, and that of the Cluster's topology if it differs, as in `v1.33.6 -> v1.34.2`.
fn version(observed: &Snapshot) -> Option<String> {
    let version = observed.control_plane.spec.version.clone()?;
    let of_topology = observed.topology().and_then(|topology| topology.version.as_ref());
    let of_topology = of_topology.filter(|of_topology| **of_topology != version);
    Some(of_topology.map_or(version.clone(), |of_topology| {
        format!("{version} -> {of_topology}")
    }))
}

/// The number of healthy etcd members and of all etcd members. If none responds, every Machine with a node counts as a
/// member.
fn members(observed: &Snapshot, inspection: &Inspection) -> Option<String> {
    let is_queried = !matches!(observed.etcd, Reading::Excluded { .. } | Reading::NotYet);
    if !is_queried || observed.has_external_etcd() {
        let votes = inspection.votes.filter(|_| observed.etcd.value().is_some());
        return votes.map(counted);
    }
    let joined = observed.machines.iter().filter(|machine| machine.has_node());
    Some(
        inspection
            .votes
            .map_or_else(|| format!("?/{}", joined.count()), counted),
    )
}

fn counted(votes: Votes) -> String {
    let healthy = votes.voters.saturating_sub(votes.unhealthy);
    format!("{healthy}/{}", votes.voters)
}

/// The screen with the table of several control planes. `namespace` is `None` for all namespaces.
pub fn list(
    rows: impl IntoIterator<Item = ListRow>,
    namespace: Option<&str>,
    now: Timestamp,
    layout: Layout,
) -> Screen {
    let mut table = Table::with_columns(COLUMNS.iter().copied());
    let mut is_empty = true;
    let mut unread: Vec<String> = Vec::new();
    for row in rows {
        is_empty = false;
        for message in &row.unread {
            if unread.len() < MAX_UNREAD && !unread.contains(message) {
                unread.push(message.clone());
            }
        }
        table.add_row(row.cells(namespace.is_none(), now));
    }
    let text = if is_empty {
        no_control_planes(namespace)
    } else if unread.is_empty() {
        table.render(layout)
    } else {
        let text = table.render(layout) + "\nmanagement-unreadable:\n";
        layout.append_paragraphs(text, &unread)
    };
    Screen {
        parts: vec![(Part::List, text)],
    }
}
