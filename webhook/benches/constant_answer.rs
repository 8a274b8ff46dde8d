//! A baseline: a minimal server that reads each review and always sends the same answer.
//!
//! Arguments: port, certificate file, key file.

use std::{convert::Infallible, env, error::Error, fs::File, io::BufReader, net::Ipv4Addr, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The client does not check the uid.
const ANSWER: &[u8] = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}"#;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let _whole = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: PORT CERTIFICATE KEY");
    let (port, certificate, key) = (next()?.parse()?, next()?, next()?);
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
                    .serve_connection(TokioIo::new(connection), service_fn(answer))
                    .await;
                Ok(())
            });
        }
    })
}
