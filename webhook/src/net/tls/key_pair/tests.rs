use super::*;
use crate::{arguments::IssueArguments, manager::certs};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.issue();
        folder
    }

    /// Replaces the pair.
    fn issue(&self) {
        let arguments = IssueArguments {
            dir: self.0.path().to_owned(),
            dns_names: vec!["localhost".to_owned()],
            ips: Vec::new(),
            days: 1,
            force: true,
        };
        certs::issue(&arguments, &mut io::sink()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self) -> Result<KeyPair, KeyPairError> {
        KeyPair::load(
            &self.path("tls.crt"),
            &self.path("tls.key"),
            Arc::new(Metrics::new()),
        )
    }
}

fn served(pair: &KeyPair) -> Vec<u8> {
    pair.current.load().cert[0].to_vec()
}

fn counts(pair: &KeyPair) -> (u64, u64) {
    (
        pair.metrics.certificate_reads.get(),
        pair.metrics.certificate_errors.get(),
    )
}

#[test]
fn reloads_the_pair_when_the_content_changes() {
    let folder = Folder::new();
    let pair = folder.load().unwrap();
    let first = served(&pair);
    pair.reload();
    assert_eq!((served(&pair), counts(&pair)), (first.clone(), (1, 0)));
    folder.issue();
    pair.reload();
    assert_ne!(served(&pair), first);
    assert_eq!(counts(&pair), (2, 0));
    assert!(pair.metrics.certificate_expiry.get() > 0);
}

#[test]
fn keeps_the_pair_while_only_one_file_is_replaced() {
    let folder = Folder::new();
    let pair = folder.load().unwrap();
    let first = served(&pair);
    let old_key = fs::read(folder.path("tls.key")).unwrap();
    folder.issue();
    let new_key = fs::read(folder.path("tls.key")).unwrap();

    fs::write(folder.path("tls.key"), old_key).unwrap();
    pair.reload();
    pair.reload();
    assert_eq!(served(&pair), first);
    assert_eq!(counts(&pair), (1, 1), "reports the error once");

    fs::write(folder.path("tls.key"), new_key).unwrap();
    pair.reload();
    assert_ne!(served(&pair), first);
    assert_eq!(counts(&pair), (2, 1));
}

#[test]
fn keeps_the_pair_while_files_are_missing() {
    let folder = Folder::new();
    let pair = folder.load().unwrap();
    let first = served(&pair);
    fs::remove_file(folder.path("tls.crt")).unwrap();
    pair.reload();
    assert_eq!((served(&pair), counts(&pair)), (first, (1, 1)));
}

#[test]
fn rejects_invalid_pairs() {
    let folder = Folder::new();
    let (certificate, key) = (folder.path("tls.crt"), folder.path("tls.key"));
    let (good_certificate, good_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let (c, k) = (certificate.display(), key.display());
    for (name, certificate_content, key_content, expected) in [
        (
            "empty certificate",
            Vec::new(),
            good_key.clone(),
            format!("{c} does not contain a PEM certificate: no items found"),
        ),
        (
            "key in the certificate file",
            good_key.clone(),
            good_key.clone(),
            format!("{c} does not contain a PEM certificate: no items found"),
        ),
        (
            "certificate in the key file",
            good_certificate.clone(),
            good_certificate.clone(),
            format!("{k} does not contain a PEM private key: no items found"),
        ),
        (
            "key of another certificate",
            good_certificate.clone(),
            rcgen::KeyPair::generate().unwrap().serialize_pem().into_bytes(),
            format!(
                "cannot use the private key in {k} with the certificate in {c}: keys may not be consistent: KeyMismatch"
            ),
        ),
    ] {
        fs::write(&certificate, certificate_content).unwrap();
        fs::write(&key, key_content).unwrap();
        assert_eq!(folder.load().unwrap_err().to_string(), expected, "{name}");
    }
    fs::write(
        &certificate,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let error = folder.load().unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot parse the certificate in {c}: ")),
        "{error}"
    );
    fs::remove_file(&certificate).unwrap();
    assert_eq!(
        folder.load().unwrap_err().to_string(),
        format!("cannot read {c}: No such file or directory (os error 2)")
    );
}

#[test]
fn never_prints_the_key() {
    let folder = Folder::new();
    let printed = format!("{:?}", folder.load().unwrap());
    assert!(printed.starts_with("KeyPair { certificate_file: "), "{printed}");
    assert!(!printed.contains("content"), "{printed}");
}
