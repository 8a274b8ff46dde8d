//! TLS with a key pair that is reloaded when its files change.

mod client_ca;
mod key_pair;

use std::sync::Arc;

use rustls::{ServerConfig, crypto::ring, server::NoServerSessionStorage};
use tokio_rustls::TlsAcceptor;

pub(crate) use client_ca::{ClientCa, ClientCaError};
pub(crate) use key_pair::{KeyPair, KeyPairError};

/// Accepts TLS 1.2 and 1.3. Each handshake uses the current key pair, and verifies a client certificate if the client has
/// one and there are authorities.
pub(crate) fn acceptor(
    key_pair: Arc<KeyPair>,
    client_ca: Option<Arc<ClientCa>>,
) -> Result<TlsAcceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let config = match client_ca {
        Some(client_ca) => config.with_client_cert_verifier(client_ca),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(key_pair);
    // The server supports only HTTP/1.1. For a webhook on 127.0.0.1 the API server would negotiate h2 if offered.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // No session resumption: the API server does not use it, and a resumed session would keep using a replaced certificate.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(TlsAcceptor::from(Arc::new(config)))
}
