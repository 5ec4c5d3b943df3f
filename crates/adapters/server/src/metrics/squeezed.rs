//! An answer that is compressed piece by piece while it is sent.
//!
//! In: a text that is whole already. Out: a body of gzip. Prometheus always asks for it, and a node
//! with hundreds of pods has megabytes to tell that shrink to a tenth or less. Only as much is
//! compressed as the client takes, and never so much at once that others would wait for it. The
//! quickest level: a higher one saves some more of the network for several times the processor
//! time.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use flate2::{Compression, write::GzEncoder};
use futures::Stream;

/// Bytes that go in at a time.
const PIECE: usize = 64 << 10;

/// A body that says this, compressed.
pub(super) fn squeezed(text: Bytes) -> Body {
    Body::from_stream(Squeezed {
        rest: text,
        encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
    })
}

struct Squeezed {
    rest: Bytes,
    /// None at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Squeezed {
    /// What is sent next; pieces of a text that shrinks well may give nothing for a while.
    fn step(&mut self) -> std::io::Result<Option<Bytes>> {
        loop {
            let Some(mut encoder) = self.encoder.take() else {
                return Ok(None);
            };
            if self.rest.is_empty() {
                return encoder.finish().map(|last| Some(Bytes::from(last)));
            }
            let piece = self.rest.split_to(self.rest.len().min(PIECE));
            encoder.write_all(&piece)?;
            let out = std::mem::take(encoder.get_mut());
            self.encoder = Some(encoder);
            if !out.is_empty() {
                return Ok(Some(Bytes::from(out)));
            }
        }
    }
}

impl Stream for Squeezed {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.step().transpose())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn what_was_squeezed_is_whole_again_afterwards() {
        let lines =
            (0..60_000).map(|n| format!("container_cpu_seconds_total{{id=\"/{n}\"}} {n}\n"));
        for text in [String::new(), "a 1\n".to_owned(), lines.collect()] {
            let body = squeezed(Bytes::from(text.clone()));
            let packed = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            assert!(packed.len() < text.len() / 4 + 100, "{}", packed.len());
            let mut back = String::new();
            let mut unpacked = flate2::read::GzDecoder::new(&packed[..]);
            unpacked.read_to_string(&mut back).unwrap();
            assert!(back == text, "{} of {} bytes", back.len(), text.len());
        }
    }
}
