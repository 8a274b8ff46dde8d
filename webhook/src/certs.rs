//! `kcp-webhook certs issue`: a certificate authority and a serving certificate, for development.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use crate::arguments::IssueArguments;

/// How long before now certificates are valid from: clocks differ.
const SKEW: Duration = Duration::hours(1);

/// Certificates that were not issued.
#[derive(Debug, Error)]
pub enum IssueError {
    /// A file is there already.
    #[error("{} is there already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// A name that no certificate can carry.
    #[error("{name:?} is no name that a certificate can carry: {error}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        error: rcgen::Error,
    },
    /// A certificate or a key could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A file could not be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What is written, in this order: a server that looks in between finds a pair that does not match, keeps its own and
/// looks again.
struct Issued {
    authority: String,
    certificate: String,
    key: String,
}

/// Writes `ca.crt`, `tls.crt` and `tls.key`, and says so.
pub fn issue(arguments: &IssueArguments, out: &mut impl Write) -> Result<(), IssueError> {
    let [authority, certificate, key] = ["ca.crt", "tls.crt", "tls.key"].map(|name| arguments.dir.join(name));
    if !arguments.force {
        for path in [&authority, &certificate, &key] {
            // A dangling link is there too.
            if fs::symlink_metadata(path).is_ok() {
                return Err(IssueError::Exists(path.clone()));
            }
        }
    }
    let issued = make(&arguments.dns_names, &arguments.ips, arguments.days)?;
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

fn make(dns_names: &[String], ips: &[IpAddr], days: u16) -> Result<Issued, IssueError> {
    let now = OffsetDateTime::now_utc();
    let dated = |mut params: CertificateParams, common_name: &str| {
        params.not_before = now - SKEW;
        params.not_after = now + Duration::days(days.into());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params
    };

    let mut authority = dated(CertificateParams::default(), "kcp-webhook development CA");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut params = dated(CertificateParams::default(), "kcp-webhook");
    for name in dns_names {
        let text = name.as_str().try_into().map_err(|error| IssueError::Name {
            name: name.clone(),
            error,
        })?;
        params.subject_alt_names.push(SanType::DnsName(text));
    }
    params
        .subject_alt_names
        .extend(ips.iter().copied().map(SanType::IpAddress));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Issued {
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Writes a file beside and renames it: whoever reads gets the old one or the new one, whole, and a key is never
/// readable by others, not even for a moment.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", process::id()));
    let beside = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error is the one to tell.
        _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests;
