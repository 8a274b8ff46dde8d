//! With --client-ca-file, only a client with a certificate gets reads of other objects.

use std::{fs, time::Duration};

use kcp_webhook::{Limits, arguments::ServeArguments};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpStream;

use crate::{
    client::{Answer, Identity, secure_as, soon},
    running::Running,
    stand_in::{bad_creation, kubeconfig, slow_api_server},
};

/// A scale needs the control plane, which the server would have to read.
const SCALE: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","resource":{"group":"controlplane.cluster.x-k8s.io","version":"v1beta2","resource":"kubeadmcontrolplanes"},"subResource":"scale","name":"example","namespace":"default","operation":"UPDATE","object":{"spec":{"replicas":3}}}}"#;

/// The response to a client for which the server reads other objects. The server has no API access, so the reads fail.
const READS: &str = "kcp-webhook has no API access";
const UNVERIFIED: &str = "kcp-webhook read no other objects for this review";
const NO_READS: &str = "kcp-webhook reads objects only for an API server with a client certificate that is signed by a CA in --client-ca-file";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

fn identity(issuer: &Issuer) -> Identity {
    named(issuer, &CertificateParams::default())
}

fn named(issuer: &Issuer, parameters: &CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (certificate.der().clone(), key)
}

async fn server(issuer: &Issuer) -> Running {
    server_with(issuer, |_| {}).await
}

async fn server_with(issuer: &Issuer, change: impl FnOnce(&mut ServeArguments)) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client-ca.crt");
    fs::write(&file, issuer.pem()).unwrap();
    let running = Running::start_with(Limits::default(), |arguments| {
        arguments.client_ca_file = Some(file);
        change(arguments);
    })
    .await;
    // The server keeps the files that it has loaded.
    drop(folder);
    running
}

async fn scale(server: &Running, identity: Option<Identity>) -> std::io::Result<String> {
    post(server, identity, SCALE).await
}

/// The answer to a review, or the error of the connection.
async fn post(server: &Running, identity: Option<Identity>, review: &str) -> std::io::Result<String> {
    let stream = soon(TcpStream::connect(server.secure)).await?;
    let ca = server.certificates.path("ca.crt");
    let mut connection = secure_as(identity, stream, &ca, &["http/1.1"]).await?;
    let Answer { code, body, .. } = connection.try_post("/validate", review).await?;
    assert_eq!(code, 200, "{body}");
    Ok(body)
}

#[tokio::test]
async fn only_a_client_with_a_certificate_gets_reads() {
    let issuer = authority();
    let server = server(&issuer).await;
    let verified = scale(&server, Some(identity(&issuer))).await.unwrap();
    assert!(verified.contains(READS), "{verified}");
    let unverified = scale(&server, None).await.unwrap();
    assert!(unverified.contains(NO_READS), "{unverified}");
    // A review that needs no other object gets a warning, too.
    let answer = server.connect().await.review().await;
    assert!(answer.body.contains(UNVERIFIED), "{answer:?}");
    let unverified = server.metric("kcp_webhook_unverified_reviews_total").await;
    assert_eq!(unverified, "2");
}

#[tokio::test]
async fn only_denials_of_a_client_with_a_certificate_become_events() {
    let (issuer, folder) = (authority(), tempfile::tempdir().unwrap());
    let kubeconfig = kubeconfig(slow_api_server(Duration::ZERO).await, folder.path());
    let configuration = folder.path().join("configuration.yaml");
    let events = "apiVersion: kubectl-kcp.dev/v1alpha1\nkind: AdmissionConfiguration\ndenialEvents: true\n";
    std::fs::write(&configuration, events).unwrap();
    let server = server_with(&issuer, |arguments| {
        arguments.kubeconfig = Some(kubeconfig);
        arguments.configuration = Some(configuration);
    })
    .await;
    for (identity, name) in [
        (None, "one"),
        (Some(identity(&issuer)), "one"),
        (Some(identity(&issuer)), "two"),
    ] {
        let answer = post(&server, identity, &bad_creation(name)).await.unwrap();
        assert!(answer.contains("(replicas-even)"), "{answer}");
    }
    // The stand-in for an API server accepts no Event. Events have an order, so a first one of the object would count by now.
    let failed = r#"kcp_webhook_denial_events_total{result="failed"}"#;
    server.until_metric(failed, "2").await;
    let metrics = server.probe("/metrics").await.body;
    assert!(!metrics.contains(r#"result="repeated""#), "{metrics}");
}

#[tokio::test]
async fn only_a_certificate_with_an_allowed_name_counts() {
    let issuer = authority();
    let server = server_with(&issuer, |arguments| {
        arguments.client_allowed_names = vec!["kube-apiserver".to_owned(), "other".to_owned()];
    })
    .await;
    let mut common = CertificateParams::default();
    common
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    let alternative = CertificateParams::new(["kubelet".to_owned(), "other".to_owned()]).unwrap();
    for parameters in [&common, &alternative] {
        let answer = scale(&server, Some(named(&issuer, parameters))).await.unwrap();
        assert!(answer.contains(READS), "{answer}");
    }
    let kubelet = CertificateParams::new(["kubelet".to_owned()]).unwrap();
    assert!(scale(&server, Some(named(&issuer, &kubelet))).await.is_err());
    assert!(scale(&server, None).await.unwrap().contains(NO_READS));
}

#[tokio::test]
async fn a_certificate_of_another_authority_gets_no_answer() {
    let server = server(&authority()).await;
    assert!(scale(&server, Some(identity(&authority()))).await.is_err());
    server
        .until_metric("kcp_webhook_tls_handshake_errors_total", "1")
        .await;
}

#[tokio::test]
async fn without_the_flag_every_client_gets_reads() {
    let server = Running::start(Limits::default()).await;
    let answer = scale(&server, None).await.unwrap();
    assert!(answer.contains(READS), "{answer}");
}

#[tokio::test]
async fn reads_new_authorities() {
    let (old, new) = (authority(), authority());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client-ca.crt");
    fs::write(&file, old.pem()).unwrap();
    let server = Running::start_with(Limits::default(), |arguments| {
        arguments.client_ca_file = Some(file.clone());
    })
    .await;
    assert!(scale(&server, Some(identity(&new))).await.is_err());
    fs::write(&file, new.pem()).unwrap();
    server
        .until_metric("certwatcher_read_certificate_total", "2")
        .await;
    assert!(
        scale(&server, Some(identity(&new)))
            .await
            .unwrap()
            .contains(READS)
    );
    assert!(scale(&server, Some(identity(&old))).await.is_err());
}
