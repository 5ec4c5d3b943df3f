//! WebSocket clients in front of a runtime that speaks SPDY: a process's streams translated.
//! SPDY itself carried in messages is `ferrolet_streams::tunnel`.
//!
//! ```text
//!  translate   client ─ v5.channel.k8s.io: [channel, bytes…] ─┬─ stdin 0, resize 4, close 255 ─► SPDY streams
//!                                                             └─ stdout 1, stderr 2, status 3 ◄─ of the runtime
//! ```
//!
//! A session ends with the process: when its outputs and its status have ended, the client gets a
//! closing frame and is read until it closes too. A runtime that breaks off is told to the client
//! as a status. When a client breaks off, the process first hears the end of its input and has a
//! moment to end by itself: what a runtime does to a process whose connection is gone is not
//! certain to succeed. Pings are no talk: programs send them by themselves every few seconds, and a
//! stream over which nobody says anything would never be silent.

use std::io::Result;
use std::pin::pin;
use std::sync::Mutex as Moment;
use std::time::Duration;

use ferrolet_ports::WantedStreams;
use ferrolet_streams::tunnel::silence;
use ferrolet_streams::{spdy, websocket};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// A client that was told goodbye has this long to say it too, and a process whose client is gone
/// has this long to end.
const GOODBYE: Duration = Duration::from_secs(2);
/// "Normal closure".
const DONE: [u8; 2] = 1000u16.to_be_bytes();

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// What a client is told when nobody else says how it ended.
const BROKEN_OFF: &str = r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: the runtime ended the stream","reason":"InternalError","details":{"causes":[{"message":"the runtime ended the stream"}]},"code":500}"#;

/// The runtime's streams by channel, in the order in which they are opened.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    ids: Vec<(u8, u32)>,
    frames: Vec<u8>,
}

impl Plan {
    fn new(wanted: WantedStreams) -> Self {
        let all = [
            (true, STATUS, "error"),
            (wanted.stdin, STDIN, "stdin"),
            (wanted.stdout, STDOUT, "stdout"),
            (wanted.stderr && !wanted.tty, STDERR, "stderr"),
            (wanted.tty, RESIZE, "resize"),
        ];
        let mut opener = spdy::Opener::new();
        let (mut ids, mut frames) = (Vec::new(), Vec::new());
        for (_, channel, name) in all.iter().filter(|(is_wanted, ..)| *is_wanted) {
            let (id, frame) = opener.open(name);
            ids.push((*channel, id));
            frames.extend_from_slice(&frame);
        }
        Self { ids, frames }
    }

    fn id(&self, channel: u8) -> Option<u32> {
        let mut found = self.ids.iter().filter(|(it, _)| *it == channel);
        found.next().map(|(_, id)| *id)
    }

    /// The channel that shows what this stream says.
    fn output(&self, id: u32) -> Option<u8> {
        let mut found = self.ids.iter().filter(|(_, it)| *it == id);
        let channel = found.next().map(|(channel, _)| *channel);
        channel.filter(|channel| [STDOUT, STDERR, STATUS].contains(channel))
    }

    /// Where a client is told that the connection stands: its first output.
    fn first_output(&self) -> u8 {
        let outputs = [STDOUT, STDERR, STATUS];
        let first = outputs.into_iter().find(|it| self.id(*it).is_some());
        first.unwrap_or(STATUS)
    }
}

/// Carries a process's streams until they end, or both sides are silent for too long.
pub(super) async fn translate<A, B>(client: A, runtime: B, wanted: WantedStreams, idle: Duration)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let plan = Plan::new(wanted);
    let last = Moment::new(Instant::now());
    let (from_client, to_client) = tokio::io::split(client);
    let (from_runtime, to_runtime) = tokio::io::split(runtime);
    let (to_client, to_runtime) = (Mutex::new(to_client), Mutex::new(to_runtime));
    let mut frames = websocket::Frames::new(from_client);
    let opened = async {
        let greeting = [plan.first_output()];
        let mut to_client = to_client.lock().await;
        websocket::write_frame(&mut *to_client, websocket::BINARY, &greeting, &[]).await?;
        let mut to_runtime = to_runtime.lock().await;
        to_runtime.write_all(&plan.frames).await?;
        to_runtime.flush().await
    };
    if let Err(error) = opened.await {
        tracing::debug!(err = %error, "A stream broke before it began");
        return;
    }
    let mut stdin = plan.id(STDIN);
    let mut showing = pin!(show(from_runtime, &plan, &to_client, &to_runtime, &last));
    let doors = (&to_client, &to_runtime);
    let runtime_is_done = tokio::select! {
        ended = listen(&mut frames, &plan, &mut stdin, doors, &last) => {
            if let Err(error) = ended {
                tracing::debug!(err = %error, "A client's stream broke");
            }
            false
        }
        ended = showing.as_mut() => {
            if let Err(error) = &ended {
                tracing::debug!(err = %error, "A runtime's stream broke");
            }
            true
        }
        () = silence(&last, idle) => {
            tracing::debug!(?idle, "A stream was silent for too long");
            false
        }
    };
    if let Some(id) = stdin.filter(|_| !runtime_is_done) {
        let end = async {
            spdy::finish(&mut *to_runtime.lock().await, id).await?;
            showing.await
        };
        let _ = timeout(GOODBYE, end).await;
    }
    let goodbye = async {
        let mut to_client = to_client.lock().await;
        let _ = websocket::write_frame(&mut *to_client, websocket::CLOSE, &DONE, &[]).await;
        let _ = to_client.shutdown().await;
        // Bytes that nobody reads would turn our last words into a reset.
        while runtime_is_done
            && !matches!(frames.next().await, Ok(websocket::Heard::Closed) | Err(_))
        {}
        let _ = to_runtime.lock().await.shutdown().await;
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Passes on what the client says until it is done.
async fn listen<R, W, V>(
    frames: &mut websocket::Frames<R>,
    plan: &Plan,
    // The process's input, until it has ended.
    stdin: &mut Option<u32>,
    (to_client, to_runtime): (&Mutex<W>, &Mutex<V>),
    last: &Moment<Instant>,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    V: AsyncWrite + Unpin,
{
    let mut channel = None;
    loop {
        let heard = frames.next().await?;
        let begins_message = match heard {
            websocket::Heard::Piece { begins_message } => begins_message,
            websocket::Heard::Ping(payload) => {
                let mut to_client = to_client.lock().await;
                websocket::write_frame(&mut *to_client, websocket::PONG, &payload, &[]).await?;
                continue;
            }
            websocket::Heard::Pong => continue,
            websocket::Heard::Closed => return Ok(()),
        };
        *last.lock().expect("no panic under this lock") = Instant::now();
        if begins_message {
            channel = None;
        }
        let mut data = frames.piece();
        if channel.is_none()
            && let Some((first, rest)) = data.split_first()
        {
            channel = Some(*first);
            data = rest;
        }
        if data.is_empty() {
            continue;
        }
        let mut to_runtime = to_runtime.lock().await;
        match channel {
            Some(STDIN) => {
                if let Some(id) = *stdin {
                    spdy::send(&mut *to_runtime, id, data).await?;
                }
            }
            Some(RESIZE) => {
                if let Some(id) = plan.id(RESIZE) {
                    spdy::send(&mut *to_runtime, id, data).await?;
                }
            }
            Some(CLOSE) if data == [STDIN] => {
                if let Some(id) = stdin.take() {
                    spdy::finish(&mut *to_runtime, id).await?;
                }
            }
            // Other channels are not the client's to write to.
            _ => {}
        }
    }
}

/// Passes on what the runtime says until every output has ended.
async fn show<R, W, V>(
    from_runtime: R,
    plan: &Plan,
    to_client: &Mutex<W>,
    to_runtime: &Mutex<V>,
    last: &Moment<Instant>,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    V: AsyncWrite + Unpin,
{
    let mut frames = spdy::Frames::of_server(from_runtime);
    let outputs = plan.ids.iter().map(|(_, id)| *id);
    let mut open: Vec<u32> = outputs.filter(|id| plan.output(*id).is_some()).collect();
    let mut has_status = false;
    while !open.is_empty() {
        let heard = frames.next().await;
        match heard {
            Ok(spdy::Heard::Data { id }) => {
                *last.lock().expect("no panic under this lock") = Instant::now();
                if let Some(channel) = plan.output(id) {
                    has_status |= channel == STATUS;
                    let mut to_client = to_client.lock().await;
                    let (opcode, piece) = (websocket::BINARY, frames.piece());
                    websocket::write_frame(&mut *to_client, opcode, &[channel], piece).await?;
                }
            }
            Ok(spdy::Heard::Ended { id }) => open.retain(|it| *it != id),
            Ok(spdy::Heard::Ping(answer)) => {
                let mut to_runtime = to_runtime.lock().await;
                to_runtime.write_all(&answer).await?;
                to_runtime.flush().await?;
            }
            // A server opens no streams.
            Ok(spdy::Heard::Opened { .. } | spdy::Heard::Other) => {}
            Ok(spdy::Heard::Closed) | Err(_) => {
                // A process that told its status has ended well enough.
                if !has_status {
                    let mut to_client = to_client.lock().await;
                    let (opcode, words) = (websocket::BINARY, BROKEN_OFF.as_bytes());
                    websocket::write_frame(&mut *to_client, opcode, &[STATUS], words).await?;
                }
                return heard.map(drop);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_opened_as_upstreams_client_does() {
        let check = |[tty, stdin, stdout, stderr]: [bool; 4], channels: &[u8], first: u8| {
            let plan = Plan::new(WantedStreams { tty, stdin, stdout, stderr });
            let got: Vec<u8> = plan.ids.iter().map(|(channel, _)| *channel).collect();
            assert_eq!(got, channels);
            assert_eq!(plan.first_output(), first);
            assert!(plan.ids.iter().zip((1..).step_by(2)).all(|((_, id), n)| *id == n));
        };
        check([false, true, true, true], &[3, 0, 1, 2], STDOUT);
        check([true, true, true, true], &[3, 0, 1, 4], STDOUT);
        check([false, false, false, true], &[3, 2], STDERR);
        check([false, true, false, false], &[3, 0], STATUS);
    }
}
