//! The one table of paths: what is served, by which listener.
//!
//! A listener serves only the rows that name it, and answers everything else with upstream's 404.
//! Health and figures are told whatever the method, as upstream does; of the others, which are for
//! reading, any other method is a 405 that names those there are ([`restful`](crate::restful)).

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use ferrolet_ports::{HealthCheck, PodsView};

use crate::accept::only_json;
use crate::main_routes::switched_off;
use crate::metrics::{self, Began, FigureDoors, Figures};
use crate::pods::LastList;
use crate::restful::{Services, reading, reading_and_writing, with_slash};
use crate::{health, pods};

/// Who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// `healthzBindAddress:healthzPort`, plain HTTP.
    Health,
    /// `address:readOnlyPort`, plain HTTP, nobody asked who they are.
    ReadOnly,
    /// `address:port`, TLS, behind the gate; see [`main_router`](crate::main_router).
    Main,
}

/// What the answers are made from.
#[derive(Clone)]
pub struct Views {
    /// The node's pods.
    pub pods: Arc<dyn PodsView>,
    /// The checks behind `/healthz`, in the order they are shown; `ping` comes before them by
    /// itself.
    pub checks: Arc<[Arc<dyn HealthCheck>]>,
}

/// One row: a path, who serves it, and how.
struct Route {
    path: &'static str,
    listeners: &'static [Listener],
    answer: fn() -> MethodRouter<Shown>,
}

/// What the rows' handlers have at hand.
#[derive(Clone)]
struct Shown {
    views: Views,
    last_list: Arc<LastList>,
}

impl FromRef<Shown> for Views {
    fn from_ref(shown: &Shown) -> Self {
        shown.views.clone()
    }
}

impl FromRef<Shown> for Arc<LastList> {
    fn from_ref(shown: &Shown) -> Self {
        shown.last_list.clone()
    }
}

const TABLE: &[Route] = &[
    Route {
        path: "/healthz",
        listeners: &[Listener::Health, Listener::ReadOnly, Listener::Main],
        answer: || any(health::all),
    },
    Route {
        path: "/healthz/{check}",
        listeners: &[Listener::Health, Listener::ReadOnly, Listener::Main],
        answer: || any(health::one),
    },
    Route {
        path: "/pods",
        listeners: &[Listener::ReadOnly, Listener::Main],
        answer: || reading(get(pods::list).route_layer(from_fn(only_json))),
    },
    Route {
        path: "/pods/",
        listeners: &[Listener::ReadOnly, Listener::Main],
        answer: || reading(get(pods::list).route_layer(from_fn(only_json))),
    },
    Route {
        path: "/stats",
        listeners: &[Listener::ReadOnly, Listener::Main],
        answer: || any(with_slash),
    },
];

/// What upstream's router has on every listener but that of health.
pub(crate) const SERVICES: [&str; 2] = ["pods", "stats"];

/// Everything one listener serves.
pub fn router(listener: Listener, views: Views) -> Router {
    let views = match listener {
        // Whoever asks here wants to know that the process answers; what it does is told to those
        // who are known.
        Listener::Health => Views { checks: Arc::new([]), ..views },
        Listener::ReadOnly | Listener::Main => views,
    };
    let rows = TABLE.iter().filter(|row| row.listeners.contains(&listener));
    let router = rows.fold(Router::new(), |router, row| router.route(row.path, (row.answer)()));
    let router = match listener {
        Listener::Health => router.fallback(not_found),
        // As upstream's: it names what it does not do.
        Listener::ReadOnly => {
            let services = Services::new(&SERVICES);
            let router = router.merge(switched_off());
            router.fallback(move |uri: Uri| services.nothing_at(uri))
        }
        // Merged with more rows before it is whole.
        Listener::Main => router,
    };
    router
        .method_not_allowed_fallback(wrong_method)
        .with_state(Shown { views, last_list: Arc::default() })
}

/// What the read-only listener serves when there are figures to show.
pub fn read_only_router(views: Views, figures: Figures) -> Router {
    let http = figures.requests.of("readonly");
    let doors = FigureDoors::new(views, figures);
    router(Listener::ReadOnly, doors.views.clone())
        .merge(figure_routes(doors))
        .layer(from_fn_with_state(http, metrics::count))
}

/// The rows about figures, the same on both listeners.
pub(crate) fn figure_routes(doors: FigureDoors) -> Router {
    let began = Began::at(doors.figures.clock.now());
    Router::new()
        .route("/metrics", any(metrics::own))
        .route("/metrics/resource", any(metrics::resources))
        .route("/metrics/probes", any(metrics::probes))
        .route("/metrics/cadvisor", any(metrics::cadvisor))
        .route("/metrics/slis", any(metrics::health).delete(metrics::forget_health))
        .route("/stats/summary", summary())
        .route("/stats/summary/", summary())
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(began, metrics::as_asked))
        .with_state(doors)
}

fn summary() -> MethodRouter<FigureDoors> {
    let row = get(metrics::summary).post(metrics::summary);
    reading_and_writing(row.route_layer(from_fn(only_json)))
}

/// A plain text answer, marked so that no browser guesses otherwise.
pub(crate) fn text(status: StatusCode, body: String) -> Response {
    let headers =
        [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")];
    (status, headers, body).into_response()
}

/// The 404 that clients of Go servers know.
pub(crate) async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

pub(crate) async fn wrong_method() -> Response {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".to_owned());
    let allowed = axum::http::HeaderValue::from_static("GET, HEAD");
    answer.headers_mut().insert("allow", allowed);
    answer
}
