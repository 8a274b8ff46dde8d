//! Reads and creates files that the user names on the command line.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// The file name that means stdin, as in kubectl.
pub const STDIN: &str = "-";

/// The maximum size of a file in bytes. It is enough for a thousand large manifests.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file that the user named could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {cause}")]
    Io { path: String, cause: io::Error },
    #[error("cannot read {path}: larger than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge { path: String },
    #[error("cannot write {path}: {cause}")]
    Write { path: String, cause: io::Error },
}

impl FileError {
    pub fn path(&self) -> &str {
        match self {
            Self::Io { path, .. } | Self::Write { path, .. } | Self::TooLarge { path } => path,
        }
    }
}

/// Reads a file that the user named, or stdin.
pub fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let path = || file.display().to_string();
    let content = if file == Path::new(STDIN) {
        content(io::stdin().lock())
    } else {
        File::open(file).and_then(content)
    };
    let content = content.map_err(|cause| FileError::Io { path: path(), cause })?;
    content.ok_or_else(|| FileError::TooLarge { path: path() })
}

/// A new file that appears under its name only when it is complete. Until then it has a temporary name in the same
/// folder, which ends with `.part`. Only its owner can read it.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl NewFile {
    /// Creates the temporary file.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let fails = |cause| FileError::Write {
            path: path.display().to_string(),
            cause,
        };
        if path.symlink_metadata().is_ok() {
            let exists = if path.is_dir() {
                "a folder with this name already exists"
            } else {
                "a file with this name already exists"
            };
            return Err(fails(io::Error::new(io::ErrorKind::AlreadyExists, exists)));
        }
        if !folder(path).is_dir() {
            let missing = format!("the folder {} does not exist", folder(path).display());
            return Err(fails(io::Error::new(io::ErrorKind::NotFound, missing)));
        }
        let name = path
            .file_name()
            .ok_or_else(|| fails(io::ErrorKind::IsADirectory.into()))?;
        let temporary = tempfile::Builder::new()
            .prefix(&format!(".{}.", name.to_string_lossy()))
            .suffix(".part")
            .tempfile_in(folder(path))
            .map_err(fails)?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
        })
    }

    /// The name that the file gets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file until it is complete. Another program may read the file.
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// Stores the content durably, and then gives the file its name. Fails if the content cannot be stored, or another file now
    /// has the name.
    pub fn finish(self) -> Result<(), FileError> {
        let Self { path, temporary } = self;
        let stored = temporary
            .as_file()
            .sync_all()
            .and_then(|()| temporary.persist_noclobber(&path).map_err(|error| error.error))
            .and_then(|_| File::open(folder(&path))?.sync_all());
        stored.map_err(|cause| FileError::Write {
            path: path.display().to_string(),
            cause,
        })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}

/// The folder of a file; the current folder for a bare name.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Reads everything; `None` if the content exceeds [`MAX_FILE_BYTES`].
fn content(reader: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    let read = reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    Ok((read as u64 <= MAX_FILE_BYTES).then_some(content))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _, Write as _},
        path::Path,
    };

    use super::{MAX_FILE_BYTES, NewFile, content, read};

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_new_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.db");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        let until_then = names(folder.path());
        let [part] = until_then.as_slice() else {
            panic!("{until_then:?}");
        };
        assert!(part.starts_with(".edge.db."), "{part}");
        assert_eq!(Path::new(part).extension(), Some("part".as_ref()));
        drop(file);
        assert_eq!(names(folder.path()), Vec::<String>::new());

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["edge.db"]);
    }

    #[test]
    fn a_new_file_replaces_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.db");
        let late = NewFile::create(&path).unwrap();
        std::fs::write(&path, b"theirs").unwrap();
        assert!(late.finish().is_err());
        let error = NewFile::create(&path).unwrap_err().to_string();
        assert!(error.contains("edge.db: ") && error.contains("exists"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(folder.path()), ["edge.db"]);
    }

    #[test]
    fn an_absent_folder_is_named() {
        let error = NewFile::create(Path::new("no/such/x.db"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "cannot write no/such/x.db: the folder no/such does not exist"
        );
    }

    #[test]
    fn an_absent_file_is_named() {
        let error = read(Path::new("no/such/file.yaml")).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read no/such/file.yaml: No such file"),
            "{error}"
        );
    }

    #[test]
    fn a_file_has_a_limit() {
        assert_eq!(
            content(io::repeat(b' ').take(MAX_FILE_BYTES))
                .unwrap()
                .unwrap()
                .len() as u64,
            MAX_FILE_BYTES
        );
        assert!(content(io::repeat(b' ')).unwrap().is_none());
    }
}
