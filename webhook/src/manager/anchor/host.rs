//! The files of the static Pod on the host.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use kcp_rules::anchor::{
    CONFIGURATION, KEY_PAIR, KUBECONFIG, MANIFEST, STAMP, STAMP_TEXT, TOKEN, is_written_by_anchor,
};
use thiserror::Error;

use crate::manager::replace_file::{replace_file, sync_folder, temporary};

/// The files that the anchor writes to its folder, besides the stamp.
const FILES: [&str; 4] = [KEY_PAIR, CONFIGURATION, KUBECONFIG, TOKEN];

/// The manifest of the API server that kubeadm writes.
const API_SERVER: &str = "kube-apiserver.yaml";

/// Why the files cannot be written or removed.
#[derive(Debug, Error)]
pub(crate) enum HostError {
    #[error(
        "{} was not written by kcp-webhook anchor, so it stays as it is; move it away, or run the anchor with other folders",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

/// What a file should be. No `Debug`, because it contains the private key or the token.
pub(crate) enum Wanted {
    Content(Vec<u8>),
    /// This content, but only if the file does not exist yet. An existing file stays as it is.
    Initially(Vec<u8>),
    Absent,
}

/// The folders on the host.
pub(crate) struct Host {
    manifest_folder: PathBuf,
    folder: PathBuf,
    user: u32,
}

impl Host {
    /// `user` is the user of the static Pod. The files belong to this user if the process may change the owner of files.
    pub(crate) fn new(manifest_folder: &Path, folder: &Path, user: u32) -> Self {
        Self {
            manifest_folder: manifest_folder.to_owned(),
            folder: folder.to_owned(),
            user,
        }
    }

    pub(crate) fn has_api_server(&self) -> Result<bool, HostError> {
        let manifest = self.manifest_folder.join(API_SERVER);
        manifest
            .try_exists()
            .map_err(|error| failed("read", &manifest, error))
    }

    /// Whether the anchor's manifest exists and differs from `manifest`. If it differs, the kubelet stops the static Pod before
    /// it starts the next one.
    pub(crate) fn has_another_manifest(&self, manifest: &str) -> Result<bool, HostError> {
        let before = self.own_manifest()?;
        Ok(before.is_some_and(|before| before != manifest.as_bytes()))
    }

    /// Writes the files that differ, in this order, and the manifest last. Returns the names of the files that it has written.
    pub(crate) fn write(
        &self,
        files: &[(&'static str, Wanted)],
        manifest: &str,
    ) -> Result<Vec<&'static str>, HostError> {
        let manifest_before = self.own_manifest()?;
        let owner = self.open_folder()?;
        let mut written = Vec::new();
        for (name, wanted) in files {
            let path = self.folder.join(name);
            let before = read(&path)?;
            match wanted {
                Wanted::Content(content) if before.as_ref() == Some(content) => {}
                Wanted::Initially(_) if before.is_some() => {}
                Wanted::Content(content) | Wanted::Initially(content) => {
                    replace_file(&path, content, 0o600, owner)
                        .map_err(|error| failed("write", &path, error))?;
                    written.push(*name);
                }
                Wanted::Absent => remove_file(&path)?,
            }
        }
        if manifest_before.as_deref() != Some(manifest.as_bytes()) {
            let path = self.manifest_folder.join(MANIFEST);
            replace_file(&path, manifest.as_bytes(), 0o644, None)
                .map_err(|error| failed("write", &path, error))?;
            written.push(MANIFEST);
        }
        Ok(written)
    }

    /// Removes the manifest, then the other files. Leaves what the anchor has not written. Returns whether something was removed.
    pub(crate) fn remove(&self) -> Result<bool, HostError> {
        let mut removed = false;
        let manifest = self.manifest_folder.join(MANIFEST);
        if matches!(self.own_manifest(), Ok(Some(_))) {
            remove_file(&manifest)?;
            removed = true;
        }
        if read(&self.folder.join(STAMP))?.is_none() {
            return Ok(removed);
        }
        // The stamp is last, so that an anchor that is killed here can continue.
        for name in FILES.into_iter().chain([STAMP]) {
            let path = self.folder.join(name);
            remove_file(&temporary(&path))?;
            remove_file(&path)?;
        }
        match fs::remove_dir(&self.folder) {
            // Files that the anchor has not written stay. In a container, the folder is a mount point.
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy
                ) =>
            {
                Err(failed("remove", &self.folder, error))
            }
            _ => Ok(true),
        }
    }

    /// Returns the manifest that the anchor has written. `None` if there is no manifest. Fails if the anchor has not written the
    /// manifest.
    fn own_manifest(&self) -> Result<Option<Vec<u8>>, HostError> {
        let path = self.manifest_folder.join(MANIFEST);
        match read(&path)? {
            Some(manifest) if !is_ours(&manifest) => Err(HostError::Foreign(path)),
            manifest => Ok(manifest),
        }
    }

    /// Creates the folder and its stamp. Returns the owner of new files.
    fn open_folder(&self) -> Result<Option<u32>, HostError> {
        let folder = &self.folder;
        let stamp = folder.join(STAMP);
        let create = || fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        create().map_err(|error| failed("create", folder, error))?;
        let metadata = fs::metadata(folder).map_err(|error| failed("read", folder, error))?;
        // Only root can give files away.
        let owner = (metadata.uid() == 0 || metadata.uid() == self.user).then_some(self.user);
        if read(&stamp)?.is_none() {
            remove_file(&temporary(&stamp))?;
            let mut entries = fs::read_dir(folder).map_err(|error| failed("read", folder, error))?;
            if entries.next().is_some() {
                return Err(HostError::Foreign(folder.clone()));
            }
            replace_file(&stamp, STAMP_TEXT.as_bytes(), 0o644, owner)
                .map_err(|error| failed("write", &stamp, error))?;
        }
        if metadata.uid() == 0 {
            chown(folder, owner, owner).map_err(|error| failed("give away", folder, error))?;
        }
        Ok(owner)
    }
}

fn is_ours(manifest: &[u8]) -> bool {
    std::str::from_utf8(manifest).is_ok_and(is_written_by_anchor)
}

pub(super) fn failed(action: &'static str, path: &Path, error: io::Error) -> HostError {
    HostError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The content of a file. `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// Removes a file that may not exist.
pub(super) fn remove_file(path: &Path) -> Result<(), HostError> {
    match fs::remove_file(path).and_then(|()| sync_folder(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _};

    use kcp_rules::anchor::{ANCHOR, WRITTEN_BY};
    use tempfile::TempDir;

    use super::*;

    struct Fixture {
        root: TempDir,
        host: Host,
    }

    fn fixture() -> Fixture {
        let root = tempfile::tempdir().unwrap();
        let manifests = root.path().join("manifests");
        fs::create_dir(&manifests).unwrap();
        // The user of the test, who may give files to itself.
        let user = fs::metadata(&manifests).unwrap().uid();
        let host = Host::new(&manifests, &root.path().join("kcp-webhook"), user);
        Fixture { root, host }
    }

    impl Fixture {
        fn put(&self, path: &str, content: &str) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// The path and the content of each file.
        fn files(&self) -> BTreeMap<String, String> {
            let mut files = BTreeMap::new();
            for folder in ["manifests", "kcp-webhook"] {
                let Ok(entries) = fs::read_dir(self.root.path().join(folder)) else {
                    continue;
                };
                for entry in entries {
                    let entry = entry.unwrap();
                    let name = entry.file_name().into_string().unwrap();
                    let content = fs::read_to_string(entry.path()).unwrap();
                    files.insert(format!("{folder}/{name}"), content);
                }
            }
            files
        }

        fn names(&self) -> Vec<String> {
            self.files().into_keys().collect()
        }
    }

    fn manifest(image: &str) -> String {
        format!("metadata: {{annotations: {{{WRITTEN_BY}: {ANCHOR}}}}}\nimage: {image}\n")
    }

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    impl Fixture {
        /// Writes all files, with this key pair and configuration.
        fn write(&self, pair: &str, configuration: Option<&str>) -> Result<Vec<&'static str>, HostError> {
            let configuration = configuration.map_or(Wanted::Absent, |text| Wanted::Content(bytes(text)));
            let files = [
                (KEY_PAIR, Wanted::Content(bytes(pair))),
                (CONFIGURATION, configuration),
                (KUBECONFIG, Wanted::Content(bytes("kubeconfig"))),
                (TOKEN, Wanted::Initially(bytes("none"))),
            ];
            self.host.write(&files, &manifest("one"))
        }
    }

    const ALL: [&str; 5] = [
        "kcp-webhook/kubeconfig",
        "kcp-webhook/tls.pem",
        "kcp-webhook/token",
        "kcp-webhook/written-by-kcp-webhook-anchor",
        "manifests/kcp-webhook.yaml",
    ];

    #[test]
    fn writes_what_differs_and_the_manifest_last() {
        let fixture = fixture();
        assert!(!fixture.host.has_another_manifest(&manifest("one")).unwrap());
        let written = fixture.write("one", None).unwrap();
        assert_eq!(written, ["tls.pem", "kubeconfig", "token", "kcp-webhook.yaml"]);
        assert_eq!(fixture.names(), ALL);
        let mode = |path: &str| {
            let metadata = fs::metadata(fixture.root.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(
            ["kcp-webhook", "kcp-webhook/tls.pem", "manifests/kcp-webhook.yaml"].map(mode),
            [0o700, 0o600, 0o644]
        );
        assert!(fixture.write("one", None).unwrap().is_empty());
        assert_eq!(fixture.write("two", None).unwrap(), ["tls.pem"]);
        assert!(!fixture.host.has_another_manifest(&manifest("one")).unwrap());
        assert!(fixture.host.has_another_manifest(&manifest("two")).unwrap());
    }

    #[test]
    fn a_token_stays_until_there_is_another_one() {
        let fixture = fixture();
        fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
        fixture.put("kcp-webhook/token", "of the anchor before");
        fixture.write("one", None).unwrap();
        assert_eq!(fixture.files()["kcp-webhook/token"], "of the anchor before");
    }

    #[test]
    fn a_file_that_is_no_longer_wanted_is_removed() {
        let fixture = fixture();
        fixture.write("one", Some("rules: {}")).unwrap();
        assert!(
            fixture
                .names()
                .contains(&"kcp-webhook/configuration.yaml".to_owned())
        );
        fixture.write("one", None).unwrap();
        assert_eq!(fixture.names(), ALL);
    }

    #[test]
    fn takes_over_the_files_of_a_kubeadm_control_plane() {
        let fixture = fixture();
        fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
        fixture.put("kcp-webhook/tls.pem", "of the first boot");
        fixture.put("manifests/kcp-webhook.yaml", &manifest("of the first boot"));
        fixture.write("one", None).unwrap();
        assert_eq!(fixture.names(), ALL);
        assert_eq!(fixture.files()["kcp-webhook/tls.pem"], "one");
    }

    #[test]
    fn continues_after_a_crash_at_any_file() {
        for half_written in ["written-by-kcp-webhook-anchor", "tls.pem", "token"] {
            let fixture = fixture();
            if half_written != "written-by-kcp-webhook-anchor" {
                fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
            }
            fixture.put(&format!("kcp-webhook/.{half_written}.new"), "half a k");
            fixture.write("one", None).unwrap();
            assert_eq!(fixture.names(), ALL, "{half_written}");
        }
    }

    #[test]
    fn removes_what_a_crash_has_left() {
        let fixture = fixture();
        fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
        fixture.put("kcp-webhook/.tls.pem.new", "half a k");
        assert!(fixture.host.remove().unwrap());
        assert!(!fixture.root.path().join("kcp-webhook").exists());
    }

    #[test]
    fn leaves_a_manifest_of_somebody_else() {
        let fixture = fixture();
        fixture.put("manifests/kcp-webhook.yaml", "kind: Pod\n");
        let before = fixture.files();
        let error = fixture.write("one", None).unwrap_err();
        let path = fixture.root.path().join("manifests/kcp-webhook.yaml");
        assert_eq!(
            error.to_string(),
            format!(
                "{} was not written by kcp-webhook anchor, so it stays as it is; move it away, or run the anchor with other \
                 folders",
                path.display()
            )
        );
        assert!(!fixture.host.remove().unwrap());
        assert_eq!(fixture.files(), before);
    }

    #[test]
    fn leaves_a_folder_of_somebody_else() {
        let fixture = fixture();
        fixture.put("kcp-webhook/tls.pem", "theirs");
        let before = fixture.files();
        assert!(matches!(
            fixture.write("one", None),
            Err(HostError::Foreign(path)) if path.ends_with("kcp-webhook")
        ));
        assert!(!fixture.host.remove().unwrap());
        assert_eq!(fixture.files(), before);
    }

    #[test]
    fn removes_only_what_it_has_written() {
        let fixture = fixture();
        fixture.write("one", None).unwrap();
        fixture.put("manifests/kube-apiserver.yaml", "kind: Pod\n");
        fixture.put("kcp-webhook/notes", "theirs");
        assert!(fixture.host.has_api_server().unwrap());
        assert!(fixture.host.remove().unwrap());
        assert_eq!(
            fixture.names(),
            ["kcp-webhook/notes", "manifests/kube-apiserver.yaml"]
        );
        assert!(!fixture.host.remove().unwrap());
    }

    #[test]
    fn removes_its_folder() {
        let fixture = fixture();
        fixture.write("one", None).unwrap();
        assert!(fixture.host.remove().unwrap());
        assert!(!fixture.root.path().join("kcp-webhook").exists());
        assert!(!fixture.host.remove().unwrap());
    }
}
