//! TLS with a key pair that is reloaded when its files change.

mod client_ca;
mod key_pair;

use std::{io, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    server::{self, NoServerSessionStorage},
};
use tokio::{io::BufReader, net::TcpStream, sync::Semaphore, task};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

pub(crate) use client_ca::{ClientCa, ClientCaError};
pub(crate) use key_pair::{KeyPair, KeyPairError};

/// The number of key exchanges that are computed at one time. A key exchange takes longer than a review. Of the two threads
/// for reviews, one stays free while many clients connect at the same time.
const KEY_EXCHANGES: usize = 1;

/// The encrypted bytes of a connection that wait until the kernel takes them: one TLS record.
const TLS_BUFFER_BYTES: usize = 16 * 1024;

/// The encrypted bytes that one read takes from the kernel: a review of the usual size. rustls itself reads at most 4 KiB at a time.
const TLS_READ_BYTES: usize = 20 * 1024;

/// Accepts TLS connections.
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    key_exchanges: Semaphore,
}

impl Acceptor {
    /// Performs a TLS handshake. The caller must set a time limit.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<BufReader<TcpStream>>> {
        let stream = BufReader::with_capacity(TLS_READ_BYTES, stream);
        // Read the client's hello first, so that a client that sends it slowly does not block the key exchanges of others.
        let hello = LazyConfigAcceptor::new(server::Acceptor::default(), stream).await?;
        // The semaphore is never closed, so this does not fail.
        let turn = self.key_exchanges.acquire().await;
        let handshake = hello.into_stream(self.config.clone());
        // Let reviews that have arrived run before the next key exchange.
        task::yield_now().await;
        drop(turn);
        let mut stream = handshake.await?;
        stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        Ok(stream)
    }
}

/// Creates an acceptor for TLS 1.2 and 1.3. Each handshake uses the current key pair. With `client_ca`, it also
/// verifies the client's certificate, if the client sends one.
pub(crate) fn acceptor(
    key_pair: Arc<KeyPair>,
    client_ca: Option<Arc<ClientCa>>,
) -> Result<Acceptor, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let config = match client_ca {
        Some(client_ca) => config.with_client_cert_verifier(client_ca),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(key_pair);
    // The server supports only HTTP/1.1. For a webhook on 127.0.0.1 the API server would negotiate h2 if offered.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Turn off session resumption: the API server does not use it, and a resumed session would still use a replaced certificate.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Acceptor {
        config: Arc::new(config),
        key_exchanges: Semaphore::new(KEY_EXCHANGES),
    })
}
