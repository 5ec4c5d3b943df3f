//! The one outbound connection of this crate: GET a URL, over TLS where it asks for it.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header::LOCATION};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use super::{Answer, Fetch};
use crate::manifest::MAX_BYTES;
use ferrolet_ports::Fut;

/// Most redirects that are followed, as Go's client.
const MAX_REDIRECTS: usize = 10;

/// Why no client can be made for a URL.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is none, or not one that can be asked.
    #[error("{url:?} is not a http or https URL")]
    Url {
        /// The URL as given.
        url: String,
    },
    /// A header cannot be sent.
    #[error("{name:?} with value {value:?} is not a header")]
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// There is nothing to trust a server by.
    #[error("no usable root certificate for {url:?}")]
    Roots {
        /// The URL as given.
        url: String,
    },
    /// TLS cannot be set up.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
}

/// Asks one URL.
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    url: Uri,
    headers: HeaderMap,
}

impl HttpClient {
    /// A client for `url` that sends `headers`. `roots_pem` holds the certificates to trust servers
    /// by, as the system's bundle has them; it matters for https only.
    pub fn new<'h>(
        url: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        roots_pem: &[u8],
    ) -> Result<Self, ClientError> {
        let bad_url = || ClientError::Url { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|_| bad_url())?;
        let is_tls = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => false,
            (Some("https"), Some(_)) => true,
            _ => return Err(bad_url()),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(roots_pem).flatten());
        if is_tls && roots.is_empty() {
            return Err(ClientError::Roots { url: url.to_owned() });
        }
        let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(ClientError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let bad = |_| ClientError::Header { name: name.to_owned(), value: value.to_owned() };
            let name: HeaderName = name.parse().map_err(|_| bad(()))?;
            let value: HeaderValue = value.parse().map_err(|_| bad(()))?;
            map.append(name, value);
        }
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: uri,
            headers: map,
        })
    }

    async fn ask(&self) -> Result<Answer, String> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request =
                Request::get(url.clone()).body(Empty::new()).map_err(|error| error.to_string())?;
            // Whom the headers were meant for is known only for the configured server.
            if url.authority() == self.url.authority() {
                request.headers_mut().clone_from(&self.headers);
            }
            let response = self.client.request(request).await.map_err(|error| chain(&error))?;
            let status = response.status();
            if let (true, Some(target)) =
                (status.is_redirection(), response.headers().get(LOCATION))
            {
                url = redirected(&url, target).ok_or("redirected to something that is no URL")?;
                continue;
            }
            let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
            let body = body.map_err(|error| chain(&*error))?.to_bytes().to_vec();
            return Ok(Answer { status: status.as_u16(), body });
        }
        Err(format!("redirected more than {MAX_REDIRECTS} times"))
    }
}

impl Fetch for HttpClient {
    fn get(&self) -> Fut<'_, Result<Answer, String>> {
        Box::pin(self.ask())
    }
}

/// Where a redirect leads: another URL, or another path on the same server.
fn redirected(from: &Uri, target: &HeaderValue) -> Option<Uri> {
    let target: Uri = target.to_str().ok()?.parse().ok()?;
    let mut parts = target.into_parts();
    parts.path_and_query.get_or_insert_with(|| "/".parse().expect("a slash is a path"));
    if parts.authority.is_none() {
        parts.authority = from.authority().cloned();
    }
    if parts.scheme.is_none() {
        parts.scheme = from.scheme().cloned();
    }
    Uri::from_parts(parts).ok()
}

/// An error with all its causes, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
