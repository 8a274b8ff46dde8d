//! The key pair, read again when its files change.

mod key_pair;

use std::sync::Arc;

use rustls::{ServerConfig, crypto::ring, server::NoServerSessionStorage};
use tokio_rustls::TlsAcceptor;

pub(crate) use key_pair::{KeyPair, KeyPairError};

/// Accepts TLS 1.2 and 1.3 with the key pair as it is when a handshake begins.
pub(crate) fn acceptor(key_pair: Arc<KeyPair>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(key_pair);
    // Nothing else is spoken: for a webhook on 127.0.0.1 the API server would negotiate h2, were it offered.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // The API server keeps connections and resumes none; a resumed one would outlive its certificate's replacement.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(TlsAcceptor::from(Arc::new(config)))
}
