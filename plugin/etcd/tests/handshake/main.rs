//! TLS with a member, over a stream in memory: which handshakes succeed, what they report, and which fail.

#![expect(
    clippy::unwrap_used,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

mod server;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kcp_etcd::{
    ClientCertificate, Connection, ConnectionStep, CredentialError, Error, HandshakeError, ServerIdentity,
    Timeouts, Tls, Trust,
};
use rustls::AlertDescription;
use server::{Authority, Member, Silence};

const TIMEOUTS: Timeouts = Timeouts {
    dial: Duration::from_secs(5),
    handshake: Duration::from_secs(5),
    call: Duration::from_secs(5),
};

fn issued(authority: &Authority) -> ClientCertificate {
    let (certificate, key) = (authority.certificate(), authority.key());
    ClientCertificate::issue(certificate.as_bytes(), key.as_bytes(), SystemTime::now()).unwrap()
}

fn tls(trusted: &Authority, client: &Authority) -> Tls {
    Tls::new(
        Trust::new(trusted.certificate().as_bytes()).unwrap(),
        issued(client),
    )
}

#[tokio::test]
async fn notes_a_certificate_for_another_name() {
    let authority = Authority::new("etcd-ca");
    let member = Member::new(&authority, &authority, &["node-1", "localhost"], 0..2);
    for (names, names_member) in [
        (vec!["node-1"], true),
        (vec!["node-2", "localhost"], true),
        (vec!["node-2"], false),
        (vec![], false),
        (vec!["not a name"], false),
    ] {
        let connection =
            Connection::open(&member.endpoint(&names), &tls(&authority, &authority), TIMEOUTS).await;
        let expected = ServerIdentity {
            matches_endpoint_name: names_member,
            certificate_not_after: Some(member.not_after()),
        };
        assert_eq!(connection.unwrap().server(), expected, "{names:?}");
    }
}

#[tokio::test]
async fn rejects_members_certificates() {
    let authority = Authority::new("etcd-ca");
    let expired = Member::new(&authority, &authority, &["node-1"], -2..-1);
    let rows = [
        (
            "expired, for another name too",
            Member::new(&authority, &authority, &["node-2"], -2..-1),
            HandshakeError::Expired {
                not_after: Some(expired.not_after()),
            },
        ),
        (
            "not valid yet",
            Member::new(&authority, &authority, &["node-1"], 1..2),
            HandshakeError::NotYetValid,
        ),
        (
            "another authority of the same name",
            Member::new(&Authority::new("etcd-ca"), &authority, &["node-1"], 0..2),
            HandshakeError::UnknownIssuer,
        ),
        (
            "another authority",
            Member::new(&Authority::new("other-ca"), &authority, &["node-1"], 0..2),
            HandshakeError::UnknownIssuer,
        ),
    ];
    for (name, member, expected) in rows {
        let opened = Connection::open(
            &member.endpoint(&["node-1"]),
            &tls(&authority, &authority),
            TIMEOUTS,
        )
        .await;
        match opened {
            Err(Error::Handshake(error)) => assert_eq!(error, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_member_that_does_not_accept_our_certificate_says_so_to_the_first_call() {
    let authority = Authority::new("etcd-ca");
    let member = Member::new(&authority, &Authority::new("etcd-ca"), &["node-1"], 0..2);
    let connection = Connection::open(
        &member.endpoint(&["node-1"]),
        &tls(&authority, &authority),
        TIMEOUTS,
    )
    .await;
    match connection.unwrap().status().await {
        Err(Error::Handshake(HandshakeError::ClientCertificate(alert))) => {
            assert_eq!(alert, AlertDescription::DecryptError);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_member_that_accepts_and_never_answers_costs_its_timeout() {
    let authority = Authority::new("etcd-ca");
    let timeouts = Timeouts {
        handshake: Duration::from_millis(50),
        ..TIMEOUTS
    };
    let endpoint = kcp_etcd::Endpoint::new(Silence, ["node-1"]);
    let opened = Connection::open(&endpoint, &tls(&authority, &authority), timeouts).await;
    let error = opened.unwrap_err();
    assert!(
        matches!(error, Error::Deadline { step: ConnectionStep::Handshake, after } if after == timeouts.handshake),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "TLS handshake: no response within 0.05 s");
}

fn file(name: &str) -> Vec<u8> {
    fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/keys")
            .join(name),
    )
    .unwrap()
}

/// The member verifies the issued certificate. rustls parses it independently of the library that wrote it.
#[tokio::test]
async fn mints_with_keys_of_every_form() {
    for name in [
        "rsa-pkcs1",
        "rsa-pkcs8",
        "p256-sec1",
        "p256-pkcs8",
        "p384-sec1",
        "ed25519-pkcs8",
    ] {
        let (certificate, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
        let client = ClientCertificate::issue(&certificate, &key, SystemTime::now()).unwrap();
        let authority = Authority::new("etcd-ca");
        let member = Member::accepting(&authority, &certificate);
        let tls = Tls::new(Trust::new(authority.certificate().as_bytes()).unwrap(), client);
        let connection = Connection::open(&member.endpoint(&["node-1"]), &tls, TIMEOUTS)
            .await
            .unwrap();
        // The member does not speak HTTP/2: it closes the connection after the handshake.
        match connection.status().await {
            Err(Error::Broken { .. }) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn rejects_credentials() {
    let now = SystemTime::now();
    let (p256, p256_key) = (file("p256-sec1.crt"), file("p256-sec1.key"));
    let cut = &p256_key[..100];
    let rows: [(&str, &[u8], &[u8], CredentialError); 6] = [
        ("nothing", b"", b"", CredentialError::NoCertificate),
        ("no key", &p256, b"", CredentialError::NoKey),
        (
            "no certificate",
            &p256_key,
            &p256_key,
            CredentialError::NoCertificate,
        ),
        ("half a key", &p256, cut, CredentialError::UnsupportedKey),
        (
            "P-521",
            &file("p521-sec1.crt"),
            &file("p521-sec1.key"),
            CredentialError::UnsupportedKey,
        ),
        (
            "not a pair",
            &file("rsa-pkcs1.crt"),
            &p256_key,
            CredentialError::KeyMismatch,
        ),
    ];
    for (name, certificate, key, expected) in rows {
        assert_eq!(
            ClientCertificate::issue(certificate, key, now).unwrap_err(),
            expected,
            "issued: {name}"
        );
        assert_eq!(
            ClientCertificate::from_pem(certificate, key).unwrap_err(),
            expected,
            "given: {name}"
        );
    }
}

#[test]
fn mints_from_the_certificate_of_a_bundle_that_the_key_belongs_to() {
    let bundle = [file("rsa-pkcs1.crt"), file("p256-sec1.crt")].concat();
    let now = SystemTime::now();
    assert!(ClientCertificate::issue(&bundle, &file("p256-sec1.key"), now).is_ok());
    let other = ClientCertificate::issue(&bundle, &file("p384-sec1.key"), now);
    assert_eq!(other.unwrap_err(), CredentialError::KeyMismatch);
}

#[test]
fn shows_no_key() {
    let issued = issued(&Authority::new("etcd-ca"));
    assert_eq!(format!("{issued:?}"), "ClientCertificate");
}
