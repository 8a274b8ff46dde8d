//! The results of the commands that maintain etcd members: text, and `kubectl-kcp.dev/v1alpha1`.

use std::cell::RefCell;

use anyhow::Context as _;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_control_plane::{snapshot::Snapshot, verbs::etcd::defrag::DefragmentedMember};
use serde::Serialize;
use serde_json::Value;

use crate::{
    commands::plan::document::EtcdVotes,
    document::{Document, ObjectName, Versioned, resource_name},
    output::Report,
    terminal::{
        escape,
        table::{Layout, format_size},
    },
};

/// What a command has done to etcd members, or would do.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum MaintenanceResult {
    Defrag {
        /// The members whose databases were rewritten, in this order.
        members: Vec<DefragmentedMember>,
    },
    Compact {
        /// The oldest revision that stays.
        revision: i64,
        /// The newest revision when the command began.
        current_revision: i64,
        /// Whether etcd had already deleted the older revisions.
        was_compact: bool,
    },
    Disarm {
        /// The members whose alarm NOSPACE was disarmed.
        members: Vec<String>,
    },
    MoveLeader {
        /// The previous leader. Absent if the member was already the leader.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        to: String,
    },
    RemoveMember {
        /// The name of the member, or its id if it has not started.
        member: String,
        /// The id of the member, as etcdctl prints it.
        id: String,
        /// The Machine that is left without a member. Absent if there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_machine: Option<String>,
    },
    Promote {
        member: String,
        /// The id of the member, as etcdctl prints it.
        id: String,
        /// Whether the member was a voter already.
        was_voter: bool,
        votes_before: EtcdVotes,
        votes_after: EtcdVotes,
    },
}

impl MaintenanceResult {
    /// One line for each part of the result.
    fn lines(&self, is_dry_run: bool) -> Vec<String> {
        match self {
            Self::Defrag { members } if members.is_empty() => {
                vec!["etcd unchanged: no member matches the condition".to_owned()]
            }
            Self::Defrag { members } => members
                .iter()
                .map(|member| defragmented(member, is_dry_run))
                .collect(),
            Self::Compact {
                revision,
                was_compact: true,
                ..
            } => vec![format!(
                "etcd unchanged: the revisions before {revision} are already deleted"
            )],
            Self::Compact {
                revision,
                current_revision,
                ..
            } => {
                let verb = if is_dry_run { "would be" } else { "have been" };
                vec![format!(
                    "etcd's revisions before {revision} {verb} deleted; the newest revision and {} before it stay",
                    current_revision - revision
                )]
            }
            Self::Disarm { members } if members.is_empty() => {
                vec!["etcd unchanged: no alarm is raised".to_owned()]
            }
            Self::Disarm { members } => {
                let verb = if is_dry_run { "would be" } else { "has been" };
                members
                    .iter()
                    .map(|member| format!("alarm NOSPACE of etcd member {member} {verb} disarmed"))
                    .collect()
            }
            Self::MoveLeader { from: None, to } => {
                vec![format!("etcd unchanged: member {to} is already the leader")]
            }
            Self::MoveLeader { from: Some(from), to } => {
                let verb = if is_dry_run { "would move" } else { "has moved" };
                vec![format!("the leadership of etcd {verb} from {from} to {to}")]
            }
            Self::RemoveMember {
                member,
                id,
                left_machine,
            } => {
                let verb = if is_dry_run { "would be" } else { "has been" };
                let suffix = left_machine
                    .as_ref()
                    .map(|machine| format!("; Machine {machine} has no member now"));
                let suffix = suffix.filter(|_| !is_dry_run).unwrap_or_default();
                vec![format!("etcd member {member} (id {id}) {verb} removed{suffix}")]
            }
            Self::Promote {
                member,
                id,
                was_voter: true,
                ..
            } => vec![format!(
                "etcd unchanged: member {member} (id {id}) is already a voter"
            )],
            Self::Promote {
                member,
                id,
                votes_before,
                votes_after,
                ..
            } => {
                let verb = if is_dry_run { "would be" } else { "has been" };
                vec![
                    format!("etcd member {member} (id {id}) {verb} promoted"),
                    format!("before: {}; after: {}", votes_before.votes, votes_after.votes),
                ]
            }
        }
    }
}

/// One line about the space that the defragmentation of a member freed, or would free.
fn defragmented(member: &DefragmentedMember, is_dry_run: bool) -> String {
    let verb = if is_dry_run {
        "would be defragmented"
    } else {
        "has been defragmented"
    };
    format!(
        "etcd member {} {verb}: {} -> {}, {} freed",
        member.name,
        format_size(member.db_size_before),
        format_size(member.db_size_after),
        format_size(member.freed_bytes())
    )
}

pub(super) struct MaintenanceReport<'r> {
    pub(super) observed: &'r Snapshot,
    pub(super) is_dry_run: bool,
    pub(super) result: &'r MaintenanceResult,
}

/// What a command has done to the etcd members of a control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MaintenanceDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    /// Whether this was a dry run. The document then says what the command would do.
    dry_run: bool,
    #[serde(flatten)]
    result: &'r MaintenanceResult,
}

impl Document for MaintenanceDocument<'_> {
    const KIND: &'static str = "EtcdMaintenance";
}

impl<'r> MaintenanceReport<'r> {
    fn as_document(&self) -> MaintenanceDocument<'r> {
        MaintenanceDocument {
            metadata: ObjectName::from(&self.observed.control_plane),
            dry_run: self.is_dry_run,
            result: self.result,
        }
    }
}

impl Report for MaintenanceReport<'_> {
    fn table(&self, _: Layout) -> String {
        let name = self.observed.control_plane.name();
        let lines = self.result.lines(self.is_dry_run);
        lines.iter().fold(String::new(), |text, line| {
            text + &escape(&format!("kubeadmcontrolplane/{name}: {line}")) + "\n"
        })
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    fn names(&self) -> Vec<String> {
        let name = self.observed.control_plane.name();
        vec![resource_name(&KUBEADM_CONTROL_PLANE, name)]
    }
}

/// The documents of a command that prints them as one list at its end.
#[derive(Debug, Default)]
pub(super) struct Collected(RefCell<CollectedReports>);

#[derive(Debug, Default)]
struct CollectedReports {
    /// The document of each step, in the order of the steps.
    documents: Vec<Value>,
    names: Vec<String>,
}

impl Collected {
    pub(super) fn add(&self, report: &impl Report) -> anyhow::Result<()> {
        let document = serde_json::to_value(report.document()).context("cannot write JSON")?;
        let mut reports = self.0.borrow_mut();
        reports.documents.push(document);
        for name in report.names() {
            if !reports.names.contains(&name) {
                reports.names.push(name);
            }
        }
        drop(reports);
        Ok(())
    }

    pub(super) fn documents(&self) -> Vec<Value> {
        self.0.borrow().documents.clone()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.borrow().names.clone()
    }
}

/// The document of several control planes, or of several steps. The text of each is printed already.
pub(super) struct ListReport<D> {
    pub(super) document: D,
    pub(super) names: Vec<String>,
    /// Whether no control plane was selected.
    pub(super) is_empty: bool,
}

impl<D: Document> Report for ListReport<D> {
    fn table(&self, _: Layout) -> String {
        if self.is_empty {
            return "no control plane matches\n".to_owned();
        }
        String::new()
    }

    fn document(&self) -> impl Serialize {
        Versioned(&self.document)
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }
}

/// A control plane at which the command failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UnfinishedMaintenance {
    pub(super) metadata: ObjectName,
    pub(super) error: String,
}

/// What a command has done to etcd members: one item for each step of each control plane.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct MaintenanceListDocument {
    /// An `EtcdMaintenance` for a step that was done, or a `ChangeRefused` for one that was refused.
    #[cfg_attr(test, schemars(with = "Vec<MaintenanceItem<'static>>"))]
    pub(super) items: Vec<Value>,
    /// The control planes at which the command failed.
    pub(super) failed: Vec<UnfinishedMaintenance>,
}

impl Document for MaintenanceListDocument {
    const KIND: &'static str = "EtcdMaintenanceList";
}

#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum MaintenanceItem<'r> {
    Done(Versioned<MaintenanceDocument<'r>>),
    Refused(Versioned<crate::change::report::ChangeRefused<'r>>),
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::{
        change::decision::Refusal, quorum::Votes, testing::snapshot::observed,
        verbs::etcd::defrag::DefragmentedMember,
    };

    use super::{
        Collected, EtcdVotes, ListReport, MaintenanceDocument, MaintenanceListDocument, MaintenanceReport,
        MaintenanceResult, UnfinishedMaintenance,
    };
    use crate::{
        change::report::RefusalReport,
        document::ObjectName,
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    #[test]
    fn each_result_has_lines_and_a_document() {
        use MaintenanceResult::{Compact, Defrag, Disarm, MoveLeader, Promote, RemoveMember};
        let votes = |voters, starting| {
            EtcdVotes::new(Votes {
                voters,
                unhealthy: 0,
                starting,
            })
        };
        let promoted = |was_voter| Promote {
            member: "node-m3".to_owned(),
            id: "8e9e05c52164694d".to_owned(),
            was_voter,
            votes_before: votes(2, 1),
            votes_after: votes(3, 0),
        };
        let member = |name: &str| DefragmentedMember {
            name: name.to_owned(),
            db_size_before: 60 << 20,
            db_size_after: 20 << 20,
        };
        let compact = |was_compact| Compact {
            revision: 98_001,
            current_revision: 100_000,
            was_compact,
        };
        let moved = |from: Option<&str>| MoveLeader {
            from: from.map(str::to_owned),
            to: "node-m2".to_owned(),
        };
        let disarmed = |members: &[&str]| Disarm {
            members: members.iter().map(ToString::to_string).collect(),
        };
        let all = [
            Defrag {
                members: vec![member("node-m2"), member("node-m1")],
            },
            Defrag { members: vec![] },
            compact(false),
            compact(true),
            disarmed(&["node-m3"]),
            disarmed(&[]),
            moved(Some("node-m1")),
            moved(None),
            RemoveMember {
                member: "node-m3".to_owned(),
                id: "8e9e05c52164694d".to_owned(),
                left_machine: Some("m3".to_owned()),
            },
            RemoveMember {
                member: "ab".to_owned(),
                id: "ab".to_owned(),
                left_machine: None,
            },
            promoted(false),
            promoted(true),
        ];
        let observed = observed();
        let mut text = String::new();
        for is_dry_run in [false, true] {
            for result in &all {
                let report = MaintenanceReport {
                    observed: &observed,
                    is_dry_run,
                    result,
                };
                schema::conforms(&report.as_document());
                assert_every_format(&report);
                text += &report.table(Layout::default());
            }
        }
        insta::assert_snapshot!(text);
        schema::checked_in::<MaintenanceDocument<'_>>("etcdmaintenance.json");
    }

    #[test]
    fn a_refusal_is_a_document() {
        let observed = observed();
        let refusal = Refusal::unconfirmed();
        let report = RefusalReport {
            control_plane: &observed.control_plane,
            not_done: "not compacted",
            refusal: &refusal,
        };
        assert_eq!(
            plain(&report.table(Layout::default())),
            "kubeadmcontrolplane/c1-cp not compacted: refused by kubectl kcp\n  you did not confirm the change\n"
        );
        assert_every_format(&report);
    }

    #[test]
    fn a_list_has_what_was_done_what_was_refused_and_what_failed() {
        let observed = observed();
        let done = MaintenanceReport {
            observed: &observed,
            is_dry_run: false,
            result: &MaintenanceResult::Disarm { members: vec![] },
        };
        let refusal = Refusal::unconfirmed();
        let refused = RefusalReport {
            control_plane: &observed.control_plane,
            not_done: "not compacted",
            refusal: &refusal,
        };
        let collected = Collected::default();
        for _ in 0..2 {
            collected.add(&done).expect("JSON");
        }
        collected.add(&refused).expect("JSON");
        let failed = UnfinishedMaintenance {
            metadata: ObjectName::from(&observed.control_plane),
            error: "no route to host".to_owned(),
        };
        let report = ListReport {
            document: MaintenanceListDocument {
                items: collected.documents(),
                failed: vec![failed],
            },
            names: collected.names(),
            is_empty: false,
        };
        schema::conforms(&report.document);
        assert_every_format(&report);
        assert_eq!(report.table(Layout::default()), "");
        assert_eq!(report.names(), done.names());
        assert_eq!(report.document.items.len(), 3);
        schema::checked_in::<MaintenanceListDocument>("etcdmaintenancelist.json");
    }
}
