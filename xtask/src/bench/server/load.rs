//! Requests over plain HTTP: one, and as many a second as are asked for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
/// Askers of a flood.
const N_THREADS: usize = 8;

/// One request that was answered.
pub(super) struct Scrape {
    pub(super) took: Duration,
}

impl Scrape {
    pub(super) fn once(address: &str, path: &str) -> Result<Scrape> {
        let began = Instant::now();
        ask(address, path)?;
        Ok(Scrape {
            took: began.elapsed(),
        })
    }
}

/// Reads an answer to its end without keeping it.
fn ask(address: &str, path: &str) -> Result<()> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut piece, mut is_first) = (vec![0; 1 << 18], true);
    loop {
        let n = stream.read(&mut piece)?;
        if n == 0 {
            ensure!(!is_first, "{path} is not answered");
            return Ok(());
        }
        if is_first {
            let is_good = piece.starts_with(b"HTTP/1.1 200");
            ensure!(is_good, "{path} is not answered well");
            is_first = false;
        }
    }
}

/// Many who ask for the same.
pub(super) struct Flood {
    is_over: Arc<AtomicBool>,
    n_answers: Arc<AtomicU32>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Flood {
    /// So many requests a second, or as many as are answered.
    pub(super) fn start(address: &str, path: &'static str, per_second: usize) -> Flood {
        let is_over = Arc::new(AtomicBool::new(false));
        let n_answers = Arc::new(AtomicU32::new(0));
        let pause = Duration::from_secs_f64(N_THREADS as f64 / per_second as f64);
        let threads = (0..N_THREADS).map(|_| {
            let (is_over, n_answers) = (Arc::clone(&is_over), Arc::clone(&n_answers));
            let address = address.to_owned();
            thread::spawn(move || {
                let mut due = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    ask(&address, path)?;
                    n_answers.fetch_add(1, Ordering::Relaxed);
                    due += pause;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                Ok(())
            })
        });
        Flood {
            threads: threads.collect(),
            is_over,
            n_answers,
        }
    }

    /// Ends it; tells how many were answered.
    pub(super) fn stop(self) -> Result<u32> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().ok().context("an asker broke")??;
        }
        Ok(self.n_answers.load(Ordering::Relaxed))
    }
}
