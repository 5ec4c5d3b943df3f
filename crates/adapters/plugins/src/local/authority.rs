//! Lets clients in that name the socket's path as HTTP/2's authority.
//!
//! Go's gRPC sends what it was told to dial as `:authority`: a path, plain or with percent signs.
//! That is no authority, and the HTTP/2 library here ends such a request before anybody sees it. So
//! the bytes pass through this reader first: in each block of headers the authority, which means
//! nothing on a socket, is replaced by one letter.
//!
//! ```text
//!  preface ─► frame header ─┬ HEADERS, CONTINUATION ─► whole block ─► rewritten HEADERS
//!                           └ anything else ─────────────────────────► as it is
//! ```
//!
//! Header compression keeps a table on both sides, so nothing else may change: representations are
//! walked over, never decoded, and the new entry is no longer than the old one, so that this side
//! never forgets what the client still refers to. Refuses: header blocks beyond a bound.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of every HTTP/2 connection.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// No frame may be longer unless we say so, and we do not.
const LONGEST_FRAME: usize = 16 * 1024;
const LONGEST_BLOCK: usize = 64 * 1024;
/// Read at once.
const PIECE: usize = 4 * 1024;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A client's side of a connection.
pub(super) struct AnyAuthority<T> {
    inner: T,
    rewriter: Rewriter,
    /// Rewritten, to be read.
    ready: Vec<u8>,
    n_read: usize,
}

impl<T> AnyAuthority<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, rewriter: Rewriter::default(), ready: Vec::new(), n_read: 0 }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for AnyAuthority<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.n_read == this.ready.len() {
            this.ready.clear();
            this.n_read = 0;
            let mut piece = [0; PIECE];
            let mut fresh = ReadBuf::new(&mut piece);
            std::task::ready!(Pin::new(&mut this.inner).poll_read(context, &mut fresh))?;
            if fresh.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.rewriter.feed(fresh.filled(), &mut this.ready)?;
        }
        let n = buffer.remaining().min(this.ready.len() - this.n_read);
        buffer.put_slice(&this.ready[this.n_read..this.n_read + n]);
        this.n_read += n;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Where in the stream of frames we are.
#[derive(Default)]
struct Rewriter {
    /// Arrived, and not yet enough to go on.
    pending: Vec<u8>,
    preface_is_over: bool,
    /// Bytes of a frame that pass as they are.
    n_passing: usize,
    /// The block that is being collected, with its stream and whether the stream ends with it.
    block: Option<(Vec<u8>, [u8; 4], u8)>,
}

impl Rewriter {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut bytes = bytes;
        // Most bytes are bodies; they need not be kept first.
        if self.pending.is_empty() {
            let n = self.n_passing.min(bytes.len());
            out.extend_from_slice(&bytes[..n]);
            self.n_passing -= n;
            bytes = &bytes[n..];
        }
        self.pending.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(n) = self.step(used, out)? {
            used += n;
        }
        self.pending.drain(..used);
        Ok(())
    }

    /// Deals with what begins at `from`; tells how long it was, or that there is not enough yet.
    fn step(&mut self, from: usize, out: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let bytes = &self.pending[from..];
        if bytes.is_empty() {
            return Ok(None);
        }
        if !self.preface_is_over {
            if bytes.len() < PREFACE {
                return Ok(None);
            }
            out.extend_from_slice(&bytes[..PREFACE]);
            self.preface_is_over = true;
            return Ok(Some(PREFACE));
        }
        if self.n_passing > 0 {
            let n = self.n_passing.min(bytes.len());
            out.extend_from_slice(&bytes[..n]);
            self.n_passing -= n;
            return Ok(Some(n));
        }
        let Some(header) = bytes.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if kind != HEADERS && kind != CONTINUATION {
            if self.block.is_some() {
                return Err(broken("a frame in the middle of headers"));
            }
            out.extend_from_slice(header);
            self.n_passing = length;
            return Ok(Some(FRAME_HEADER));
        }
        if length > LONGEST_FRAME {
            return Err(broken("a frame of headers that is too long"));
        }
        let whole = FRAME_HEADER + length;
        let Some(payload) = bytes.get(FRAME_HEADER..whole) else {
            return Ok(None);
        };
        let block = if kind == HEADERS {
            let fragment = fragment(payload, flags)?;
            self.block.insert((fragment.to_vec(), stream, flags & END_STREAM))
        } else {
            let block = self.block.as_mut();
            let block = block.ok_or_else(|| broken("a continuation of nothing"))?;
            block.0.extend_from_slice(payload);
            block
        };
        if block.0.len() > LONGEST_BLOCK {
            return Err(broken("more headers than anybody needs"));
        }
        if flags & END_HEADERS != 0
            && let Some((block, stream, end)) = self.block.take()
        {
            write_headers(&rewrite(&block)?, stream, end, out);
        }
        Ok(Some(whole))
    }
}

/// What a HEADERS frame holds of the block, without padding and priority.
fn fragment(payload: &[u8], flags: u8) -> io::Result<&[u8]> {
    let mut rest = payload;
    let mut n_padding = 0;
    if flags & PADDED != 0 {
        let (first, others) =
            rest.split_first().ok_or_else(|| broken("padding without a length"))?;
        n_padding = usize::from(*first);
        rest = others;
    }
    if flags & PRIORITY != 0 {
        rest = rest.get(5..).ok_or_else(|| broken("a priority cut short"))?;
    }
    let n = rest.len().checked_sub(n_padding);
    n.map(|n| &rest[..n]).ok_or_else(|| broken("more padding than frame"))
}

fn write_headers(block: &[u8], stream: [u8; 4], end: u8, out: &mut Vec<u8>) {
    let n_pieces = block.chunks(LONGEST_FRAME).count().max(1);
    let mut pieces = block.chunks(LONGEST_FRAME);
    for i in 0..n_pieces {
        let piece = pieces.next().unwrap_or_default();
        let (kind, mut flags) = if i == 0 { (HEADERS, end) } else { (CONTINUATION, 0) };
        if i + 1 == n_pieces {
            flags |= END_HEADERS;
        }
        let length = u32::try_from(piece.len()).expect("a piece is no longer than a frame");
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&stream);
        out.extend_from_slice(piece);
    }
}

/// The block with another authority (RFC 7541, section 6).
fn rewrite(block: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(block.len());
    let mut at = 0;
    while at < block.len() {
        let from = at;
        let first = block[at];
        // How many bits of the first byte belong to the index, and whether strings follow it.
        let (bits, has_value) = match first {
            0x80.. => (7, false),
            0x40..=0x7f => (6, true),
            0x20..=0x3f => (5, false),
            _ => (4, true),
        };
        let index = integer(block, &mut at, bits)?;
        if !has_value {
            out.extend_from_slice(&block[from..at]);
            continue;
        }
        if index == 0 {
            skip_text(block, &mut at)?;
        }
        let value = at;
        skip_text(block, &mut at)?;
        // The static table's first name is the authority's; an empty one is left alone.
        if index == 1 && at - value > 1 {
            out.extend_from_slice(&block[from..value]);
            out.extend_from_slice(b"\x01k");
        } else {
            out.extend_from_slice(&block[from..at]);
        }
    }
    Ok(out)
}

/// A number whose first `bits` bits are in the byte at `at`.
fn integer(block: &[u8], at: &mut usize, bits: u32) -> io::Result<usize> {
    let mut next = || {
        let byte = block.get(*at).copied();
        *at += 1;
        byte.ok_or_else(|| broken("headers cut short"))
    };
    let full = (1usize << bits) - 1;
    let mut value = usize::from(next()?) & full;
    if value < full {
        return Ok(value);
    }
    for shift in [0, 7, 14] {
        let byte = next()?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken("a number without end"))
}

fn skip_text(block: &[u8], at: &mut usize) -> io::Result<()> {
    let n = integer(block, at, 7)?;
    *at += n;
    if *at > block.len() {
        return Err(broken("a text cut short"));
    }
    Ok(())
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRE: &[u8; PREFACE] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    /// However the bytes are cut, the same comes out.
    fn check(input: &[u8], expected: Result<&[u8], &str>) {
        for size in [1, 2, 7, input.len().max(1)] {
            let (mut rewriter, mut out) = (Rewriter::default(), Vec::new());
            let fed = input.chunks(size).try_for_each(|piece| rewriter.feed(piece, &mut out));
            match (fed, expected) {
                (Ok(()), Ok(expected)) => assert_eq!(out, expected, "in pieces of {size}"),
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
                (got, _) => panic!("{got:?} {out:?}"),
            }
        }
    }

    #[test]
    fn only_the_authority_changes() {
        let block = |authority: &[u8]| {
            let mut block = vec![0x83, 0x86, 0x41];
            block.push(u8::try_from(authority.len()).unwrap());
            block.extend_from_slice(authority);
            // A size update, an indexed one, and a new name with its value.
            block.extend_from_slice(b"\x3f\xe1\x1f\xbe\x40\x01x\x02yz");
            block
        };
        let given = block(b"/run/kubelet.sock");
        let wanted = block(b"k");
        let body = frame(0, 1, b"body");
        let input = [PRE, &frame(HEADERS, 5, &given)[..], &body].concat();
        let output = [PRE, &frame(HEADERS, 5, &wanted)[..], &body].concat();
        check(&input, Ok(&output));
        // The same in a frame with padding and priority, continued in another.
        let mut first = vec![3, 0, 0, 0, 0, 9];
        first.extend_from_slice(&given[..10]);
        first.extend_from_slice(&[0; 3]);
        let cut = [
            PRE,
            &frame(HEADERS, PADDED | PRIORITY, &first)[..],
            &frame(CONTINUATION, END_HEADERS, &given[10..]),
            &body,
        ];
        let joined = [PRE, &frame(HEADERS, END_HEADERS, &wanted)[..], &body];
        check(&cut.concat(), Ok(&joined.concat()));
        // Not indexed, never indexed, and an empty one that stays.
        for first in [0x01, 0x11] {
            let input = [PRE, &frame(HEADERS, 4, &[first, 2, b'/', b'a'])[..]].concat();
            let output = [PRE, &frame(HEADERS, 4, &[first, 1, b'k'])[..]].concat();
            check(&input, Ok(&output));
        }
        let empty = [PRE, &frame(HEADERS, 4, &[0x41, 0])[..]].concat();
        check(&empty, Ok(&empty));
    }

    #[test]
    fn what_is_broken_or_without_bound_is_refused() {
        let after = |frames: &[u8]| [PRE, frames].concat();
        let check = |frames: &[u8], why: &str| check(&after(frames), Err(why));
        check(&frame(CONTINUATION, 0, b""), "a continuation of nothing");
        let open = frame(HEADERS, 0, b"\x82");
        check(&[&open[..], &frame(0, 0, b"")].concat(), "a frame in the middle of headers");
        check(&frame(HEADERS, PADDED, b""), "padding without a length");
        check(&frame(HEADERS, PADDED, b"\x05\x82"), "more padding than frame");
        check(&frame(HEADERS, PRIORITY, b"\x05"), "a priority cut short");
        check(&frame(HEADERS, END_HEADERS, b"\x41"), "headers cut short");
        check(&frame(HEADERS, END_HEADERS, b"\x41\x05ab"), "a text cut short");
        check(&frame(HEADERS, END_HEADERS, b"\x7f\xff\xff\xff\xff"), "a number without end");
        check(
            &frame(HEADERS, 0, &[0x82; LONGEST_FRAME + 1]),
            "a frame of headers that is too long",
        );
        let mut endless = open;
        for _ in 0..5 {
            endless.extend(frame(CONTINUATION, 0, &[0x82; LONGEST_FRAME]));
        }
        check(&endless, "more headers than anybody needs");
    }
}
