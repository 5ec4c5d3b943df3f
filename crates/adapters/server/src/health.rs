//! `/healthz`: how the agent feels, in the words upstream's health endpoints use.
//!
//! `ok` while every check passes; `?verbose` lists them; one that fails makes the answer a 500 with
//! the whole list and the reasons. `?exclude=NAME` leaves checks out. `/healthz/NAME` asks one.
//! Unlike upstream the list does not withhold reasons: `/healthz/NAME` tells them to the same
//! readers anyway.

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use ferrolet_ports::HealthCheck;

use crate::routes::{Views, not_found, text};

/// Passes whenever somebody can ask.
struct Ping;

impl HealthCheck for Ping {
    fn name(&self) -> &'static str {
        "ping"
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn checks(views: &Views) -> impl Iterator<Item = &dyn HealthCheck> {
    let others = views.checks.iter().map(|check| &**check);
    std::iter::once(&Ping as &dyn HealthCheck).chain(others)
}

/// Every check at once.
pub(crate) async fn all(State(views): State<Views>, uri: Uri) -> Response {
    // A query that cannot be read asks for nothing.
    let query =
        Query::<Vec<(String, String)>>::try_from_uri(&uri).map(|query| query.0).unwrap_or_default();
    let is_verbose = query.iter().any(|(name, _)| name == "verbose");
    let excluded = query.iter().filter(|(name, _)| name == "exclude");
    let excluded: Vec<&str> = excluded.map(|(_, value)| value.as_str()).collect();
    let report = Report::of(checks(&views), &excluded);
    match (report.n_failed, is_verbose) {
        (0, false) => text(StatusCode::OK, "ok".to_owned()),
        (0, true) => text(StatusCode::OK, format!("{}healthz check passed\n", report.lines)),
        (_, _) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{}healthz check failed\n", report.lines),
        ),
    }
}

/// One check by name.
pub(crate) async fn one(State(views): State<Views>, Path(name): Path<String>) -> Response {
    let Some(check) = checks(&views).find(|check| check.name() == name) else {
        return not_found().await;
    };
    match check.check() {
        Ok(()) => text(StatusCode::OK, "ok".to_owned()),
        Err(reason) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
    }
}

/// The outcome of all checks, one line each.
struct Report {
    lines: String,
    n_failed: usize,
}

impl Report {
    fn of<'a>(checks: impl Iterator<Item = &'a dyn HealthCheck>, excluded: &[&str]) -> Self {
        let (mut lines, mut n_failed) = (String::new(), 0);
        let mut unknown = excluded.to_vec();
        unknown.sort_unstable();
        unknown.dedup();
        for check in checks {
            let name = check.name();
            if excluded.contains(&name) {
                unknown.retain(|it| *it != name);
                lines += &format!("[+]{name} excluded: ok\n");
                continue;
            }
            match check.check() {
                Ok(()) => lines += &format!("[+]{name} ok\n"),
                Err(reason) => {
                    n_failed += 1;
                    lines += &format!("[-]{name} failed: {reason}\n");
                }
            }
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
            lines += &format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                names.join(",")
            );
        }
        Self { lines, n_failed }
    }
}
