//! Reads the expiry of an API server's certificate on a separate connection, which works even if the certificate is
//! no longer trusted.

use std::{io, sync::Arc};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{HttpConnector, proxy::Tunnel},
    rt::TokioIo,
};
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::{BoxError, ServiceExt as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::any_certificate::AnyCertificate;

/// Why the serving certificate of an API server cannot be read.
#[derive(Debug, Error)]
pub enum ServingCertificateError {
    /// The host in the server's URL is not a valid name for TLS.
    #[error("the host in the server URL is not a valid TLS server name")]
    Name,
    #[error("the API server does not serve TLS")]
    NotTls,
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("TLS handshake: {0}")]
    Handshake(#[from] io::Error),
    #[error("the server's certificate cannot be parsed")]
    Unreadable,
}

/// Converts a certificate's expiry from seconds since 1970. An expiry that a `Timestamp` cannot hold becomes the latest or earliest
/// one, such as that of a certificate that never expires: the last second of the year 9999 (RFC 5280, 4.1.2.5).
pub fn certificate_end(not_after: i64) -> Timestamp {
    let latest = if not_after < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::from_second(not_after).unwrap_or(latest)
}

#[derive(Clone, Debug)]
pub struct ServingCertificate {
    pub url: Uri,
    /// The TLS server name. `None` if it is the host of the URL.
    pub name: Option<String>,
    /// The URL of the HTTP proxy to the server. `None` for a direct connection.
    pub proxy: Option<Uri>,
}

impl ServingCertificate {
    pub const fn new(url: Uri) -> Self {
        Self {
            url,
            name: None,
            proxy: None,
        }
    }

    /// Reads when the server's certificate expires. Accepts any certificate and sends no data. The caller sets the time
    /// limit.
    pub async fn read_expiry(&self) -> Result<Timestamp, ServingCertificateError> {
        if self.url.scheme_str() == Some("http") {
            return Err(ServingCertificateError::NotTls);
        }
        let host = self.url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| ServingCertificateError::Name)?;
        let verifier = Arc::<AnyCertificate>::default();
        let config = AnyCertificate::client(&verifier).map_err(io::Error::other)?;
        let stream = self.connect().await?.into_inner();
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        match (verifier.presented(), handshake) {
            (Some(certificate), _) => match X509Certificate::from_der(certificate) {
                Ok((_, certificate)) => Ok(certificate_end(certificate.validity().not_after.timestamp())),
                Err(_) => Err(ServingCertificateError::Unreadable),
            },
            (None, Err(error)) => Err(error.into()),
            (None, Ok(_)) => Err(ServingCertificateError::Unreadable),
        }
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, ServingCertificateError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let stream = match &self.proxy {
            None => connector.oneshot(self.url.clone()).await.map_err(BoxError::from),
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy.clone(), connector);
                tunnel.oneshot(self.url.clone()).await.map_err(BoxError::from)
            }
        };
        stream.map_err(|error| {
            let mut cause: &(dyn std::error::Error + 'static) = &*error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            ServingCertificateError::Unreachable(cause.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::certificate_end;

    #[test]
    fn a_certificate_may_never_end() {
        for (not_after, end) in [
            (0, Timestamp::UNIX_EPOCH),
            // 9999-12-31T23:59:59Z
            (253_402_300_799, Timestamp::MAX),
            (i64::MIN, Timestamp::MIN),
        ] {
            assert_eq!(certificate_end(not_after), end, "{not_after}");
        }
    }
}
