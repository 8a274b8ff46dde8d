//! A self-signed certificate.

use std::{fs, path::PathBuf};

use anyhow::Result;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

/// The certificate of the servers, which the client trusts.
pub(crate) struct Certificates {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) trusted: CertificateDer<'static>,
    _folder: TempDir,
}

impl Certificates {
    pub(crate) fn issue() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        fs::write(&certificate, issued.cert.pem())?;
        fs::write(&key, issued.signing_key.serialize_pem())?;
        Ok(Self {
            certificate,
            key,
            trusted: issued.cert.der().clone(),
            _folder: folder,
        })
    }
}
