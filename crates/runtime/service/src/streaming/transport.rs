//! A process's streams on a connection: the same five channels, whether SPDY or a WebSocket carries them.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use ferrolet_streams::{spdy, websocket};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Streams;

pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const STATUS: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// With a channel's number: that channel has ended. From the fifth version on.
const CLOSE: u8 = 255;
const NAMES: [(&str, u8); 5] = [
    ("stdin", STDIN),
    ("stdout", STDOUT),
    ("stderr", STDERR),
    ("error", STATUS),
    ("resize", RESIZE),
];
/// How long a client may take to open its streams.
const PATIENCE: Duration = Duration::from_secs(30);
/// "Normal closure".
const DONE: [u8; 2] = 1000u16.to_be_bytes();

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// [`Reader::piece`] has it.
    Data(u8),
    Ended(u8),
    Nothing,
    Closed,
}

#[derive(Debug)]
pub(super) enum Reader<R> {
    Spdy { frames: spdy::Frames<R>, ids: Vec<(u32, u8)> },
    Web { frames: websocket::Frames<R>, channel: Option<u8>, has_channel_byte: bool },
}

#[derive(Debug)]
pub(super) struct Writer<W> {
    to: Mutex<W>,
    /// Streams of SPDY; none for a WebSocket.
    ids: Option<Vec<(u32, u8)>>,
}

/// Whether clients tell a terminal's size, on a stream of its own: from the third version on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    Told,
    Untold,
}

/// Which channels there have to be.
fn channels(wanted: Streams) -> Vec<u8> {
    let all = [
        (true, STATUS),
        (wanted.stdin, STDIN),
        (wanted.stdout, STDOUT),
        (wanted.stderr && !wanted.tty, STDERR),
    ];
    all.into_iter().filter(|it| it.0).map(|it| it.1).collect()
}

/// Waits until a client has opened the streams that it announced.
pub(super) async fn open_spdy<R, W>(
    from: R,
    mut to: W,
    wanted: Streams,
    sizes: Sizes,
) -> Result<(Reader<R>, Writer<W>)>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut frames = spdy::Frames::of_client(from);
    let mut accepter = spdy::Accepter::default();
    let mut missing = channels(wanted);
    if wanted.tty && sizes == Sizes::Told {
        missing.push(RESIZE);
    }
    let mut ids: Vec<(u32, u8)> = Vec::new();
    let open = async {
        while !missing.is_empty() {
            match frames.next().await? {
                spdy::Heard::Opened { id, headers, .. } => {
                    let kind = headers.iter().find(|it| it.0 == "streamtype");
                    let kind = kind.and_then(|it| NAMES.iter().find(|name| name.0 == it.1));
                    let Some((_, channel)) = kind else {
                        return Err(Error::new(ErrorKind::InvalidData, "a stream of no type"));
                    };
                    ids.push((id, *channel));
                    missing.retain(|it| it != channel);
                    to.write_all(&accepter.accept(id)).await?;
                    to.flush().await?;
                }
                spdy::Heard::Ping(answer) => to.write_all(&answer).await?,
                spdy::Heard::Closed => return Err(ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
        Ok(())
    };
    timeout(PATIENCE, open).await.map_err(|_| Error::from(ErrorKind::TimedOut))??;
    let writer = Writer { to: Mutex::new(to), ids: Some(ids.clone()) };
    Ok((Reader::Spdy { frames, ids }, writer))
}

/// Begins with an empty message on the first channel that the client hears: it knows then that all is well.
pub(super) async fn open_web<R, W>(
    from: R,
    mut to: W,
    wanted: Streams,
) -> Result<(Reader<R>, Writer<W>)>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let heard = channels(wanted).into_iter().filter(|it| *it != STDIN).min();
    let first = [heard.unwrap_or(STATUS)];
    websocket::write_frame(&mut to, websocket::BINARY, &first, &[]).await?;
    let frames = websocket::Frames::new(from);
    let reader = Reader::Web { frames, channel: None, has_channel_byte: false };
    Ok((reader, Writer { to: Mutex::new(to), ids: None }))
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn piece(&self) -> &[u8] {
        match self {
            Self::Spdy { frames, .. } => frames.piece(),
            Self::Web { frames, has_channel_byte, .. } => {
                frames.piece().get(usize::from(*has_channel_byte)..).unwrap_or_default()
            }
        }
    }

    /// The next thing that the client says; pings are answered on the way. Not cancel-safe.
    pub(super) async fn next<W: AsyncWrite + Unpin>(&mut self, writer: &Writer<W>) -> Result<Said> {
        match self {
            Self::Spdy { frames, ids } => {
                let channel = |id: u32| ids.iter().find(|it| it.0 == id).map(|it| it.1);
                Ok(match frames.next().await? {
                    spdy::Heard::Data { id } => channel(id).map_or(Said::Nothing, Said::Data),
                    spdy::Heard::Ended { id } => channel(id).map_or(Said::Nothing, Said::Ended),
                    spdy::Heard::Ping(answer) => {
                        writer.raw(&answer).await?;
                        Said::Nothing
                    }
                    spdy::Heard::Opened { .. } | spdy::Heard::Other => Said::Nothing,
                    spdy::Heard::Closed => Said::Closed,
                })
            }
            Self::Web { frames, channel, has_channel_byte } => {
                let begins = match frames.next().await? {
                    websocket::Heard::Piece { begins_message } => begins_message,
                    websocket::Heard::Ping(payload) => {
                        let mut to = writer.to.lock().await;
                        websocket::write_frame(&mut *to, websocket::PONG, &payload, &[]).await?;
                        return Ok(Said::Nothing);
                    }
                    websocket::Heard::Pong => return Ok(Said::Nothing),
                    websocket::Heard::Closed => return Ok(Said::Closed),
                };
                if begins {
                    *channel = None;
                }
                *has_channel_byte = false;
                if channel.is_none()
                    && let Some(first) = frames.piece().first()
                {
                    *channel = Some(*first);
                    *has_channel_byte = true;
                }
                let rest = frames.piece().get(usize::from(*has_channel_byte)..).unwrap_or_default();
                Ok(match (*channel, rest) {
                    (_, []) | (None, _) => Said::Nothing,
                    (Some(CLOSE), [ended]) => Said::Ended(*ended),
                    (Some(channel), _) => Said::Data(channel),
                })
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn raw(&self, bytes: &[u8]) -> Result<()> {
        let mut to = self.to.lock().await;
        to.write_all(bytes).await?;
        to.flush().await
    }

    fn id(&self, channel: u8) -> Option<u32> {
        self.ids.as_ref()?.iter().find(|it| it.1 == channel).map(|it| it.0)
    }

    pub(super) async fn send(&self, channel: u8, data: &[u8]) -> Result<()> {
        let mut to = self.to.lock().await;
        match (&self.ids, self.id(channel)) {
            (None, _) => {
                websocket::write_frame(&mut *to, websocket::BINARY, &[channel], data).await
            }
            (Some(_), Some(id)) => spdy::send(&mut *to, id, data).await,
            (Some(_), None) => Ok(()),
        }
    }

    /// Ends everything that the client hears, and the connection.
    pub(super) async fn finish(&self) -> Result<()> {
        let mut to = self.to.lock().await;
        match &self.ids {
            None => websocket::write_frame(&mut *to, websocket::CLOSE, &DONE, &[]).await,
            Some(ids) => {
                for (id, _) in ids {
                    spdy::finish(&mut *to, *id).await?;
                }
                Ok(())
            }
        }
    }

    pub(super) async fn close(&self) {
        let _gone = self.to.lock().await.shutdown().await;
    }
}
