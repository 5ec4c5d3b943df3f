//! SPDY carried in a WebSocket's messages.
//!
//! ```text
//!  client ─ SPDY/3.1+portforward.k8s.io: bytes in messages ─── the same bytes ─── whoever speaks SPDY
//! ```
//!
//! Pings are no talk: programs send them by themselves every few seconds, and a tunnel over which nobody says anything
//! would never be silent.

use std::io::Result;
use std::sync::Mutex as Moment;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::websocket;

/// A client that was told goodbye has this long to hear it.
const GOODBYE: Duration = Duration::from_secs(2);
/// Read at once.
const PIECE: usize = 32 * 1024;
/// "Normal closure".
const DONE: [u8; 2] = 1000u16.to_be_bytes();

/// Carries SPDY in messages until one end is done, or both are silent for too long.
///
/// # Panics
///
/// If it panicked before.
pub async fn tunnel<A, B>(client: A, runtime: B, idle: Duration)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let last = Moment::new(Instant::now());
    let (from_client, to_client) = tokio::io::split(client);
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let to_client = Mutex::new(to_client);
    let inward = async {
        let mut frames = websocket::Frames::new(from_client);
        loop {
            match frames.next().await? {
                websocket::Heard::Piece { .. } => {
                    *last.lock().expect("no panic under this lock") = Instant::now();
                    to_runtime.write_all(frames.piece()).await?;
                    to_runtime.flush().await?;
                }
                websocket::Heard::Ping(payload) => {
                    let mut to_client = to_client.lock().await;
                    websocket::write_frame(&mut *to_client, websocket::PONG, &payload, &[]).await?;
                }
                websocket::Heard::Pong => {}
                websocket::Heard::Closed => return Result::Ok(()),
            }
        }
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let n = from_runtime.read(&mut piece).await?;
            if n == 0 {
                return Result::Ok(());
            }
            *last.lock().expect("no panic under this lock") = Instant::now();
            let mut to_client = to_client.lock().await;
            let (opcode, data) = (websocket::BINARY, &piece[..n]);
            websocket::write_frame(&mut *to_client, opcode, &[], data).await?;
        }
    };
    let ended = tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
        () = silence(&last, idle) => {
            tracing::debug!(?idle, "A tunnel was silent for too long");
            Ok(())
        }
    };
    if let Err(error) = ended {
        tracing::debug!(err = %error, "A tunnel broke");
    }
    let goodbye = async {
        let mut to_client = to_client.lock().await;
        let _ = websocket::write_frame(&mut *to_client, websocket::CLOSE, &DONE, &[]).await;
        let _ = tokio::join!(to_client.shutdown(), to_runtime.shutdown());
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Waits until nobody has said anything for so long.
///
/// # Panics
///
/// If somebody panicked while noting that something was said.
pub async fn silence(last: &Moment<Instant>, idle: Duration) {
    loop {
        let until = *last.lock().expect("no panic under this lock") + idle;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}
