//! Requests, redirects, and what the answers mean.

use std::time::Duration;

use tokio::time::Instant;

use super::exchange::{Answer, exchange};
use super::request::Request;
use super::tls::Tls;
use crate::dial::Dialer;
use crate::prober::Outcome;

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// Asks web servers. Keeps no connection and no state.
pub(crate) struct Client {
    tls: Tls,
    dialer: Dialer,
}

/// Why there is no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There was none at all.
    NoAnswer {
        /// The URL in question; `None` for the one that was asked first.
        url: Option<String>,
        cause: String,
    },
    /// It broke off within its body.
    HalfAnswer(String),
}

impl Fault {
    pub(crate) fn no_answer(cause: String) -> Self {
        Self::NoAnswer { url: None, cause }
    }

    fn at(self, asked: String) -> Self {
        match self {
            Self::NoAnswer { url, cause } => Self::NoAnswer { url: url.or(Some(asked)), cause },
            half => half,
        }
    }

    /// True when TLS was tried on a server that has none.
    pub(crate) fn is_plain_http(&self) -> bool {
        matches!(self, Self::NoAnswer { cause, .. } if cause.contains("server gave HTTP response to HTTPS client"))
    }

    /// True when there was an answer, though not all of it.
    pub(crate) fn is_half(&self) -> bool {
        matches!(self, Self::HalfAnswer(_))
    }

    /// The fault as Go prints it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::NoAnswer { url, cause } => {
                format!("Get {:?}: {cause}", url.as_deref().unwrap_or_default())
            }
            Self::HalfAnswer(cause) => cause.clone(),
        }
    }
}

impl Client {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { tls: Tls::new(), dialer }
    }

    /// Asks, and judges the answer: 200 to 399 is well, and a redirect that is not followed a
    /// warning.
    pub(crate) async fn probe(&self, request: Request, timeout: Duration) -> Outcome {
        match self.ask(request, Some(Instant::now() + timeout)).await {
            Ok(answer) => judged(&answer),
            Err(Fault::HalfAnswer(cause)) => Outcome::Error { state: "failure", cause },
            Err(fault) => Outcome::Failure(fault.text()),
        }
    }

    /// Asks, and follows redirects as long as they stay on the same host.
    pub(crate) async fn ask(
        &self,
        mut request: Request,
        deadline: Option<Instant>,
    ) -> Result<Answer, Fault> {
        let first_host = request.url.host.clone();
        let mut n_asked = 0;
        loop {
            n_asked += 1;
            let asked = exchange(&self.dialer, &self.tls, &request, deadline).await;
            let answer = asked.map_err(|fault| fault.at(request.url.to_string()))?;
            let is_redirect = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = answer.location.as_deref().filter(|it| !it.is_empty());
            let Some(location) = location.filter(|_| is_redirect) else {
                return Ok(answer);
            };
            let Some((url, is_relative)) = request.url.redirected(location) else {
                let cause = format!("failed to parse Location header {location:?}");
                return Err(Fault::no_answer(cause).at(request.url.to_string()));
            };
            if url.host != first_host {
                return Ok(answer);
            }
            if n_asked >= MAX_REDIRECTS {
                let cause = format!("stopped after {MAX_REDIRECTS} redirects");
                return Err(Fault::no_answer(cause).at(location.to_owned()));
            }
            request = request.redirected(url, is_relative);
        }
    }
}

fn judged(answer: &Answer) -> Outcome {
    match answer.status.as_u16() {
        200..300 => Outcome::Success,
        300..400 => {
            let body = String::from_utf8_lossy(&answer.body);
            let text = format!("Probe terminated redirects, Response body: {body}");
            Outcome::Warning(text)
        }
        status => Outcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}
