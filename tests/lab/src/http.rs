//! The smallest HTTP there is: GET over a TCP stream, and a server that answers every request with
//! one body.
//!
//! Enough for health checks, `/pods` and a manifest URL; not a client for anything else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const TIMEOUT: Duration = Duration::from_secs(30);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// GET `path` from `address` (`host:port`).
pub fn get(address: &str, path: &str) -> Result<Answer> {
    let target = address.parse().with_context(|| format!("address {address}"))?;
    let mut stream = TcpStream::connect_timeout(&target, TIMEOUT)
        .with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(|| format!("read http://{address}{path}"))?;
    parse(&bytes).with_context(|| format!("answer of http://{address}{path}"))
}

/// A port that nobody listens on, below those that the kernel gives to outgoing connections, so
/// that nobody takes it between the choice and the use; each call gives another one.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 9_000;
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port from {FIRST} on is free")
}

/// A whole answer as it came over the stream.
pub(crate) fn parse(bytes: &[u8]) -> Result<Answer> {
    let end =
        bytes.windows(4).position(|window| window == b"\r\n\r\n").context("no end of headers")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("status line in {head:?}"))?;
    let body = &bytes[end + 4..];
    let is_chunked = head
        .lines()
        .any(|line| line.to_ascii_lowercase().starts_with("transfer-encoding: chunked"));
    let body = if is_chunked { dechunk(body)? } else { body.to_vec() };
    Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
}

fn dechunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end =
            rest.windows(2).position(|window| window == b"\r\n").context("chunk size line")?;
        let line = String::from_utf8_lossy(&rest[..end]);
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .with_context(|| format!("chunk size {line:?}"))?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(body);
        }
        if rest.len() < size + 2 {
            bail!("chunk of {size} bytes is cut short");
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

/// Serves one body on a loopback port and remembers the head of each request. Ends with the
/// process.
pub struct StaticServer {
    port: u16,
    state: Arc<Mutex<ServerState>>,
}

struct ServerState {
    body: String,
    requests: Vec<String>,
}

impl StaticServer {
    /// Starts to serve `body`.
    pub fn start(body: &str) -> Result<StaticServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state =
            Arc::new(Mutex::new(ServerState { body: body.to_owned(), requests: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away half-way is its own problem.
                let _ = serve(stream, &shared);
            }
        });
        Ok(StaticServer { port, state })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/pods", self.port)
    }

    /// What the next request gets.
    pub fn set_body(&self, body: &str) {
        body.clone_into(&mut self.lock().body);
    }

    /// The heads of all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ServerState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<ServerState>) -> Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while reader.read_line(&mut head)? > 2 {}
    let body = {
        let mut state = state.lock().expect("no holder of this lock panics");
        state.requests.push(head);
        state.body.clone()
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_plain_and_in_chunks() {
        let cases: [(&[u8], u16, &str); 3] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
            (b"HTTP/1.1 500 Oh\r\n\r\n", 500, ""),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, "abcde"),
        ];
        for (bytes, status, body) in cases {
            assert_eq!(parse(bytes).unwrap(), Answer { status, body: body.to_owned() });
        }
    }

    #[test]
    fn a_chunk_cut_short_is_an_error() {
        let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab";
        assert!(parse(cut).is_err());
    }

    #[test]
    fn the_server_gives_the_newest_body_and_keeps_the_requests() {
        let server = StaticServer::start("one").unwrap();
        let address =
            server.url().trim_start_matches("http://").trim_end_matches("/pods").to_owned();
        assert_eq!(get(&address, "/a").unwrap().body, "one");
        server.set_body("two");
        assert_eq!(get(&address, "/b").unwrap().body, "two");
        assert!(server.requests()[1].starts_with("GET /b HTTP/1.1"));
    }
}
