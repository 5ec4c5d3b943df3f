//! The wire's own types, generated from `proto/runtime/v1/api.proto`. They never leave this crate.
//!
//! Messages that may hold secrets get a `Debug` that shows none of them, so that no log line can.

#![expect(
    clippy::enum_variant_names,
    unreachable_pub,
    reason = "generated code; the schema is complete so that later calls need no change here"
)]

use std::fmt;

tonic::include_proto!("runtime.v1");

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
