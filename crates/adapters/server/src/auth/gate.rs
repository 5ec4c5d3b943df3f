//! The filter before every handler of the main listener.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ferrolet_ports::{AccessAsk, AccessVerdict, Subject};

use super::access::{Access, Authorization};
use super::attributes::attributes;
use super::caller::{Authentication, Callers, Shown};
use crate::activity::Activity;
use crate::refusal::Refusal;
use crate::routes::text;
use crate::seats::Seat;
use crate::stall::Patience;

/// Who may come in, and how far.
pub struct Gate {
    node_name: String,
    callers: Callers,
    access: Access,
}

impl Gate {
    /// A gate for this node.
    pub fn new(
        node_name: &str,
        authentication: Authentication,
        authorization: Authorization,
    ) -> Arc<Self> {
        Arc::new(Self {
            node_name: node_name.to_owned(),
            callers: Callers::new(authentication),
            access: Access::new(authorization),
        })
    }
}

/// What the gate knows of the connection a request came by.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) shown: Arc<Shown>,
    pub(crate) activity: Activity,
    pub(crate) patience: Patience,
    pub(crate) seat: Arc<Seat>,
}

/// Lets a request through or answers it.
pub(crate) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let connection = request.extensions().get::<Connection>().cloned();
    if let Err(refusal) = plain_path(request.uri().path()) {
        return refusal.into_response();
    }
    let seat = connection.as_ref().map(|connection| &connection.seat);
    let asking = seat.map(|seat| seat.ask());
    if let Some(None) = asking {
        return busy("Too many requests of a connection that was not let in");
    }
    let from = seat.map(|seat| seat.from());
    let (mut parts, body) = request.into_parts();
    let nothing_shown = Shown::default();
    let shown = connection.as_ref().map_or(&nothing_shown, |connection| &connection.shown);
    let subject = match gate.callers.identify(shown, from, &mut parts.headers).await {
        Ok(Some(subject)) => subject,
        Ok(None) => return unauthorized(),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(err = %error, cause, "Unable to authenticate the request");
            return unauthorized();
        }
    };
    if let Err(refusal) = gate.authorize(&subject, from, &parts).await {
        return refusal.into_response();
    }
    if let Some(seat) = seat
        && !seat.let_in().await
    {
        return busy("Too many connections");
    }
    drop(asking);
    // From here on it is a guest: it may take its time, and its connection is not idle while it is
    // answered.
    let under_way = connection.map(|connection| {
        connection.patience.extend();
        connection.activity.begin()
    });
    let response = next.run(Request::from_parts(parts, body)).await;
    match under_way {
        Some(under_way) => response.map(|body| Body::new(under_way.until_the_end_of(body))),
        None => response,
    }
}

impl Gate {
    async fn authorize(
        &self,
        subject: &Subject,
        from: Option<IpAddr>,
        parts: &axum::http::request::Parts,
    ) -> Result<(), Refusal> {
        let wanted = attributes(&parts.method, parts.uri.path());
        let (user, verb) = (&subject.name, wanted.verb);
        for subresource in wanted.subresources {
            let ask = AccessAsk {
                subject: subject.clone(),
                verb: verb.to_owned(),
                resource: "nodes".to_owned(),
                subresource: (*subresource).to_owned(),
                name: self.node_name.clone(),
            };
            match self.access.judge(ask, from).await {
                Ok(AccessVerdict::Allowed) => return Ok(()),
                Ok(AccessVerdict::Refused) => {}
                Err(error) => {
                    tracing::error!(err = %error, user, verb, subresource, "Authorization error");
                    let words = format!(
                        "Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Err(Refusal::failed(words));
                }
            }
        }
        let tried = wanted.subresources.join(" ");
        tracing::debug!(user, verb, subresources = tried, "Forbidden");
        let words = format!(
            "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{tried}])\n"
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, words))
    }
}

/// Refuses paths that one reader could take for another: what is authorized and what is routed must
/// be the same text.
fn plain_path(path: &str) -> Result<(), Refusal> {
    let lower = path.to_ascii_lowercase();
    let is_ambiguous = lower.contains("%2f")
        || lower.contains("%5c")
        || lower.contains("%00")
        || lower.contains("%2e")
        || path.contains("//")
        || path.split('/').any(|part| part == "." || part == "..");
    if is_ambiguous {
        return Err(Refusal::bad("invalid path\n"));
    }
    Ok(())
}

fn busy(words: &str) -> Response {
    text(StatusCode::TOO_MANY_REQUESTS, words.to_owned())
}

fn unauthorized() -> Response {
    text(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())
}
