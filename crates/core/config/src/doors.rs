//! Doors that stand open to everybody: allowed when somebody asked for them in words.
//!
//! Without a configuration file upstream's old defaults hold: whoever reaches the node may do
//! anything on 10250 without saying who he is, and read everything on 10255. Nobody decided that,
//! so it is refused unless the values themselves are given, or only this machine can reach the
//! doors (docs/adr/0045). Pure.

use crate::{Config, FieldError, RawConfig, config::AuthorizationMode};

const ANONYMOUS: &str = "authentication.anonymous.enabled";
const MODE: &str = "authorization.mode";
const READ_ONLY: &str = "readOnlyPort";

/// Faults for doors that nobody asked for; `given` is what files and flags say, without defaults.
pub(crate) fn check(config: &Config, given: &RawConfig) -> Vec<FieldError> {
    let server = &config.server;
    if server.address.is_loopback() {
        return Vec::new();
    }
    let is_said = |path: &str| given.get(path).is_some();
    let lets_anybody_in = server.enabled
        && config.authentication.anonymous
        && config.authorization.mode == AuthorizationMode::AlwaysAllow;
    let mut faults = Vec::new();
    if lets_anybody_in && !(is_said(ANONYMOUS) && is_said(MODE)) {
        let message = format!(
            "by default, without a configuration file, anybody who reaches {} may do anything on this node; give \
             --authorization-mode=Webhook and --anonymous-auth=false, or if you mean it --authorization-mode=AlwaysAllow \
             and --anonymous-auth=true, or --address=127.0.0.1",
            server.address
        );
        faults.push(FieldError::at(MODE, config.authorization.mode.as_str(), message));
    }
    if let Some(port) = server.read_only_port.filter(|_| !is_said(READ_ONLY)) {
        let message = format!(
            "by default, without a configuration file, anybody who reaches {} may read every pod of this node; give \
             --read-only-port=0, or if you mean it --read-only-port={port}, or --address=127.0.0.1",
            server.address
        );
        faults.push(FieldError::at(READ_ONLY, port, message));
    }
    faults
}
