//! One request to one server: connection, deadline, redirects, and an answer that is never read without a bound.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use super::{RegistryError, SharedClient, hosts::Host};
use crate::limits::within;

/// Redirects that are followed: a registry to its storage, and that to another.
const MOST_REDIRECTS: usize = 5;

/// Connections to servers that are trusted by the same certificates.
pub(super) struct Client(HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Clients by the certificates that they trust beside the system's.
pub(super) struct Clients {
    system_pem: Vec<u8>,
    made: Mutex<BTreeMap<Vec<u8>, SharedClient>>,
}

/// A question: what of it goes along with redirects, and what does not.
pub(super) struct Question<'q> {
    pub(super) method: Method,
    pub(super) uri: &'q str,
    pub(super) headers: &'q HeaderMap,
    /// For the first server only.
    pub(super) private: HeaderMap,
    pub(super) body: Bytes,
    pub(super) patience: Duration,
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub(super) struct Answer {
    /// Who gave it, for messages.
    pub(super) host: String,
    response: Response<Incoming>,
    patience: Duration,
}

impl Clients {
    pub(super) fn new(system_pem: Vec<u8>) -> Self {
        Self { system_pem, made: Mutex::default() }
    }

    pub(super) fn of(&self, host: &Host) -> Result<SharedClient, RegistryError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&host.roots_pem) {
            return Ok(client.clone());
        }
        let failed = |source| RegistryError::Tls { host: host.authority().to_owned(), source };
        let client = Arc::new(Client::new(&[&self.system_pem, &host.roots_pem]).map_err(failed)?);
        made.insert(host.roots_pem.clone(), client.clone());
        Ok(client)
    }
}

impl Client {
    fn new(pems: &[&Vec<u8>]) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for pem in pems {
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
        }
        let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self(HyperClient::builder(TokioExecutor::new()).build(connector)))
    }

    /// Asks, and follows where the answer points to.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answer, RegistryError> {
        let address = || RegistryError::Address(question.uri.to_owned());
        let first: Uri = question.uri.parse().map_err(|_| address())?;
        let mut uri = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let host = uri.authority().ok_or_else(address)?.to_string();
            let mut request = Request::new(Full::new(question.body.clone()));
            *request.method_mut() = question.method.clone();
            *request.uri_mut() = uri.clone();
            request.headers_mut().extend(question.headers.clone());
            request
                .headers_mut()
                .insert(header::USER_AGENT, http::HeaderValue::from_static("ferrolet"));
            // Nobody but the server that they are for sees credentials, wherever it points.
            if uri.authority() == first.authority() && uri.scheme() == first.scheme() {
                request.headers_mut().extend(question.private.clone());
            }
            let silence =
                || RegistryError::Silence { host: host.clone(), waited: question.patience };
            let failed = |source: hyper_util::client::legacy::Error| RegistryError::Connection {
                host: host.clone(),
                source: source.into(),
            };
            let asked = tokio::time::timeout(question.patience, self.0.request(request));
            let response = asked.await.map_err(|_| silence())?.map_err(failed)?;
            let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let target = response.headers().get(header::LOCATION).filter(|_| is_redirect);
            let Some(target) = target else {
                return Ok(Answer { host, response, patience: question.patience });
            };
            let redirect = |fault| RegistryError::Redirect { host: host.clone(), fault };
            let target = target.to_str().ok().and_then(|it| resolved(&uri, it));
            let target = target.ok_or_else(|| redirect("to something that is no address"))?;
            if first.scheme_str() == Some("https") && target.scheme_str() != Some("https") {
                return Err(redirect("to an address without TLS"));
            }
            if question.method != Method::GET {
                return Err(redirect("what is sent to it"));
            }
            uri = target;
        }
        Err(RegistryError::Redirect { host: first.to_string(), fault: "too often" })
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn header(&self, name: &HeaderName) -> &str {
        self.response.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or("")
    }

    pub(super) fn header_named(&self, name: &'static str) -> String {
        self.header(&HeaderName::from_static(name)).to_owned()
    }

    /// Every value of a header.
    pub(super) fn headers(&self, name: &HeaderName) -> impl Iterator<Item = &str> {
        self.response.headers().get_all(name).iter().filter_map(|it| it.to_str().ok())
    }

    /// The answer, if it is one of those hoped for.
    pub(super) fn expect(self, hoped: &[StatusCode], what: &str) -> Result<Self, RegistryError> {
        let status = self.status();
        if hoped.contains(&status) {
            return Ok(self);
        }
        Err(RegistryError::Status { host: self.host, status, what: what.to_owned() })
    }

    /// The whole body, within a limit.
    pub(super) async fn whole(
        mut self,
        what: &'static str,
        most: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        within(what, self.response.body().size_hint().lower(), most)?;
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(self.patience).await? {
            within(what, (bytes.len() + piece.len()) as u64, most)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The next piece of the body; `None` at its end. Dropping the call loses nothing: frames come whole.
    pub(super) async fn piece(&mut self, stall: Duration) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let frame = tokio::time::timeout(stall, self.response.body_mut().frame()).await;
            let silence = |_| RegistryError::Silence { host: self.host.clone(), waited: stall };
            match frame.map_err(silence)? {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(source)) => {
                    return Err(RegistryError::Connection {
                        host: self.host.clone(),
                        source: source.into(),
                    });
                }
            }
        }
    }
}

/// Where a redirect leads: another server, or another path on the same one.
fn resolved(from: &Uri, target: &str) -> Option<Uri> {
    let mut parts = target.parse::<Uri>().ok()?.into_parts();
    parts.path_and_query.as_ref()?;
    if parts.authority.is_none() {
        parts.authority = from.authority().cloned();
    }
    if parts.scheme.is_none() {
        parts.scheme = from.scheme().cloned();
    }
    Uri::from_parts(parts).ok()
}
