//! The main listener's TLS: its own certificate, its protocol, and the certificates callers show.
//!
//! In: PEM text from whoever reads or renews files. Out: a rustls configuration that never has to
//! be replaced, because the serving certificate and the callers' authorities are looked up at each
//! use. A caller's certificate is asked for and never demanded; whether it is believed is decided
//! per request ([`ClientAuthorities`]), so that a stranger gets a 401 that says so and not a broken
//! handshake, as with upstream.
//!
//! Refuses: reading files; protocol versions below 1.2, which rustls does not have.

mod authorities;
mod options;
mod serving;

pub(crate) use authorities::Caller;
pub use authorities::{CallerError, ClientAuthorities};
pub use options::{OldestTls, TlsOptions, TlsSetup, tls_setup};
pub use serving::{PemError, ServingCertificate};
