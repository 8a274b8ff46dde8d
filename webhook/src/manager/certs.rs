//! `kcp-webhook certs issue`: creates a certificate authority and a serving certificate for development.

use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    path::PathBuf,
};

use thiserror::Error;
use time::{Duration, OffsetDateTime};

use super::{
    authority::{Authority, CertificateError, ServerNames},
    replace_file::replace_file,
};
use crate::arguments::IssueArguments;

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
        replace_file(path, text.as_bytes(), mode, None)
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

#[cfg(test)]
mod tests;
