//! `/flagz` and `/statusz`: how the agent was started and how long it has been up, as text for
//! people or as versioned objects.
//!
//! Which form it is, the `Accept` header says: nothing, `text/plain` and wildcards mean text; JSON,
//! YAML and, with the gate `CBORServingAndStorage`, CBOR have to name kind, version and group
//! (`application/json;as=Flagz;v=v1beta1;g=config.k8s.io`), and anything else is a 406 in
//! upstream's words.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ferrolet_types::Timestamp;
use serde_json::{Value, json};

use crate::accept::{Clause, accepted};
use crate::cbor;
use crate::main_routes::Main;
use crate::routes::text;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";
const GROUP: &str = "config.k8s.io";
const PATHS: [&str; 4] = ["/configz", "/flagz", "/healthz", "/metrics"];

/// What the pages tell of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// When it started.
    pub started: Timestamp,
    /// The version it is compatible with: `1.37.1`.
    pub version: String,
    /// Flags by name, with the values in force.
    pub flags: Vec<(String, String)>,
}

/// Which of the pages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// `/flagz`.
    pub has_flagz: bool,
    /// `/statusz`.
    pub has_statusz: bool,
    /// Both in CBOR too.
    pub has_cbor: bool,
}

pub(crate) async fn flagz(State(main): State<Main>, headers: HeaderMap) -> Response {
    match form(&headers, "Flagz", main.pages) {
        Some(Form::Text) => text(StatusCode::OK, flags_text(&main.about)),
        Some(Form::Object { version, encoding }) => {
            let flags = main.about.flags.iter().cloned();
            let flags: serde_json::Map<String, Value> =
                flags.map(|(name, value)| (name, value.into())).collect();
            let fields = json!({"flags": flags});
            object("Flagz", version, encoding, fields)
        }
        None => not_acceptable(main.pages),
    }
}

pub(crate) async fn statusz(State(main): State<Main>, headers: HeaderMap) -> Response {
    let (about, now) = (&main.about, main.clock.now());
    match form(&headers, "Statusz", main.pages) {
        Some(Form::Text) => text(StatusCode::OK, status_text(about, now)),
        Some(Form::Object { version, encoding }) => {
            let fields = json!({
                "startTime": about.started.to_second_precision().to_string(),
                "uptimeSeconds": now.since(about.started).as_secs(),
                // There is no Go in here.
                "goVersion": "",
                "binaryVersion": about.version,
                "emulationVersion": minor(&about.version),
                "paths": PATHS,
            });
            object("Statusz", version, encoding, fields)
        }
        None => not_acceptable(main.pages),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Json,
    Yaml,
    Cbor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Object { version: &'static str, encoding: Encoding },
}

/// What the client accepts, best first; none when nothing of it can be had.
fn form(headers: &HeaderMap, kind: &str, pages: Pages) -> Option<Form> {
    let clauses = accepted(headers);
    if clauses.is_empty() {
        return Some(Form::Text);
    }
    let mut forms = clauses.iter().filter_map(|clause| clause_form(clause, kind, pages));
    forms.next()
}

fn clause_form(clause: &Clause<'_>, kind: &str, pages: Pages) -> Option<Form> {
    let named = [clause.value("as"), clause.value("v"), clause.value("g")];
    let is_named = named.iter().any(Option::is_some);
    let version = match named {
        [Some(asked), Some("v1alpha1"), Some(GROUP)] if asked == kind => Some("v1alpha1"),
        [Some(asked), Some("v1beta1"), Some(GROUP)] if asked == kind => Some("v1beta1"),
        _ => None,
    };
    let as_object = |encoding| version.map(|version| Form::Object { version, encoding });
    match clause.media {
        "application/json" => as_object(Encoding::Json),
        "application/yaml" => as_object(Encoding::Yaml),
        "application/cbor" if pages.has_cbor => as_object(Encoding::Cbor),
        "text/plain" | "text/*" => (!is_named).then_some(Form::Text),
        // Whatever there is: an object if one is named, else text.
        "*/*" if is_named => as_object(Encoding::Json),
        "*/*" => Some(Form::Text),
        "application/*" => as_object(Encoding::Json),
        _ => None,
    }
}

fn object(kind: &str, version: &str, encoding: Encoding, fields: Value) -> Response {
    let mut object = vec![
        ("kind".to_owned(), Value::from(kind)),
        ("apiVersion".to_owned(), format!("{GROUP}/{version}").into()),
        ("metadata".to_owned(), json!({"name": "kubelet"})),
    ];
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    let (content, body) = match encoding {
        Encoding::Json => {
            let members: Vec<String> = object
                .iter()
                .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                .collect();
            let text = format!("{{{}}}\n", members.join(","));
            ("application/json", text.into_bytes())
        }
        Encoding::Yaml => {
            let mut lines = String::new();
            for (name, value) in &object {
                yaml(name, value, "", &mut lines);
            }
            ("application/yaml", lines.into_bytes())
        }
        Encoding::Cbor => {
            let whole: serde_json::Map<String, Value> = object.into_iter().collect();
            ("application/cbor", cbor::document(&Value::Object(whole)))
        }
    };
    let mut answer = ([(header::CONTENT_TYPE, content)], body).into_response();
    if version == "v1alpha1" {
        let page = kind.to_lowercase();
        let words = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(words) = HeaderValue::from_str(&words) {
            answer.headers_mut().insert(header::WARNING, words);
        }
    }
    answer
}

/// Two levels are all there is. Text is quoted as in JSON, which YAML reads.
fn yaml(name: &str, value: &Value, indent: &str, out: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            *out += &format!("{indent}{name}:\n");
            for (name, value) in members {
                yaml(name, value, "  ", out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            *out += &format!("{indent}{name}:\n");
            for item in items {
                *out += &format!("{indent}- {item}\n");
            }
        }
        scalar => *out += &format!("{indent}{name}: {scalar}\n"),
    }
}

fn not_acceptable(pages: Pages) -> Response {
    let cbor = if pages.has_cbor { "application/cbor, " } else { "" };
    let status = format!(
        "{{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {{}},\n  \"status\": \"Failure\",\n  \
         \"message\": \"only the following media types are accepted: {cbor}application/json, application/yaml, \
         text/plain\",\n  \"reason\": \"NotAcceptable\",\n  \"code\": 406\n}}"
    );
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::NOT_ACCEPTABLE, headers, status).into_response()
}

fn flags_text(about: &About) -> String {
    let mut flags: Vec<String> =
        about.flags.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    flags.sort_unstable();
    format!("\nkubelet flagz\n{WARNING}\n{}", flags.concat())
}

/// `1.37` of `1.37.1`.
fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or("", |(minor, _)| minor)
}

fn status_text(about: &About, now: Timestamp) -> String {
    let up = now.since(about.started).as_secs();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let started = about.started.0.strftime("%a %b %e %H:%M:%S UTC %Y");
    format!(
        "\nkubelet statusz\n{WARNING}\n\nStarted= {started}\nUp= {hours} hr {minutes:02} min {seconds:02} sec\n\
         Binary version= {}\nEmulation version= {}\nPaths= {}\n",
        about.version,
        minor(&about.version),
        PATHS.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_read_like_upstreams() {
        let about = About {
            started: Timestamp::from_second(1_767_225_600),
            version: "1.37.1".to_owned(),
            flags: vec![
                ("v".to_owned(), "2".to_owned()),
                ("address".to_owned(), "0.0.0.0".to_owned()),
            ],
        };
        let flags = flags_text(&about);
        assert!(flags.starts_with("\nkubelet flagz\nWarning: "));
        assert!(flags.ends_with("purposes only.\naddress: 0.0.0.0\nv: 2\n"), "{flags}");
        let status = status_text(&about, Timestamp::from_second(1_767_225_600 + 3723));
        assert!(
            status.contains("\n\nStarted= Thu Jan  1 00:00:00 UTC 2026\nUp= 1 hr 02 min 03 sec\n"),
            "{status}"
        );
        assert!(status.contains("Binary version= 1.37.1\nEmulation version= 1.37\n"), "{status}");
    }

    #[test]
    fn the_accept_header_chooses_the_form() {
        let check = |accept: Option<&str>, expected: Option<Form>| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            let pages = |has_cbor| Pages { has_flagz: true, has_statusz: true, has_cbor };
            assert_eq!(form(&headers, "Flagz", pages(false)), expected, "{accept:?}");
            let cbor = accept.is_some_and(|it| it.contains("cbor"));
            let with_cbor = form(&headers, "Flagz", pages(true));
            assert_eq!(with_cbor != expected, cbor, "{accept:?} where there is CBOR");
        };
        let object = |version, encoding| Some(Form::Object { version, encoding });
        let named = "application/json;as=Flagz;v=v1beta1;g=config.k8s.io";
        check(None, Some(Form::Text));
        check(Some(""), Some(Form::Text));
        check(Some("text/plain"), Some(Form::Text));
        check(Some("*/*"), Some(Form::Text));
        check(Some("text/html, */*;q=0.1"), Some(Form::Text));
        check(Some(named), object("v1beta1", Encoding::Json));
        let yaml = "application/yaml; as=Flagz; v=v1alpha1; g=config.k8s.io";
        check(Some(yaml), object("v1alpha1", Encoding::Yaml));
        let both = format!("text/plain;q=0.5, {named}");
        check(Some(&both), object("v1beta1", Encoding::Json));
        for refused in [
            "application/json",
            "application/yaml",
            "text/html",
            "application/vnd.kubernetes.protobuf",
            "application/cbor;as=Flagz;v=v1beta1;g=config.k8s.io",
            "application/json;as=Statusz;v=v1beta1;g=config.k8s.io",
            "application/json;as=Flagz;v=v1;g=config.k8s.io",
            "application/json;as=Flagz;v=v1beta1;g=example.org",
            "application/json;as=Flagz;v=v1beta1",
            "text/plain;as=Flagz;v=v1beta1;g=config.k8s.io",
        ] {
            check(Some(refused), None);
        }
    }
}
