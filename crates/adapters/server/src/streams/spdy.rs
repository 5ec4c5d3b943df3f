//! As much SPDY/3.1 as a client of a runtime's streaming server needs: open streams, send data, end
//! them, read frames.
//!
//! Header blocks are one zlib stream for the whole connection. Ours are written uncompressed, which
//! every reader takes; those of the server say nothing that we need and are skipped. Neither side
//! uses flow control.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// As much data as is passed on at once.
const PIECE: usize = 32 * 1024;
/// Control frames are a few dozen bytes.
const LONGEST_CONTROL: usize = 64 * 1024;
const FIN: u8 = 1;

/// Opens one stream after another.
pub(super) struct Opener {
    next_id: u32,
}

impl Opener {
    pub(super) fn new() -> Self {
        Self { next_id: 1 }
    }

    /// The frame that opens a stream of this type, and the stream's id.
    pub(super) fn open(&mut self, stream_type: &str) -> (u32, Vec<u8>) {
        let id = self.next_id;
        let mut pairs = 1u32.to_be_bytes().to_vec();
        for text in ["streamtype", stream_type] {
            let length = u32::try_from(text.len()).unwrap_or_default();
            pairs.extend_from_slice(&length.to_be_bytes());
            pairs.extend_from_slice(text.as_bytes());
        }
        let mut block = Vec::new();
        if id == 1 {
            // The zlib stream's beginning, without a dictionary.
            block.extend_from_slice(&[0x78, 0x01]);
        }
        let length = u16::try_from(pairs.len()).unwrap_or_default();
        block.push(0);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(&pairs);
        // An empty block: readers hold back what came before it.
        block.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
        let mut frame = vec![0x80, 3, 0, 1, 0];
        frame.extend_from_slice(&three_bytes(block.len() + 10));
        frame.extend_from_slice(&id.to_be_bytes());
        // No stream it belongs to, and the usual priority.
        frame.extend_from_slice(&[0; 6]);
        frame.extend_from_slice(&block);
        self.next_id += 2;
        (id, frame)
    }
}

fn three_bytes(length: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c]
}

/// Sends data of a stream.
pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), id: u32, data: &[u8]) -> Result<()> {
    write(to, id, 0, data).await
}

/// Ends our half of a stream.
pub(super) async fn finish(to: &mut (impl AsyncWrite + Unpin), id: u32) -> Result<()> {
    write(to, id, FIN, &[]).await
}

async fn write(to: &mut (impl AsyncWrite + Unpin), id: u32, flags: u8, data: &[u8]) -> Result<()> {
    let mut frame = id.to_be_bytes().to_vec();
    frame.push(flags);
    frame.extend_from_slice(&three_bytes(data.len()));
    frame.extend_from_slice(data);
    to.write_all(&frame).await?;
    to.flush().await
}

/// What the server sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A piece of a stream's data; [`Frames::piece`] has it.
    Data { id: u32 },
    /// A stream has no more data.
    Ended { id: u32 },
    /// A ping, as the frame that answers it.
    Ping([u8; 12]),
    /// Nothing that concerns us.
    Other,
    /// The connection is over.
    Closed,
}

/// The server's frames.
pub(super) struct Frames<R> {
    from: R,
    piece: Vec<u8>,
    /// The data frame that is being read: its stream, what is left, and whether it is the last.
    current: Option<(u32, usize, bool)>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, piece: Vec::new(), current: None }
    }

    pub(super) fn piece(&self) -> &[u8] {
        &self.piece
    }

    /// The next thing the server says. Not cancel-safe: a frame may be half read.
    pub(super) async fn next(&mut self) -> Result<Heard> {
        if let Some(heard) = self.go_on().await? {
            return Ok(heard);
        }
        let mut head = [0; 8];
        if self.from.read(&mut head[..1]).await? == 0 {
            return Ok(Heard::Closed);
        }
        self.from.read_exact(&mut head[1..]).await?;
        let [a, b, c, d, flags, rest @ ..] = head;
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        if a & 0x80 == 0 {
            let id = u32::from_be_bytes([a, b, c, d]);
            self.current = Some((id, length, flags & FIN != 0));
            return Ok(self.go_on().await?.unwrap_or(Heard::Other));
        }
        if length > LONGEST_CONTROL {
            return Err(Error::new(ErrorKind::InvalidData, "a control frame that is too long"));
        }
        let mut payload = vec![0; length];
        self.from.read_exact(&mut payload).await?;
        let id = payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff);
        Ok(match (u16::from_be_bytes([c, d]), id) {
            // A stream that is reset, or replied to with an end, says no more.
            (3, Some(id)) => Heard::Ended { id },
            (2, Some(id)) if flags & FIN != 0 => Heard::Ended { id },
            // Even numbers are the server's own pings.
            (6, Some(id)) if id % 2 == 0 => {
                let mut answer = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 0];
                answer[8..].copy_from_slice(&id.to_be_bytes());
                Heard::Ping(answer)
            }
            _ => Heard::Other,
        })
    }

    /// More of the current data frame, or its end.
    async fn go_on(&mut self) -> Result<Option<Heard>> {
        let Some((id, n_left, is_last)) = self.current.take() else {
            return Ok(None);
        };
        if n_left == 0 {
            return Ok(is_last.then_some(Heard::Ended { id }));
        }
        self.piece.resize(n_left.min(PIECE), 0);
        let n = self.from.read(&mut self.piece).await?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.piece.truncate(n);
        self.current = Some((id, n_left - n, is_last));
        Ok(Some(Heard::Data { id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_opened_with_its_type() {
        let mut opener = Opener::new();
        let (id, frame) = opener.open("stdin");
        assert_eq!(id, 1);
        let pairs = b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05stdin";
        let mut expected =
            b"\x80\x03\0\x01\0\0\0\x31\0\0\0\x01\0\0\0\0\0\0\x78\x01\0\x1b\0\xe4\xff".to_vec();
        expected.extend_from_slice(pairs);
        expected.extend_from_slice(b"\0\0\0\xff\xff");
        assert_eq!(frame, expected);
        let (id, frame) = opener.open("stdin");
        assert_eq!((id, frame.len()), (3, expected.len() - 2));
        // Read by a real decompressor, both blocks are one stream.
        let mut stream = expected[18..].to_vec();
        stream.extend_from_slice(&frame[18..]);
        let mut inflated = flate2::Decompress::new(true);
        let mut out = Vec::with_capacity(200);
        inflated.decompress_vec(&stream, &mut out, flate2::FlushDecompress::Sync).unwrap();
        assert_eq!(out, [&pairs[..], pairs].concat());
    }

    #[tokio::test]
    async fn frames_are_read_in_pieces() {
        let input = [
            &b"\x80\x03\0\x02\0\0\0\x04\0\0\0\x01"[..],
            b"\0\0\0\x03\0\0\0\x02ab",
            b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02",
            b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01",
            b"\0\0\0\x03\x01\0\0\x01c",
            b"\0\0\0\x05\x01\0\0\0",
            b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x07\0\0\0\x05",
        ];
        let input = input.concat();
        let mut frames = Frames::new(&input[..]);
        let mut heard = Vec::new();
        loop {
            let next = frames.next().await.unwrap();
            if matches!(next, Heard::Data { .. }) {
                heard.push((next, frames.piece().to_vec()));
                continue;
            }
            let is_over = next == Heard::Closed;
            if next != Heard::Other {
                heard.push((next, Vec::new()));
            }
            if is_over {
                break;
            }
        }
        let ping = *b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02";
        let expected = [
            (Heard::Data { id: 3 }, b"ab".to_vec()),
            (Heard::Ping(ping), vec![]),
            (Heard::Data { id: 3 }, b"c".to_vec()),
            (Heard::Ended { id: 3 }, vec![]),
            (Heard::Ended { id: 5 }, vec![]),
            (Heard::Ended { id: 7 }, vec![]),
            (Heard::Closed, vec![]),
        ];
        assert_eq!(heard, expected);
        let mut long = Frames::new(&b"\x80\x03\0\x01\0\xff\xff\xff"[..]);
        assert!(long.next().await.is_err());
        let mut cut = Frames::new(&b"\0\0\0\x03\0\0\0\x02a"[..]);
        assert_eq!(cut.next().await.unwrap(), Heard::Data { id: 3 });
        assert!(cut.next().await.is_err());
    }
}
