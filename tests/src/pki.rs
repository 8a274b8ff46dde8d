//! Certificates for the programs under test.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use jiff::{ToSpan as _, Zoned};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate authority, created by us or by Cluster API.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    key: String,
}

/// The subject of a certificate.
#[derive(Debug, Default)]
pub struct Subject<'a> {
    /// The user name for Kubernetes and etcd.
    pub common_name: &'a str,
    /// The user's group in Kubernetes.
    pub organization: Option<&'a str>,
    /// Host names of a server.
    pub names: &'a [&'a str],
    /// Addresses of a server.
    pub addresses: &'a [IpAddr],
}

/// A certificate and its key as files.
#[derive(Debug, Clone)]
pub struct KeyPairFiles {
    /// PEM, `NAME.crt`
    pub certificate: PathBuf,
    /// PEM, `NAME.key`
    pub key: PathBuf,
}

impl KeyPairFiles {
    /// An acceptor for a TLS server with this certificate.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = CertificateDer::pem_file_iter(&self.certificate)?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("making a TLS server")?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl Authority {
    pub fn new(common_name: &str) -> Result<Self> {
        let key = KeyPair::generate().context("generating a key")?;
        let mut parameters = parameters(common_name)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = parameters
            .self_signed(&key)
            .context("signing the authority's certificate")?
            .pem();
        let key_pem = key.serialize_pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(parameters, key),
            key: key_pem,
        })
    }

    /// Reads an authority from PEM, as Cluster API puts it on a machine for kubeadm.
    pub fn load(certificate: &str, key: &str) -> Result<Self> {
        let pair = load_key(key).context("reading an authority's key")?;
        let issuer =
            Issuer::from_ca_cert_pem(certificate, pair).context("reading an authority's certificate")?;
        Ok(Self {
            certificate: certificate.to_owned(),
            issuer,
            key: key.to_owned(),
        })
    }

    /// The certificate as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    pub fn write(&self, folder: &Path, name: &str) -> Result<KeyPairFiles> {
        write_pair(folder, name, &self.certificate, &self.key)
    }

    /// Issues a certificate for both server and client, and writes it.
    pub fn issue(&self, folder: &Path, name: &str, subject: &Subject<'_>) -> Result<KeyPairFiles> {
        self.issue_with(folder, name, subject, parameters(subject.common_name)?)
    }

    /// [`Self::issue`], but the certificate expired years ago.
    pub fn issue_expired(&self, folder: &Path, name: &str, subject: &Subject<'_>) -> Result<KeyPairFiles> {
        let mut parameters = parameters(subject.common_name)?;
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(2021, 1, 1);
        self.issue_with(folder, name, subject, parameters)
    }

    /// [`Self::issue`], but the certificate has only this number of days left.
    pub fn issue_for(
        &self,
        folder: &Path,
        name: &str,
        subject: &Subject<'_>,
        days: i64,
    ) -> Result<KeyPairFiles> {
        let mut parameters = parameters(subject.common_name)?;
        let end = Zoned::now()
            .checked_add(days.days())
            .context("computing the end")?;
        let (month, day) = (end.month().unsigned_abs(), end.day().unsigned_abs());
        parameters.not_after = date_time_ymd(i32::from(end.year()), month, day);
        self.issue_with(folder, name, subject, parameters)
    }

    fn issue_with(
        &self,
        folder: &Path,
        name: &str,
        subject: &Subject<'_>,
        mut parameters: CertificateParams,
    ) -> Result<KeyPairFiles> {
        let key = KeyPair::generate().context("generating a key")?;
        if let Some(organization) = subject.organization {
            parameters
                .distinguished_name
                .push(DnType::OrganizationName, organization);
        }
        for name in subject.names {
            parameters
                .subject_alt_names
                .push(SanType::DnsName((*name).try_into().context("host name")?));
        }
        parameters
            .subject_alt_names
            .extend(subject.addresses.iter().copied().map(SanType::IpAddress));
        parameters.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = parameters
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("issuing a certificate for {}", subject.common_name))?;
        write_pair(folder, name, &certificate.pem(), &key.serialize_pem())
    }
}

/// Writes a key pair that signs and verifies service account tokens.
pub fn write_signing_keys(private: &Path, public: &Path) -> Result<()> {
    let key = KeyPair::generate().context("generating a key")?;
    fs::write(private, key.serialize_pem()).with_context(|| format!("writing {}", private.display()))?;
    fs::write(public, key.public_key_pem()).with_context(|| format!("writing {}", public.display()))
}

/// From yesterday for one year, like kubeadm's certificates.
fn parameters(common_name: &str) -> Result<CertificateParams> {
    let mut parameters = CertificateParams::default();
    let yesterday = Zoned::now().checked_sub(1.day()).context("computing yesterday")?;
    let (year, month) = (i32::from(yesterday.year()), yesterday.month().unsigned_abs());
    // The 29th of February has no anniversary.
    let day = yesterday.day().unsigned_abs().min(28);
    parameters.not_before = date_time_ymd(year, month, day);
    parameters.not_after = date_time_ymd(year + 1, month, day);
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(parameters)
}

fn write_pair(folder: &Path, name: &str, certificate: &str, key: &str) -> Result<KeyPairFiles> {
    let files = KeyPairFiles {
        certificate: folder.join(format!("{name}.crt")),
        key: folder.join(format!("{name}.key")),
    };
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    fs::write(&files.certificate, certificate)
        .with_context(|| format!("writing {}", files.certificate.display()))?;
    fs::write(&files.key, key).with_context(|| format!("writing {}", files.key.display()))?;
    Ok(files)
}

/// Cluster API writes RSA keys as PKCS#1, but ring reads only PKCS#8.
fn load_key(pem: &str) -> Result<KeyPair> {
    let pkcs8 = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).context("parsing PEM")? {
        PrivateKeyDer::Pkcs8(key) => key,
        PrivateKeyDer::Pkcs1(key) => PrivatePkcs8KeyDer::from(wrap_rsa(key.secret_pkcs1_der())?),
        _ => bail!("neither a PKCS#1 nor a PKCS#8 key"),
    };
    KeyPair::try_from(&pkcs8).context("unsupported key")
}

/// Wraps an RSA key into `PrivateKeyInfo`: RFC 5208, section 5, in DER.
fn wrap_rsa(pkcs1: &[u8]) -> Result<Vec<u8>> {
    /// INTEGER 0; SEQUENCE { OBJECT IDENTIFIER rsaEncryption, NULL }
    const HEADER: [u8; 18] = [
        2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0,
    ];
    const SEQUENCE: u8 = 0x30;
    const OCTET_STRING: u8 = 4;
    let octets = long_form(OCTET_STRING, pkcs1)?;
    long_form(SEQUENCE, &[&HEADER[..], &octets].concat())
}

/// Tag, length in three bytes, content. DER requires this form for 256 to 65,535 bytes, which RSA keys of 2,048 bits
/// and more have.
fn long_form(tag: u8, content: &[u8]) -> Result<Vec<u8>> {
    let [high, low] = u16::try_from(content.len())
        .context("key too long")?
        .to_be_bytes();
    Ok([&[tag, 0x82, high, low], content].concat())
}
