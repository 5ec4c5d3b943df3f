//! `/debug/pprof/…` and `/debug/flags/v`: looking into the process itself, and having it say more.
//!
//! What makes sense of Go's profiles is here: processor time, memory, threads, the command line.
//! Profiles are in pprof's format ([`pprof`]) without names of functions; `go tool pprof` finds
//! those in the executable that was not stripped. Nobody measures how long threads wait for one
//! another, so `block` and `mutex` are empty, as upstream's are unless contention is profiled. What
//! only a Go program has (`trace`) is answered like an unknown profile.

mod pprof;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, put};
use ferrolet_ports::{Profile, ProfileSample, Profiler};

use crate::main_routes::Main;
use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::restful::{reading, with_slash};
use crate::routes::text;

const DEFAULT_SPAN: u64 = 30;
/// A profile ends at some time, whatever is asked for.
const LONGEST_SPAN: u64 = 600;

/// What may be asked of the process, and told to it.
#[derive(Clone)]
pub struct DebugDoors {
    /// `enableProfilingHandler`: who takes profiles.
    pub profiler: Option<Arc<dyn Profiler>>,
    /// `enableDebugFlagsHandler`: sets how much is logged.
    pub set_verbosity: Option<Arc<dyn Fn(u32) + Send + Sync>>,
    /// The words the process was started with.
    pub command_line: Vec<String>,
}

/// The rows, by what is switched on.
pub(crate) fn routes(doors: &DebugDoors) -> axum::Router<Main> {
    let router = axum::Router::new();
    let router = match doors.profiler {
        Some(_) => router
            .route("/debug/pprof", any(with_slash))
            .route("/debug/pprof/", reading(get(index)))
            .route("/debug/pprof/{name}", reading(get(profile))),
        None => router
            .route("/debug/pprof", any(with_slash))
            .route("/debug/pprof/", any(profiling_off))
            .route("/debug/pprof/{name}", any(profiling_off)),
    };
    match doors.set_verbosity {
        Some(_) => router.route("/debug/flags/v", put(set_verbosity).fallback(put_only)),
        None => router.route("/debug/flags/v", any(flags_off)),
    }
}

async fn profiling_off() -> Response {
    let words = "profiling endpoint is disabled.\n".to_owned();
    text(StatusCode::METHOD_NOT_ALLOWED, words)
}

async fn flags_off() -> Response {
    let words = "flags endpoint is disabled.\n".to_owned();
    text(StatusCode::METHOD_NOT_ALLOWED, words)
}

/// Upstream's way to say that only PUT is known: a 406.
async fn put_only() -> Response {
    let words = "unsupported http method\n".to_owned();
    text(StatusCode::NOT_ACCEPTABLE, words)
}

/// The body is the level and nothing else; the words of success and failure are upstream's.
async fn set_verbosity(State(main): State<Main>, level: String) -> Response {
    match (level.parse::<u32>(), &main.debugging.set_verbosity) {
        (Ok(threshold), Some(set)) => {
            set(threshold);
            tracing::info!(threshold, "Verbosity is set");
            let words = format!("successfully set klog.logging.verbosity to {level}\n");
            text(StatusCode::OK, words)
        }
        _ => {
            let is_number = !level.is_empty() && level.bytes().all(|it| it.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            let words = format!("strconv.ParseUint: parsing {level:?}: {why}\n");
            text(StatusCode::BAD_REQUEST, words)
        }
    }
}

async fn index() -> Response {
    let rows = [
        ("allocs", "memory that was allocated since the start, sampled"),
        ("block", "waiting for one another, which nobody measures"),
        ("cmdline", "the command line"),
        ("goroutine", "the threads; debug=1 as text"),
        ("heap", "memory that is in use, sampled"),
        ("mutex", "waiting for locks, which nobody measures"),
        ("profile", "processor time; seconds=N says how long to look"),
        ("threadcreate", "the threads; debug=1 as text"),
    ];
    let rows = rows.map(|(name, what)| {
        format!("<tr><td><a href=\"{name}?debug=1\">{name}</a></td><td>{what}</td></tr>\n")
    });
    let page = format!(
        "<!doctype html>\n<html><head><title>/debug/pprof/</title></head>\n<body>\n<h1>/debug/pprof/</h1>\n\
         <table>\n{}</table>\n</body></html>\n",
        rows.concat()
    );
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

async fn profile(State(main): State<Main>, Path(name): Path<String>, uri: Uri) -> Response {
    let Some(profiler) = &main.debugging.profiler else {
        return profiling_off().await;
    };
    let pairs = pairs_of(uri.query().unwrap_or_default());
    let number = |name| values(&pairs, name).next().and_then(|it| it.parse().ok());
    let is_text = number("debug").is_some_and(|debug: u64| debug > 0);
    let answer = match name.as_str() {
        "profile" => {
            let asked = number("seconds").filter(|span| *span > 0);
            let span = asked.unwrap_or(DEFAULT_SPAN).min(LONGEST_SPAN);
            cpu(profiler.as_ref(), Duration::from_secs(span)).await
        }
        "heap" | "allocs" => heap(profiler.as_ref(), &name, is_text).await,
        "goroutine" | "threadcreate" => threads(profiler.as_ref(), &name, is_text).await,
        "block" | "mutex" => Ok(contention(&name, is_text)),
        "cmdline" => Ok(text(StatusCode::OK, main.debugging.command_line.join("\0"))),
        // We know no names, and say so in the way that `pprof` asks.
        "symbol" => Ok(text(StatusCode::OK, "num_symbols: 0\n".to_owned())),
        _ => Err(Refusal::not_found("Unknown profile\n")),
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn cpu(profiler: &dyn Profiler, span: Duration) -> Result<Response, Refusal> {
    let taken = profiler
        .cpu(span)
        .await
        .map_err(|error| Refusal::failed(format!("Could not enable CPU profiling: {error}\n")))?;
    let kinds = [("samples", "count"), ("cpu", "nanoseconds")];
    let encoded = pprof::encode(&taken, &kinds, ("cpu", "nanoseconds"), Some(span));
    Ok(attached("profile", encoded))
}

async fn heap(profiler: &dyn Profiler, name: &str, is_text: bool) -> Result<Response, Refusal> {
    let taken = profiler.heap().await;
    let taken = taken.map_err(|error| Refusal::failed(format!("{error}\n")))?;
    if is_text {
        return Ok(text(StatusCode::OK, heap_text(&taken)));
    }
    let kinds = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    let encoded = pprof::encode(&taken, &kinds, ("space", "bytes"), None);
    Ok(attached(name, encoded))
}

/// One line per stack, in the old format that `pprof` reads as well.
fn heap_text(profile: &Profile) -> String {
    let sum = |kind: usize| -> i64 { profile.samples.iter().map(|it| it.figures[kind]).sum() };
    let mut lines = format!(
        "heap profile: {}: {} [{}: {}] @ heap/{}\n",
        sum(2),
        sum(3),
        sum(0),
        sum(1),
        profile.period
    );
    for ProfileSample { stack, figures } in &profile.samples {
        let stack: Vec<String> = stack.iter().map(|it| format!("{it:#x}")).collect();
        lines += &format!(
            "{}: {} [{}: {}] @ {}\n",
            figures[2],
            figures[3],
            figures[0],
            figures[1],
            stack.join(" ")
        );
    }
    lines
}

async fn threads(profiler: &dyn Profiler, name: &str, is_text: bool) -> Result<Response, Refusal> {
    let all = profiler.threads().await;
    let all = all.map_err(|error| Refusal::failed(format!("{error}\n")))?;
    if is_text {
        let mut lines = format!("{name} profile: total {}\n", all.len());
        for (id, name, state) in all {
            lines += &format!("{id} {state} {name}\n");
        }
        return Ok(text(StatusCode::OK, lines));
    }
    let n = i64::try_from(all.len()).unwrap_or(i64::MAX);
    let one = Profile {
        samples: vec![ProfileSample { stack: Vec::new(), figures: vec![n] }],
        mappings: Vec::new(),
        period: 1,
    };
    let encoded = pprof::encode(&one, &[("threads", "count")], ("threads", "count"), None);
    Ok(attached(name, encoded))
}

/// A profile of waiting in which there is nothing.
fn contention(name: &str, is_text: bool) -> Response {
    if is_text {
        let head = if name == "mutex" {
            "--- mutex:\ncycles/second=1000000000\nsampling period=0\n"
        } else {
            "--- contention:\ncycles/second=1000000000\n"
        };
        return text(StatusCode::OK, head.to_owned());
    }
    let nothing = Profile { samples: Vec::new(), mappings: Vec::new(), period: 1 };
    let kinds = [("contentions", "count"), ("delay", "nanoseconds")];
    attached(name, pprof::encode(&nothing, &kinds, ("contentions", "count"), None))
}

fn attached(name: &str, encoded: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    (headers, encoded).into_response()
}
