use super::*;
use crate::{arguments::IssueArguments, certs};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.issue();
        folder
    }

    /// A new pair in place of the old one.
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
fn takes_a_new_pair_when_the_content_changes() {
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
fn keeps_the_pair_while_only_half_of_the_new_one_is_there() {
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
    assert_eq!(counts(&pair), (1, 1), "one error, however often it is looked at");

    fs::write(folder.path("tls.key"), new_key).unwrap();
    pair.reload();
    assert_ne!(served(&pair), first);
    assert_eq!(counts(&pair), (2, 1));
}

#[test]
fn keeps_the_pair_while_the_files_are_away() {
    let folder = Folder::new();
    let pair = folder.load().unwrap();
    let first = served(&pair);
    fs::remove_file(folder.path("tls.crt")).unwrap();
    pair.reload();
    assert_eq!((served(&pair), counts(&pair)), (first, (1, 1)));
}

#[test]
fn rejects_what_cannot_be_served_with() {
    let folder = Folder::new();
    let (certificate, key) = (folder.path("tls.crt"), folder.path("tls.key"));
    let (good_certificate, good_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let (c, k) = (certificate.display(), key.display());
    for (name, certificate_content, key_content, expected) in [
        (
            "empty certificate",
            Vec::new(),
            good_key.clone(),
            format!("{c} holds no certificate in PEM: no items found"),
        ),
        (
            "a key for a certificate",
            good_key.clone(),
            good_key.clone(),
            format!("{c} holds no certificate in PEM: no items found"),
        ),
        (
            "a certificate for a key",
            good_certificate.clone(),
            good_certificate.clone(),
            format!("{k} holds no private key in PEM: no items found"),
        ),
        (
            "another's key",
            good_certificate.clone(),
            rcgen::KeyPair::generate().unwrap().serialize_pem().into_bytes(),
            format!(
                "the key in {k} does not go with the certificate in {c}: keys may not be consistent: KeyMismatch"
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
        error.starts_with(&format!("{c} holds a certificate that cannot be parsed: ")),
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
