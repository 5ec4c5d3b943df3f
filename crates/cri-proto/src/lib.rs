//! CRI v1's own types, generated from `proto/runtime/v1/api.proto`: messages, clients and, in
//! [`server`], servers.
//!
//! Shared by the two that speak CRI, the agent's adapter and the embedded runtime's service, and
//! known to nobody else. Messages that may hold secrets get a `Debug` that shows none of them, so
//! that no log line can.
#![forbid(unsafe_code)]

use std::fmt;

tonic::include_proto!("runtime.v1");

/// The servers' side. A call that nobody implements is answered so.
#[expect(clippy::allow_attributes, reason = "generated code")]
pub mod server {
    tonic::include_proto!("server/runtime.v1");
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for ExecSyncResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSyncResponse")
            .field("exit_code", &self.exit_code)
            .finish_non_exhaustive()
    }
}
