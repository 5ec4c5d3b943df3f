//! Clients that break off in the middle, over TLS, against the whole agent: half a goodbye, resets
//! of HTTP/2, upgrades that fail half way. Each ends in a clear status or with the connection, and
//! nothing stays behind: no connection, no file, no process in a container, no memory.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::{Node, Tls, http, wait_until};
use serde_json::json;

use super::attackers::resident;
use super::{SOON, cases, wait_running};
use crate::build::{pod, script};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    half_closed_clients_leave_nothing_behind,
    resets_of_http2_leave_nothing_behind,
    upgrades_that_fail_half_way_leave_nothing_behind,
];

/// How often each is done: a leak must be seen beside what comes and goes by itself.
const MANY: usize = 20;
/// Files that come and go by themselves.
const SLACK: usize = 6;
/// What all of one test may make the agent grow by, in KiB.
const ROOM: u64 = 24 * 1024;

/// An agent with a pod, before anything was done to it.
struct Victim {
    node: Node,
    /// The main server's.
    address: String,
    /// The one that it made for itself.
    certificate: String,
    /// The pod's name.
    pod: String,
    n_files: usize,
    memory: u64,
}

impl Victim {
    fn new(context: &mut Context<'_>) -> Result<Victim> {
        let port = http::free_port()?;
        let mut options = context.node_options();
        options.configuration = json!({"port": port});
        let mut node = context.node_with(options)?;
        let text = "echo begun; exec httpd -f -p 8080 -h /www";
        node.put_pod(&pod("plain", &[script("main", text)]))?;
        wait_running(&mut node, "plain")?;
        let address = format!("{}:{port}", context.bench.node_ip());
        let pod = node.pod_name("plain");
        let certificate = node.directory().join("pki/kubelet.crt");
        let certificate = fs::read_to_string(&certificate)
            .with_context(|| format!("read {}", certificate.display()))?;
        let mut victim = Victim { node, address, certificate, pod, n_files: 0, memory: 0 };
        // What is opened once and kept is open from here on.
        for _ in 0..3 {
            victim.is_well()?;
        }
        victim.n_files = n_files(&victim.node)?;
        victim.memory = resident(&victim.node)?;
        Ok(victim)
    }

    fn connect(&self) -> Result<Tls> {
        self.connect_with("http/1.1")
    }

    fn connect_with(&self, protocol: &str) -> Result<Tls> {
        // A node without a cluster has a certificate of its own for its name.
        Tls::connect(&self.address, self.node.name(), &self.certificate, protocol)
    }

    /// The status and words of an answer, or what came instead.
    fn ask(&self, request: &str) -> Result<(u16, String)> {
        let mut stream = self.connect()?;
        stream.say(request.as_bytes())?;
        answer(&stream.hear_end()?)
    }

    /// An honest client is served, by every kind of answer.
    fn is_well(&self) -> Result<()> {
        for path in ["/healthz", "/pods", "/stats/summary"] {
            let (status, words) = self.ask(&plain(path))?;
            ensure!(status == 200, "{path} is {status}: {words:.200}");
        }
        let path = format!("/run/default/{}/main?cmd=echo%20well", self.pod);
        let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (status, words) = self.ask(&request)?;
        ensure!((status, words.trim()) == (200, "well"), "{path} is {status}: {words}");
        Ok(())
    }

    /// Everything is as it was: open files, memory, processes, and whoever asks next is served.
    fn expect_recovered(mut self) -> Result<()> {
        let (n_before, pid) = (self.n_files, self.node.pid()?);
        self.node.wait("as few open files as before", SOON, |node| {
            let n = n_files(node)?;
            let what = || files(pid).unwrap_or_default().join(" ");
            ensure!(n <= n_before + SLACK, "{n} files are open, {n_before} were: {}", what());
            Ok(Some(()))
        })?;
        self.is_well()?;
        let grown = resident(&self.node)?.saturating_sub(self.memory);
        ensure!(grown < ROOM, "the agent grew by {grown} KiB");
        self.node.expect_running()
    }
}

fn plain(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

fn answer(bytes: &[u8]) -> Result<(u16, String)> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3));
    let Some(status) = status.and_then(|it| it.parse().ok()) else {
        bail!("the answer is {text:.200?}");
    };
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// What a process has open.
fn files(pid: u32) -> Result<Vec<String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).context("list open files")?;
    let targets = entries.flatten().filter_map(|it| fs::read_link(it.path()).ok());
    Ok(targets.map(|it| it.display().to_string()).collect())
}

fn n_files(node: &Node) -> Result<usize> {
    Ok(files(node.pid()?)?.len())
}

/// Processes of this bench with this word in their command lines.
fn n_running(word: &str) -> Result<usize> {
    let lines = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_to_string(entry.path().join("cmdline")).ok()
    });
    Ok(lines.filter(|line| line.contains(word)).count())
}

fn wait_processes(word: &str, expected: usize) -> Result<()> {
    wait_until(&format!("{expected} processes of {word}"), SOON, || {
        let n = n_running(word)?;
        ensure!(n == expected, "{n} run");
        Ok(Some(()))
    })
}

/// Upstream's kubelet is not judged.
fn skipped(context: &Context<'_>) -> Option<Outcome> {
    let reason = "upstream's kubelet is not judged";
    context.is_upstream().then(|| Outcome::Skipped(reason.to_owned()))
}

fn half_closed_clients_leave_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = skipped(context) {
        return Ok(skipped);
    }
    let victim = Victim::new(context)?;
    let log = format!("/containerLogs/default/{}/main", victim.pod);
    let follow = format!("{log}?follow=true");
    // Whoever has asked a whole question gets the whole answer; the rest get nothing but the end.
    let cases = [
        (String::new(), None),
        ("GET /heal".to_owned(), None),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n".to_owned(), None),
        (plain("/healthz"), Some("ok")),
        (plain("/pods"), Some("PodList")),
        (plain("/stats/summary"), Some("nodeName")),
        (plain(&log), Some("begun")),
    ];
    for (request, expected) in cases {
        let mut held = Vec::new();
        for _ in 0..MANY {
            let mut stream = victim.connect()?;
            stream.say(request.as_bytes())?;
            stream.say_goodbye();
            held.push(stream);
        }
        for mut stream in held {
            let heard = stream.hear_end().with_context(|| format!("after {request:?}"))?;
            let heard = String::from_utf8_lossy(&heard);
            let is_good = match expected {
                Some(words) => heard.starts_with("HTTP/1.1 200") && heard.contains(words),
                // A server may say what it misses.
                None => heard.is_empty() || heard.starts_with("HTTP/1.1 4"),
            };
            ensure!(is_good, "{request:?} is answered with {heard:.300?}");
        }
    }
    // What goes on for ever ends soon after the goodbye.
    let mut held = Vec::new();
    for _ in 0..MANY {
        let mut stream = victim.connect()?;
        stream.say(plain(&follow).as_bytes())?;
        let head = stream.hear_head()?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{follow} is {head}");
        held.push(stream);
    }
    held.iter_mut().for_each(Tls::say_goodbye);
    for mut stream in held {
        stream.hear_end().context("after a followed log")?;
    }
    victim.expect_recovered()?;
    Ok(Outcome::Passed)
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
/// The end of the stream and of the headers.
const WHOLE: u8 = 5;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// GET of a path shorter than 127 bytes, without any compression.
fn get(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap_or(0);
    let mut head = vec![0x82, 0x87, 0x04, length];
    head.extend(path.as_bytes());
    head.extend([0x41, 1, b'x']);
    frame(HEADERS, WHOLE, stream, &head)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &8u32.to_be_bytes())
}

fn resets_of_http2_leave_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = skipped(context) {
        return Ok(skipped);
    }
    let victim = Victim::new(context)?;
    // CVE-2023-44487: questions are taken back as quickly as they are asked.
    for path in ["/healthz", "/pods", "/stats/summary", "/metrics/cadvisor"] {
        for _ in 0..3 {
            let mut stream = victim.connect_with("h2")?;
            let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            for n in 0..5000 {
                bytes.extend(get(2 * n + 1, path));
                bytes.extend(reset(2 * n + 1));
            }
            // The server may hang up in the middle.
            let _ = stream.say(&bytes);
            // A goodbye may be lost in what the server would not read; that it hangs up is what
            // counts.
            let heard = stream.hear_end()?;
            let n_answers = frames(&heard).filter(|it| it.0 == HEADERS).count();
            ensure!(n_answers < 2500, "{path}: {n_answers} are answered");
        }
    }
    // Answers that would go on for ever are taken back, and the connection stays.
    let follow = format!("/containerLogs/default/{}/main?follow=true", victim.pod);
    let mut stream = victim.connect_with("h2")?;
    let n_streams = u32::try_from(MANY)?;
    let ids = (0..n_streams).map(|n| 2 * n + 1);
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    bytes.extend(ids.clone().flat_map(|id| get(id, &follow)));
    stream.say(&bytes)?;
    let mut heard = Vec::new();
    while !ids.clone().all(|id| frames(&heard).any(|it| it == (HEADERS, id))) {
        let more = stream.hear_some()?;
        ensure!(!more.is_empty(), "it hung up");
        heard.extend(more);
    }
    stream.say(&ids.flat_map(reset).collect::<Vec<u8>>())?;
    let n_before = victim.n_files;
    wait_until("followed logs to be closed", SOON, || {
        let n = n_files(&victim.node)?;
        ensure!(n <= n_before + 1 + SLACK, "{n} are open");
        Ok(Some(()))
    })?;
    // It is as good as before.
    stream.say(&get(2 * n_streams + 1, "/healthz"))?;
    let mut heard = Vec::new();
    while !frames(&heard).any(|it| it == (HEADERS, 2 * n_streams + 1)) {
        let more = stream.hear_some()?;
        ensure!(!more.is_empty(), "it hung up after resets");
        heard.extend(more);
    }
    drop(stream);
    victim.expect_recovered()?;
    Ok(Outcome::Passed)
}

/// The kinds and streams of whole frames.
fn frames(bytes: &[u8]) -> impl Iterator<Item = (u8, u32)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, more) = rest.split_first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        rest = more.get(usize::try_from(length).ok()?..)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], stream))
    })
}

fn upgrade(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
}

fn upgrades_that_fail_half_way_leave_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = skipped(context) {
        return Ok(skipped);
    }
    let victim = Victim::new(context)?;
    let exec_of = |word: &str| {
        let command = format!("command=sh&command=-c&command=cat%3B:{word}");
        let pod = &victim.pod;
        format!("/exec/default/{pod}/main?{command}&input=1&output=1")
    };
    let (early, word) =
        (format!("early-of-{}", victim.node.name()), format!("word-of-{}", victim.node.name()));
    let exec = exec_of(&early);
    let forward = format!("/portForward/default/{}", victim.pod);
    let spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let forwarding = spdy.replace("v4.channel.k8s.io", "portforward.k8s.io");
    let socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let channels = format!("{socket}Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n");
    let tunnel = format!("{socket}Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n");
    // Headers that cannot be agreed on: a status, and no more of the connection than that.
    let no_version = channels.replace("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8");
    let no_key = channels.replace("Sec-WebSocket-Key", "X-Key");
    let bad = [
        (&exec, "".to_owned()),
        (&exec, "Connection: Upgrade\r\n".to_owned()),
        (&exec, "Upgrade: SPDY/3.1\r\n".to_owned()),
        (&exec, no_version),
        (&exec, no_key),
        (&exec, "Connection: Upgrade\r\nUpgrade: nonsense/7\r\n".to_owned()),
        (&forward, "".to_owned()),
        (&forward, "Connection: Upgrade\r\nUpgrade: nonsense/7\r\n".to_owned()),
        (&forward, tunnel.replace("Sec-WebSocket-Key", "X-Key")),
    ];
    for (path, headers) in &bad {
        for _ in 0..3 {
            let mut stream = victim.connect()?;
            let headers = format!("{headers}X-Last: 1\r\n");
            stream.say(upgrade("POST", path, &headers).as_bytes())?;
            let head = stream.hear_head().with_context(|| headers.clone())?;
            let is_refused = ["HTTP/1.1 4", "HTTP/1.1 5"].iter().any(|it| head.starts_with(it));
            ensure!(is_refused, "{path} with {headers:?} is {head}");
        }
    }
    // Agreed upon, and then: the client does not wait to hear of it; it is gone; it talks nonsense.
    let good = [
        (&exec, "POST", spdy),
        (&exec, "GET", channels.as_str()),
        (&forward, "POST", forwarding.as_str()),
        (&forward, "GET", tunnel.as_str()),
    ];
    for (path, method, headers) in good {
        let request = upgrade(method, path, headers);
        for _ in 0..MANY {
            let mut stream = victim.connect()?;
            stream.say(request.as_bytes())?;
            drop(stream);
            let mut stream = victim.connect()?;
            stream.say(request.as_bytes())?;
            let head = stream.hear_head()?;
            ensure!(head.starts_with("HTTP/1.1 101"), "{path} is {head}");
            drop(stream);
        }
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut stream = victim.connect()?;
            stream.say(request.as_bytes())?;
            stream.hear_head()?;
            stream.say(&[0xff; 4096])?;
            held.push(stream);
        }
        for mut stream in held {
            stream.hear_end().with_context(|| format!("nonsense after {request}"))?;
        }
    }
    // A command that runs hears the end of its input when its caller is gone, with and without a
    // goodbye.
    let mut callers = Vec::new();
    for _ in 0..4 {
        let mut stream = victim.connect()?;
        stream.say(upgrade("GET", &exec_of(&word), &channels).as_bytes())?;
        stream.hear_head()?;
        callers.push(stream);
    }
    wait_until("the commands to run", SOON, || {
        let n = n_running(&word)?;
        ensure!(n >= callers.len(), "{n} run");
        Ok(Some(()))
    })?;
    for (n, mut caller) in callers.into_iter().enumerate() {
        if n % 2 == 0 {
            caller.say_goodbye();
        }
    }
    wait_processes(&word, 0)?;
    wait_processes(&early, 0)?;
    victim.expect_recovered()?;
    Ok(Outcome::Passed)
}
