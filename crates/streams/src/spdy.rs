//! As much SPDY/3.1 as streams into pods need: streams opened, accepted, written to, ended, and frames read; both sides of
//! a connection.
//!
//! Header blocks are one zlib stream for each direction of a connection. Ours are written uncompressed, which every
//! reader takes. Those of a server say nothing that we need and are skipped ([`Frames::of_server`]); those of a client say
//! what its streams are for ([`Frames::of_client`]), and are read with the protocol's dictionary and bounds. Neither side
//! uses flow control.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// As much data as is passed on at once.
const PIECE: usize = 32 * 1024;
/// Control frames are a few dozen bytes.
const LONGEST_CONTROL: usize = 64 * 1024;
const FIN: u8 = 1;

/// The words that SPDY/3 expects in headers.
static DICTIONARY: &[u8] = include_bytes!("spdy-dictionary.bin");

/// Opens one stream after another: a client's part.
#[derive(Debug)]
pub struct Opener {
    next_id: u32,
}

impl Default for Opener {
    fn default() -> Self {
        Self::new()
    }
}

impl Opener {
    /// Of a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self { next_id: 1 }
    }

    /// The frame that opens a stream of this type, and the stream's id.
    pub fn open(&mut self, stream_type: &str) -> (u32, Vec<u8>) {
        let id = self.next_id;
        let block = block(&[("streamtype", stream_type)], id == 1);
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

/// Accepts streams: a server's part.
#[derive(Debug, Default)]
pub struct Accepter {
    has_accepted: bool,
}

impl Accepter {
    /// The frame that says yes to a stream.
    pub fn accept(&mut self, id: u32) -> Vec<u8> {
        let block = block(&[], !self.has_accepted);
        self.has_accepted = true;
        let mut frame = vec![0x80, 3, 0, 2, 0];
        frame.extend_from_slice(&three_bytes(block.len() + 4));
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(&block);
        frame
    }
}

/// Headers as a piece of the connection's zlib stream that compresses nothing.
fn block(headers: &[(&str, &str)], is_first: bool) -> Vec<u8> {
    let count = |n: usize| u32::try_from(n).unwrap_or_default().to_be_bytes();
    let mut pairs = count(headers.len()).to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        pairs.extend_from_slice(&count(text.len()));
        pairs.extend_from_slice(text.as_bytes());
    }
    let mut block = Vec::new();
    if is_first {
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
    block
}

/// A client's header blocks, read.
#[derive(Debug)]
struct HeaderReader(flate2::Decompress);

impl HeaderReader {
    fn new() -> Self {
        Self(flate2::Decompress::new(true))
    }

    /// The headers of one block; at most as long as a control frame may be.
    fn read(&mut self, mut block: &[u8]) -> Result<Vec<(String, String)>> {
        let wrong = || Error::new(ErrorKind::InvalidData, "headers that cannot be read");
        let mut pairs = Vec::with_capacity(LONGEST_CONTROL);
        while !block.is_empty() {
            let before = self.0.total_in();
            let flush = flate2::FlushDecompress::Sync;
            let was_asked = match self.0.decompress_vec(block, &mut pairs, flush) {
                Ok(_) => false,
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|_| wrong())?;
                    true
                }
                Err(_) => return Err(wrong()),
            };
            let n_read = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            // What takes nothing more has no room, or is over.
            if n_read == 0 && !was_asked {
                return Err(wrong());
            }
            block = block.get(n_read..).unwrap_or_default();
        }
        read_pairs(&pairs).ok_or_else(wrong)
    }
}

fn read_pairs(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    fn number(bytes: &mut &[u8]) -> Option<usize> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        usize::try_from(u32::from_be_bytes(*head)).ok()
    }
    fn text(bytes: &mut &[u8]) -> Option<String> {
        let length = number(bytes)?;
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(String::from_utf8_lossy(head).into_owned())
    }
    let n = number(&mut bytes)?;
    (0..n).map(|_| Some((text(&mut bytes)?.to_ascii_lowercase(), text(&mut bytes)?))).collect()
}

fn three_bytes(length: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c]
}

/// Sends data of a stream.
///
/// # Errors
///
/// The connection's.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), id: u32, data: &[u8]) -> Result<()> {
    write(to, id, 0, data).await
}

/// Ends our half of a stream.
///
/// # Errors
///
/// The connection's.
pub async fn finish(to: &mut (impl AsyncWrite + Unpin), id: u32) -> Result<()> {
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

/// What the other side sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A client opens a stream.
    Opened {
        /// Its number.
        id: u32,
        /// Its headers, with names in lower case.
        headers: Vec<(String, String)>,
        /// True if the client has nothing to say on it.
        is_last: bool,
    },
    /// A piece of a stream's data; [`Frames::piece`] has it.
    Data {
        /// The stream.
        id: u32,
    },
    /// A stream has no more data.
    Ended {
        /// The stream.
        id: u32,
    },
    /// A ping, as the frame that answers it.
    Ping([u8; 12]),
    /// Nothing that concerns us.
    Other,
    /// The connection is over.
    Closed,
}

/// The other side's frames.
#[derive(Debug)]
pub struct Frames<R> {
    from: R,
    /// Of a client; a server's are skipped.
    headers: Option<HeaderReader>,
    piece: Vec<u8>,
    /// The data frame that is being read: its stream, what is left, and whether it is the last.
    current: Option<(u32, usize, bool)>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// What a server sends.
    pub fn of_server(from: R) -> Self {
        Self { from, headers: None, piece: Vec::new(), current: None }
    }

    /// What a client sends.
    pub fn of_client(from: R) -> Self {
        Self { headers: Some(HeaderReader::new()), ..Self::of_server(from) }
    }

    /// The data that [`Heard::Data`] told of.
    pub fn piece(&self) -> &[u8] {
        &self.piece
    }

    /// The next thing the other side says. Not cancel-safe: a frame may be half read.
    ///
    /// # Errors
    ///
    /// The connection's, and what breaks the protocol.
    pub async fn next(&mut self) -> Result<Heard> {
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
        // Even numbers are the server's own pings, odd ones the client's.
        let own = u32::from(self.headers.is_some());
        Ok(match (u16::from_be_bytes([c, d]), id) {
            (1, Some(id)) if let Some(reader) = &mut self.headers => {
                let headers = reader.read(payload.get(10..).unwrap_or_default())?;
                Heard::Opened { id, headers, is_last: flags & FIN != 0 }
            }
            // A stream that is reset, or replied to with an end, says no more.
            (3, Some(id)) => Heard::Ended { id },
            (2, Some(id)) if flags & FIN != 0 => Heard::Ended { id },
            (6, Some(id)) if id % 2 == own => {
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
        let mut frames = Frames::of_server(&input[..]);
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
        let mut long = Frames::of_server(&b"\x80\x03\0\x01\0\xff\xff\xff"[..]);
        assert!(long.next().await.is_err());
        let mut cut = Frames::of_server(&b"\0\0\0\x03\0\0\0\x02a"[..]);
        assert_eq!(cut.next().await.unwrap(), Heard::Data { id: 3 });
        assert!(cut.next().await.is_err());
    }

    /// As a client compresses its headers, one block after the other.
    fn compressed(streams: &[&[(&str, &str)]]) -> Vec<Vec<u8>> {
        let mut writer = flate2::Compress::new(flate2::Compression::best(), true);
        writer.set_dictionary(DICTIONARY).unwrap();
        let compress = |headers: &&[(&str, &str)]| {
            let plain = block(headers, false);
            let mut out = Vec::with_capacity(4096);
            let pairs = &plain[5..plain.len() - 5];
            writer.compress_vec(pairs, &mut out, flate2::FlushCompress::Sync).unwrap();
            out
        };
        streams.iter().map(compress).collect()
    }

    #[tokio::test]
    async fn a_client_says_what_its_streams_are_for() {
        let first = [("streamType", "error"), ("port", "80"), ("requestID", "0")];
        let second = [("streamType", "data"), ("port", "80"), ("requestID", "0")];
        let mut input = Vec::new();
        for (n, block) in (0u8..).zip(compressed(&[&first, &second])) {
            input.extend_from_slice(&[0x80, 3, 0, 1, n]);
            input.extend_from_slice(&three_bytes(block.len() + 10));
            input.extend_from_slice(&[0, 0, 0, 1 + 2 * n, 0, 0, 0, 0, 0, 0]);
            input.extend_from_slice(&block);
        }
        input.extend_from_slice(b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01");
        let mut frames = Frames::of_client(&input[..]);
        for (id, (name, is_last)) in [(1, ("error", false)), (3, ("data", true))] {
            let Heard::Opened { id: got, headers, is_last: last } = frames.next().await.unwrap()
            else {
                panic!("no stream {id}");
            };
            assert_eq!((got, last), (id, is_last));
            assert_eq!(headers[0], ("streamtype".to_owned(), name.to_owned()));
            assert_eq!(headers[2], ("requestid".to_owned(), "0".to_owned()));
        }
        assert!(matches!(frames.next().await.unwrap(), Heard::Ping(_)));
        assert_eq!(frames.next().await.unwrap(), Heard::Closed);
    }

    #[test]
    fn headers_written_here_are_read_here() {
        let mut reader = HeaderReader::new();
        let one = [("a", "b"), ("c", "")];
        let expected: Vec<(String, String)> =
            one.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(reader.read(&block(&one, true)).unwrap(), expected);
        assert_eq!(reader.read(&block(&one, false)).unwrap(), expected);
        assert!(Accepter::default().accept(1).len() > 12);
    }

    #[test]
    fn headers_that_would_fill_the_memory_are_refused() {
        let zeros = vec![0; 10 << 20];
        let mut writer = flate2::Compress::new(flate2::Compression::best(), true);
        let mut bomb = Vec::with_capacity(60_000);
        writer.compress_vec(&zeros, &mut bomb, flate2::FlushCompress::Sync).unwrap();
        assert!(HeaderReader::new().read(&bomb).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_client_sends_is_read_to_an_end(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300), is_open in proptest::bool::ANY) {
            if is_open && bytes.len() > 18 {
                bytes.splice(..8, [0x80, 3, 0, 1, 0, 0, 0, 200]);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut frames = Frames::of_client(&bytes[..]);
                for _ in 0..400 {
                    match frames.next().await {
                        Ok(Heard::Closed) | Err(_) => return,
                        Ok(_) => {}
                    }
                }
                panic!("it does not end");
            });
        }
    }
}
