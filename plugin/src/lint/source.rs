//! The files to read.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use kcp_rules::{Configuration, topics};
use serde_saphyr::UserMessageFormatter;

use super::document::MAX_BYTES;

/// What `-f -` is called in findings.
pub(super) const STDIN: &str = "-";

/// Files that a folder is searched for: kubectl's extensions.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// A file or folder that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// By the system's word.
    #[error("cannot read {path}: {cause}")]
    Io {
        /// As it was named.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A file that no manifest is.
    #[error("cannot read {path}: more than {} MiB", MAX_BYTES >> 20)]
    TooLarge {
        /// As it was named.
        path: String,
    },
    /// A folder with nothing to read.
    #[error("no .json, .yaml or .yml file in {path}")]
    Empty {
        /// As it was named.
        path: String,
    },
}

impl SourceError {
    /// The file or folder.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Io { path, .. } | Self::TooLarge { path } | Self::Empty { path } => path,
        }
    }
}

/// The files that a `-f` names: itself, or the manifests of the folder in order of their names.
pub(super) fn files(named: &Path, recursive: bool) -> Result<Vec<PathBuf>, SourceError> {
    if named == Path::new(STDIN) || !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let mut found = Vec::new();
    search(named, recursive, &mut found)?;
    if found.is_empty() {
        return Err(SourceError::Empty {
            path: named.display().to_string(),
        });
    }
    found.sort();
    Ok(found)
}

fn search(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<(), SourceError> {
    let io = |cause| SourceError::Io {
        path: folder.display().to_string(),
        cause,
    };
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let path = entry.path();
        // Links to folders are not followed: they may lead in a circle.
        if entry.file_type().map_err(io)?.is_dir() {
            if recursive {
                search(&path, recursive, found)?;
            }
        } else if is_manifest(&path) && !path.is_dir() {
            found.push(path);
        }
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// A file's content.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, SourceError> {
    let path = || file.display().to_string();
    let content = if file == Path::new(STDIN) {
        content(io::stdin().lock())
    } else {
        File::open(file).and_then(content)
    };
    let content = content.map_err(|cause| SourceError::Io { path: path(), cause })?;
    content.ok_or_else(|| SourceError::TooLarge { path: path() })
}

/// None when there is too much of it.
fn content(reader: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    let read = reader.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    Ok((read as u64 <= MAX_BYTES).then_some(content))
}

/// Reads an `AdmissionConfiguration`.
pub(super) fn configuration(file: &Path) -> Result<Configuration, ConfigurationFileError> {
    let fault = |message: String| ConfigurationFileError {
        path: file.display().to_string(),
        message,
    };
    let content = read(file).map_err(|error| fault(error.to_string()))?;
    let configuration: Configuration = serde_saphyr::from_slice(&content).map_err(|error| {
        fault(
            error
                .without_snippet()
                .render_with_formatter(&UserMessageFormatter),
        )
    })?;
    configuration
        .checked(topics::is_rule)
        .map_err(|error| fault(error.to_string()))
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the configuration {path}: {message}")]
pub(super) struct ConfigurationFileError {
    path: String,
    message: String,
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{self, Read as _},
        path::Path,
    };

    use super::{MAX_BYTES, SourceError, content, files, read};

    #[test]
    fn a_folder_is_its_manifests_in_order() {
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
        assert!(matches!(
            files(&root.join("deep"), false),
            Err(SourceError::Empty { .. })
        ));
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
        // One that leads nowhere is left to say so when it is read.
        let expected = ["a.yaml", "linked.yaml", "lost.yaml"].map(|name| root.join(name));
        for recursive in [false, true] {
            assert_eq!(files(root, recursive).unwrap(), expected);
        }
    }

    #[test]
    fn an_absent_file_is_named() {
        let named = Path::new("no/such/file.yaml");
        assert_eq!(files(named, false).unwrap(), [named]);
        let error = read(named).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read no/such/file.yaml: No such file"),
            "{error}"
        );
    }

    #[test]
    fn a_file_has_a_limit() {
        assert_eq!(
            content(io::repeat(b' ').take(MAX_BYTES)).unwrap().unwrap().len() as u64,
            MAX_BYTES
        );
        assert!(content(io::repeat(b' ')).unwrap().is_none());
    }
}
