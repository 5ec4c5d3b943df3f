//! The API server: the only speaker to it.
//!
//! What is here, bottom up: [`kubeconfig`] says where the server is and who we are; [`tls`] holds
//! the certificate we show; [`client`] is a thin typed client over HTTP/2; [`watch`] turns a
//! collection into a channel of changes. Everything else stands on those. Pure parts (plans,
//! correlators, cursors) are modules of their own, next to the thin loops that use them. Refuses:
//! files (they are behind the ports `CredentialFiles` and `CertStore`), decisions about pods.
#![forbid(unsafe_code)]

mod answer;
pub mod api;
pub mod certificates;
pub mod claims;
pub mod client;
#[cfg(test)]
mod damaged;
mod decode;
pub mod driver_periods;
mod early;
pub mod events;
mod exec;
#[cfg(test)]
mod fake;
pub mod joining;
pub mod kept;
pub mod kubeconfig;
pub mod lease;
pub mod node_cluster;
pub mod objects;
mod pod_certificates;
mod pod_keys;
pub mod pods_source;
mod rate;
pub mod reviews;
pub mod single;
pub mod storage;
pub mod tls;
pub mod tokens;
mod trust;
pub mod watch;
