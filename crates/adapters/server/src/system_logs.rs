//! `/logs/`: the machine's log files, and with `enableSystemLogQuery` a service's log found among them.
//!
//! Listings and files as Go's file server gives them, without following links. A query names services, whose logs are looked for
//! as files (`NAME`, `NAME.log`, `NAME/NAME.log`), or one file by its path. Journals are not read: this agent starts no programs for
//! callers, so `sinceTime` and its like, which are for journals, are refused.

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use ferrolet_ports::SystemLog;

use crate::container_logs::streamed;
use crate::main_routes::Main;
use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::routes::not_found;

/// Services a query may name.
const MOST_SERVICES: usize = 4;
const FOR_JOURNALS: [&str; 5] = ["sinceTime", "untilTime", "tailLines", "pattern", "boot"];

pub(crate) async fn root(State(main): State<Main>, uri: Uri) -> Response {
    let pairs = pairs_of(uri.query().unwrap_or_default());
    let asked: Vec<&str> = values(&pairs, "query").collect();
    if asked.is_empty() || !main.has_system_log_query {
        return show(&main, "").await;
    }
    match places(&asked, &pairs) {
        Ok(places) => find(&main, &places).await,
        Err(words) => Refusal::bad(words).into_response(),
    }
}

pub(crate) async fn below(State(main): State<Main>, Path(path): Path<String>) -> Response {
    show(&main, &path).await
}

async fn show(main: &Main, path: &str) -> Response {
    match main.system_logs.look(path).await {
        Ok(Some(SystemLog::File(pieces))) => streamed(pieces),
        Ok(Some(SystemLog::Directory(names))) => {
            let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            (html, listing(&names)).into_response()
        }
        Ok(None) => not_found().await,
        Err(error) => Refusal::failed(format!("{error}\n")).into_response(),
    }
}

/// The first place that is a file.
async fn find(main: &Main, places: &[String]) -> Response {
    for place in places {
        if let Ok(Some(SystemLog::File(pieces))) = main.system_logs.look(place).await {
            return streamed(pieces);
        }
    }
    let words = "no log of that name was found\n";
    Refusal::new(StatusCode::NOT_FOUND, words).into_response()
}

/// Where the log of what is asked for may be, in order.
fn places(asked: &[&str], pairs: &[(String, String)]) -> Result<Vec<String>, String> {
    if let Some(name) = FOR_JOURNALS
        .into_iter()
        .find(|name| values(pairs, name).next().is_some())
    {
        return Err(format!("{name}: journals are not read by this agent\n"));
    }
    if asked.len() > MOST_SERVICES {
        return Err(format!("query: at most {MOST_SERVICES} services\n"));
    }
    let mut places = Vec::new();
    for name in asked {
        if name.is_empty() || name.len() > 255 || name.split('/').any(|part| part == "..") {
            return Err(format!("query: invalid name {name:?}\n"));
        }
        if name.contains('/') {
            if asked.len() > 1 {
                return Err("query: one file at a time\n".to_owned());
            }
            places.push(name.trim_start_matches('/').to_owned());
        } else {
            places.extend([
                (*name).to_owned(),
                format!("{name}.log"),
                format!("{name}/{name}.log"),
            ]);
        }
    }
    Ok(places)
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
    fn queries_become_places_or_are_refused() {
        let check = |query: &str, expected: Result<&[&str], ()>| {
            let pairs = pairs_of(query);
            let asked: Vec<&str> = values(&pairs, "query").collect();
            let got = places(&asked, &pairs);
            let expected = expected.map(|it| it.iter().map(ToString::to_string).collect());
            assert_eq!(got.map_err(|_| ()), expected, "{query}");
        };
        check(
            "query=kubelet",
            Ok(&["kubelet", "kubelet.log", "kubelet/kubelet.log"]),
        );
        check("query=/app/out.log", Ok(&["app/out.log"]));
        check("query=../../etc/shadow", Err(()));
        check("query=a/b&query=c", Err(()));
        check("query=kubelet&tailLines=5", Err(()));
        check("query=a&query=b&query=c&query=d&query=e", Err(()));
    }

    #[test]
    fn names_in_listings_are_text() {
        let names = [("a<b>\"'&".to_owned(), false), ("d".to_owned(), true)];
        let html = listing(&names);
        assert!(html.contains("<a href=\"a%3Cb%3E%22%27%26\">a&lt;b&gt;&#34;&#39;&amp;</a>\n<a href=\"d/\">d/</a>\n"), "{html}");
    }
}
