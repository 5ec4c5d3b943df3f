//! TLS without trust: the connection is private, but nobody asks with whom.

use std::io;
use std::sync::Arc;

use rustls::InvalidMessage::{InvalidContentType, UnknownProtocolVersion};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::dial::in_words;
use crate::heard::Heard;

/// Makes connections secure, and offers HTTP/2 on them.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new() -> Self {
        let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider speaks TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Every probe is a stranger: nothing to resume, nothing to remember.
        config.resumption = rustls::client::Resumption::disabled();
        Self(TlsConnector::from(Arc::new(config)))
    }

    /// Greets the other side; the error is in Go's words.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: Heard,
    ) -> Result<TlsStream<Heard>, String> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("tls: invalid server name {host:?}"))?;
        let greeting = self.0.connect(name, stream).into_fallible().await;
        greeting.map_err(|(error, heard)| complaint(&error, heard.first()))
    }
}

/// True when both sides agreed on HTTP/2.
pub(crate) fn is_http2(stream: &TlsStream<Heard>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(b"h2")
}

/// What a failed greeting is called; whoever began with `HTTP/` has no TLS at all.
fn complaint(error: &io::Error, first: [u8; 5]) -> String {
    use rustls::Error::InvalidMessage;
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    match inner {
        _ if first == *b"HTTP/" => "http: server gave HTTP response to HTTPS client".to_owned(),
        Some(InvalidMessage(InvalidContentType | UnknownProtocolVersion)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(error) => format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => in_words(error),
    }
}

/// Takes anybody for who they say they are.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // Signatures are not looked at, so those that the provider could not check are welcome too.
        use SignatureScheme as It;
        vec![
            It::ECDSA_NISTP256_SHA256,
            It::ECDSA_NISTP384_SHA384,
            It::ECDSA_NISTP521_SHA512,
            It::ED25519,
            It::RSA_PSS_SHA256,
            It::RSA_PSS_SHA384,
            It::RSA_PSS_SHA512,
            It::RSA_PKCS1_SHA256,
            It::RSA_PKCS1_SHA384,
            It::RSA_PKCS1_SHA512,
            It::RSA_PKCS1_SHA1,
        ]
    }
}
