//! Who asks: a certificate, else a bearer token, else nobody, in upstream's order and with its
//! strictness.
//!
//! A credential that is shown and wrong makes a 401 even where nobody in particular may come in,
//! unless another one is right.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ferrolet_ports::{ApiError, Reviews, Subject, TokenVerdict};
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::memory::Memory;
use super::metrics::{self, ActiveFetch, Question, counted};
use super::retry::{DECIDE, patiently};
use super::turns::Turns;
use crate::tls::{Caller, CallerError, ClientAuthorities};

/// A browser cannot set headers on a WebSocket; it names its token as a protocol.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
/// How long a connection's certificate is believed without another look at the calendar.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How callers prove who they are.
pub struct Authentication {
    /// Callers without proof are `system:anonymous`.
    pub anonymous: bool,
    /// Whose certificates count.
    pub authorities: Option<Arc<ClientAuthorities>>,
    /// Who reviews bearer tokens, and how long an answer holds.
    pub tokens: Option<(Arc<dyn Reviews>, Duration)>,
}

/// Why a credential does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    #[error(transparent)]
    Certificate(#[from] CallerError),
    #[error("review the bearer token")]
    Review(#[source] ApiError),
    #[error("the bearer token is not reviewed in time")]
    Late,
    #[error("invalid bearer token: {0}")]
    Token(String),
}

pub(super) struct Callers {
    authentication: Authentication,
    memory: Memory<[u8; 32], Option<Subject>>,
    turns: Turns,
}

/// A certificate a connection has shown, and what was last made of it.
#[derive(Default)]
pub(crate) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    judged: Mutex<Option<Judged>>,
}

struct Judged {
    generation: u64,
    at: Instant,
    caller: Result<Option<Caller>, CallerError>,
}

impl Shown {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, judged: Mutex::new(None) }
    }

    fn caller(&self, authorities: &ClientAuthorities) -> Result<Option<Caller>, CallerError> {
        let generation = authorities.generation();
        let mut judged = self.judged.lock().expect("no panic under this lock");
        let fresh = judged
            .as_ref()
            .filter(|it| it.generation == generation && it.at.elapsed() < LOOK_AGAIN);
        if let Some(known) = fresh {
            return known.caller.clone();
        }
        let caller = authorities.caller(&self.chain);
        *judged = Some(Judged { generation, at: Instant::now(), caller: caller.clone() });
        caller
    }
}

impl Callers {
    pub(super) fn new(authentication: Authentication) -> Self {
        Self { authentication, memory: Memory::new(), turns: Turns::new() }
    }

    /// Who it is, who asks from there; `None` for nobody where nobody may come in. Takes the
    /// credentials out of the headers.
    pub(super) async fn identify(
        &self,
        shown: &Shown,
        from: Option<IpAddr>,
        headers: &mut HeaderMap,
    ) -> Result<Option<Subject>, CredentialError> {
        let token = take_token(headers);
        let mut wrong = None;
        if let Some(authorities) = &self.authentication.authorities {
            match shown.caller(authorities) {
                Ok(Some(caller)) => {
                    metrics::certificate(caller.remaining_seconds());
                    return Ok(Some(known(caller.subject)));
                }
                Ok(None) => {}
                Err(error) => wrong = Some(error.into()),
            }
        }
        if let (Some((reviews, span)), Some(token)) = (&self.authentication.tokens, token) {
            let reviewed = self.review(reviews.as_ref(), &token, from, *span);
            let reviewed = tokio::time::timeout(DECIDE, reviewed).await;
            match reviewed.unwrap_or(Err(CredentialError::Late)) {
                Ok(subject) => return Ok(Some(known(subject))),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        match wrong {
            Some(error) => Err(error),
            None => Ok(self.authentication.anonymous.then(anonymous)),
        }
    }

    async fn review(
        &self,
        reviews: &dyn Reviews,
        token: &str,
        from: Option<IpAddr>,
        span: Duration,
    ) -> Result<Subject, CredentialError> {
        let nobody = || CredentialError::Token("it is nobody's".to_owned());
        // The token itself is not kept.
        let key: [u8; 32] = Sha256::digest(token).into();
        let began = Instant::now();
        if let Some(kept) = self.memory.get(&key) {
            metrics::token_found("hit", began.elapsed());
            return kept.ok_or_else(nobody);
        }
        let blocked = ActiveFetch::new("blocked");
        let _turn = self.turns.take(from).await;
        drop(blocked);
        if let Some(kept) = self.memory.get(&key) {
            metrics::token_found("hit", began.elapsed());
            return kept.ok_or_else(nobody);
        }
        let in_flight = ActiveFetch::new("in_flight");
        let verdict =
            patiently(|| counted(Question::WhoTheyAre, reviews.token_review(token))).await;
        drop(in_flight);
        metrics::token_fetched(verdict.is_ok());
        metrics::token_found("miss", began.elapsed());
        let verdict = verdict.map_err(CredentialError::Review)?;
        match verdict {
            TokenVerdict::Authenticated(subject) => {
                self.memory.keep(key, Some(subject.clone()), span);
                Ok(subject)
            }
            TokenVerdict::Refused { error } if error.is_empty() => {
                self.memory.keep(key, None, span);
                Err(nobody())
            }
            // A reason may pass: upstream asks again, and so do we.
            TokenVerdict::Refused { error } => Err(CredentialError::Token(error)),
        }
    }
}

fn known(mut subject: Subject) -> Subject {
    const AUTHENTICATED: &str = "system:authenticated";
    if subject.name != "system:anonymous" && !subject.groups.iter().any(|it| it == AUTHENTICATED) {
        subject.groups.push(AUTHENTICATED.to_owned());
    }
    subject
}

fn anonymous() -> Subject {
    Subject {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..Subject::default()
    }
}

/// Takes the token out, from either place, so that nobody behind us sees it.
fn take_token(headers: &mut HeaderMap) -> Option<String> {
    let header = headers.remove(header::AUTHORIZATION);
    let protocol = take_protocol_token(headers);
    let header = header.as_ref().and_then(|value| value.to_str().ok());
    let from_header = header.and_then(|text| {
        let (scheme, rest) = text.trim().split_once(' ')?;
        let token = rest.split(' ').next().unwrap_or_default();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
    });
    from_header.or(protocol)
}

/// Only a list that offers another protocol as well may carry a token, and only one, as with
/// upstream. Whatever comes of it, no token stays in the headers: a caller may be known by other
/// means, and what is left goes to the runtime.
fn take_protocol_token(headers: &mut HeaderMap) -> Option<String> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    // No protocol is written in anything but letters; what is hidden behind them is nobody's.
    if values.iter().any(|value| value.to_str().is_err()) {
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        return None;
    }
    let offered: Vec<String> = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(|protocol| protocol.trim().to_owned())
        .collect();
    let (tokens, others): (Vec<String>, Vec<String>) =
        offered.into_iter().partition(|protocol| protocol.starts_with(TOKEN_PROTOCOL));
    if tokens.is_empty() {
        return None;
    }
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    let rest = HeaderValue::from_str(&others.join(", ")).ok().filter(|_| !others.is_empty())?;
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    let [token] = tokens.as_slice() else {
        return None;
    };
    let text = URL_SAFE_NO_PAD.decode(&token[TOKEN_PROTOCOL.len()..]).ok()?;
    String::from_utf8(text).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_out_of_the_headers() {
        let check = |name: &'static str, value: &str, token: Option<&str>, left: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            assert_eq!(take_token(&mut headers).as_deref(), token, "{value}");
            let rest = headers.get(name).map(|it| it.to_str().unwrap());
            assert_eq!(rest, left, "{value}");
        };
        check("authorization", "Bearer abc", Some("abc"), None);
        check("authorization", "bearer abc def", Some("abc"), None);
        check("authorization", "Bearer ", None, None);
        check("authorization", "Basic abc", None, None);
        let both = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj";
        check("sec-websocket-protocol", both, Some("abc"), Some("v4.channel.k8s.io"));
        let alone = "base64url.bearer.authorization.k8s.io.YWJj";
        check("sec-websocket-protocol", alone, None, None);
        let two = format!("{both}, base64url.bearer.authorization.k8s.io.eHl6");
        check("sec-websocket-protocol", &two, None, Some("v4.channel.k8s.io"));
        let only_two = format!("{alone},{alone}");
        check("sec-websocket-protocol", &only_two, None, None);
        let none = "v4.channel.k8s.io";
        check("sec-websocket-protocol", none, None, Some(none));
    }
}
