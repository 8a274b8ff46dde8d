//! The snapshots in a folder: lists them, and deletes old ones.

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use kcp_control_plane::verbs::etcd::snapshot::{
    name::{SnapshotName, superseded},
    place::{ObjectPlace, SnapshotPlace},
};
use kcp_storage::Bucket;

use crate::{arguments::ControlPlaneName, document::ObjectName, output::OutputArguments};

/// A request about the snapshots in a folder.
pub(super) struct FolderRequest<'r> {
    pub(super) place: &'r SnapshotPlace,
    /// The control plane; `None` for all.
    pub(super) name: Option<&'r ControlPlaneName>,
    /// The member to compare with; `None` for a follower.
    pub(super) member: Option<&'r str>,
    pub(super) timeout: Duration,
    pub(super) output: &'r OutputArguments,
}

/// A folder with snapshots.
pub(super) enum SnapshotFolder {
    Local(PathBuf),
    Remote(Box<Bucket>, ObjectPlace),
}

/// A snapshot in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredSnapshot {
    pub(super) name: SnapshotName,
    pub(super) bytes: u64,
    /// The file or the object.
    pub(super) place: SnapshotPlace,
}

impl StoredSnapshot {
    /// The control plane in the name of the snapshot.
    pub(super) fn control_plane(&self) -> ObjectName {
        ObjectName {
            name: self.name.control_plane.clone(),
            namespace: self.name.namespace.clone(),
        }
    }
}

/// Whether each snapshot gets a name of its own in this place.
pub(crate) fn is_folder(place: &SnapshotPlace) -> bool {
    match place {
        SnapshotPlace::File(path) => path.is_dir(),
        SnapshotPlace::Object(object) => object.is_folder(),
        SnapshotPlace::Stdout => false,
    }
}

impl SnapshotFolder {
    /// Opens a folder. Sends no request. Fails if the place is no folder.
    pub(super) fn open(place: &SnapshotPlace) -> anyhow::Result<Self> {
        match place {
            SnapshotPlace::File(path) if path.is_dir() => Ok(Self::Local(path.clone())),
            SnapshotPlace::Object(object) if object.is_folder() => {
                Ok(Self::Remote(Box::new(Bucket::open(object)?), object.clone()))
            }
            _ => Err(anyhow!(
                "--output-file {place} is neither an existing folder, nor a folder of a bucket, such as s3://BUCKET/PREFIX/"
            )),
        }
    }

    /// Lists the snapshots that this program has named, oldest first. Ignores everything else in the folder.
    pub(super) async fn list(&self) -> anyhow::Result<Vec<StoredSnapshot>> {
        let mut stored = match self {
            Self::Local(folder) => {
                let listed = local(folder);
                listed.with_context(|| format!("cannot list {}", folder.display()))?
            }
            Self::Remote(bucket, folder) => {
                let objects = bucket.list(&folder.key).await?;
                let snapshots = objects.into_iter().filter_map(|object| {
                    let name = object.key.strip_prefix(&folder.key)?.parse().ok()?;
                    Some(StoredSnapshot {
                        name,
                        bytes: object.bytes,
                        place: SnapshotPlace::Object(ObjectPlace {
                            bucket: folder.bucket.clone(),
                            key: object.key,
                        }),
                    })
                });
                snapshots.collect()
            }
        };
        stored.sort_by(|one, other| {
            let order = |stored: &StoredSnapshot| (stored.name.began(), stored.name.clone());
            order(one).cmp(&order(other))
        });
        Ok(stored)
    }

    /// The newest snapshot of a control plane. Fails if the folder cannot be listed, or has no snapshot of the control plane.
    pub(super) async fn newest(&self, namespace: &str, name: &str) -> anyhow::Result<StoredSnapshot> {
        let stored = self.list().await?.into_iter();
        let newest = stored.rev().find(|stored| stored.name.is_of(namespace, name));
        newest.with_context(|| {
            format!(
                "no snapshot of kubeadmcontrolplane/{name} in namespace {namespace} is in {}",
                self.place()
            )
        })
    }

    fn place(&self) -> SnapshotPlace {
        match self {
            Self::Local(folder) => SnapshotPlace::File(folder.clone()),
            Self::Remote(_, folder) => SnapshotPlace::Object(folder.clone()),
        }
    }

    /// The snapshots to delete, so that `kept` snapshots are left, including `newest`. Leaves out snapshots from before the control
    /// plane was created.
    pub(super) async fn superseded(
        &self,
        newest: &SnapshotName,
        created: Option<Timestamp>,
        kept: NonZeroUsize,
    ) -> anyhow::Result<Vec<StoredSnapshot>> {
        let stored = self.list().await?;
        let names = stored.iter().map(|stored| &stored.name);
        let since = names.filter(|name| created.is_none_or(|created| name.began() >= created));
        let superseded = superseded(since, newest, kept);
        let is_superseded = |snapshot: &&StoredSnapshot| superseded.contains(&&snapshot.name);
        Ok(stored.iter().filter(is_superseded).cloned().collect())
    }

    /// Deletes a snapshot. One that no longer exists is not an error.
    pub(super) async fn delete(&self, snapshot: &StoredSnapshot) -> anyhow::Result<()> {
        match (self, &snapshot.place) {
            (Self::Remote(bucket, _), SnapshotPlace::Object(object)) => {
                Ok(bucket.delete(&object.key).await?)
            }
            (_, SnapshotPlace::File(path)) => match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot delete {}", path.display()))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn local(folder: &Path) -> std::io::Result<Vec<StoredSnapshot>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(Ok(name)) = name.to_str().map(str::parse) else {
            continue;
        };
        // `metadata` does not follow a link, so a link is left out: this program creates none.
        let metadata = entry.metadata()?;
        if metadata.is_file() {
            found.push(StoredSnapshot {
                name,
                bytes: metadata.len(),
                place: SnapshotPlace::File(entry.path()),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, num::NonZeroUsize, os::unix::fs::symlink};

    use kcp_control_plane::verbs::etcd::snapshot::place::SnapshotPlace;

    use super::SnapshotFolder;

    #[tokio::test]
    async fn only_what_this_program_has_named_is_listed_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let ours = [
            "d_edge_20260101T000000Z.db",
            "d_edge_20260102T000000Z.db",
            "d_edge_20260103T000000Z.db",
            "d_other_20250101T000000Z.db",
        ];
        let theirs = ["edge.db", "d_edge_20260101T000000Z.db.age", "notes"];
        for name in ours.iter().chain(&theirs) {
            fs::write(path(name), "12345").unwrap();
        }
        symlink(path("notes"), path("d_edge_20240101T000000Z.db")).unwrap();
        fs::create_dir(path("d_edge_20230101T000000Z.db")).unwrap();
        let opened = SnapshotFolder::open(&SnapshotPlace::File(folder.path().to_owned())).unwrap();
        let stored = opened.list().await.unwrap();
        let names: Vec<String> = stored.iter().map(|stored| stored.name.to_string()).collect();
        assert_eq!(names, [ours[3], ours[0], ours[1], ours[2]]);
        assert!(stored.iter().all(|stored| stored.bytes == 5), "{stored:?}");

        let newest = ours[2].parse().unwrap();
        let created = Some("2026-01-02T00:00:00Z".parse().unwrap());
        let since = opened
            .superseded(&newest, created, NonZeroUsize::MIN)
            .await
            .unwrap();
        let names: Vec<String> = since.iter().map(|stored| stored.name.to_string()).collect();
        assert_eq!(names, [ours[1]]);
        let old = opened.superseded(&newest, None, NonZeroUsize::MIN).await.unwrap();
        let names: Vec<String> = old.iter().map(|stored| stored.name.to_string()).collect();
        assert_eq!(names, [ours[0], ours[1]]);
        for snapshot in &old {
            opened.delete(snapshot).await.unwrap();
            opened.delete(snapshot).await.unwrap();
        }
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 7, "two of nine are gone");
        assert!(path(ours[2]).exists());
    }

    #[test]
    fn a_file_is_no_folder() {
        for place in ["edge.db", "-", "s3://b/edge.db"] {
            let error = SnapshotFolder::open(&place.parse().unwrap()).err().unwrap();
            assert!(
                error.to_string().contains("is neither an existing folder"),
                "{error}"
            );
        }
    }
}
