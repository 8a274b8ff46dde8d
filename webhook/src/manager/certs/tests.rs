use std::{
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::*;

fn arguments(dir: &Path) -> IssueArguments {
    IssueArguments {
        dir: dir.to_owned(),
        dns_names: vec!["kcp-webhook.kcp-system.svc".to_owned(), "localhost".to_owned()],
        ips: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        days: 30,
        force: false,
    }
}

fn contents(dir: &Path) -> Vec<Vec<u8>> {
    ["ca.crt", "tls.crt", "tls.key"]
        .iter()
        .map(|name| fs::read(dir.join(name)).unwrap())
        .collect()
}

#[test]
fn writes_three_files_and_prints_their_paths() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("new/certs");
    let mut out = Vec::new();
    issue(&arguments(&dir), &mut out).unwrap();

    let path = dir.display();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("{path}/ca.crt\n{path}/tls.crt\n{path}/tls.key\n")
    );
    let mut names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["ca.crt", "tls.crt", "tls.key"]);
    let mode = fs::metadata(dir.join("tls.key")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn issues_a_certificate_for_the_names_signed_by_the_authority() {
    let dir = tempfile::tempdir().unwrap();
    issue(&arguments(dir.path()), &mut io::sink()).unwrap();
    let der = |name: &str| CertificateDer::from_pem_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap();
    let (authority, leaf) = (der("ca.crt"), der("tls.crt"));
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();

    leaf.verify_signature(Some(authority.public_key())).unwrap();
    assert!(authority.is_ca());
    assert!(!leaf.is_ca());
    let names = &leaf
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value
        .general_names;
    assert_eq!(
        *names,
        [
            GeneralName::DNSName("kcp-webhook.kcp-system.svc"),
            GeneralName::DNSName("localhost"),
            GeneralName::IPAddress(&[127, 0, 0, 1]),
            GeneralName::IPAddress(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ]
    );
    let validity = leaf.validity();
    let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(seconds, 30 * 86400 + 3600);
    assert!(validity.is_valid());
}

#[test]
fn does_not_overwrite_files_without_force() {
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, "mine").unwrap();
        let error = issue(&arguments(dir.path()), &mut io::sink()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} already exists; use --force to overwrite it", path.display())
        );
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[test]
fn does_not_overwrite_a_dangling_link() {
    let dir = tempfile::tempdir().unwrap();
    symlink(dir.path().join("elsewhere"), dir.path().join("tls.key")).unwrap();
    assert!(matches!(
        issue(&arguments(dir.path()), &mut io::sink()),
        Err(IssueError::Exists(_))
    ));
}

#[test]
fn overwrites_files_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments(dir.path());
    issue(&arguments, &mut io::sink()).unwrap();
    let before = contents(dir.path());
    arguments.force = true;
    issue(&arguments, &mut io::sink()).unwrap();
    for (before, after) in before.iter().zip(contents(dir.path())) {
        assert_ne!(*before, after);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn rejects_a_name_that_is_not_ascii() {
    let dir = tempfile::tempdir().unwrap();
    let mut arguments = arguments(dir.path());
    arguments.dns_names = vec!["b\u{fc}cher.example".to_owned()];
    let error = issue(&arguments, &mut io::sink()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("\"b\u{fc}cher.example\" is not a valid DNS name for a certificate: "),
        "{error}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
