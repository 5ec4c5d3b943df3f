//! The few requests the race makes of the API server, as the administrator, over the cluster's plain HTTP.
//!
//! kubectl would do, but each call of it costs more CPU than the pod that it creates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Where requests go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Api {
    address: SocketAddr,
}

impl Api {
    pub(super) fn new(address: &str) -> Result<Api> {
        Ok(Api {
            address: address.parse().context("the API server's address")?,
        })
    }

    /// Creates an object in a collection.
    pub(super) fn create(&self, collection: &str, object: &Value) -> Result<()> {
        self.finish("POST", collection, &object.to_string())
    }

    /// Deletes an object or a collection, with the grace that the objects ask for.
    pub(super) fn delete(&self, path: &str) -> Result<()> {
        self.finish("DELETE", path, "")
    }

    /// Sends a request and gives the stream that its answer comes on.
    pub(super) fn send(&self, method: &str, path: &str, body: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, TIMEOUT)
            .with_context(|| format!("connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        Ok(stream)
    }

    fn finish(&self, method: &str, path: &str, body: &str) -> Result<()> {
        let mut stream = self.send(method, path, body)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .with_context(|| format!("{method} {path}"))?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(is_success(&answer), "{method} {path}: {answer:.400}");
        Ok(())
    }
}

/// Whether an answer begins with a status of 200 to 299.
pub(super) fn is_success(head: &str) -> bool {
    head.split(' ')
        .nth(1)
        .is_some_and(|status| status.len() == 3 && status.starts_with('2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statuses_from_200_to_299_are_success() {
        let cases = [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.1 201 Created\r\n", true),
            ("HTTP/1.1 403 Forbidden\r\n", false),
            ("HTTP/1.1 2", false),
            ("", false),
        ];
        for (head, expected) in cases {
            assert_eq!(is_success(head), expected, "{head:?}");
        }
    }
}
