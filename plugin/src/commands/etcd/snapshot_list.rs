//! `kubectl kcp etcd snapshot --list`: lists the snapshots in a folder. It needs no cluster, because the cluster may be gone.

use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::reads::list_limit;
use serde::Serialize;

use crate::{
    commands::etcd::stored::{FolderRequest, SnapshotFolder, StoredSnapshot},
    document::{Document, ObjectName, Versioned, resource_name},
    output::{Report, print},
    session::Session,
    terminal::table::{Cell, Layout, Table, format_size},
    verdict::Verdict,
};

/// Lists the snapshots of a control plane, or of all.
pub(super) async fn run(request: &FolderRequest<'_>, session: &Session) -> anyhow::Result<Verdict> {
    let folder = SnapshotFolder::open(request.place)?;
    let mut stored = folder.list().await?;
    if let Some(name) = request.name {
        // If the user gave the name of the control plane, only the namespace of the connection is used.
        let connection = session.connect_within(request.timeout).await?;
        let name = name.resolve(&connection, list_limit(request.timeout)).await?;
        stored.retain(|stored| stored.name.is_of(&connection.namespace, &name));
    }
    let report = StoredReport {
        place: request.place.to_string(),
        stored,
    };
    print(&report, request.output, &session.terminal)?;
    Ok(Verdict::Met)
}

/// The snapshots in a folder.
struct StoredReport {
    /// The folder.
    place: String,
    stored: Vec<StoredSnapshot>,
}

impl Report for StoredReport {
    fn table(&self, layout: Layout) -> String {
        if self.stored.is_empty() {
            return layout
                .wrap_lines(&format!("no snapshot in {}", self.place), 0)
                .join("\n")
                + "\n";
        }
        let mut table = Table::new(&["NAMESPACE", "NAME", "BEGAN", "SIZE", "PLACE"]);
        for stored in &self.stored {
            table.add_row([
                Cell::from(&stored.name.namespace),
                Cell::from(&stored.name.control_plane),
                Cell::from(stored.name.began().to_string()),
                Cell::from(format_size(stored.bytes)),
                Cell::from(stored.place.to_string()),
            ]);
        }
        table.render(layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(StoredListDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        let names = self.stored.iter().map(|stored| &stored.name.control_plane);
        let mut names: Vec<String> = names
            .map(|name| resource_name(&KUBEADM_CONTROL_PLANE, name))
            .collect();
        names.dedup();
        names
    }
}

/// The snapshots in a folder that have the names that `etcd snapshot` gives, oldest first.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct StoredListDocument {
    items: Vec<StoredDocument>,
}

impl Document for StoredListDocument {
    const KIND: &'static str = "StoredEtcdSnapshotList";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct StoredDocument {
    /// The control plane.
    metadata: ObjectName,
    /// When the snapshot began.
    began: jiff::Timestamp,
    bytes: u64,
    /// The file or the object.
    place: String,
}

impl StoredListDocument {
    fn new(report: &StoredReport) -> Self {
        let items = report.stored.iter().map(|stored| StoredDocument {
            metadata: stored.control_plane(),
            began: stored.name.began(),
            bytes: stored.bytes,
            place: stored.place.to_string(),
        });
        Self {
            items: items.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StoredListDocument, StoredReport};
    use crate::{
        commands::etcd::stored::StoredSnapshot,
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    #[test]
    fn the_snapshots_are_a_table_and_a_document() {
        let stored = |name: &str, bytes| StoredSnapshot {
            name: name.parse().expect(name),
            bytes,
            place: format!("s3://b/{name}").parse().expect(name),
        };
        let mut report = StoredReport {
            place: "s3://b/".to_owned(),
            stored: vec![
                stored("d_edge_20260101T000000Z.db", 20_512),
                stored("other_c1_20260102T030405Z.db", 5 << 30),
            ],
        };
        insta::assert_snapshot!(plain(&report.table(Layout::default())));
        schema::conforms(&StoredListDocument::new(&report));
        assert_every_format(&report);
        report.stored.clear();
        assert_eq!(report.table(Layout::default()), "no snapshot in s3://b/\n");
        schema::conforms(&StoredListDocument::new(&report));
        schema::checked_in::<StoredListDocument>("storedetcdsnapshotlist.json");
    }
}
