//! Requests over plain HTTP: one, and as many a second as are asked for; and a server that does
//! nothing but send.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
/// Askers of a flood.
const N_THREADS: usize = 8;
/// Threads of the server that only sends: as many as the agent has workers.
const N_SENDERS: usize = 2;

/// One request that was answered.
pub(super) struct Scrape {
    pub(super) took: Duration,
}

impl Scrape {
    pub(super) fn once(address: &str, path: &str) -> Result<Scrape> {
        let began = Instant::now();
        ask(address, path)?;
        Ok(Scrape { took: began.elapsed() })
    }
}

/// A connection on which something was asked for.
fn asked(address: &str, path: &str) -> Result<TcpStream> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

/// Reads an answer to its end without keeping it.
fn ask(address: &str, path: &str) -> Result<()> {
    let mut stream = asked(address, path)?;
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

/// A server in this process that answers everything with the same bytes, and can do nothing else:
/// what a flood of it costs, a flood costs the machine and the askers, whoever answers.
pub(super) struct StandIn {
    address: String,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<f64>>>,
}

impl StandIn {
    /// Sends what `address` answers now.
    pub(super) fn copying(address: &str, path: &str) -> Result<StandIn> {
        let mut answer = Vec::new();
        asked(address, path)?.read_to_end(&mut answer)?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{path} is not answered well");
        StandIn::start(answer)
    }

    fn start(answer: Vec<u8>) -> Result<StandIn> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen on loopback")?;
        let address = listener.local_addr()?.to_string();
        let (is_over, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let threads = (0..N_SENDERS).map(|_| {
            let (listener, answer) = (listener.try_clone()?, Arc::clone(&answer));
            let is_over = Arc::clone(&is_over);
            Ok(thread::spawn(move || send(&listener, &answer, &is_over)))
        });
        Ok(StandIn { threads: threads.collect::<Result<_>>()?, address, is_over })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Ends it; tells how many seconds of CPU it took.
    pub(super) fn stop(self) -> Result<f64> {
        self.is_over.store(true, Ordering::Relaxed);
        // Each that waits for a client gets a last one; which of them gets which is not ours to
        // say.
        for _ in &self.threads {
            drop(TcpStream::connect(&self.address));
        }
        let mut spent = 0.0;
        for thread in self.threads {
            spent += thread.join().ok().context("a sender broke")??;
        }
        Ok(spent)
    }
}

/// Answers one after the other; tells this thread's CPU time at the end.
fn send(listener: &TcpListener, answer: &[u8], is_over: &AtomicBool) -> Result<f64> {
    let mut head = vec![0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        let (mut stream, _) = listener.accept()?;
        // An asker that goes away is its own business.
        if stream.read(&mut head).is_ok_and(|n| n > 0) {
            let _ = stream.write_all(answer);
        }
    }
    spent_here()
}

/// Seconds of CPU that this thread has taken. Not from its `stat`, where every thread has the ended
/// children of the whole process too.
fn spent_here() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    spent_of(&text).with_context(|| format!("/proc/thread-self/schedstat is {text:?}"))
}

/// The first number, in nanoseconds.
fn spent_of(schedstat: &str) -> Option<f64> {
    let nanos: f64 = schedstat.split(' ').next()?.parse().ok()?;
    Some(nanos / 1e9)
}

/// Many who ask for the same.
pub(super) struct Flood {
    is_over: Arc<AtomicBool>,
    n_answers: Arc<AtomicU32>,
    threads: Vec<JoinHandle<Result<f64>>>,
}

/// What came of a flood.
pub(super) struct Flooded {
    pub(super) n_answers: u32,
    /// Seconds of CPU that asking took.
    pub(super) spent: f64,
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
                spent_here()
            })
        });
        Flood { threads: threads.collect(), is_over, n_answers }
    }

    /// Ends it.
    pub(super) fn stop(self) -> Result<Flooded> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut spent = 0.0;
        for thread in self.threads {
            spent += thread.join().ok().context("an asker broke")??;
        }
        Ok(Flooded { n_answers: self.n_answers.load(Ordering::Relaxed), spent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_sends_its_bytes_to_everybody_and_ends() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec();
        let first = StandIn::start(answer.clone()).unwrap();
        let second = StandIn::copying(first.address(), "/pods").unwrap();
        for server in [&first, &second] {
            let mut heard = Vec::new();
            let mut stream = asked(server.address(), "/").unwrap();
            stream.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, answer);
        }
        let flood = Flood::start(second.address(), "/pods", 500);
        while flood.n_answers.load(Ordering::Relaxed) < 20 {
            thread::yield_now();
        }
        let flooded = flood.stop().unwrap();
        assert!(flooded.n_answers >= 20);
        assert!(flooded.spent > 0.0);
        assert!(first.stop().unwrap() >= 0.0);
        assert!(second.stop().unwrap() > 0.0);
    }

    #[test]
    fn a_thread_pays_for_itself_alone() {
        assert_eq!(spent_of("1500000000 23 4\n"), Some(1.5));
        assert_eq!(spent_of("nonsense"), None);
        let begun = spent_here().unwrap();
        // A child's work is the child's.
        let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh");
        assert!(child.args(["-c", count]).status().unwrap().success());
        assert!(spent_here().unwrap() - begun < 0.05);
    }
}
