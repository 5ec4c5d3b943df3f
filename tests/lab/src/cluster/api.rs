//! The few requests that tools make of the API server, as the administrator, over the cluster's
//! plain HTTP.
//!
//! kubectl would do, but each call of it costs more CPU than the pod that it creates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::http::{self, Answer};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Where requests go to.
#[derive(Debug, Clone, Copy)]
pub struct Api {
    address: SocketAddr,
}

impl Api {
    pub fn new(address: &str) -> Result<Api> {
        Ok(Api { address: address.parse().context("the API server's address")? })
    }

    /// Creates an object in a collection.
    pub fn create(&self, collection: &str, object: &Value) -> Result<()> {
        self.finish("POST", collection, &object.to_string())
    }

    /// Deletes an object or a collection, with the grace that the objects ask for.
    pub fn delete(&self, path: &str) -> Result<()> {
        self.finish("DELETE", path, "")
    }

    /// Any request with its answer, also one that says no. A `PATCH` is a strategic merge.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let mut stream = self.send(method, path, body)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).with_context(|| format!("{method} {path}"))?;
        http::parse(&bytes).with_context(|| format!("answer of {method} {path}"))
    }

    /// Sends a request and gives the stream that its answer comes on.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, TIMEOUT)
            .with_context(|| format!("connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        let content = match method {
            "PATCH" => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        Ok(stream)
    }

    fn finish(&self, method: &str, path: &str, body: &str) -> Result<()> {
        let answer = self.ask(method, path, body)?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {:.400}",
            answer.status,
            answer.body
        );
        Ok(())
    }
}

/// Whether an answer begins with a status of 200 to 299.
pub(super) fn is_success(head: &str) -> bool {
    head.split(' ').nth(1).is_some_and(|status| status.len() == 3 && status.starts_with('2'))
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
