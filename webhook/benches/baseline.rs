//! The baselines: a minimal server that allows every review. It answers all with the same bytes, or decodes the fields that rules
//! read.
//!
//! Arguments: `constant-answer` or `same-decode`, port, certificate file, key file.

use std::{
    convert::Infallible, env, error::Error, fs::File, hint::black_box, io::BufReader, net::Ipv4Addr,
    sync::Arc,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kcp_rules::api::KubeadmControlPlane;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The client does not check the uid.
const ANSWER: &[u8] = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;

/// Answers a review.
type Answer = fn(&[u8]) -> Bytes;

#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Question<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    uid: &'a str,
    #[serde(borrow)]
    object: KubeadmControlPlane<'a>,
    #[serde(borrow)]
    old_object: Option<KubeadmControlPlane<'a>>,
}

fn allowed(review: &[u8]) -> Option<String> {
    let Review { request } = serde_json::from_str(std::str::from_utf8(review).ok()?).ok()?;
    // Prevents the compiler from removing the decoding.
    let Question {
        uid,
        object,
        old_object,
    } = request;
    black_box((object, old_object));
    Some(format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
    ))
}

async fn answer(request: Request<Incoming>, answer: Answer) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let whole = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::new(answer(&whole)));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: BASELINE PORT CERTIFICATE KEY");
    let (baseline, port, certificate, key) = (next()?, next()?.parse()?, next()?, next()?);
    let respond: Answer = match baseline.as_str() {
        "constant-answer" => |_| Bytes::from_static(ANSWER),
        "same-decode" => |review| allowed(review).unwrap_or_default().into(),
        _ => return Err("BASELINE is constant-answer or same-decode".into()),
    };
    let chain: Vec<_> = CertificateDer::pem_reader_iter(BufReader::new(File::open(certificate)?))
        .collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        loop {
            let (connection, _) = listener.accept().await?;
            connection.set_nodelay(true)?;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(connection) = acceptor.accept(connection).await else {
                    return Ok::<_, Infallible>(());
                };
                // Ignores clients that disconnect during a request.
                let _ended = http1::Builder::new()
                    .serve_connection(
                        TokioIo::new(connection),
                        service_fn(|request| answer(request, respond)),
                    )
                    .await;
                Ok(())
            });
        }
    })
}
