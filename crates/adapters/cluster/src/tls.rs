//! Proof both ways: how the server is checked, and the certificate we show.
//!
//! [`Identity`] is the one place the current client certificate lives; every connection asks it
//! during the handshake, so a rotated certificate is in use as soon as connections are opened anew.
//! Refuses: files; PEM comes from the caller.

use std::sync::{Arc, RwLock};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        ResolvesClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _};

use crate::kubeconfig::Trust;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There is no certificate in the text.
    #[error("no certificate in the PEM text")]
    NoCertificate,
    /// The text is not PEM.
    #[error("certificate or key is not valid PEM")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// The key is of a kind that cannot be used, or belongs to another certificate.
    #[error("use certificate and key")]
    Key(#[source] rustls::Error),
    /// An authority cannot be used.
    #[error("use certificate authority")]
    Authority(#[source] rustls::Error),
    /// The protocol versions cannot be set.
    #[error("set up TLS")]
    Protocol(#[source] rustls::Error),
}

/// The client certificate that new connections show. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl Identity {
    /// Shows this certificate from now on.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let pair = certified_key(certificate, key)?;
        *self.current.write().unwrap_or_else(|held| held.into_inner()) = Some(Arc::new(pair));
        Ok(())
    }

    fn get(&self) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read();
        current.unwrap_or_else(|held| held.into_inner()).clone()
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.get()
    }

    fn has_certs(&self) -> bool {
        self.get().is_some()
    }
}

/// A certificate with its key, checked to belong together. Both may stand in the same text.
pub fn certified_key(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(TlsError::Pem)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Pem)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(TlsError::Key)
}

/// The configuration for connections to the API server.
pub(crate) fn client_config(trust: &Trust, identity: &Identity) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let builder = match trust {
        Trust::Authorities(pem) => {
            let mut roots = RootCertStore::empty();
            for authority in CertificateDer::pem_slice_iter(pem) {
                roots.add(authority.map_err(TlsError::Pem)?).map_err(TlsError::Authority)?;
            }
            if roots.is_empty() {
                return Err(TlsError::NoCertificate);
            }
            builder.with_root_certificates(roots)
        }
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
        }
    };
    let mut config = builder.with_client_cert_resolver(Arc::new(identity.clone()));
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would carry on with the identity of the old certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Takes any certificate: the kubeconfig said `insecure-skip-tls-verify`.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
