//! `kubectl kcp etcd snapshot --verify`: restores the newest snapshot of a control plane on this machine, and compares it with etcd.

use std::{io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};
use futures_util::StreamExt as _;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::{Connection, reader::Reader, reads::list_limit};
use kcp_control_plane::verbs::etcd::snapshot::{
    SnapshotSource,
    place::SnapshotPlace,
    select_source,
    verification::{Comparison, KeySpace, compare},
};
use kcp_storage::Bucket;
use serde::Serialize;
use tempfile::{NamedTempFile, TempDir};

use crate::{
    commands::etcd::{
        EtcdMembers,
        scratch::{ScratchMember, folder},
        stored::{FolderRequest, SnapshotFolder, StoredSnapshot},
    },
    document::{Document, ObjectName, Versioned, resource_name},
    output::{Report, print},
    session::Session,
    signal::EndSignal,
    terminal::table::Layout,
    verdict::Verdict,
};

/// The time limit of a call to the member of the control plane, which reads its whole database for a hash.
const CALL_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Verifies the newest snapshot of a control plane. A signal ends the scratch member, and removes its folder.
pub(super) async fn run(request: &FolderRequest<'_>, session: &Session) -> anyhow::Result<Verdict> {
    let mut signal = EndSignal::listen().context("cannot receive signals")?;
    tokio::select! {
        verdict = Box::pin(verify(request, session)) => verdict,
        () = signal.wait() => Ok(Verdict::Interrupted),
    }
}

async fn verify(request: &FolderRequest<'_>, session: &Session) -> anyhow::Result<Verdict> {
    let name = request
        .name
        .context("--verify needs the name of a control plane")?;
    let terminal = &session.terminal;
    let connection = session.connect_within(request.timeout).await?;
    let name = &name.resolve(&connection, list_limit(request.timeout)).await?;
    let newest = SnapshotFolder::open(request.place)?
        .newest(&connection.namespace, name)
        .await?;
    let folder = folder()?;
    terminal.spin("reading the snapshot");
    let file = file_of(&newest, &folder).await?;
    terminal.spin("restoring the snapshot");
    let scratch = Box::pin(ScratchMember::start(folder, &file)).await?;
    let revision = scratch.revision().await?;
    terminal.spin("comparing the snapshot");
    let live = Live {
        connection: &connection,
        request,
        name,
    };
    let member = Box::pin(live.key_space(revision)).await;
    let compacted = member
        .as_ref()
        .ok()
        .map(|(_, space)| space.hash.compacted_revision);
    let restored = scratch.key_space(revision, compacted).await?;
    terminal.stop_spinning();
    let (compared_with, member) = match member {
        Ok((member, space)) => (Some(member), Ok(space)),
        Err(error) => (None, Err(format!("{error:#}"))),
    };
    let report = VerificationReport {
        stored: newest,
        revision,
        restored,
        compared_with,
        comparison: compare(restored, member),
    };
    print(&report, request.output, terminal)?;
    Ok(match report.comparison {
        Comparison::Equal => Verdict::Met,
        Comparison::Differs { .. } => Verdict::Negative,
        Comparison::Unknown { .. } => Verdict::Undecided,
    })
}

/// The file with a snapshot. An object is first copied into the folder.
async fn file_of(stored: &StoredSnapshot, folder: &TempDir) -> anyhow::Result<PathBuf> {
    let object = match &stored.place {
        SnapshotPlace::File(path) => return Ok(path.clone()),
        SnapshotPlace::Object(object) => object,
        SnapshotPlace::Stdout => return Err(anyhow!("stdout contains no snapshot")),
    };
    let mut parts = Bucket::open(object)?.read(&object.key).await?;
    let mut file = NamedTempFile::new_in(folder.path()).context("cannot create a file for the snapshot")?;
    while let Some(part) = parts.next().await {
        file.write_all(&part?).context("cannot write the snapshot")?;
    }
    let (_, path) = file.keep().context("cannot write the snapshot")?;
    Ok(path)
}

/// The control plane with which a snapshot is compared.
struct Live<'l> {
    connection: &'l Connection,
    request: &'l FolderRequest<'l>,
    name: &'l str,
}

impl Live<'_> {
    /// The name of a member, and its keys and values at a revision.
    async fn key_space(&self, revision: i64) -> anyhow::Result<(String, KeySpace)> {
        let reader = Reader::discover(self.connection).await?;
        let members = EtcdMembers {
            reader: &reader,
            control_plane: self.name,
            timeout: self.request.timeout,
        };
        let observed = members.observe().await?;
        let SnapshotSource { member, .. } = select_source(&observed, self.request.member)
            .map_err(|refusal| anyhow!(refusal.why.join("; ")))?;
        let opened = members.open(&observed, &member, CALL_LIMIT).await?;
        let deleted = || {
            format!(
                "etcd member {} has since deleted revision {revision}; to compare a snapshot, verify it within minutes of saving \
                 it",
                member.name
            )
        };
        let keys = opened.count_keys(revision).await?.with_context(deleted)?;
        let hash = opened.hash_key_space(revision).await?.with_context(deleted)?;
        Ok((member.name.clone(), KeySpace { hash, keys }))
    }
}

/// A snapshot that was restored, and how it compares with etcd.
struct VerificationReport {
    stored: StoredSnapshot,
    /// The newest revision of the snapshot.
    revision: i64,
    restored: KeySpace,
    /// The member with which it was compared.
    compared_with: Option<String>,
    comparison: Comparison,
}

impl Report for VerificationReport {
    fn table(&self, layout: Layout) -> String {
        let name = &self.stored.name.control_plane;
        let member = self.compared_with.as_deref().unwrap_or_default();
        let compared = match &self.comparison {
            Comparison::Equal => {
                format!("the snapshot has the data of etcd member {member} at this revision")
            }
            Comparison::Differs { reason } => {
                format!("the snapshot differs from etcd member {member}: {reason}")
            }
            Comparison::Unknown { reason } => {
                format!("unknown whether the snapshot has the data of etcd: {reason}")
            }
        };
        let lines = [
            format!(
                "kubeadmcontrolplane/{name}: snapshot {} was restored: revision {}, {} keys, hash {:08x}",
                self.stored.place, self.revision, self.restored.keys, self.restored.hash.hash
            ),
            format!("kubeadmcontrolplane/{name}: {compared}"),
        ];
        lines.iter().fold(String::new(), |text, line| {
            text + &layout.wrap_lines(line, 0).join("\n") + "\n"
        })
    }

    fn document(&self) -> impl Serialize {
        Versioned(VerificationDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(
            &KUBEADM_CONTROL_PLANE,
            &self.stored.name.control_plane,
        )]
    }
}

/// A snapshot that was restored on this machine.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct VerificationDocument<'r> {
    /// The control plane.
    metadata: ObjectName,
    /// When the snapshot began.
    began: jiff::Timestamp,
    bytes: u64,
    /// The file or the object.
    place: String,
    /// The newest revision in the snapshot.
    revision: i64,
    /// The number of keys at this revision.
    keys: u64,
    /// The hash of all keys and values up to this revision.
    hash: u32,
    /// The etcd member with which the snapshot was compared. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'r str>,
    comparison: &'r Comparison,
}

impl Document for VerificationDocument<'_> {
    const KIND: &'static str = "EtcdSnapshotVerification";
}

impl<'r> VerificationDocument<'r> {
    fn new(report: &'r VerificationReport) -> Self {
        let stored = &report.stored;
        Self {
            metadata: stored.control_plane(),
            began: stored.name.began(),
            bytes: stored.bytes,
            place: stored.place.to_string(),
            revision: report.revision,
            keys: report.restored.keys,
            hash: report.restored.hash.hash,
            member: report.compared_with.as_deref(),
            comparison: &report.comparison,
        }
    }
}

#[cfg(test)]
mod tests {
    use kcp_etcd::KeySpaceHash;

    use super::{Comparison, KeySpace, VerificationDocument, VerificationReport};
    use crate::{
        commands::etcd::stored::StoredSnapshot,
        output::Report as _,
        terminal::{plain, table::Layout},
        testing::{assert_every_format, schema},
    };

    #[test]
    fn each_result_has_lines_and_a_document() {
        let reason = || "a reason".to_owned();
        let mut text = String::new();
        for (compared_with, comparison) in [
            (Some("node-m2"), Comparison::Equal),
            (Some("node-m2"), Comparison::Differs { reason: reason() }),
            (None, Comparison::Unknown { reason: reason() }),
        ] {
            let name = "d_edge_20260101T000000Z.db";
            let report = VerificationReport {
                stored: StoredSnapshot {
                    name: name.parse().expect(name),
                    bytes: 20_512,
                    place: format!("s3://b/{name}").parse().expect(name),
                },
                revision: 1234,
                restored: KeySpace {
                    hash: KeySpaceHash {
                        hash: 0xab_cdef,
                        compacted_revision: 7,
                    },
                    keys: 321,
                },
                compared_with: compared_with.map(str::to_owned),
                comparison,
            };
            text += &plain(&report.table(Layout::default()));
            schema::conforms(&VerificationDocument::new(&report));
            assert_every_format(&report);
        }
        insta::assert_snapshot!(text);
        schema::checked_in::<VerificationDocument<'_>>("etcdsnapshotverification.json");
    }
}
