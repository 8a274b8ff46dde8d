//! Reads files that the user names on the command line.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The file name that means stdin, as in kubectl.
pub const STDIN: &str = "-";

/// The maximum size of a file in bytes. It is enough for a thousand large manifests.
pub const MAX_BYTES: u64 = 16 << 20;

/// A file that the user named could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}: {cause}")]
    Io { path: String, cause: io::Error },
    #[error("cannot read {path}: more than {} MiB", MAX_BYTES >> 20)]
    TooLarge { path: String },
}

impl FileError {
    pub fn path(&self) -> &str {
        match self {
            Self::Io { path, .. } | Self::TooLarge { path } => path,
        }
    }
}

/// Reads a file that the user named, or stdin.
///
/// # Errors
/// The file cannot be read, or exceeds [`MAX_BYTES`].
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

/// Reads everything; `None` if that is more than [`MAX_BYTES`].
fn content(reader: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    let read = reader.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    Ok((read as u64 <= MAX_BYTES).then_some(content))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _},
        path::Path,
    };

    use super::{MAX_BYTES, content, read};

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
            content(io::repeat(b' ').take(MAX_BYTES)).unwrap().unwrap().len() as u64,
            MAX_BYTES
        );
        assert!(content(io::repeat(b' ')).unwrap().is_none());
    }
}
