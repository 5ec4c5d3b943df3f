//! A watch on the API server: events with the time at which they arrived.
//!
//! Times in objects have whole seconds, which is too coarse for pods that start in half of one. So
//! the clock of this process is the only one: both ends of every span are arrivals on the same
//! stream, or on one that is opened beside it.

use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::api::{Api, is_success};

/// One event and when it came.
pub struct Arrival {
    pub at: Instant,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    pub object: Value,
}

/// An open watch; ends when dropped.
pub struct Watch {
    stream: TcpStream,
    arrivals: Receiver<Arrival>,
}

impl Watch {
    /// Watches a collection by a field selector. When this returns, the API server is watching.
    pub fn open(api: Api, collection: &str, selector: &str) -> Result<Watch> {
        let path =
            format!("{collection}?watch=true&fieldSelector={}", selector.replace('=', "%3D"));
        let stream = api.send("GET", &path, "")?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while reader.read_line(&mut head)? > 2 {}
        ensure!(is_success(&head), "watch {path}: {head}");
        let (sender, arrivals) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(Chunks { reader, left: 0 }).lines();
            // The end of the stream, however it comes, closes the channel; whoever still waits then
            // hears of it.
            for line in lines.map_while(Result::ok) {
                let Some(arrival) = parse(&line, Instant::now()) else {
                    return;
                };
                if sender.send(arrival).is_err() {
                    return;
                }
            }
        });
        Ok(Watch { stream, arrivals })
    }

    /// The next event, or nothing when none comes in time.
    pub fn next(&self, patience: Duration) -> Result<Option<Arrival>> {
        match self.arrivals.recv_timeout(patience) {
            Ok(arrival) => Ok(Some(arrival)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the watch ended"),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Lets the reading thread end; a stream that is closed already does not mind.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn parse(line: &str, at: Instant) -> Option<Arrival> {
    let mut event: Value = serde_json::from_str(line).ok()?;
    let kind = event["type"].as_str()?.to_owned();
    (kind != "ERROR").then(|| Arrival { at, kind, object: event["object"].take() })
}

/// The body of an answer with chunked transfer coding.
struct Chunks<R> {
    reader: R,
    /// Bytes left of the present chunk.
    left: usize,
}

impl<R: BufRead> Chunks<R> {
    /// The size of the next chunk; an empty line before it ends the previous one.
    fn next_size(&mut self) -> Result<usize> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Ok(0);
            }
            let digits = line.trim();
            if !digits.is_empty() {
                return usize::from_str_radix(digits, 16)
                    .with_context(|| format!("chunk size {digits:?}"));
            }
        }
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            self.left = self.next_size().map_err(std::io::Error::other)?;
        }
        let wanted = buffer.len().min(self.left);
        let n_read = self.reader.read(&mut buffer[..wanted])?;
        self.left -= n_read;
        Ok(n_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together_whatever_their_borders() {
        let body = "5\r\nab\ncd\r\n3\r\ne\nf\r\n0\r\n\r\n";
        let chunks = Chunks { reader: body.as_bytes(), left: 0 };
        let lines: Vec<String> = BufReader::new(chunks).lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["ab", "cde", "f"]);
    }

    #[test]
    fn an_error_event_ends_the_watch() {
        let now = Instant::now();
        let event = parse(r#"{"type":"ADDED","object":{"a":1}}"#, now).unwrap();
        assert_eq!((event.kind.as_str(), &event.object["a"]), ("ADDED", &Value::from(1)));
        assert!(parse(r#"{"type":"ERROR","object":{}}"#, now).is_none());
        assert!(parse("half a li", now).is_none());
    }
}
