//! The server with a backend of pipes, and clients that speak as upstream's do: bytes on a socket.

use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_streams::spdy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::*;

/// `cat`: says what it hears, complains once, and ends with the code that its argument says.
struct Cat;

fn cat(streams: Streams, code: i32) -> Process {
    let pipe = |is_wanted: bool| is_wanted.then(|| std::io::pipe().unwrap());
    let (input, output, errors) = (pipe(streams.stdin), pipe(streams.stdout), pipe(streams.stderr));
    let (far_in, stdin) = input.map(|(a, b)| (a, OwnedFd::from(b))).unzip();
    let (stdout, far_out) = output.map(|(a, b)| (OwnedFd::from(a), b)).unzip();
    let (stderr, far_errors) = errors.map(|(a, b)| (OwnedFd::from(a), b)).unzip();
    let work = move || {
        use std::io::Write as _;
        if let Some(mut errors) = far_errors {
            errors.write_all(b"meow").unwrap();
        }
        let from: Option<PipeReader> = far_in;
        if let (Some(mut from), Some(mut to)) = (from, far_out) {
            std::io::copy(&mut from, &mut to).unwrap();
        }
    };
    let done = tokio::task::spawn_blocking(work);
    let exit = async move {
        done.await.map_err(|error| error.to_string())?;
        Ok(code)
    };
    Process {
        io: ProcessIo::Pipes { stdin, stdout, stderr, resize: None },
        exit: Some(Box::pin(exit)),
    }
}

impl StreamBackend for Cat {
    fn exec(&self, request: ExecRequest) -> Answer<'_, Result<Process, String>> {
        Box::pin(async move {
            match request.command.as_slice() {
                [name, code] if name == "cat" => Ok(cat(request.streams, code.parse().unwrap())),
                _ => Err("no such file".to_owned()),
            }
        })
    }

    fn attach(&self, request: AttachRequest) -> Answer<'_, Result<Process, String>> {
        Box::pin(async move { Ok(Process { exit: None, ..cat(request.streams, 0) }) })
    }

    fn connect(&self, sandbox: &str, port: u16) -> Answer<'_, Result<OwnedFd, String>> {
        let is_open = (sandbox, port) == ("pod", 80);
        Box::pin(async move {
            if !is_open {
                return Err("connection refused".to_owned());
            }
            let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
            tokio::task::spawn_blocking(move || {
                use std::io::{Read as _, Write as _};
                let mut said = String::new();
                (&far).read_to_string(&mut said).unwrap();
                (&far).write_all(said.to_uppercase().as_bytes()).unwrap();
            });
            Ok(near.into())
        })
    }
}

async fn start() -> StreamingHandle {
    let server = StreamingServer::bind(Arc::new(Cat)).await.unwrap();
    let handle = server.handle();
    tokio::spawn(server.run());
    handle
}

fn exec(code: &str) -> ExecRequest {
    let streams = Streams { tty: false, stdin: true, stdout: true, stderr: true };
    let command = vec!["cat".to_owned(), code.to_owned()];
    ExecRequest { container: "c".to_owned(), command, streams }
}

/// Asks for an upgrade; the answer's head, and the connection.
async fn upgrade(url: &str, headers: &str) -> (String, TcpStream) {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n{headers}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(Duration::from_secs(20), stream.read_u8()).await.unwrap().unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

const SPDY: &str = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io";

struct Client {
    frames: spdy::Frames<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Client {
    async fn open(stream: TcpStream, kinds: &[&str]) -> Self {
        let (from, mut to) = stream.into_split();
        let mut opener = spdy::Opener::new();
        for kind in kinds {
            to.write_all(&opener.open(kind).1).await.unwrap();
        }
        Self { frames: spdy::Frames::of_server(from), to }
    }

    /// Everything that is said on each stream until all of these have ended.
    async fn hear(&mut self, streams: &[u32]) -> Vec<String> {
        let mut said = vec![Vec::new(); streams.len()];
        let mut open = streams.to_vec();
        while !open.is_empty() {
            match timeout(Duration::from_secs(20), self.frames.next()).await.unwrap().unwrap() {
                spdy::Heard::Data { id } => {
                    let at = streams.iter().position(|it| *it == id).unwrap();
                    said[at].extend_from_slice(self.frames.piece());
                }
                spdy::Heard::Ended { id } => open.retain(|it| *it != id),
                spdy::Heard::Closed => panic!("closed while {open:?} are open"),
                _ => {}
            }
        }
        said.into_iter().map(|it| String::from_utf8(it).unwrap()).collect()
    }
}

#[tokio::test]
async fn a_command_runs_by_spdy() {
    let handle = start().await;
    let url = handle.exec(exec("3")).unwrap();
    let (head, stream) = upgrade(&url, SPDY).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
    let mut client = Client::open(stream, &["error", "stdin", "stdout", "stderr"]).await;
    spdy::send(&mut client.to, 3, b"hello").await.unwrap();
    spdy::finish(&mut client.to, 3).await.unwrap();
    let heard = client.hear(&[1, 5, 7]).await;
    assert_eq!(heard[1..], ["hello".to_owned(), "meow".to_owned()]);
    assert!(heard[0].contains(r#""reason":"NonZeroExitCode""#), "{}", heard[0]);
    // The address was good once.
    let (head, _) = upgrade(&url, SPDY).await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
}

#[tokio::test]
async fn a_command_that_does_not_start_is_told_as_a_status() {
    let handle = start().await;
    let request = ExecRequest { command: vec!["dog".to_owned()], ..exec("0") };
    let (_, stream) = upgrade(&handle.exec(request).unwrap(), SPDY).await;
    let mut client = Client::open(stream, &["error", "stdin", "stdout", "stderr"]).await;
    let heard = client.hear(&[1, 5, 7]).await;
    let words = "Internal error occurred: error executing command in container: no such file";
    assert!(heard[0].contains(words), "{}", heard[0]);
}

#[tokio::test]
async fn an_attachment_ends_with_its_outputs() {
    let handle = start().await;
    let ExecRequest { container, streams, .. } = exec("0");
    let url = handle.attach(AttachRequest { container, streams }).unwrap();
    let (_, stream) = upgrade(&url, SPDY).await;
    let mut client = Client::open(stream, &["error", "stdin", "stdout", "stderr"]).await;
    spdy::send(&mut client.to, 3, b"hello").await.unwrap();
    spdy::finish(&mut client.to, 3).await.unwrap();
    let heard = client.hear(&[1, 5, 7]).await;
    assert_eq!(heard, [r#"{"metadata":{},"status":"Success"}"#, "hello", "meow"]);
}

/// A message as a client masks it, with a mask that changes nothing.
fn message(data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | u8::try_from(data.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(data);
    frame
}

const WEB: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5";

/// The server's next frame: its first byte, and its data.
async fn frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let read = async {
        let first = stream.read_u8().await.unwrap();
        let n = match stream.read_u8().await.unwrap() {
            126 => usize::from(stream.read_u16().await.unwrap()),
            n => usize::from(n),
        };
        let mut data = vec![0; n];
        stream.read_exact(&mut data).await.unwrap();
        (first, data)
    };
    timeout(Duration::from_secs(20), read).await.unwrap()
}

/// The server's messages until it closes.
async fn messages(stream: &mut TcpStream) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        match frame(stream).await {
            (0x88, _) => return all,
            (_, data) => all.push(data),
        }
    }
}

#[tokio::test]
async fn a_command_runs_by_websocket() {
    let handle = start().await;
    let url = handle.exec(exec("0")).unwrap();
    let headers = format!("{WEB}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io");
    let (head, mut stream) = upgrade(&url, &headers).await;
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    stream.write_all(&message(b"\0hello")).await.unwrap();
    stream.write_all(&message(&[255, 0])).await.unwrap();
    let heard = messages(&mut stream).await;
    assert_eq!(heard[0], [1]);
    let of = |channel: u8| -> Vec<u8> {
        heard[1..].iter().filter(|it| it[0] == channel).flat_map(|it| it[1..].to_vec()).collect()
    };
    assert_eq!((of(1).as_slice(), of(2).as_slice()), (&b"hello"[..], &b"meow"[..]));
    assert_eq!(of(3), br#"{"metadata":{},"status":"Success"}"#);
}

/// Streams of two connections to that port: errors and data of the first, of the second.
fn port_streams(ports: [&str; 2]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut id = 1u8;
    for (request, port) in ports.into_iter().enumerate() {
        for kind in ["error", "data"] {
            let request = request.to_string();
            let texts = ["streamtype", kind, "port", port, "requestid", &request];
            let mut pairs = 3u32.to_be_bytes().to_vec();
            for text in texts {
                pairs.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
                pairs.extend_from_slice(text.as_bytes());
            }
            let mut block = if id == 1 { vec![0x78, 0x01] } else { Vec::new() };
            let length = u16::try_from(pairs.len()).unwrap();
            block.push(0);
            block.extend_from_slice(&length.to_le_bytes());
            block.extend_from_slice(&(!length).to_le_bytes());
            block.extend_from_slice(&pairs);
            block.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
            let n = u8::try_from(block.len() + 10).unwrap();
            frames.extend_from_slice(&[0x80, 3, 0, 1, 0, 0, 0, n, 0, 0, 0, id, 0, 0, 0, 0, 0, 0]);
            frames.extend_from_slice(&block);
            id += 2;
        }
    }
    frames
}

const REFUSED: &str = "error forwarding port 81 to pod pod: connection refused";

#[tokio::test]
async fn ports_are_forwarded_side_by_side() {
    let handle = start().await;
    let url = handle.port_forward("pod".to_owned()).unwrap();
    let headers = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io";
    let (head, stream) = upgrade(&url, headers).await;
    assert!(head.contains("x-stream-protocol-version: portforward.k8s.io"), "{head}");
    let mut client = Client::open(stream, &[]).await;
    client.to.write_all(&port_streams(["80", "81"])).await.unwrap();
    spdy::send(&mut client.to, 3, b"hello").await.unwrap();
    spdy::finish(&mut client.to, 3).await.unwrap();
    assert_eq!(client.hear(&[1, 3, 5, 7]).await, ["", "HELLO", REFUSED, ""]);
}

#[tokio::test]
async fn ports_are_forwarded_in_a_websocket() {
    let handle = start().await;
    let url = handle.port_forward("pod".to_owned()).unwrap();
    let headers = format!("{WEB}\r\nSec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io");
    let (head, mut stream) = upgrade(&url, &headers).await;
    assert!(head.contains("sec-websocket-protocol: SPDY/3.1+portforward.k8s.io"), "{head}");
    let mut said = port_streams(["80", "81"]);
    spdy::send(&mut said, 3, b"hello").await.unwrap();
    spdy::finish(&mut said, 3).await.unwrap();
    for piece in said.chunks(100) {
        stream.write_all(&message(piece)).await.unwrap();
    }
    let mut heard = Vec::new();
    // An end: a stream's number, the flag, no bytes.
    let is_end = |it: &[u8]| it[..3] == [0; 3] && it[3] < 8 && it[4..] == [1, 0, 0, 0];
    while heard.windows(8).filter(|it| is_end(it)).count() < 4 {
        heard.extend(frame(&mut stream).await.1);
    }
    let has = |words: &[u8]| heard.windows(words.len()).any(|it| it == words);
    assert!(has(b"HELLO") && has(REFUSED.as_bytes()));
}

#[tokio::test]
async fn what_is_no_stream_is_refused() {
    let handle = start().await;
    let url = handle.exec(exec("0")).unwrap();
    let (head, _) = upgrade(&url, "Upgrade: h2c").await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    // The token of a command opens no port.
    let url = handle.exec(exec("0")).unwrap().replace("/exec/", "/portforward/");
    let (head, _) = upgrade(&url, SPDY).await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (head, _) = upgrade(&url.replace("/portforward/", "/metrics/"), SPDY).await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
}
