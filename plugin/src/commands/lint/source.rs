//! Finds the manifests in the files and folders that the user named.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    commands::lint::substitution::SubstitutionError,
    file::{FileError, STDIN},
};

/// The extensions of manifests in a folder, the same as kubectl's.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// A file or folder that the user named could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no .json, .yaml or .yml file in {path}{}", if *recursive { "" } else { "; to read its subfolders, too, pass -R" })]
    Empty { path: String, recursive: bool },
    #[error("cannot read {path}: lint reads no URL; write: curl -sL {path} | kubectl kcp lint -f -")]
    Url { path: String },
    #[error("cannot fill the template {path}: {cause}")]
    Template { path: String, cause: SubstitutionError },
}

impl SourceError {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::File(error) => error.path(),
            Self::Empty { path, .. } | Self::Url { path } | Self::Template { path, .. } => path,
        }
    }
}

/// The files that one `-f` names: the file itself, or the manifests in the folder, sorted by name.
pub(super) fn files(named: &Path, recursive: bool) -> Result<Vec<PathBuf>, SourceError> {
    // kubectl downloads what such a name refers to.
    if named.starts_with("https:") || named.starts_with("http:") {
        return Err(SourceError::Url {
            path: named.display().to_string(),
        });
    }
    if named == Path::new(STDIN) || !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let mut found = Vec::new();
    search(named, recursive, &mut found)?;
    if found.is_empty() {
        return Err(SourceError::Empty {
            path: named.display().to_string(),
            recursive,
        });
    }
    found.sort();
    Ok(found)
}

fn search(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    let io = |cause| FileError::Io {
        path: folder.display().to_string(),
        cause,
    };
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let path = entry.path();
        // Do not follow a link to a folder, because such links can form a cycle.
        if entry.file_type().map_err(io)?.is_dir() {
            if recursive {
                search(&path, recursive, found)?;
            }
        } else if is_manifest(&path) && !is_special(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the path is a folder, or a special file, such as a named pipe, from which a read may block forever. A
/// broken link counts as a file, so that reading it reports an error.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::files;

    #[test]
    fn reads_the_manifests_of_a_folder_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("deep/er")).unwrap();
        for name in ["b.yml", "a.yaml", "c.json", "README.md", "deep/er/d.yaml"] {
            fs::write(root.join(name), "").unwrap();
        }
        let names = |recursive| -> Vec<String> {
            let found = files(root, recursive).unwrap();
            found
                .iter()
                .map(|path| path.strip_prefix(root).unwrap().display().to_string())
                .collect()
        };
        assert_eq!(names(false), ["a.yaml", "b.yml", "c.json"]);
        assert_eq!(names(true), ["a.yaml", "b.yml", "c.json", "deep/er/d.yaml"]);
        let deep = root.join("deep");
        assert_eq!(
            files(&deep, false).unwrap_err().to_string(),
            format!(
                "no .json, .yaml or .yml file in {}; to read its subfolders, too, pass -R",
                deep.display()
            )
        );
    }

    #[test]
    fn a_url_is_no_file() {
        let error = files(Path::new("https://example.com/x.yaml"), false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read https://example.com/x.yaml: lint reads no URL; write: curl -sL https://example.com/x.yaml | \
             kubectl kcp lint -f -"
        );
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_a_folder_is_no_manifest() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("deep")).unwrap();
        fs::write(root.join("a.yaml"), "").unwrap();
        symlink("deep", root.join("folder.yaml")).unwrap();
        symlink("a.yaml", root.join("linked.yaml")).unwrap();
        symlink("nowhere", root.join("lost.yaml")).unwrap();
        // A broken link is included, so that reading it reports an error.
        let expected = ["a.yaml", "linked.yaml", "lost.yaml"].map(|name| root.join(name));
        for recursive in [false, true] {
            assert_eq!(files(root, recursive).unwrap(), expected);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_named_pipe_is_no_manifest() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        mknodat(CWD, root.join("pipe.yaml"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(root.join("a.yaml"), "").unwrap();
        assert_eq!(files(root, false).unwrap(), [root.join("a.yaml")]);
    }

    #[test]
    fn a_missing_file_fails_when_it_is_read() {
        let named = Path::new("no/such/file.yaml");
        assert_eq!(files(named, false).unwrap(), [named]);
    }
}
