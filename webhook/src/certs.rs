//! `kcp-webhook certs issue`: creates a certificate authority and a serving certificate for development.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};

use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::{
    arguments::IssueArguments,
    authority::{Authority, CertificateError, ServerNames},
};

/// Why certificates could not be issued.
#[derive(Debug, Error)]
pub enum IssueError {
    /// A file exists, and `--force` is not set.
    #[error("{} already exists; use --force to overwrite it", .0.display())]
    Exists(PathBuf),
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// The contents of the files, in the order in which they are written. If a server reloads the files between two of
/// these writes, it finds a certificate and a key that do not match, keeps the previous key pair, and tries again.
struct IssuedFiles {
    authority: String,
    certificate: String,
    key: String,
}

/// Writes `ca.crt`, `tls.crt` and `tls.key`, and prints their paths.
pub fn issue(arguments: &IssueArguments, out: &mut impl Write) -> Result<(), IssueError> {
    let [authority, certificate, key] = ["ca.crt", "tls.crt", "tls.key"].map(|name| arguments.dir.join(name));
    if !arguments.force {
        for path in [&authority, &certificate, &key] {
            // Unlike `exists`, this also finds a dangling link.
            if fs::symlink_metadata(path).is_ok() {
                return Err(IssueError::Exists(path.clone()));
            }
        }
    }
    let issued = create(&arguments.dns_names, &arguments.ips, arguments.days)?;
    fs::create_dir_all(&arguments.dir).map_err(|error| IssueError::Write {
        path: arguments.dir.clone(),
        error,
    })?;
    for (path, text, mode) in [
        (&authority, &issued.authority, 0o644),
        (&certificate, &issued.certificate, 0o644),
        (&key, &issued.key, 0o600),
    ] {
        replace(path, text, mode)
            .and_then(|()| writeln!(out, "{}", path.display()))
            .map_err(|error| IssueError::Write {
                path: path.clone(),
                error,
            })?;
    }
    Ok(())
}

fn create(dns_names: &[String], ips: &[IpAddr], days: u16) -> Result<IssuedFiles, CertificateError> {
    let now = OffsetDateTime::now_utc();
    let validity = Duration::days(days.into());
    let authority = Authority::create("kcp-webhook development CA", now, validity)?;
    let issued = authority.issue(ServerNames { dns_names, ips }, now, now + validity)?;
    Ok(IssuedFiles {
        authority: authority.certificate().to_owned(),
        certificate: issued.certificate,
        key: issued.key,
    })
}

/// Writes a temporary file and renames it, so that readers get either the old or the new content, and a key is never
/// readable by other users.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", process::id()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Return the first error, not an error of the cleanup.
        _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests;
