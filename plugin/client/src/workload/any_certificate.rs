//! TLS to servers whose certificate need not be valid.

use std::sync::{Arc, OnceLock};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Accepts every certificate, but verifies that the server has the certificate's private key.
#[derive(Debug)]
pub(super) struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    presented: OnceLock<CertificateDer<'static>>,
}

impl Default for AnyCertificate {
    fn default() -> Self {
        Self {
            provider: Arc::new(ring::default_provider()),
            presented: OnceLock::new(),
        }
    }
}

impl AnyCertificate {
    /// The settings of a client without a certificate. Fails if the TLS library supports no protocol version.
    pub(super) fn client(verifier: &Arc<Self>) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(verifier.provider.clone());
        let builder = builder.with_safe_default_protocol_versions()?.dangerous();
        Ok(builder
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth())
    }

    /// The server's certificate in the first handshake, even if the handshake has failed later.
    pub(super) fn presented(&self) -> Option<&CertificateDer<'static>> {
        self.presented.get()
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.presented.get_or_init(|| end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
