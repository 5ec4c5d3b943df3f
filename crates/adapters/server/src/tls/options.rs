//! Versions, cipher suites and key exchange as configured, as far as rustls has them.
//!
//! Names it does not have (CBC, RC4, 3DES; P-521, hybrids) are left out and told, never fatal: a
//! node must not stay away because its operator also allowed something weaker. Suites of TLS 1.3
//! are always on, as in Go.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ProtocolVersion, ServerConfig,
    SignatureScheme, SupportedCipherSuite,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::serving::{ServingCertificate, provider};

/// The oldest protocol version that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldestTls {
    /// 1.2; what 1.0 and 1.1 in the configuration come to.
    V12,
    /// 1.3.
    V13,
}

/// The configured protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// `tlsMinVersion`.
    pub oldest: OldestTls,
    /// `tlsCipherSuites`: Go's names; empty for all we have.
    pub cipher_suites: Vec<String>,
    /// `tlsCurvePreferences`: IANA numbers in order of preference; empty for all we have.
    pub curves: Vec<u16>,
}

/// What came of the options.
pub struct TlsSetup {
    /// For the listener.
    pub config: Arc<ServerConfig>,
    /// Configured names that cannot be honoured, for a warning.
    pub ignored: Vec<String>,
}

/// Makes the listener's configuration.
pub fn tls_setup(
    certificate: Arc<ServingCertificate>,
    options: &TlsOptions,
) -> Result<TlsSetup, Error> {
    let (provider, ignored) = choose(provider(), options);
    let versions: &[&rustls::SupportedProtocolVersion] = match options.oldest {
        OldestTls::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        OldestTls::V13 => &[&rustls::version::TLS13],
    };
    let asking = Arc::new(AskEverybody { algorithms: provider.signature_verification_algorithms });
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(asking)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsSetup { config: Arc::new(config), ignored })
}

/// The provider with only what was asked for, and the names it does not have.
fn choose(mut provider: CryptoProvider, options: &TlsOptions) -> (CryptoProvider, Vec<String>) {
    let mut ignored = Vec::new();
    if !options.cipher_suites.is_empty() {
        let wanted: Vec<&str> = options.cipher_suites.iter().map(|name| full_name(name)).collect();
        for name in &wanted {
            let is_ours = |suite: &&SupportedCipherSuite| go_name(suite) == *name;
            if !provider.cipher_suites.iter().any(|it| is_ours(&it)) {
                ignored.push((*name).to_owned());
            }
        }
        provider.cipher_suites.retain(|suite| {
            is_13(suite) || wanted.iter().any(|name| *name == go_name(suite).as_str())
        });
    }
    if !options.curves.is_empty() {
        let mut groups = Vec::new();
        for curve in &options.curves {
            let found = provider.kx_groups.iter().find(|group| u16::from(group.name()) == *curve);
            match found {
                Some(group) => groups.push(*group),
                None => ignored.push(format!("curve {curve}")),
            }
        }
        if !groups.is_empty() {
            provider.kx_groups = groups;
        }
    }
    (provider, ignored)
}

/// Upstream's two old spellings, made whole.
fn full_name(name: &str) -> &str {
    match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        other => other,
    }
}

/// rustls marks suites of TLS 1.3 in their names; Go and the registry of names do not.
fn go_name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.replacen("TLS13_", "TLS_", 1)
}

fn is_13(suite: &SupportedCipherSuite) -> bool {
    suite.version().version == ProtocolVersion::TLSv1_3
}

/// Asks every caller for a certificate, makes sure they hold its key, and believes nothing it says.
#[derive(Debug)]
struct AskEverybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AskEverybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // No names of authorities are sent: they may change while a connection lives, and clients then
    // show what they have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(oldest: OldestTls, suites: &[&str], curves: &[u16]) -> TlsOptions {
        TlsOptions {
            oldest,
            cipher_suites: suites.iter().map(|it| (*it).to_owned()).collect(),
            curves: curves.to_vec(),
        }
    }

    #[test]
    fn only_configured_suites_and_curves_stay_and_the_rest_is_told() {
        let check =
            |suites: &[&str], curves: &[u16], stay: &[&str], n_groups: usize, told: &[&str]| {
                let (provider, ignored) =
                    choose(provider(), &options(OldestTls::V12, suites, curves));
                let stayed = provider.cipher_suites.iter().filter(|it| !is_13(it));
                let stayed: Vec<String> = stayed.map(go_name).collect();
                assert_eq!(stayed, stay);
                assert_eq!(provider.kx_groups.len(), n_groups);
                assert_eq!(ignored, told);
                assert!(provider.cipher_suites.iter().any(is_13), "always on");
            };
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        check(&[one], &[], &[one], 3, &[]);
        let old = "TLS_RSA_WITH_3DES_EDE_CBC_SHA";
        check(&[one, old], &[29], &[one], 1, &[old]);
        check(
            &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_AES_128_GCM_SHA256"],
            &[25, 23],
            &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"],
            1,
            &["curve 25"],
        );
        check(&[old], &[4588], &[], 3, &[old, "curve 4588"]);
    }
}
