//! Clients that mean no good, all at once, against the real agent: it answers honest ones
//! meanwhile, and stays small.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Node, http};
use serde_json::json;

use super::{SOON, cases, wait_running};
use crate::build::{pod, script};
use crate::context::Context;
use crate::runner::Outcome;

cases![the_agent_answers_and_stays_small_under_attack];

/// What all of them together may make the agent grow by, in KiB. They send a good deal more.
const ROOM: u64 = 40 * 1024;
/// What one of those that flood sends, unless it is cut off.
const FLOOD: usize = 32 << 20;

fn the_agent_answers_and_stays_small_under_attack(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(Outcome::Skipped("upstream's kubelet is not judged".to_owned()));
    }
    let port = http::free_port()?;
    let mut options = context.node_options();
    options.configuration = json!({"port": port});
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("plain", &[script("main", "exec sleep 100000")]))?;
    wait_running(&mut node, "plain")?;
    let main = format!("{}:{port}", context.bench.node_ip());
    let (read_only, health) =
        (node.read_only_address().to_owned(), node.healthz_address().to_owned());
    honest(&node)?;
    let before = resident(&node)?;
    let mut held = Vec::new();
    // Half a greeting, silence, half a head, and answers that nobody reads.
    let greeting = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice();
    let questions = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
    let kinds: [(&str, usize, &[u8]); 6] = [
        (&main, 300, greeting),
        (&main, 100, b""),
        (&main, 50, b"GET /healthz HTTP/1.1\r\n\r\n"),
        (&read_only, 20, b"GET /pods HTTP/1.1\r\nHost: x\r\nX-Slow: "),
        (&read_only, 20, &questions),
        (&health, 20, b"GET /heal"),
    ];
    for (address, n, bytes) in kinds {
        for _ in 0..n {
            held.push(said(address, bytes)?);
        }
    }
    let head = b"GET /healthz HTTP/1.1\r\nHost: x\r\n";
    let body = b"POST /stats/summary HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n";
    let pieces = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("10000\r\n{}\r\n", "z".repeat(0x10000));
    let floods: [(&[u8], Vec<u8>); 3] = [
        (head, b"X-Flood: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(1000)),
        (body, vec![b'z'; 0x10000]),
        (pieces, chunk.into_bytes()),
    ];
    for (first, more) in &floods {
        for address in [&read_only, &health] {
            let n_sent = flooded(address, first, more)?;
            ensure!(
                n_sent < FLOOD,
                "{address} took {n_sent} bytes of {:?}",
                String::from_utf8_lossy(first)
            );
        }
    }
    honest(&node)?;
    let grown = resident(&node)?.saturating_sub(before);
    ensure!(grown < ROOM, "the agent grew by {grown} KiB");
    drop(held);
    node.wait("honest answers afterwards", SOON, |node| honest(node).map(Some))?;
    node.expect_running()?;
    Ok(Outcome::Passed)
}

/// Both plain ports answer.
fn honest(node: &Node) -> Result<()> {
    let answer = node.healthz("/healthz")?;
    ensure!(answer.body == "ok", "health is {answer:?}");
    let answer = node.read_only("/pods")?;
    ensure!(answer.status == 200, "/pods is {}", answer.status);
    Ok(())
}

/// A connection over which this was said, as far as the other end would hear it.
fn said(address: &str, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_nonblocking(true)?;
    // It may have hung up on us already: then there is one attacker less.
    match stream.write(bytes) {
        Ok(_) => {}
        Err(error) => {
            use ErrorKind::{BrokenPipe, ConnectionReset, WouldBlock};
            let is_heard = matches!(error.kind(), WouldBlock | BrokenPipe | ConnectionReset);
            ensure!(is_heard, "say something: {error}");
        }
    }
    Ok(stream)
}

/// How much of a flood was sent before the other end hung up, or stopped taking it.
fn flooded(address: &str, first: &[u8], more: &[u8]) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut n_sent = 0;
    if stream.write_all(first).is_ok() {
        while n_sent < FLOOD && stream.write_all(more).is_ok() {
            n_sent += more.len();
        }
    }
    // Whatever it answers, it answers, or has hung up.
    let _ = stream.read(&mut [0; 1024]);
    Ok(n_sent)
}

/// The agent's memory, in KiB.
pub(super) fn resident(node: &Node) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.context("there is no VmRSS")?.trim();
    let number = words.split(' ').next().unwrap_or_default();
    number.parse().with_context(|| format!("read {words:?}"))
}
