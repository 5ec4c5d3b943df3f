//! `/flagz` and `/statusz`: how the agent was started and how long it has been up, as text for people.
//!
//! Upstream also gives them as versioned objects on request; here they are text only.

use axum::extract::State;
use axum::response::Response;
use ferrolet_types::Timestamp;

use crate::main_routes::Main;
use crate::routes::text;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

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

pub(crate) async fn flagz(State(main): State<Main>) -> Response {
    text(axum::http::StatusCode::OK, flags_text(&main.about))
}

pub(crate) async fn statusz(State(main): State<Main>) -> Response {
    let words = status_text(&main.about, main.clock.now());
    text(axum::http::StatusCode::OK, words)
}

fn flags_text(about: &About) -> String {
    let mut flags: Vec<String> = about
        .flags
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    flags.sort_unstable();
    format!("\nkubelet flagz\n{WARNING}\n{}", flags.concat())
}

fn status_text(about: &About, now: Timestamp) -> String {
    let up = now.since(about.started).as_secs();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let minor = about
        .version
        .rsplit_once('.')
        .map_or("", |(minor, _)| minor);
    let started = about.started.to_second_precision();
    format!(
        "\nkubelet statusz\n{WARNING}\n\nStarted= {started}\nUp= {hours} hr {minutes} min {seconds} sec\n\
         Binary version= {}\nEmulation version= {minor}\nPaths= /configz /flagz /healthz /metrics\n",
        about.version
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
        assert!(
            flags.ends_with("purposes only.\naddress: 0.0.0.0\nv: 2\n"),
            "{flags}"
        );
        let status = status_text(&about, Timestamp::from_second(1_767_225_600 + 3723));
        assert!(
            status.contains("\n\nStarted= 2026-01-01T00:00:00Z\nUp= 1 hr 2 min 3 sec\n"),
            "{status}"
        );
        assert!(
            status.contains("Binary version= 1.37.1\nEmulation version= 1.37\n"),
            "{status}"
        );
    }
}
