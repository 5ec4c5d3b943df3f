//! Certificates, and the TLS versions, ciphers and curves that the server agrees to.

use std::path::PathBuf;

use super::reader::{Reader, words};

words! {
    /// The oldest protocol version that is accepted.
    TlsVersion {
        /// 1.2, the default.
        V12 = "VersionTLS12",
        /// 1.0.
        V10 = "VersionTLS10",
        /// 1.1.
        V11 = "VersionTLS11",
        /// 1.3.
        V13 = "VersionTLS13",
    }
}

/// Certificates and protocol of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The serving certificate; without one, it is found or made in the certificate directory.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub private_key_file: Option<PathBuf>,
    /// Cipher suites of TLS 1.2; empty means the library's choice.
    pub cipher_suites: Vec<String>,
    /// Key-exchange groups by their IANA number; empty means the library's choice.
    pub curve_preferences: Vec<u16>,
    /// The oldest version accepted; none means the library's choice.
    pub min_version: Option<TlsVersion>,
    /// Renew the client certificate before it expires.
    pub rotate_client_certificate: bool,
    /// Get the serving certificate from the cluster.
    pub server_bootstrap: bool,
}

pub(super) fn read(r: &Reader<'_>) -> Tls {
    let server_bootstrap = r.flag("serverTLSBootstrap");
    if server_bootstrap {
        r.needs_gate("serverTLSBootstrap", "RotateKubeletServerCertificate");
    }
    let cipher_suites = r.texts("tlsCipherSuites");
    for suite in cipher_suites.iter().filter(|suite| !CIPHER_SUITES.contains(&suite.as_str())) {
        r.fault("tlsCipherSuites", suite, "is not a known cipher suite");
    }
    Tls {
        cert_file: r.optional_text("tlsCertFile").map(PathBuf::from),
        private_key_file: r.optional_text("tlsPrivateKeyFile").map(PathBuf::from),
        cipher_suites,
        curve_preferences: read_curves(r),
        min_version: r.optional_text("tlsMinVersion").map(|_| r.word("tlsMinVersion")),
        rotate_client_certificate: r.flag("rotateCertificates"),
        server_bootstrap,
    }
}

fn read_curves(r: &Reader<'_>) -> Vec<u16> {
    let items =
        r.get("tlsCurvePreferences").and_then(|value| value.as_array()).into_iter().flatten();
    let mut curves = Vec::new();
    for number in items.filter_map(serde_json::Value::as_i64) {
        match u16::try_from(number).ok().filter(|curve| CURVES.contains(curve)) {
            None => r.fault("tlsCurvePreferences", number, format!("must be one of {CURVES:?}")),
            Some(curve) if curves.contains(&curve) => {
                r.fault("tlsCurvePreferences", number, "is given twice")
            }
            Some(curve) => curves.push(curve),
        }
    }
    curves
}

/// P-256, P-384, P-521, X25519, and the hybrids with ML-KEM.
const CURVES: [u16; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

/// The names Go's TLS library knows, with upstream's two old spellings.
const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];
