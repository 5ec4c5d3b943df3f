//! A watch under way, line by line.

use ferrolet_ports::ApiError;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::watch;

use super::{
    failure::{broken, malformed},
    lines::Lines,
    transport::{Answer, StreamGuard, TransportError},
};
use crate::decode;

/// The API server refuses objects beyond 3 MiB; twice that leaves room for escapes.
const MAX_FRAME: usize = 8 << 20;

/// A watch under way.
pub struct Frames {
    attempt: String,
    body: Incoming,
    _stream: StreamGuard,
    lines: Lines,
    epoch: watch::Receiver<u64>,
}

impl Frames {
    pub(super) fn new(attempt: String, answer: Answer, epoch: watch::Receiver<u64>) -> Self {
        Self {
            attempt,
            body: answer.response.into_body(),
            _stream: answer.stream,
            lines: Lines::new(MAX_FRAME),
            epoch,
        }
    }

    /// The next event as the server wrote it, without `managedFields`; `None` when the server has
    /// ended the watch in order or the client was told to reconnect. Safe to drop and call again:
    /// bytes are kept between calls.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        loop {
            match self.lines.next() {
                Ok(Some(mut line)) => {
                    decode::blank_managed_fields(&mut line);
                    return Some(Ok(line));
                }
                Ok(None) => {}
                Err(error) => return Some(Err(malformed(self.attempt.clone(), &error))),
            }
            let frame = tokio::select! {
                // Nothing is lost: the watch resumes from the last version it saw.
                _ = self.epoch.changed() => return None,
                // A frame is either taken whole or still in the body.
                frame = self.body.frame() => frame?,
            };
            match frame {
                Ok(frame) => {
                    if let Some(data) = frame.data_ref() {
                        self.lines.push(data);
                    }
                }
                Err(error) => {
                    return Some(Err(broken(&self.attempt, &TransportError::Send(error))));
                }
            }
        }
    }

    /// What was asked, for messages.
    pub fn attempt(&self) -> &str {
        &self.attempt
    }
}
