//! The node's page: one HTML document that shows what the node runs, how it fares, and why a pod is
//! not well.
//!
//! ```text
//!  /page/                         the document, style and script inside it
//!  /page/data                     everything it shows, computed when asked   (data)
//!  /page/logs/NS/POD/CONTAINER    the end of a log, as /containerLogs answers
//! ```
//!
//! On the main listener it stands behind the gate like everything else; on a listener of its own
//! ([`page_router`]) nobody is asked who they are, so that one answers only to names of this
//! machine: a web page from elsewhere cannot read it by pointing a name of its own at loopback.
//! Nothing is gathered while nobody asks: history is kept by the browser that looks. Refuses:
//! changing anything.

mod data;
mod recent;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine as _;
use ferrolet_ports::NodeView;
use sha2::{Digest as _, Sha256};

pub use recent::RecentEvents;

use crate::container_logs;
use crate::main_routes::{Main, MainDoors};
use crate::metrics::{Layers, live_summary};
use crate::refusal::Refusal;
use crate::routes::{not_found, wrong_method};

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What only the page shows.
pub struct PageDoors {
    node: Arc<dyn NodeView>,
    events: Arc<RecentEvents>,
    layers: Layers,
}

impl PageDoors {
    /// The node as it would describe itself to a cluster, and what happened lately.
    pub fn new(node: Arc<dyn NodeView>, events: Arc<RecentEvents>) -> Self {
        Self { node, events, layers: Layers::default() }
    }
}

/// The page alone, for a listener on loopback.
pub fn page_router(doors: Arc<MainDoors>) -> Router {
    routes()
        .route("/", get(async || Redirect::temporary("/page/")))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Main::new(doors))
        .layer(from_fn(only_this_machine))
}

/// The page's rows.
pub(crate) fn routes() -> Router<Main> {
    Router::new()
        .route("/page", get(async || Redirect::temporary("/page/")))
        .route("/page/", get(document))
        .route("/page/data", get(shown))
        .route("/page/logs/{namespace}/{pod}/{container}", get(container_logs::answer))
}

async fn document() -> Response {
    static PAGE: OnceLock<(String, HeaderValue)> = OnceLock::new();
    let (page, policy) = PAGE.get_or_init(|| {
        let page = DOCUMENT
            .replacen("/*style*/", STYLE, 1)
            .replacen("/*script*/", SCRIPT, 1);
        let policy = format!(
            "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'; style-src '{}'; script-src '{}'",
            hash(STYLE),
            hash(SCRIPT)
        );
        let policy = HeaderValue::from_str(&policy).expect("the policy is plain text");
        (page, policy)
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy.clone()),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, page.as_str()).into_response()
}

/// How a policy names a text that may be used.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digest = base64::engine::general_purpose::STANDARD.encode(digest);
    format!("sha256-{digest}")
}

async fn shown(State(main): State<Main>) -> Response {
    let Some(page) = &main.page else {
        return not_found().await;
    };
    let pods = main.views.pods.pods();
    let stats = match &main.figures {
        Some(figures) => match live_summary(figures, &page.layers, &pods).await {
            Ok(summary) => Some(summary),
            // The rest is worth showing without figures.
            Err(error) => {
                tracing::warn!(err = %error, "Usage cannot be read");
                None
            }
        },
        None => None,
    };
    let node = page.node.node().await;
    let seen = data::Seen {
        node: &node,
        pods: &pods,
        events: &page.events.newest_first(),
        checks: &main.views.checks,
        stats,
        now: main.clock.now(),
        has_logs: main.has_debugging_handlers,
    };
    let mut answer = axum::Json(data::data(seen)).into_response();
    let never = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, never);
    answer
}

/// Refuses requests that were sent to a name that is not this machine's own, as a page that rebinds
/// its name would send them.
async fn only_this_machine(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|it| it.to_str().ok()).or_else(|| request.uri().host());
    match host {
        Some(host) if is_loopback(host) => next.run(request).await,
        _ => Refusal::new(
            StatusCode::FORBIDDEN,
            format!("this page answers to localhost only, not to {:?}\n", host.unwrap_or_default()),
        )
        .into_response(),
    }
}

/// `localhost`, `127.0.0.1:4194`, `[::1]:4194`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:4194", true),
            ("127.0.0.1:4194", true),
            ("127.9.9.9", true),
            ("[::1]:4194", true),
            ("[::1]", true),
            ("localhost.evil.example:4194", false),
            ("evil.example", false),
            ("10.0.0.1", false),
            ("", false),
            ("[fe80::1]", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }

    #[test]
    fn the_document_brings_everything_it_needs() {
        for mark in ["/*style*/", "/*script*/"] {
            assert_eq!(DOCUMENT.matches(mark).count(), 1, "{mark}");
        }
        for text in [DOCUMENT, STYLE, SCRIPT] {
            for outside in ["http://", "https://", "//cdn", "@import", "url("] {
                let found = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!found.contains(outside), "{outside}");
            }
        }
        // The policy allows neither, so they would not work.
        for forbidden in [" style=\"", " onclick=", "innerHTML", "eval("] {
            assert!(!DOCUMENT.contains(forbidden), "{forbidden}");
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }
}
