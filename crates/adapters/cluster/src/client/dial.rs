//! Opens a byte stream to the API server: TCP and TLS on a node, a pipe in tests.

use std::{io, sync::Arc};

use ferrolet_ports::Fut;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    kubeconfig::Access,
    tls::{self, Identity, TlsError},
};

/// A byte stream both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens byte streams.
pub(crate) trait Dial: Send + Sync {
    fn dial(&self) -> Fut<'_, io::Result<Box<dyn Stream>>>;

    /// Whom it dials, for people.
    fn peer(&self) -> String;
}

/// Why a server's address cannot be dialled.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not an address.
    #[error("not a server address: {0:?}")]
    Address(String),
    /// TLS cannot be set up for it.
    #[error("prepare TLS for {server}")]
    Tls {
        /// The server.
        server: String,
        /// Why not.
        source: TlsError,
    },
}

/// Dials a host over TCP, with TLS unless the address says `http`.
pub(crate) struct Remote {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Remote {
    pub(crate) fn new(access: &Access, identity: &Identity) -> Result<Self, AddressError> {
        let bad = || AddressError::Address(access.server.clone());
        let uri: http::Uri = access.server.parse().map_err(|_| bad())?;
        let host = uri.host().ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        let tls = if is_plain {
            None
        } else {
            let config = tls::client_config(&access.trust, identity)
                .map_err(|source| AddressError::Tls { server: access.server.clone(), source })?;
            let name = access.server_name.clone().unwrap_or_else(|| host.clone());
            let name = ServerName::try_from(name).map_err(|_| bad())?;
            Some((TlsConnector::from(Arc::new(config)), name))
        };
        Ok(Self { host, port, tls })
    }
}

impl Dial for Remote {
    fn dial(&self) -> Fut<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
            tcp.set_nodelay(true)?;
            let Some((connector, name)) = &self.tls else {
                return Ok(Box::new(tcp) as Box<dyn Stream>);
            };
            let stream = connector.connect(name.clone(), tcp).await?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(io::Error::other("the server does not speak HTTP/2"));
            }
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn peer(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}
