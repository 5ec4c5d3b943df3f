//! WebSocket frames (RFC 6455), the server's side: a handshake's answer, frames in, frames out.
//!
//! Messages are passed on in pieces as they arrive, whatever their length, so that a session's
//! memory is one buffer. Refuses: frames without a mask, reserved bits, and control frames that are
//! too long.

use std::io::{Error, ErrorKind, Result};

use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// As much as is read at once.
const PIECE: usize = 32 * 1024;

/// A message.
pub const BINARY: u8 = 2;
/// The end of a connection.
pub const CLOSE: u8 = 8;
/// The answer to a ping.
pub const PONG: u8 = 10;
const PING: u8 = 9;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A piece of a message; [`Frames::piece`] has it.
    Piece {
        /// True for the first one of a message.
        begins_message: bool,
    },
    /// A ping with what has to be sent back.
    Ping(Vec<u8>),
    /// An answer to a ping of ours.
    Pong,
    /// The client is done.
    Closed,
}

/// A client's frames.
#[derive(Debug)]
pub struct Frames<R> {
    from: R,
    piece: Vec<u8>,
    /// Bytes of the current frame that have not come yet.
    n_left: u64,
    mask: [u8; 4],
    /// Where in the mask the next byte is.
    at: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// What a client sends.
    pub fn new(from: R) -> Self {
        Self { from, piece: Vec::new(), n_left: 0, mask: [0; 4], at: 0 }
    }

    /// The data that [`Heard::Piece`] told of.
    pub fn piece(&self) -> &[u8] {
        &self.piece
    }

    /// The next thing the client says. Not cancel-safe: a frame may be half read.
    ///
    /// # Errors
    ///
    /// The connection's, and what breaks the protocol.
    pub async fn next(&mut self) -> Result<Heard> {
        if self.n_left > 0 {
            self.read_piece().await?;
            return Ok(Heard::Piece { begins_message: false });
        }
        let mut head = [0; 2];
        if self.from.read(&mut head[..1]).await? == 0 {
            return Ok(Heard::Closed);
        }
        self.from.read_exact(&mut head[1..]).await?;
        let (opcode, length) = (head[0] & 0x0f, head[1] & 0x7f);
        if head[0] & 0x70 != 0 || head[1] & 0x80 == 0 {
            return Err(broken("a frame with reserved bits or without a mask"));
        }
        let is_control = opcode >= CLOSE;
        let length = match length {
            0..=125 => u64::from(length),
            _ if is_control => return Err(broken("a control frame that is too long")),
            126 => u64::from(self.from.read_u16().await?),
            _ => self.from.read_u64().await?,
        };
        self.from.read_exact(&mut self.mask).await?;
        self.at = 0;
        self.n_left = length;
        match opcode {
            0..=2 => {
                self.read_piece().await?;
                Ok(Heard::Piece { begins_message: opcode != 0 })
            }
            CLOSE => Ok(Heard::Closed),
            PING | PONG => {
                // At most 125 bytes, so one piece may still take several reads.
                let mut payload = Vec::new();
                while self.n_left > 0 {
                    self.read_piece().await?;
                    payload.extend_from_slice(&self.piece);
                }
                Ok(match opcode {
                    PING => Heard::Ping(payload),
                    _ => Heard::Pong,
                })
            }
            _ => Err(broken("a frame of an unknown kind")),
        }
    }

    async fn read_piece(&mut self) -> Result<()> {
        let most = usize::try_from(self.n_left).unwrap_or(PIECE).min(PIECE);
        self.piece.resize(most, 0);
        if most == 0 {
            return Ok(());
        }
        let n = self.from.read(&mut self.piece).await?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.piece.truncate(n);
        for byte in &mut self.piece {
            *byte ^= self.mask[self.at];
            self.at = (self.at + 1) % 4;
        }
        self.n_left -= n as u64;
        Ok(())
    }
}

/// Writes one whole message or control frame: `first`, then `rest`.
///
/// # Errors
///
/// The connection's.
pub async fn write_frame(
    to: &mut (impl AsyncWrite + Unpin),
    opcode: u8,
    first: &[u8],
    rest: &[u8],
) -> Result<()> {
    let length = first.len() + rest.len();
    let mut frame = Vec::with_capacity(length + 10);
    frame.push(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => frame.push(short),
        (_, Ok(medium)) => {
            frame.push(126);
            frame.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(first);
    frame.extend_from_slice(rest);
    to.write_all(&frame).await?;
    to.flush().await
}

/// What proves to a client that its key was read.
#[must_use]
pub fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(sha1(text.as_bytes()))
}

/// SHA-1, which the handshake wants and nothing rests on.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..80 {
            let mixed = words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16];
            words[i] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (i, word) in words.iter().enumerate() {
            let (choice, constant) = match i {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(choice)
                .wrapping_add(e)
                .wrapping_add(constant)
                .wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn broken(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_answered_as_the_standard_has_it() {
        let answer = accept("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    fn masked(first: u8, length: &[u8], payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        frame.extend_from_slice(length);
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
        frame
    }

    #[tokio::test]
    async fn messages_come_in_pieces_and_pings_between_them() {
        let long = vec![7; 70_000];
        let input = [
            masked(0x02, &[0x83], b"abc"),
            masked(0x89, &[0x82], b"hi"),
            masked(0x80, &[0x82], b"de"),
            masked(0x82, &[0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70], &long),
            masked(0x88, &[0x80], b""),
        ];
        let input = input.concat();
        let mut frames = Frames::new(&input[..]);
        let begins = |begins_message| Heard::Piece { begins_message };
        assert_eq!(frames.next().await.unwrap(), begins(true));
        assert_eq!(frames.piece(), b"abc");
        assert_eq!(frames.next().await.unwrap(), Heard::Ping(b"hi".to_vec()));
        assert_eq!(frames.next().await.unwrap(), begins(false));
        assert_eq!(frames.piece(), b"de");
        let mut got = Vec::new();
        assert_eq!(frames.next().await.unwrap(), begins(true));
        got.extend_from_slice(frames.piece());
        while got.len() < long.len() {
            assert_eq!(frames.next().await.unwrap(), begins(false));
            got.extend_from_slice(frames.piece());
        }
        assert!(got == long);
        assert_eq!(frames.next().await.unwrap(), Heard::Closed);
    }

    /// Whatever a frame says of its length, memory is one buffer.
    #[tokio::test]
    async fn a_frame_without_end_is_read_in_pieces() {
        let endless = [0xff; 9];
        let input = masked(0x82, &endless, &vec![7; 10 * PIECE]);
        let mut frames = Frames::new(&input[..]);
        let mut n_read = 0;
        while frames.next().await.is_ok() {
            n_read += frames.piece().len();
            assert!(frames.piece().len() <= PIECE && frames.piece.capacity() <= 2 * PIECE);
        }
        assert_eq!(n_read, 10 * PIECE);
    }

    #[tokio::test]
    async fn what_breaks_the_rules_is_refused() {
        for input in [
            vec![0x82, 0x01, b'a'],
            masked(0xc2, &[0x81], b"a"),
            masked(0x89, &[0xfe, 0, 200], &[0; 200]),
            masked(0x83, &[0x81], b"a"),
            vec![0x82, 0x85, 1, 2, 3, 4, b'a'],
            vec![0x82],
        ] {
            let mut frames = Frames::new(&input[..]);
            let first = frames.next().await;
            // What ends too early may begin well.
            let refused = first.is_err() || frames.next().await.is_err();
            assert!(refused, "{input:?}");
        }
    }

    #[tokio::test]
    async fn frames_say_their_length_in_the_shortest_form() {
        for (n, head) in [
            (0, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut out = Vec::new();
            write_frame(&mut out, BINARY, &[], &vec![5; n]).await.unwrap();
            assert_eq!(out[..head.len()], head);
            assert_eq!(out.len(), head.len() + n);
        }
    }
}
