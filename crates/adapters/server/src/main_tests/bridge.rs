//! WebSockets that end here: channels translated to a runtime's SPDY streams, and SPDY carried in
//! messages.

use std::net::SocketAddr;
use std::time::Duration;

use ferrolet_testkit::FakeStreams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::rig::{Rig, SOON, Wish, read_head, split};
use super::runtime::runtime;

type Client = TlsStream<TcpStream>;

fn agreed(protocol: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    )
}

/// Kind (zero is data), stream, flags, payload.
async fn frame(stream: &mut TcpStream) -> (u8, u32, u8, Vec<u8>) {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.unwrap();
    if head[0] & 0x80 != 0 {
        let id = u32::from_be_bytes(*payload.first_chunk().unwrap());
        (head[3], id, head[4], payload)
    } else {
        let id = u32::from_be_bytes(*head.first_chunk().unwrap());
        (0, id, head[4], payload)
    }
}

fn data(id: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = id.to_be_bytes().to_vec();
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    frame.push(flags);
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(payload);
    frame
}

fn message(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// Opcode and payload of what we send.
async fn heard(client: &mut Client) -> (u8, Vec<u8>) {
    let read = async {
        let mut head = [0; 2];
        client.read_exact(&mut head).await.unwrap();
        let length = match head[1] {
            126 => client.read_u16().await.unwrap() as usize,
            127 => usize::try_from(client.read_u64().await.unwrap()).unwrap(),
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).await.unwrap();
        (head[0] & 0x0f, payload)
    };
    tokio::time::timeout(SOON, read).await.unwrap()
}

fn wish(address: SocketAddr) -> Wish {
    Wish {
        streams: FakeStreams::new(Ok(format!("http://{address}/exec/token"))),
        ..Wish::default()
    }
}

fn upgrade(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\nAuthorization: Bearer secret\r\n\r\n"
    )
}

async fn open(rig: &Rig, path: &str, protocol: &str) -> Client {
    let admin = rig.admin();
    let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    stream.write_all(upgrade(path, protocol).as_bytes()).await.unwrap();
    let (status, head, _) = split(&read_head(&mut stream).await);
    let head = head.to_ascii_lowercase();
    assert_eq!(status, 101, "{head}");
    assert!(head.contains("upgrade: websocket"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    let last = protocol.rsplit(", ").next().unwrap().to_ascii_lowercase();
    assert!(head.contains(&format!("sec-websocket-protocol: {last}")), "{head}");
    stream
}

const EXEC: &str = "/exec/default/web/main?command=cat&input=1&output=1&error=1";

#[tokio::test]
async fn channels_become_streams_and_back() {
    let (address, runtime) = runtime(agreed("v4.channel.k8s.io"), async |mut stream| {
        for (id, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
            let (kind, got, _, payload) = frame(&mut stream).await;
            assert_eq!((kind, got), (1, id));
            let opened = [name.as_bytes(), b"\0\0\0\xff\xff"].concat();
            assert!(payload.ends_with(&opened), "{payload:?}");
        }
        assert_eq!(frame(&mut stream).await, (0, 3, 0, b"hello".to_vec()));
        // A ping of the runtime is answered in between.
        stream.write_all(b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02").await.unwrap();
        assert_eq!(frame(&mut stream).await.0, 6);
        stream.write_all(&data(5, 0, b"hello")).await.unwrap();
        stream.write_all(&data(7, 0, b"oops")).await.unwrap();
        // The client's end of input, and nothing after it.
        assert_eq!(frame(&mut stream).await, (0, 3, 1, vec![]));
        stream.write_all(&data(5, 1, &[])).await.unwrap();
        stream.write_all(&data(7, 1, &[])).await.unwrap();
        let status = b"{\"metadata\":{},\"status\":\"Success\"}";
        stream.write_all(&data(1, 0, status)).await.unwrap();
        stream.write_all(&data(1, 1, &[])).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    })
    .await;
    let rig = Rig::new(wish(address)).await;
    let mut client = open(&rig, EXEC, "v5.channel.k8s.io").await;
    assert_eq!(heard(&mut client).await, (2, vec![1]), "it stands");
    client.write_all(&message(b"\0hello")).await.unwrap();
    assert_eq!(heard(&mut client).await, (2, b"\x01hello".to_vec()));
    assert_eq!(heard(&mut client).await, (2, b"\x02oops".to_vec()));
    client.write_all(&[0x89, 0x82, 0, 0, 0, 0, b'h', b'i']).await.unwrap();
    assert_eq!(heard(&mut client).await, (10, b"hi".to_vec()));
    client.write_all(&message(b"\xff\0")).await.unwrap();
    client.write_all(&message(b"\0more")).await.unwrap();
    let status = b"\x03{\"metadata\":{},\"status\":\"Success\"}".to_vec();
    assert_eq!(heard(&mut client).await, (2, status));
    assert_eq!(heard(&mut client).await, (8, vec![3, 0xe8]));
    client.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
    let head = tokio::time::timeout(SOON, runtime).await.unwrap().unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /exec/token http/1.1\r\n"), "{head}");
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
    assert!(!head.contains("secret") && !head.contains("websocket"), "{head}");
}

#[tokio::test]
async fn a_terminal_has_a_stream_for_its_size() {
    let (address, runtime) = runtime(agreed("v4.channel.k8s.io"), async |mut stream| {
        for name in ["error", "stdin", "stdout", "resize"] {
            let (_, _, _, payload) = frame(&mut stream).await;
            let opened = [name.as_bytes(), b"\0\0\0\xff\xff"].concat();
            assert!(payload.ends_with(&opened), "{payload:?}");
        }
        assert_eq!(frame(&mut stream).await, (0, 7, 0, b"{}".to_vec()));
    })
    .await;
    let rig = Rig::new(wish(address)).await;
    let path = "/exec/default/web/main?command=sh&input=1&output=1&tty=1";
    let mut client = open(&rig, path, "v5.channel.k8s.io").await;
    assert_eq!(heard(&mut client).await, (2, vec![1]));
    client.write_all(&message(b"\x04{}")).await.unwrap();
    tokio::time::timeout(SOON, runtime).await.unwrap().unwrap();
    // The runtime broke off without a status: the client is given one.
    let (opcode, words) = heard(&mut client).await;
    assert_eq!((opcode, words[0]), (2, 3));
    let status: serde_json::Value = serde_json::from_slice(&words[1..]).unwrap();
    assert_eq!((&status["status"], &status["code"]), (&"Failure".into(), &500.into()));
    assert_eq!(heard(&mut client).await.0, 8);
}

#[tokio::test]
async fn a_client_that_goes_ends_the_runtimes_connection() {
    let (address, runtime) = runtime(agreed("v4.channel.k8s.io"), async |mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        // Before that the process hears the end of its input.
        assert!(all.ends_with(&data(3, 1, &[])), "{all:?}");
    })
    .await;
    let rig = Rig::new(wish(address)).await;
    let mut client = open(&rig, EXEC, "v5.channel.k8s.io").await;
    assert_eq!(heard(&mut client).await, (2, vec![1]));
    drop(client);
    tokio::time::timeout(SOON, runtime).await.unwrap().unwrap();
}

#[tokio::test]
async fn silence_ends_a_translated_stream() {
    let (address, runtime) = runtime(agreed("v4.channel.k8s.io"), async |mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    })
    .await;
    let quiet = Wish { stream_idle_timeout: Duration::from_millis(200), ..wish(address) };
    let rig = Rig::new(quiet).await;
    let mut client = open(&rig, EXEC, "v5.channel.k8s.io").await;
    assert_eq!(heard(&mut client).await, (2, vec![1]));
    // Pings are answered and do not keep it.
    let ended = async {
        loop {
            let _ = client.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await;
            match heard(&mut client).await.0 {
                10 => tokio::time::sleep(Duration::from_millis(20)).await,
                other => return other,
            }
        }
    };
    assert_eq!(tokio::time::timeout(SOON, ended).await.unwrap(), 8);
    tokio::time::timeout(SOON, runtime).await.unwrap().unwrap();
}

#[tokio::test]
async fn spdy_is_carried_in_messages() {
    let (address, runtime) = runtime(agreed("portforward.k8s.io"), async |mut stream| {
        let mut question = [0; 8];
        stream.read_exact(&mut question).await.unwrap();
        assert_eq!(&question, b"question");
        stream.write_all(&[7; 100_000]).await.unwrap();
    })
    .await;
    let rig = Rig::new(wish(address)).await;
    let protocol = "SPDY/3.1+portforward.k8s.io";
    let mut client = open(&rig, "/portForward/default/web", protocol).await;
    client.write_all(&message(b"ques")).await.unwrap();
    client.write_all(&message(b"tion")).await.unwrap();
    let mut n = 0;
    loop {
        let (opcode, payload) = heard(&mut client).await;
        if opcode == 8 {
            break;
        }
        n += payload.len();
    }
    assert_eq!(n, 100_000);
    let head = tokio::time::timeout(SOON, runtime).await.unwrap().unwrap();
    assert!(head.to_ascii_lowercase().contains("x-stream-protocol-version: portforward.k8s.io"));
    assert_eq!(rig.streams.asked(), [format!("forward {} []", rig.sandbox)]);
}

#[tokio::test]
async fn upgrades_that_fail_half_way_are_plain_answers() {
    let check = async |answer: &str, request: &dyn Fn(&str) -> String, status: u16, part: &str| {
        let (address, _runtime) = runtime(answer.to_owned(), async |_| {}).await;
        let rig = Rig::new(wish(address)).await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let request = request(EXEC);
        stream.write_all(request.as_bytes()).await.unwrap();
        let text = super::rig::read_all(&mut stream).await;
        let (got, _, body) = split(&text);
        assert_eq!(got, status, "{text}");
        assert!(body.contains(part), "{text}");
    };
    let plain = |path: &str| upgrade(path, "v5.channel.k8s.io");
    let refused = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\ngone\n";
    check(refused, &plain, 404, "gone").await;
    let other = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";
    check(other, &plain, 500, "missing upgrade headers").await;
    let closing = |text: String| text.replace("Connection: Upgrade", "Connection: Upgrade, close");
    let no_key = |path: &str| closing(plain(path)).replace("Sec-WebSocket-Key", "X-Nothing");
    check(refused, &no_key, 400, "websocket key is missing").await;
    let old = |path: &str| closing(plain(path)).replace("Version: 13", "Version: 8");
    check(refused, &old, 400, "websocket version not supported").await;
}
