//! `/logs/`: the machine's log files, and with `enableSystemLogQuery` the log of a service, from
//! the journal or found among them.
//!
//! Listings and files as Go's file server gives them, without following links. A query
//! ([`log_query`]) names services or one file. A service that the journal knows is read there; of
//! the others a file is looked for (`NAME`, `NAME.log`, `NAME/NAME.log`).

use std::collections::VecDeque;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use ferrolet_ports::{Fut, HostError, JournalAsk, LogPieces, SystemLog};

use crate::container_logs::streamed;
use crate::log_query::{self, LogQuery};
use crate::main_routes::Main;
use crate::query::pairs_of;
use crate::refusal::Refusal;
use crate::routes::not_found;

pub(crate) async fn root(State(main): State<Main>, uri: Uri) -> Response {
    match queried(&main, &uri) {
        Ok(None) => show(&main, "").await,
        Ok(Some(LogQuery::File(path))) => show(&main, &path).await,
        Ok(Some(LogQuery::Services(ask))) => services(&main, ask).await,
        Err(refusal) => refusal.into_response(),
    }
}

pub(crate) async fn below(
    State(main): State<Main>,
    Path(path): Path<String>,
    uri: Uri,
) -> Response {
    match queried(&main, &uri) {
        Ok(None) => shown_at(&main, &path, &uri).await,
        Ok(Some(_)) => {
            let words = "path not allowed in query mode\n";
            Refusal::new(StatusCode::NOT_ACCEPTABLE, words).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// The query, where queries are switched on.
fn queried(main: &Main, uri: &Uri) -> Result<Option<LogQuery>, Refusal> {
    if !main.has_system_log_query {
        return Ok(None);
    }
    log_query::parse(&pairs_of(uri.query().unwrap_or_default()))
}

/// What is at a path. A directory's ends with a slash, or the links in its listing would lead
/// elsewhere, and a file's does not.
async fn shown_at(main: &Main, path: &str, uri: &Uri) -> Response {
    let place = path.trim_end_matches('/');
    let name = in_path(place.rsplit('/').next().unwrap_or_default());
    let found = main.system_logs.look(place).await;
    let better = match (&found, path.ends_with('/')) {
        (Ok(Some(SystemLog::Directory(_))), false) => format!("{name}/"),
        (Ok(Some(SystemLog::File(_))), true) => format!("../{name}"),
        _ => return told(found).await,
    };
    let query = uri.query().map(|it| format!("?{it}")).unwrap_or_default();
    let location = [(header::LOCATION, better + &query)];
    (StatusCode::MOVED_PERMANENTLY, location).into_response()
}

async fn show(main: &Main, path: &str) -> Response {
    told(main.system_logs.look(path).await).await
}

async fn told(found: Result<Option<SystemLog>, HostError>) -> Response {
    match found {
        Ok(Some(SystemLog::File(pieces))) => streamed(pieces),
        Ok(Some(SystemLog::Directory(names))) => {
            let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            (html, listing(&names)).into_response()
        }
        Ok(None) => not_found().await,
        Err(error) => Refusal::failed(format!("{error}\n")).into_response(),
    }
}

/// What the journal has of services, then the files of those that it does not know; words in
/// between are upstream's.
async fn services(main: &Main, ask: JournalAsk) -> Response {
    let known = main.system_logs.in_journal(&ask.services).await;
    let (natives, others): (Vec<String>, Vec<String>) =
        ask.services.iter().cloned().partition(|service| known.contains(service));
    let plain = JournalAsk { services: ask.services.clone(), ..JournalAsk::default() };
    let has_options = ask != plain;
    let mut parts: VecDeque<Box<dyn LogPieces>> = VecDeque::new();
    if !natives.is_empty() {
        let ask = JournalAsk { services: natives, ..ask };
        match main.system_logs.journal(&ask).await {
            Ok(pieces) => parts.push_back(pieces),
            Err(error) => {
                tracing::warn!(err = %error, "The journal cannot be read");
                parts.push_back(line("\nerror: journal output not available\n".to_owned()));
            }
        }
    }
    if !others.is_empty() && has_options {
        parts.push_back(line(format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            others.join(" ")
        )));
    } else {
        for service in others {
            parts.push_back(file_of(main, &service).await);
        }
    }
    let mut answer = streamed(Box::new(OneAfterAnother(parts)));
    let kind = HeaderValue::from_static("text/plain;charset=UTF-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// The file that a service writes, at the first of the usual places.
async fn file_of(main: &Main, service: &str) -> Box<dyn LogPieces> {
    let places = [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")];
    for place in places {
        if let Ok(Some(SystemLog::File(pieces))) = main.system_logs.look(&place).await {
            return pieces;
        }
    }
    line(format!("\nlog not found for {service}\n"))
}

fn line(text: String) -> Box<dyn LogPieces> {
    Box::new(Line(Some(text)))
}

/// A text of our own among logs.
struct Line(Option<String>);

impl LogPieces for Line {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        let text = self.0.take().map(String::into_bytes);
        Box::pin(std::future::ready(Ok(text)))
    }
}

/// Logs, each from its beginning to its end.
struct OneAfterAnother(VecDeque<Box<dyn LogPieces>>);

impl LogPieces for OneAfterAnother {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        Box::pin(async move {
            while let Some(first) = self.0.front_mut() {
                match first.next().await? {
                    Some(piece) => return Ok(Some(piece)),
                    None => drop(self.0.pop_front()),
                }
            }
            Ok(None)
        })
    }
}

/// As Go lists a directory.
fn listing(names: &[(String, bool)]) -> String {
    let mut html = String::from(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n",
    );
    for (name, is_directory) in names {
        let slash = if *is_directory { "/" } else { "" };
        let (link, shown) = (in_path(name), in_html(name));
        html += &format!("<a href=\"{link}{slash}\">{shown}{slash}</a>\n");
    }
    html + "</pre>\n"
}

fn in_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;")
}

fn in_path(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(char::from(byte));
            }
            other => path += &format!("%{other:02X}"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_listings_are_text() {
        let names = [("a<b>\"'&".to_owned(), false), ("d".to_owned(), true)];
        let html = listing(&names);
        assert!(html.contains("<a href=\"a%3Cb%3E%22%27%26\">a&lt;b&gt;&#34;&#39;&amp;</a>\n<a href=\"d/\">d/</a>\n"), "{html}");
    }
}
