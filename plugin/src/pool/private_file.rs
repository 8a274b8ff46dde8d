//! A file that only this user may read, and that goes with its value.

use std::{
    env, fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::generated_name;

/// A file in the system's folder for temporary ones.
#[derive(Debug)]
pub(super) struct PrivateFile {
    path: PathBuf,
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {cause}")]
pub(super) struct WriteError {
    path: String,
    cause: io::Error,
}

impl PrivateFile {
    /// Writes it.
    ///
    /// # Errors
    /// When the system does not let us.
    pub(super) fn create(content: &str) -> Result<Self, WriteError> {
        let path = env::temp_dir().join(generated_name::generate("kcp-install-config-"));
        let failed = |cause| WriteError {
            path: path.display().to_string(),
            cause,
        };
        let opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let mut file = opened.map_err(failed)?;
        // From here on it is ours, and goes even if it is not whole.
        let private = Self { path: path.clone() };
        file.write_all(content.as_bytes()).map_err(failed)?;
        Ok(private)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::PrivateFile;

    #[test]
    fn nobody_else_reads_it_and_it_goes() {
        let file = PrivateFile::create("pullSecret: sesame\n").unwrap();
        let path = file.path().to_owned();
        assert_eq!(fs::read_to_string(&path).unwrap(), "pullSecret: sesame\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }
}
