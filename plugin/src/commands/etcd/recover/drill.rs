//! `etcd recover --drill`: checks whether everything that a recovery needs is there. Changes nothing.

use std::time::Duration;

use kcp_api::{
    KubeadmControlPlane, Object as _, kind::KUBEADM_CONTROL_PLANE, snapshot_record::SnapshotRecord,
};
use kcp_client::{ReadLimit, reader::Reader, reads::controller_lease::read_controller_lease};
use kcp_control_plane::verbs::etcd::recover::drill::{Answer, Need, SnapshotContent, drill};
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    commands::etcd::{
        recover::{READ_LIMIT, RecoverArguments, members, refuse},
        stored_content::read_content,
    },
    document::{Document, ObjectName, Versioned, resource_name},
    output::{Report, print},
    session::Session,
    terminal::{escape, table::Layout},
    verdict::Verdict,
};

/// The time limit for reading the whole snapshot.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30 * 60);

pub(super) async fn run(arguments: &RecoverArguments, session: &Session) -> anyhow::Result<Verdict> {
    let terminal = &session.terminal;
    let connection = session.connect_within(READ_LIMIT).await?;
    let reader = Reader::discover(&connection).await?;
    let name = arguments
        .name
        .read(&reader, ReadLimit::per_read(READ_LIMIT))
        .await?;
    let mut observed = members(&name, &reader).observe().await?;
    observed.controller_lease = read_controller_lease(&reader, ReadLimit::per_read(READ_LIMIT)).await;
    let now = connection.now();
    let record = SnapshotRecord::from_control_plane(&observed.control_plane, now);
    // An external etcd cannot be recovered, so its snapshot is not read.
    let record = record.filter(|_| !observed.has_external_etcd());
    let content = match record.and_then(|record| record.place) {
        Some(place) => {
            terminal.spin("reading the snapshot");
            Some(content_at(&place).await)
        }
        None => None,
    };
    terminal.stop_spinning();
    let output = &arguments.write.output;
    let needs = match drill(&observed, content.as_ref(), now) {
        Ok(needs) => needs,
        Err(refusal) => return refuse(output, session, &observed, "not checked", &refusal),
    };
    let report = DrillReport {
        control_plane: &observed.control_plane,
        needs,
    };
    print(&report, output, terminal)?;
    Ok(report.verdict())
}

async fn content_at(place: &str) -> SnapshotContent {
    let place = match place.parse() {
        Ok(place) => place,
        Err(why) => return SnapshotContent::Unreadable { why },
    };
    match timeout(SNAPSHOT_LIMIT, read_content(&place, |_| Ok(()))).await {
        Ok(Ok(content)) => match content.hash {
            Ok(_) => SnapshotContent::Intact,
            Err(why) => SnapshotContent::Damaged { why },
        },
        Ok(Err(error)) => SnapshotContent::Unreadable {
            why: format!("{error:#}"),
        },
        Err(_) => SnapshotContent::Unreadable {
            why: format!("not read within {} minutes", SNAPSHOT_LIMIT.as_secs() / 60),
        },
    }
}

pub(super) struct DrillReport<'r> {
    pub(super) control_plane: &'r KubeadmControlPlane,
    pub(super) needs: Vec<Need>,
}

/// Whether everything is there that a recovery of etcd would need.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct DrillDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    /// Whether the answer to every need is `yes`.
    is_prepared: bool,
    needs: &'r [Need],
}

impl Document for DrillDocument<'_> {
    const KIND: &'static str = "EtcdRecoveryDrill";
}

impl DrillReport<'_> {
    fn is_prepared(&self) -> bool {
        self.needs.iter().all(|need| need.answer == Answer::Yes)
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.is_prepared() {
            Verdict::Met
        } else {
            Verdict::Negative
        }
    }

    pub(super) fn as_document(&self) -> DrillDocument<'_> {
        DrillDocument {
            metadata: ObjectName::from(self.control_plane),
            is_prepared: self.is_prepared(),
            needs: &self.needs,
        }
    }
}

fn describe(need: &Need) -> String {
    let answer = match need.answer {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::Unknown => "unknown",
    };
    let remedy = need.remedy.as_ref();
    let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
    format!("{answer}: {}{remedy}", need.found)
}

impl Report for DrillReport<'_> {
    fn table(&self, layout: Layout) -> String {
        let object = format!("kubeadmcontrolplane/{}", escape(self.control_plane.name()));
        let heading = if self.is_prepared() {
            format!("{object} is prepared for a recovery of etcd:\n")
        } else {
            let missing = self
                .needs
                .iter()
                .filter(|need| need.answer != Answer::Yes)
                .count();
            format!(
                "{object} is not prepared for a recovery of etcd: {missing} of {} answers are not yes\n",
                self.needs.len()
            )
        };
        let lines: Vec<String> = self.needs.iter().map(describe).collect();
        layout.append_paragraphs(heading, &lines)
    }

    fn document(&self) -> impl Serialize {
        Versioned(self.as_document())
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, self.control_plane.name())]
    }
}
