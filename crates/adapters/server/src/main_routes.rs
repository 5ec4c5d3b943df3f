//! The main listener's table: everything the read-only listener has, and what needs somebody to be
//! known first.
//!
//! Every row stands behind the gate, also the 404s: a stranger learns nothing about paths. Without
//! debugging handlers the rows that reach into pods answer 405 in upstream's words.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use ferrolet_ports::{Clock, GrantsView, LogFiles, Runtime, Streams, SystemLogFiles};
use tokio::sync::watch;

use crate::accept::only_json;
use crate::auth::{self, Gate};
use crate::checkpoint::{self, CheckpointDoors};
use crate::debug::{self, DebugDoors};
use crate::metrics::{self, FigureDoors, Figures};
use crate::page::{self, PageDoors};
use crate::pages::{self, About, Pages};
use crate::restful::{Services, reading, reading_and_writing, with_slash, writing};
use crate::routes::{Listener, Views, figure_routes, router, text, wrong_method};
use crate::{allocated_pods, container_logs, running_pods, streams, system_logs, traced};

/// No handler reads a body of more than this.
const BODY: usize = 64 * 1024;

/// What the main listener's answers are made from.
pub struct MainDoors {
    /// What the read-only listener shows as well.
    pub views: Views,
    /// What really runs.
    pub runtime: Arc<dyn Runtime>,
    /// Streams into containers.
    pub streams: Arc<dyn Streams>,
    /// Container logs.
    pub logs: Arc<dyn LogFiles>,
    /// The machine's log files.
    pub system_logs: Arc<dyn SystemLogFiles>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// What `/configz` answers: the configuration in force as JSON text, and what waits for a
    /// restart.
    pub configuration: watch::Receiver<String>,
    /// What is told of the process itself.
    pub about: About,
    /// Figures to show; none, and their paths are not served.
    pub figures: Option<Figures>,
    /// What the node's page shows; none, and it is not served.
    pub page: Option<PageDoors>,
    /// What pods were granted; none, and `/allocatedPods` is not served.
    pub allocated: Option<Arc<dyn GrantsView>>,
    /// Where checkpoints go and who writes them; none, and they are not offered.
    pub checkpoints: Option<CheckpointDoors>,
    /// What may be asked of the process itself, and told to it.
    pub debugging: DebugDoors,
    /// The gates `ComponentFlagz` and `ComponentStatusz`.
    pub pages: Pages,
    /// `enableDebuggingHandlers`.
    pub has_debugging_handlers: bool,
    /// `enableSystemLogHandler`.
    pub has_system_logs: bool,
    /// `enableSystemLogQuery`.
    pub has_system_log_query: bool,
    /// The gate `PodLogsQuerySplitStreams`.
    pub has_split_log_streams: bool,
    /// The gate `ExtendWebSocketsToKubelet`: WebSockets of the newest protocols end here.
    pub has_web_sockets: bool,
    /// `streamingConnectionIdleTimeout`.
    pub stream_idle_timeout: Duration,
}

/// The doors, shared by all handlers.
#[derive(Clone)]
pub(crate) struct Main(Arc<MainDoors>);

impl Main {
    pub(crate) fn new(doors: Arc<MainDoors>) -> Self {
        Self(doors)
    }
}

impl Deref for Main {
    type Target = MainDoors;

    fn deref(&self) -> &MainDoors {
        &self.0
    }
}

type Row = (&'static str, fn() -> MethodRouter<Main>);

const INTO_PODS: &[Row] = &[
    ("/containerLogs/{namespace}/{pod}/{container}", || reading(get(container_logs::answer))),
    ("/exec/{namespace}/{pod}/{container}", exec),
    ("/exec/{namespace}/{pod}/{uid}/{container}", exec),
    ("/attach/{namespace}/{pod}/{container}", attach),
    ("/attach/{namespace}/{pod}/{uid}/{container}", attach),
    ("/portForward/{namespace}/{pod}", port_forward),
    ("/portForward/{namespace}/{pod}/{uid}", port_forward),
    ("/run/{namespace}/{pod}/{container}", || writing(post(streams::run))),
    ("/run/{namespace}/{pod}/{uid}/{container}", || writing(post(streams::run))),
    ("/runningpods", || any(with_slash)),
    ("/runningpods/", || reading(get(running_pods::list).route_layer(from_fn(only_json)))),
    ("/configz", || any(configz)),
];

fn exec() -> MethodRouter<Main> {
    reading_and_writing(get(streams::exec).post(streams::exec))
}

fn attach() -> MethodRouter<Main> {
    reading_and_writing(get(streams::attach).post(streams::attach))
}

fn port_forward() -> MethodRouter<Main> {
    reading_and_writing(get(streams::port_forward).post(streams::port_forward))
}

/// What upstream's router has where debugging handlers are on.
const SERVICES: [&str; 6] =
    ["run", "exec", "attach", "portForward", "containerLogs", "runningpods"];

/// What says that it is switched off, and everything below.
const SWITCHED_OFF: [&str; 8] = [
    "/run",
    "/exec",
    "/attach",
    "/portForward",
    "/containerLogs",
    "/runningpods",
    "/debug/pprof",
    "/logs",
];

/// Everything the main listener serves, behind the gate.
pub fn main_router(doors: Arc<MainDoors>, gate: Arc<Gate>) -> Router {
    let requests = doors.figures.as_ref().map(|it| it.requests.clone());
    let http = requests.unwrap_or_default().of("readwrite");
    // Checks are counted where they are asked for, so both sets of rows share them.
    let shared = match doors.figures.clone() {
        Some(figures) => {
            let figures = FigureDoors::new(doors.views.clone(), figures);
            router(Listener::Main, figures.views.clone()).merge(figure_routes(figures))
        }
        None => router(Listener::Main, doors.views.clone()),
    };
    let mut own: Router<Main> = Router::new();
    let mut services = crate::routes::SERVICES.to_vec();
    if doors.has_debugging_handlers {
        for (path, answer) in INTO_PODS {
            own = own.route(path, answer());
        }
        // Upstream answers a path of its own accord where the handler is off: 405 in the same
        // words.
        own = if doors.has_system_logs {
            own.route("/logs/", reading(get(system_logs::root)))
                .route("/logs/{*path}", reading(get(system_logs::below)))
        } else {
            own.route("/logs/", any(logs_off)).route("/logs/{*path}", any(logs_off))
        };
        own = own.route("/logs", any(with_slash));
        services.extend(SERVICES);
        if doors.page.is_some() {
            own = own.merge(page::routes());
        }
        if doors.allocated.is_some() {
            let one = "/allocatedPods/{namespace}/{pod}";
            let answer = || reading(get(allocated_pods::one).route_layer(from_fn(only_json)));
            let list = || reading(get(allocated_pods::list).route_layer(from_fn(only_json)));
            services.push("allocatedPods");
            own = own
                .route("/allocatedPods", list())
                .route("/allocatedPods/", list())
                .route(one, answer())
                .route(&format!("{one}/{{uid}}"), answer());
        }
        if doors.checkpoints.is_some() {
            let path = "/checkpoint/{namespace}/{pod}/{container}";
            let answer = writing(post(checkpoint::write).route_layer(from_fn(only_json)));
            services.push("checkpoint");
            own = own.route(path, answer).route("/checkpoint", any(with_slash));
        }
        if doors.pages.has_flagz {
            own = own.route("/flagz", any(pages::flagz));
        }
        if doors.pages.has_statusz {
            own = own.route("/statusz", any(pages::statusz));
        }
        own = own.merge(debug::routes(&doors.debugging));
    } else {
        own = own.merge(switched_off());
    }
    let own = own.method_not_allowed_fallback(wrong_method).with_state(Main::new(doors));
    let services = Services::new(&services);
    // The gate is a layer around everything, fallbacks included.
    Router::new()
        .merge(shared)
        .merge(own)
        .fallback(move |uri: Uri| services.nothing_at(uri))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(from_fn(traced::trace))
        .layer(from_fn_with_state(gate, auth::check))
        .layer(from_fn_with_state(http, metrics::count))
}

/// What reaches into pods, where it is not served: it says so.
pub(crate) fn switched_off<S: Clone + Send + Sync + 'static>() -> Router<S> {
    SWITCHED_OFF.iter().fold(Router::new(), |router, path| {
        router
            .route(&format!("{path}/{{*rest}}"), any(say_switched_off))
            .route(&format!("{path}/"), any(say_switched_off))
            .route(path, any(with_slash))
    })
}

async fn say_switched_off() -> Response {
    let words = "Debug endpoints are disabled.\n".to_owned();
    text(StatusCode::METHOD_NOT_ALLOWED, words)
}

async fn logs_off() -> Response {
    let words = "logs endpoint is disabled.\n".to_owned();
    text(StatusCode::METHOD_NOT_ALLOWED, words)
}

async fn configz(State(main): State<Main>) -> Response {
    let json = main.configuration.borrow().clone();
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, json).into_response()
}
