//! The files of the static Pod on the host.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use kcp_rules::anchor::{
    CA_CERTIFICATES, CERTIFICATE, CONFIGURATION, KUBECONFIG, MANIFEST, PRIVATE_KEY, STAMP, STAMP_TEXT, TOKEN,
    is_written_by_anchor,
};
use thiserror::Error;

use crate::replace_file::{replace_file, sync_folder};

/// The files that the anchor writes to its folder, in this order. The private key comes before the certificate. The stamp,
/// which comes before all of them, and the manifest, which comes last, are not in this list.
const FILES: [&str; 6] = [
    CA_CERTIFICATES,
    PRIVATE_KEY,
    CERTIFICATE,
    CONFIGURATION,
    KUBECONFIG,
    TOKEN,
];

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

/// The content of the files. No `Debug`, because it contains the private key and the token.
pub(crate) struct Content {
    pub(crate) manifest: String,
    /// The content of each of [`FILES`]. None if the file is not wanted.
    pub(crate) files: [Option<Vec<u8>>; FILES.len()],
}

/// The folders on the host.
pub(crate) struct Host {
    manifest_folder: PathBuf,
    folder: PathBuf,
    user: u32,
}

impl Host {
    /// `user` is the user of the static Pod, to whom the files belong if this process may give them away.
    pub(crate) fn new(manifest_folder: &Path, folder: &Path, user: u32) -> Self {
        Self {
            manifest_folder: manifest_folder.to_owned(),
            folder: folder.to_owned(),
            user,
        }
    }

    pub(crate) fn has_api_server(&self) -> bool {
        self.manifest_folder.join(API_SERVER).exists()
    }

    /// Writes the files that differ, the manifest last. Returns the names of the files that it has written.
    pub(crate) fn write(&self, content: &Content) -> Result<Vec<&'static str>, HostError> {
        let manifest = self.manifest_folder.join(MANIFEST);
        let manifest_before = read(&manifest)?;
        if manifest_before.as_deref().is_some_and(|before| !is_ours(before)) {
            return Err(HostError::Foreign(manifest));
        }
        let mut written = Vec::new();
        let owner = self.open_folder()?;
        for (name, content) in FILES.into_iter().zip(&content.files) {
            let path = self.folder.join(name);
            let before = read(&path)?;
            match content {
                Some(content) if before.as_ref() != Some(content) => {
                    replace_file(&path, content, 0o600, owner)
                        .map_err(|error| failed("write", &path, error))?;
                    written.push(name);
                }
                None if before.is_some() => remove_file(&path)?,
                _ => {}
            }
        }
        if manifest_before.as_deref() != Some(content.manifest.as_bytes()) {
            replace_file(&manifest, content.manifest.as_bytes(), 0o644, None)
                .map_err(|error| failed("write", &manifest, error))?;
            written.push(MANIFEST);
        }
        Ok(written)
    }

    /// Removes the manifest, then the other files. Leaves what the anchor has not written. Returns whether something was removed.
    pub(crate) fn remove(&self) -> Result<bool, HostError> {
        let mut removed = false;
        let manifest = self.manifest_folder.join(MANIFEST);
        if read(&manifest)?.is_some_and(|before| is_ours(&before)) {
            remove_file(&manifest)?;
            removed = true;
        }
        if read(&self.folder.join(STAMP))?.is_none() {
            return Ok(removed);
        }
        // The stamp is last, so that an anchor that is killed here can continue.
        for name in FILES.into_iter().chain([STAMP]) {
            remove_file(&self.folder.join(name))?;
        }
        match fs::remove_dir(&self.folder) {
            // Files of others stay. In a container, the folder is a mount point.
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

fn failed(action: &'static str, path: &Path, error: io::Error) -> HostError {
    HostError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The content of a file. None if it does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, HostError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// Removes a file that may not exist.
fn remove_file(path: &Path) -> Result<(), HostError> {
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

    fn content(certificate: &str) -> Content {
        let bytes = |text: &str| Some(text.as_bytes().to_vec());
        Content {
            manifest: manifest("one"),
            files: [
                bytes("ca"),
                bytes("key"),
                bytes(certificate),
                None,
                bytes("kubeconfig"),
                bytes("token"),
            ],
        }
    }

    const ALL: [&str; 7] = [
        "kcp-webhook/ca.crt",
        "kcp-webhook/kubeconfig",
        "kcp-webhook/tls.crt",
        "kcp-webhook/tls.key",
        "kcp-webhook/token",
        "kcp-webhook/written-by-kcp-webhook-anchor",
        "manifests/kcp-webhook.yaml",
    ];

    #[test]
    fn writes_what_differs_and_the_manifest_last() {
        let fixture = fixture();
        let written = fixture.host.write(&content("one")).unwrap();
        assert_eq!(
            written,
            [
                "ca.crt",
                "tls.key",
                "tls.crt",
                "kubeconfig",
                "token",
                "kcp-webhook.yaml"
            ]
        );
        assert_eq!(fixture.names(), ALL);
        let mode = |path: &str| {
            let metadata = fs::metadata(fixture.root.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(
            ["kcp-webhook", "kcp-webhook/tls.key", "manifests/kcp-webhook.yaml"].map(mode),
            [0o700, 0o600, 0o644]
        );
        assert!(fixture.host.write(&content("one")).unwrap().is_empty());
        assert_eq!(fixture.host.write(&content("two")).unwrap(), ["tls.crt"]);
    }

    #[test]
    fn a_file_that_is_no_longer_wanted_is_removed() {
        let fixture = fixture();
        let mut content = content("one");
        content.files[3] = Some(b"rules: {}".to_vec());
        fixture.host.write(&content).unwrap();
        assert!(
            fixture
                .names()
                .contains(&"kcp-webhook/configuration.yaml".to_owned())
        );
        content.files[3] = None;
        fixture.host.write(&content).unwrap();
        assert_eq!(fixture.names(), ALL);
    }

    #[test]
    fn takes_over_the_files_of_a_kubeadm_control_plane() {
        let fixture = fixture();
        fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
        fixture.put("kcp-webhook/tls.crt", "of the first boot");
        fixture.put("manifests/kcp-webhook.yaml", &manifest("of the first boot"));
        fixture.host.write(&content("one")).unwrap();
        assert_eq!(fixture.names(), ALL);
        assert_eq!(fixture.files()["kcp-webhook/tls.crt"], "one");
    }

    #[test]
    fn continues_after_a_crash() {
        let fixture = fixture();
        fixture.put("kcp-webhook/written-by-kcp-webhook-anchor", STAMP_TEXT);
        let pid = std::process::id();
        fixture.put(&format!("kcp-webhook/.tls.key.{pid}.new"), "half a k");
        fixture.host.write(&content("one")).unwrap();
        assert_eq!(fixture.names(), ALL);
    }

    #[test]
    fn leaves_a_manifest_of_somebody_else() {
        let fixture = fixture();
        fixture.put("manifests/kcp-webhook.yaml", "kind: Pod\n");
        let before = fixture.files();
        let error = fixture.host.write(&content("one")).unwrap_err();
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
        fixture.put("kcp-webhook/tls.key", "theirs");
        let before = fixture.files();
        assert!(matches!(
            fixture.host.write(&content("one")),
            Err(HostError::Foreign(path)) if path.ends_with("kcp-webhook")
        ));
        assert!(!fixture.host.remove().unwrap());
        assert_eq!(fixture.files(), before);
    }

    #[test]
    fn removes_only_what_it_has_written() {
        let fixture = fixture();
        fixture.host.write(&content("one")).unwrap();
        fixture.put("manifests/kube-apiserver.yaml", "kind: Pod\n");
        fixture.put("kcp-webhook/notes", "theirs");
        assert!(fixture.host.has_api_server());
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
        fixture.host.write(&content("one")).unwrap();
        assert!(fixture.host.remove().unwrap());
        assert!(!fixture.root.path().join("kcp-webhook").exists());
        assert!(!fixture.host.remove().unwrap());
    }
}
