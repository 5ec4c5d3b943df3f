//! What listens, who may talk to it, and what they may do.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use super::reader::{Reader, words};

/// The kubelet's own HTTP servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Whether the servers run at all.
    pub enabled: bool,
    /// The address of the main and the read-only server.
    pub address: IpAddr,
    /// The main server's port.
    pub port: u16,
    /// The port of the server without authentication.
    pub read_only_port: Option<u16>,
    /// The port of the health server.
    pub healthz_port: Option<u16>,
    /// The address of the health server.
    pub healthz_bind_address: IpAddr,
    /// Whether exec, attach, logs and their like are served.
    pub debugging_handlers: bool,
    /// Whether profiles are served.
    pub profiling_handler: bool,
    /// Whether lock contention is profiled.
    pub contention_profiling: bool,
    /// Whether log verbosity can be changed over HTTP.
    pub debug_flags_handler: bool,
    /// Whether the node's log files are served.
    pub system_log_handler: bool,
    /// Whether the node's logs can be queried.
    pub system_log_query: bool,
    /// After how much silence a stream is closed.
    pub streaming_idle_timeout: Duration,
    /// Show metrics that the named release hid.
    pub show_hidden_metrics_for: Option<String>,
}

pub(super) fn read(r: &Reader<'_>) -> Server {
    if r.flag("enableSystemLogQuery") {
        r.needs_gate("enableSystemLogQuery", "NodeLogQuery");
        if !r.flag("enableSystemLogHandler") {
            r.refuse("enableSystemLogQuery", "needs enableSystemLogHandler");
        }
    }
    let show_hidden_metrics_for = r.optional_text("showHiddenMetricsForVersion");
    if show_hidden_metrics_for.as_deref().is_some_and(|version| version != PREVIOUS_MINOR) {
        r.refuse(
            "showHiddenMetricsForVersion",
            format!("must be empty or the previous release, {PREVIOUS_MINOR}"),
        );
    }
    Server {
        enabled: r.flag("enableServer"),
        address: r.address("address"),
        port: r.within("port", 1..=65535),
        read_only_port: r.optional_port("readOnlyPort"),
        healthz_port: r.optional_port("healthzPort"),
        healthz_bind_address: r.address("healthzBindAddress"),
        debugging_handlers: r.flag("enableDebuggingHandlers"),
        profiling_handler: r.flag("enableProfilingHandler"),
        contention_profiling: r.flag("enableContentionProfiling"),
        debug_flags_handler: r.flag("enableDebugFlagsHandler"),
        system_log_handler: r.flag("enableSystemLogHandler"),
        system_log_query: r.flag("enableSystemLogQuery"),
        streaming_idle_timeout: r.duration("streamingConnectionIdleTimeout"),
        show_hidden_metrics_for,
    }
}

/// The only release whose hidden metrics can be shown again.
const PREVIOUS_MINOR: &str = "1.36";

/// How long answers of a webhook are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookCache {
    /// For a yes.
    pub authorized: Duration,
    /// For a no.
    pub unauthorized: Duration,
}

/// How callers prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// Callers without proof are let in as `system:anonymous`.
    pub anonymous: bool,
    /// Bearer tokens are sent to the API server for review, and an answer is kept this long; none
    /// when off.
    pub webhook_cache: Option<Duration>,
    /// The authorities whose client certificates are believed.
    pub client_ca_file: Option<PathBuf>,
}

pub(super) fn read_authentication(r: &Reader<'_>) -> Authentication {
    let cache = r.duration("authentication.webhook.cacheTTL");
    Authentication {
        anonymous: r.flag("authentication.anonymous.enabled"),
        webhook_cache: r.flag("authentication.webhook.enabled").then_some(cache),
        client_ca_file: r.optional_text("authentication.x509.clientCAFile").map(PathBuf::from),
    }
}

words! {
    /// Who decides what a caller may do.
    AuthorizationMode {
        /// The API server is asked.
        Webhook = "Webhook",
        /// Everybody may do everything.
        AlwaysAllow = "AlwaysAllow",
    }
}

/// What callers may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// Who decides.
    pub mode: AuthorizationMode,
    /// How long decisions are kept.
    pub webhook_cache: WebhookCache,
}

pub(super) fn read_authorization(r: &Reader<'_>) -> Authorization {
    Authorization {
        mode: r.word("authorization.mode"),
        webhook_cache: WebhookCache {
            authorized: r.duration("authorization.webhook.cacheAuthorizedTTL"),
            unauthorized: r.duration("authorization.webhook.cacheUnauthorizedTTL"),
        },
    }
}
