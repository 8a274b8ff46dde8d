//! Replaces a file atomically: a reader gets either the old or the new content, even after a crash of the host.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// Writes a temporary file and renames it. A key is never readable by other users, because the temporary file gets its mode and
/// its owner before its content. `owner` is used as the id of both the user and the group. Two processes must not replace the
/// same file at the same time.
pub(crate) fn replace_file(path: &Path, content: &[u8], mode: u32, owner: Option<u32>) -> io::Result<()> {
    let temporary = temporary(path);
    // Remove the temporary file of an earlier process that was killed before it renamed the file.
    _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            if owner.is_some() {
                fchown(&file, owner, owner)?;
            }
            file.write_all(content)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| sync_folder(path));
    if written.is_err() {
        // Return the first error, not an error of the cleanup.
        _ = fs::remove_file(&temporary);
    }
    written
}

/// The temporary file of a file. Its name begins with a dot: a kubelet runs no static Pod from such a file (Kubernetes
/// documentation, "Create static Pods").
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Makes the renaming or the removal of a file last through a crash of the host.
pub(crate) fn sync_folder(of_file: &Path) -> io::Result<()> {
    match of_file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}
