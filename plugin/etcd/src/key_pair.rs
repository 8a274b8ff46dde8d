//! The key pairs in Cluster API's Secrets: CAs, and the keys that sign the tokens of service accounts. Says which entry of a
//! bundle belongs to a key, and generates another pair of the same kind.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_RSA_SHA256,
};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::rand_core::{TryCryptoRng, TryRng};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;
use zeroize::Zeroizing;

use crate::credentials::{CredentialError, parse_private_key};
use crate::identity::{library_error, signing_algorithm, validity};

/// How long a new CA is valid: ten years, like a CA that Cluster API creates.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The number of characters of a public key's hash at the end of a CA's name.
const NAME_HASH_LENGTH: usize = 8;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// What the entries of a bundle are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Certificates of a CA.
    Certificate,
    /// Public keys in PKIX format, with which the API server verifies tokens of service accounts.
    PublicKey,
}

/// A certificate or a public key in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleEntry {
    /// The entry's PEM block, as it is in the bundle, with a newline at its end.
    pub pem: String,
    /// The SHA-256 hash of the public key, in hexadecimal.
    pub public_key: String,
}

/// A new key pair. It has no `Debug`, because it contains a private key.
pub struct GeneratedPair {
    /// The certificate or public key, as a PEM block.
    pub entry: String,
    /// The private key, as PKCS#8 in PEM format.
    pub key: Zeroizing<String>,
}

/// Parses each entry of a bundle. The result is never empty. Fails if the bundle is empty, or has an entry that is of another
/// kind or cannot be parsed.
pub fn parse_bundle(kind: EntryKind, pem: &[u8]) -> Result<Vec<BundleEntry>, CredentialError> {
    let (none, bad) = match kind {
        EntryKind::Certificate => (CredentialError::NoCertificate, CredentialError::BadCertificate),
        EntryKind::PublicKey => (CredentialError::NoPublicKey, CredentialError::BadPublicKey),
    };
    let text = std::str::from_utf8(pem).map_err(|_| bad.clone())?;
    let mut entries = Vec::new();
    let mut rest = text;
    while let Some((block, after)) = split_block(rest) {
        let public_key = public_key_in(kind, block).ok_or(bad.clone())?;
        entries.push(BundleEntry {
            pem: format!("{block}\n"),
            public_key,
        });
        rest = after;
    }
    if rest.contains(BEGIN) {
        return Err(bad);
    }
    if entries.is_empty() {
        return Err(none);
    }
    Ok(entries)
}

/// The hash of the public key that belongs to a private key in PEM format, as in [`BundleEntry::public_key`].
pub fn public_key_of(key: &[u8]) -> Result<String, CredentialError> {
    let key = any_supported_type(&*parse_private_key(key)?).map_err(|_| CredentialError::UnsupportedKey)?;
    let public = key.public_key().ok_or(CredentialError::UnsupportedKey)?;
    Ok(sha256(public.as_ref()))
}

/// Generates a key pair with the algorithm and the size of the private key `like`. A new CA is valid from five minutes before
/// `now`, until ten years after `now`. Its name is `name` and a hash of its key, so that no two CAs of a cluster have the same
/// name.
pub fn generate_like(
    like: &[u8],
    kind: EntryKind,
    name: &str,
    now: SystemTime,
) -> Result<GeneratedPair, CredentialError> {
    let pair = new_key_like(like)?;
    let entry = match kind {
        EntryKind::PublicKey => pair.public_key_pem(),
        EntryKind::Certificate => certify(&pair, name, now)?,
    };
    Ok(GeneratedPair {
        entry,
        key: Zeroizing::new(pair.serialize_pem()),
    })
}

/// The SHA-256 hash in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first PEM block of a text, and the text after it.
fn split_block(text: &str) -> Option<(&str, &str)> {
    let (_, block) = text.split_at_checked(text.find(BEGIN)?)?;
    let end = block.find(END)? + END.len();
    let length = end + block.get(end..)?.find(DASHES)? + DASHES.len();
    block.split_at_checked(length)
}

/// The hash of the public key in a PEM block. `None` if the block has another kind, or cannot be parsed.
fn public_key_in(kind: EntryKind, block: &str) -> Option<String> {
    match kind {
        EntryKind::Certificate => {
            let der = CertificateDer::from_pem_slice(block.as_bytes()).ok()?;
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            Some(sha256(certificate.public_key().raw))
        }
        EntryKind::PublicKey => {
            let der = SubjectPublicKeyInfoDer::from_pem_slice(block.as_bytes()).ok()?;
            SubjectPublicKeyInfo::from_der(&der).ok()?;
            Some(sha256(&der))
        }
    }
}

fn new_key_like(like: &[u8]) -> Result<KeyPair, CredentialError> {
    let key = any_supported_type(&*parse_private_key(like)?).map_err(|_| CredentialError::UnsupportedKey)?;
    let (_, algorithm) = signing_algorithm(&*key)?;
    if *algorithm != PKCS_RSA_SHA256 {
        return KeyPair::generate_for(algorithm).map_err(library_error);
    }
    let public = key.public_key().ok_or(CredentialError::UnsupportedKey)?;
    let (_, public) = SubjectPublicKeyInfo::from_der(&public).map_err(|_| CredentialError::UnsupportedKey)?;
    let Ok(PublicKey::RSA(public)) = public.parsed() else {
        return Err(CredentialError::UnsupportedKey);
    };
    let library = |error: &dyn std::fmt::Display| CredentialError::Library(error.to_string());
    let generated = rsa::PrivateKey::new(&mut Random(SystemRandom::new()), public.key_size())
        .map_err(|error| library(&error))?;
    let encoded = generated.to_pkcs8_der().map_err(|error| library(&error))?;
    let encoded = PrivatePkcs8KeyDer::from(encoded.as_bytes());
    KeyPair::from_pkcs8_der_and_sign_algo(&encoded, &PKCS_RSA_SHA256).map_err(library_error)
}

/// Returns a self-signed CA certificate, as a PEM block.
fn certify(pair: &KeyPair, name: &str, now: SystemTime) -> Result<String, CredentialError> {
    let hash = sha256(&rcgen::PublicKeyData::subject_public_key_info(pair));
    let hash = hash.get(..NAME_HASH_LENGTH).unwrap_or_default();
    let mut parameters = CertificateParams::default();
    (parameters.not_before, parameters.not_after) =
        validity(now, AUTHORITY_VALIDITY).ok_or(CredentialError::Clock)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, format!("{name}-{hash}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    let certificate = parameters.self_signed(pair).map_err(library_error)?;
    Ok(certificate.pem())
}

/// The operating system's random numbers, from which this module generates RSA keys. ring generates the other keys from the same
/// numbers.
struct Random(SystemRandom);

impl TryRng for Random {
    type Error = io::Error;

    fn try_next_u32(&mut self) -> Result<u32, io::Error> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, io::Error> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), io::Error> {
        let filled = self.0.fill(destination);
        filled.map_err(|_| io::Error::other("the operating system has no random numbers"))
    }
}

impl TryCryptoRng for Random {}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::{BundleEntry, EntryKind, generate_like, parse_bundle, public_key_of};
    use crate::credentials::CredentialError;
    use crate::{ClientCertificate, Trust};

    const RSA_CERTIFICATE: &str = include_str!("../tests/keys/rsa-pkcs1.crt");
    const P256_CERTIFICATE: &str = include_str!("../tests/keys/p256-sec1.crt");

    const KEYS: [(&str, &str); 6] = [
        ("rsa-pkcs1", include_str!("../tests/keys/rsa-pkcs1.key")),
        ("rsa-pkcs8", include_str!("../tests/keys/rsa-pkcs8.key")),
        ("p256-sec1", include_str!("../tests/keys/p256-sec1.key")),
        ("p256-pkcs8", include_str!("../tests/keys/p256-pkcs8.key")),
        ("p384-sec1", include_str!("../tests/keys/p384-sec1.key")),
        ("ed25519-pkcs8", include_str!("../tests/keys/ed25519-pkcs8.key")),
    ];

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn a_new_pair_has_the_algorithm_of_the_old_one() {
        for (name, key) in KEYS {
            for (kind, label) in [
                (EntryKind::Certificate, "CERTIFICATE"),
                (EntryKind::PublicKey, "PUBLIC KEY"),
            ] {
                let pair = generate_like(key.as_bytes(), kind, "etcd-ca", now()).expect(name);
                assert!(
                    pair.entry.starts_with(&format!("-----BEGIN {label}-----\n")),
                    "{name}"
                );
                let entries = parse_bundle(kind, pair.entry.as_bytes()).expect(name);
                let [BundleEntry { pem, public_key }] = entries.as_slice() else {
                    panic!("{name}: {entries:?}");
                };
                assert_eq!(
                    public_key_of(pair.key.as_bytes()).as_ref(),
                    Ok(public_key),
                    "{name}"
                );
                assert_ne!(public_key_of(key.as_bytes()).as_ref(), Ok(public_key), "{name}");
                assert_eq!(
                    pem.trim_end(),
                    pair.entry.trim_end().replace("\r\n", "\n"),
                    "{name}"
                );
                // A third pair is of the same kind, so the second one has the size of the first.
                let size = |key: &str| {
                    super::new_key_like(key.as_bytes())
                        .expect(name)
                        .public_key_raw()
                        .len()
                };
                assert_eq!(size(&pair.key), size(key), "{name}");
            }
        }
    }

    #[test]
    fn a_new_authority_signs_and_is_trusted() {
        for (name, key) in KEYS {
            let pair = generate_like(key.as_bytes(), EntryKind::Certificate, "etcd-ca", now()).expect(name);
            assert!(Trust::new(pair.entry.as_bytes()).is_ok(), "{name}");
            let issued = ClientCertificate::issue(pair.entry.as_bytes(), pair.key.as_bytes(), now());
            assert!(issued.is_ok(), "{name}");
            let der = CertificateDer::from_pem_slice(pair.entry.as_bytes()).expect(name);
            let (_, certificate) = X509Certificate::from_der(&der).expect(name);
            let hash = super::sha256(certificate.public_key().raw);
            assert_eq!(
                certificate.subject().to_string(),
                format!("CN=etcd-ca-{}", &hash[..8])
            );
            assert!(certificate.is_ca());
            let validity = certificate.validity();
            let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
            assert_eq!(
                (from, until),
                (1_800_000_000 - 300, 1_800_000_000 + 3650 * 24 * 3600)
            );
        }
    }

    #[test]
    fn each_entry_of_a_bundle_is_kept_as_it_is() {
        let bundle = format!("a comment\n{RSA_CERTIFICATE}\n{P256_CERTIFICATE}");
        let entries = parse_bundle(EntryKind::Certificate, bundle.as_bytes()).expect("entries");
        let expected = [RSA_CERTIFICATE, P256_CERTIFICATE].map(|pem| format!("{}\n", pem.trim()));
        let found: Vec<&String> = entries.iter().map(|entry| &entry.pem).collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>());
        let keys: Vec<&String> = entries.iter().map(|entry| &entry.public_key).collect();
        let of_keys = ["rsa-pkcs1", "p256-sec1"].map(|name| {
            let (_, key) = KEYS.iter().find(|(known, _)| *known == name).expect("a key");
            public_key_of(key.as_bytes()).expect("parses")
        });
        assert_eq!(keys, of_keys.iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_parsed_is_not_left_out() {
        use CredentialError::{BadCertificate, BadPublicKey, NoCertificate, NoPublicKey};
        let key = KEYS[0].1;
        let cut = RSA_CERTIFICATE.split("-----END").next().unwrap_or_default();
        for (kind, bundle, expected) in [
            (EntryKind::Certificate, String::new(), NoCertificate),
            (EntryKind::PublicKey, "sesame".to_owned(), NoPublicKey),
            (EntryKind::Certificate, cut.to_owned(), BadCertificate),
            (
                EntryKind::Certificate,
                format!("{RSA_CERTIFICATE}{cut}"),
                BadCertificate,
            ),
            (
                EntryKind::Certificate,
                format!("{RSA_CERTIFICATE}{key}"),
                BadCertificate,
            ),
            (EntryKind::PublicKey, RSA_CERTIFICATE.to_owned(), BadPublicKey),
        ] {
            assert_eq!(parse_bundle(kind, bundle.as_bytes()), Err(expected), "{kind:?}");
        }
    }
}
