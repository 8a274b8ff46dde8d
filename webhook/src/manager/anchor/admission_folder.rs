//! The files on the host from which the API server loads webhook configurations.

use std::{
    io,
    path::{Path, PathBuf},
};

use kcp_rules::{
    anchor::{ADMISSION_KINDS, MANIFEST, text},
    registration::{StaticManifest, is_static_manifest},
};

use super::host::{HostError, failed, read, remove_file};
use crate::manager::replace_file::replace_file;

pub(crate) struct AdmissionFolder(PathBuf);

impl AdmissionFolder {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Writes the file in the folder of a kind, or removes it. Does nothing if the API server of the host has no such folder. Returns
    /// whether the file has changed.
    pub(crate) fn write(&self, folder: &str, manifest: &StaticManifest) -> Result<bool, HostError> {
        let Some(path) = self.file_in(folder)? else {
            return Ok(false);
        };
        let before = read(&path)?;
        if before.as_deref().is_some_and(|before| !is_ours(before)) {
            return Err(HostError::Foreign(path));
        }
        match manifest {
            StaticManifest::Unchanged => Ok(false),
            StaticManifest::Absent => {
                remove_file(&path)?;
                Ok(before.is_some())
            }
            StaticManifest::Same(manifest) => {
                let content = text(manifest).into_bytes();
                if before.as_ref() == Some(&content) {
                    return Ok(false);
                }
                replace_file(&path, &content, 0o644, None).map_err(|error| failed("write", &path, error))?;
                Ok(true)
            }
        }
    }

    /// Removes the files that the anchor has written. Returns whether there were any. Leaves the folders and the API server's own
    /// configuration file, because the API server does not start without them.
    pub(crate) fn remove(&self) -> Result<bool, HostError> {
        let mut removed = false;
        for (_, folder, _) in ADMISSION_KINDS {
            removed |= self.write(folder, &StaticManifest::Absent)?;
        }
        Ok(removed)
    }

    fn file_in(&self, folder: &str) -> Result<Option<PathBuf>, HostError> {
        let folder = self.0.join(folder);
        match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Some(folder.join(MANIFEST))),
            Ok(_) => Err(HostError::Foreign(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &folder, error)),
        }
    }
}

fn is_ours(manifest: &[u8]) -> bool {
    std::str::from_utf8(manifest).is_ok_and(is_static_manifest)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kcp_rules::registration::static_manifest;
    use serde_json::{Value, json};

    use super::*;

    const KIND: &str = "MutatingWebhookConfiguration";
    const MUTATING: &str = "mutating";
    const VALIDATING: &str = "validating";

    fn stored(port: u16) -> Value {
        json!({"webhooks": [{"name": "a", "clientConfig": {"url": format!("https://127.0.0.1:{port}/mutate")}}]})
    }

    fn same(port: u16) -> StaticManifest {
        static_manifest(KIND, Some(&stored(port)))
    }

    #[test]
    fn follows_the_stored_configuration_and_leaves_the_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = AdmissionFolder::new(root.path());
        assert!(
            !folder.write(MUTATING, &same(1)).unwrap(),
            "there is no folder yet"
        );
        fs::create_dir(root.path().join(MUTATING)).unwrap();
        let file = root.path().join(MUTATING).join(MANIFEST);
        assert!(folder.write(MUTATING, &same(1)).unwrap());
        assert!(!folder.write(MUTATING, &same(1)).unwrap());
        assert!(folder.write(MUTATING, &same(2)).unwrap());
        assert!(!folder.write(MUTATING, &StaticManifest::Unchanged).unwrap());
        let written: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(same(2), StaticManifest::Same(written));
        assert!(!folder.write(VALIDATING, &same(2)).unwrap());
        assert!(folder.remove().unwrap());
        assert!(!folder.remove().unwrap());
        assert!(root.path().join(MUTATING).is_dir());
    }

    #[test]
    fn leaves_a_file_of_somebody_else() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(MUTATING)).unwrap();
        let file = root.path().join(MUTATING).join(MANIFEST);
        fs::write(&file, "kind: MutatingWebhookConfiguration").unwrap();
        let folder = AdmissionFolder::new(root.path());
        for manifest in [same(1), StaticManifest::Absent] {
            let error = folder.write(MUTATING, &manifest).unwrap_err();
            assert!(matches!(error, HostError::Foreign(path) if path == file));
        }
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "kind: MutatingWebhookConfiguration"
        );
    }
}
