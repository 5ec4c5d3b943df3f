//! A client of TLS that knows whom it talks to, and can be as rude as it likes. Blocking.
//!
//! In: an address, the certificate that is expected there, and the protocol to agree on. Out: bytes
//! both ways, half a goodbye, and whatever the other end says before it hangs up. Refuses:
//! strangers, and waiting for ever.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long the other end may take to say something.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any answer that is read whole.
const LONGEST: usize = 64 << 20;

/// One connection.
pub struct Tls(StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    /// Greets the server of this name and certificate, with this protocol (`http/1.1`, `h2`) or not
    /// at all.
    pub fn connect(address: &str, name: &str, certificate: &str, protocol: &str) -> Result<Tls> {
        let socket =
            TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut known = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
            known.add(certificate.context("read the expected certificate")?)?;
        }
        let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(known)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(name.to_owned())?;
        let mut connection = ClientConnection::new(Arc::new(config), name)?;
        let mut socket = socket;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).with_context(|| format!("greet {address}"))?;
        }
        ensure!(
            connection.alpn_protocol() == Some(protocol.as_bytes()),
            "{address} does not speak {protocol}"
        );
        Ok(Tls(StreamOwned::new(connection, socket)))
    }

    /// Sends this, unless the other end has hung up.
    pub fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// Says goodbye and closes one half of the connection. The other stays open, unless the other
    /// end has hung up by now.
    pub fn say_goodbye(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
        let _ = self.0.sock.shutdown(Shutdown::Write);
    }

    /// The head of an answer.
    pub fn hear_head(&mut self) -> Result<String> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            let n = self.0.read(&mut byte).context("hear the head of an answer")?;
            ensure!(n == 1, "the head ends with {:?}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// At least one byte of whatever comes next.
    pub fn hear_some(&mut self) -> Result<Vec<u8>> {
        let mut piece = vec![0; 1 << 16];
        let n = self.0.read(&mut piece).context("hear something")?;
        piece.truncate(n);
        Ok(piece)
    }

    /// Everything until the other end hangs up, politely or not. That it does not is an error.
    pub fn hear_end(&mut self) -> Result<Vec<u8>> {
        let (mut all, mut piece, began) = (Vec::new(), vec![0; 1 << 16], Instant::now());
        loop {
            ensure!(
                began.elapsed() < PATIENCE && all.len() < LONGEST,
                "it goes on after {} bytes",
                all.len()
            );
            match self.0.read(&mut piece) {
                Ok(0) => return Ok(all),
                Ok(n) => all.extend_from_slice(&piece[..n]),
                Err(error) => {
                    use std::io::ErrorKind::{TimedOut, WouldBlock};
                    if matches!(error.kind(), TimedOut | WouldBlock) {
                        bail!("it is still open after {} bytes", all.len());
                    }
                    return Ok(all);
                }
            }
        }
    }
}
