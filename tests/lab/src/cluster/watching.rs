//! A watch on the API that misses nothing: for states that may last a moment only.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;

/// Collects every version of some objects until it is dropped.
pub struct Watching {
    stream: TcpStream,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Watching {
    /// Begins to watch a collection, such as `/api/v1/nodes?fieldSelector=…`.
    pub(super) fn start(proxy: &str, path: &str) -> Result<Watching> {
        let mut stream =
            TcpStream::connect(proxy).with_context(|| format!("connect to {proxy}"))?;
        let mark = if path.contains('?') { '&' } else { '?' };
        // The old version of the protocol has no chunks: what comes are the lines themselves.
        write!(stream, "GET {path}{mark}watch=true HTTP/1.0\r\nHost: {proxy}\r\n\r\n")?;
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (shared, lines) = (Arc::clone(&seen), BufReader::new(stream.try_clone()?).lines());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<Value>(&line) {
                    let mut seen = shared.lock().expect("nobody panics while holding it");
                    seen.push(event["object"].clone());
                }
            }
        });
        Ok(Watching { stream, seen })
    }

    /// Every version so far, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Value> {
        let seen = self.seen.lock().expect("nobody panics while holding it");
        seen.clone()
    }

    /// Forgets what was seen.
    pub fn forget(&self) {
        let mut seen = self.seen.lock().expect("nobody panics while holding it");
        seen.clear();
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Ends the reading thread; a stream that is closed already has none.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
