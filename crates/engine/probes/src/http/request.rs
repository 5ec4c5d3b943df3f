//! The request that a handler specifies.

use ::http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, REFERER, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::Empty;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};

use super::url::{Scheme, Url};
use crate::VERSION;
use crate::prober::resolve_port;

/// Headers that Go's client writes itself or not at all.
const OURS: [&str; 4] = ["host", "content-length", "transfer-encoding", "trailer"];

/// A protocol without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// As everybody expects.
    Http1,
    /// Known beforehand, not agreed on.
    Http2,
}

/// A GET request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) url: Url,
    /// What is spoken where no TLS is there to agree on it.
    pub(crate) in_the_clear: Clear,
    /// The `Host` header, when it is not the URL's.
    host: Option<String>,
    headers: Vec<(String, String)>,
    referer: Option<String>,
}

impl Request {
    /// The request of a handler. `host` is the pod's address unless the handler names another.
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        host: &str,
        purpose: &str,
    ) -> Result<Self, String> {
        let scheme = match action.scheme.as_deref().unwrap_or_default() {
            text if text.eq_ignore_ascii_case("https") => Scheme::Https,
            _ => Scheme::Http,
        };
        let port = resolve_port(&action.port, container)?;
        let url = Url::new(scheme, host, port, action.path.as_deref().unwrap_or_default());
        let given = action.http_headers.iter().flatten();
        let mut headers: Vec<_> = given.map(|it| (it.name.clone(), it.value.clone())).collect();
        let first = |name: &str| {
            let mut named = headers.iter().filter(|it| it.0.eq_ignore_ascii_case(name));
            named.next().map(|it| it.1.clone())
        };
        let host = first("host").filter(|it| !it.is_empty());
        let (agent, accept) = (first("user-agent"), first("accept"));
        // Whoever gives an empty value wants none; whoever gives nothing gets the default.
        let is_unwanted = |name: &str| {
            let is_empty = |value: &Option<String>| value.as_deref() == Some("");
            (name.eq_ignore_ascii_case("user-agent") && is_empty(&agent))
                || (name.eq_ignore_ascii_case("accept") && is_empty(&accept))
        };
        headers.retain(|it| !is_unwanted(&it.0));
        if agent.is_none() {
            let value = format!("kube-{purpose}/{VERSION}");
            headers.push((USER_AGENT.to_string(), value));
        }
        if accept.is_none() {
            headers.push((ACCEPT.to_string(), "*/*".to_owned()));
        }
        Ok(Self { url, in_the_clear: Clear::Http1, host, headers, referer: None })
    }

    /// The request that follows a redirect.
    pub(crate) fn redirected(&self, to: Url, is_relative: bool) -> Self {
        // A page that was fetched securely is not named in the open.
        let is_secret = self.url.scheme == Scheme::Https && to.scheme == Scheme::Http;
        Self {
            in_the_clear: self.in_the_clear,
            host: self.host.clone().filter(|_| is_relative),
            headers: self.headers.clone(),
            referer: (!is_secret).then(|| self.url.to_string()),
            url: to,
        }
    }

    /// The same request in the protocol that a probe names.
    pub(crate) fn speaking(mut self, protocol: Option<&str>) -> Self {
        if protocol == Some("HTTP2") {
            self.in_the_clear = Clear::Http2;
        }
        self
    }

    /// The same request over plain HTTP, without what was meant for a secure connection.
    pub(crate) fn without_tls(mut self) -> Self {
        self.url = self.url.without_tls();
        self.headers.retain(|it| !it.0.eq_ignore_ascii_case(AUTHORIZATION.as_str()));
        self
    }

    /// The request in HTTP/1.1's form, or why it cannot be sent.
    pub(crate) fn for_http1(&self) -> Result<::http::Request<Empty<Bytes>>, String> {
        let mut headers = self.header_map()?;
        let host = self.host.as_deref().unwrap_or(self.url.authority());
        let value = HeaderValue::from_str(host);
        headers.insert(HOST, value.map_err(|_| "http: invalid Host header".to_owned())?);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let request = ::http::Request::get(self.url.request_target());
        finish(request, headers)
    }

    /// The request in HTTP/2's form, or why it cannot be sent.
    pub(crate) fn for_http2(&self) -> Result<::http::Request<Empty<Bytes>>, String> {
        let host = self.host.as_deref().unwrap_or(self.url.authority());
        let scheme = match self.url.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        let uri = format!("{scheme}://{host}{}", self.url.request_target());
        finish(::http::Request::get(uri), self.header_map()?)
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        let mut map = HeaderMap::with_capacity(self.headers.len() + 3);
        for (name, value) in &self.headers {
            let parsed: Result<HeaderName, _> = name.parse();
            let parsed =
                parsed.map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
            let value = HeaderValue::from_str(value)
                .map_err(|_| format!("net/http: invalid header field value for {name:?}"))?;
            if !OURS.contains(&parsed.as_str()) {
                map.append(parsed, value);
            }
        }
        if let Some(value) = self.referer.as_ref().and_then(|it| it.parse().ok()) {
            map.entry(REFERER).or_insert(value);
        }
        Ok(map)
    }
}

fn finish(
    request: ::http::request::Builder,
    headers: HeaderMap,
) -> Result<::http::Request<Empty<Bytes>>, String> {
    let request = request.body(Empty::new());
    let mut request = request.map_err(|error| format!("net/http: {error}"))?;
    *request.headers_mut() = headers;
    Ok(request)
}
