//! What `bundle` prints, and the index in the archive: `kubectl-kcp.dev/v1alpha1`.

use std::path::Path;

use jiff::Timestamp;
use kcp_api::{KubeadmControlPlane, Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_control_plane::bundle::Part;
use serde::Serialize;

use crate::{
    document::{Document, ObjectName, Versioned, resource_name},
    output::Report,
    terminal::{
        escape,
        table::{Cell, Column, Layout, Table, format_size},
    },
};

/// A debug bundle.
#[derive(Clone, Copy)]
pub(super) struct BundleReport<'b> {
    pub(super) control_plane: &'b KubeadmControlPlane,
    pub(super) created: Timestamp,
    pub(super) parts: &'b [Part],
    /// The archive. `None` in the index, because the name of a file may say who the user is.
    pub(super) file: Option<&'b Path>,
}

/// The files of a debug bundle, and what could not be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct BundleDocument<'b> {
    /// The control plane.
    metadata: ObjectName,
    /// When the bundle was created, by the clock of the API server.
    created: Timestamp,
    /// The archive. Absent in the index in the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    parts: Vec<PartDocument<'b>>,
}

impl Document for BundleDocument<'_> {
    const KIND: &'static str = "DebugBundle";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Part"))]
#[serde(rename_all = "camelCase")]
struct PartDocument<'b> {
    /// The path of the file, below the only folder in the archive.
    path: &'b str,
    /// Whether the archive contains the file.
    included: bool,
    /// The size of the file in bytes; 0 if the archive does not contain it.
    bytes: usize,
    /// The number of objects in the file. Absent if the file is one document, or if the archive does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<usize>,
    /// The number of objects that were read but exceed a limit, so that the archive does not contain them.
    left_out: usize,
    /// What could not be read.
    unread: Vec<UnreadDocument<'b>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Unread"))]
struct UnreadDocument<'b> {
    message: &'b str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'b str>,
}

impl<'b> BundleDocument<'b> {
    fn new(report: &BundleReport<'b>) -> Self {
        Self {
            metadata: report.control_plane.into(),
            created: report.created,
            file: report.file.map(|file| file.display().to_string()),
            parts: report.parts.iter().map(PartDocument::new).collect(),
        }
    }
}

impl<'b> PartDocument<'b> {
    fn new(part: &'b Part) -> Self {
        let unread = part.unread.iter().map(|unread| UnreadDocument {
            message: &unread.message,
            hint: unread.hint.as_deref(),
        });
        Self {
            path: &part.file,
            included: part.text.is_some(),
            bytes: size(part),
            objects: part.objects,
            left_out: part.left_out,
            unread: unread.collect(),
        }
    }
}

fn size(part: &Part) -> usize {
    part.text.as_ref().map_or(0, String::len)
}

impl Report for BundleReport<'_> {
    fn table(&self, layout: Layout) -> String {
        let mut table = Table::with_columns([
            Column::new("FILE"),
            Column::new("OBJECTS"),
            Column::new("SIZE"),
            Column::new("NOT INCLUDED"),
        ]);
        for part in self.parts {
            let objects = part.objects.map(|count| count.to_string());
            let size = part.text.as_ref().map(|text| format_size(text.len() as u64));
            table.add_row([
                Cell::from(&part.file),
                Cell::from(objects.unwrap_or_default()),
                Cell::from(size.unwrap_or_default()),
                Cell::from(missing(part)).extend_to_line_end(),
            ]);
        }
        let mut text = table.render(layout);
        if let Some(file) = self.file {
            let name = self.control_plane.name();
            let file = file.display();
            text.push('\n');
            text += &escape(&format!(
                "kubeadmcontrolplane/{name}: debug bundle written to {file}"
            ));
            text += "\nNames, addresses, messages and logs are included, and only tokens and keys in them are redacted: read the \
                 files before you send them.\n";
        }
        text
    }

    fn document(&self) -> impl Serialize {
        Versioned(BundleDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, self.control_plane.name())]
    }
}

/// What the archive lacks of a part, in one line. Empty if it lacks nothing.
fn missing(part: &Part) -> String {
    let left_out = match part.left_out {
        0 => None,
        1 => Some("1 object, because of a limit".to_owned()),
        count => Some(format!("{count} objects, because of a limit")),
    };
    let unread = part.unread.iter().map(|unread| unread.message.clone());
    let all: Vec<String> = left_out.into_iter().chain(unread).collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kcp_control_plane::{
        bundle::{Part, Unread},
        testing::{objects::now, snapshot::observed},
    };

    use super::{BundleDocument, BundleReport};
    use crate::{
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    fn parts() -> Vec<Part> {
        let forbidden = Unread {
            message: "cannot list machinehealthchecks in namespace \"d\": forbidden for user \"ada\""
                .to_owned(),
            hint: Some(
                "check with: kubectl auth can-i list machinehealthchecks.cluster.x-k8s.io -n d".to_owned(),
            ),
        };
        let read = |file: &str, bytes: usize, objects: Option<usize>, left_out: usize| Part {
            text: Some("x".repeat(bytes)),
            objects,
            left_out,
            ..Part::unread(file, Vec::new())
        };
        vec![
            read("status.json", 20_480, None, 0),
            read("management/machines.json", 5_000, Some(3), 0),
            read("management/events.json", 300_000, Some(500), 12),
            Part::unread("management/machinehealthchecks.json", vec![forbidden]),
        ]
    }

    #[test]
    fn the_text_says_what_is_missing() {
        let (observed, parts) = (observed(), parts());
        let report = BundleReport {
            control_plane: &observed.control_plane,
            created: now(),
            parts: &parts,
            file: Some(Path::new("edge.tar.gz")),
        };
        assert_eq!(
            plain(&report.table(Layout::default())),
            "\
FILE                                  OBJECTS   SIZE      NOT INCLUDED
status.json                                     20 KiB
management/machines.json              3         4.9 KiB
management/events.json                500       293 KiB   12 objects, because of a limit
management/machinehealthchecks.json                       cannot list machinehealthchecks in namespace \"d\": forbidden for user \"ada\"

kubeadmcontrolplane/c1-cp: debug bundle written to edge.tar.gz
Names, addresses, messages and logs are included, and only tokens and keys in them are redacted: read the files before you send them.
"
        );
        assert_every_format(&report);
    }

    #[test]
    fn the_index_does_not_name_the_archive() {
        let (observed, parts) = (observed(), parts());
        let report = |file| BundleReport {
            control_plane: &observed.control_plane,
            created: now(),
            parts: &parts,
            file,
        };
        let index = serde_json::to_value(report(None).document()).expect("JSON");
        assert_eq!(index.get("file"), None);
        assert_eq!(
            index.pointer("/parts/3"),
            Some(&serde_json::json!({
                "path": "management/machinehealthchecks.json", "included": false, "bytes": 0, "leftOut": 0,
                "unread": [{
                    "message": "cannot list machinehealthchecks in namespace \"d\": forbidden for user \"ada\"",
                    "hint": "check with: kubectl auth can-i list machinehealthchecks.cluster.x-k8s.io -n d",
                }],
            }))
        );
        for file in [None, Some(Path::new("edge.tar.gz"))] {
            schema::conforms(&BundleDocument::new(&report(file)));
        }
        schema::checked_in::<BundleDocument<'_>>("debugbundle.json");
    }
}
