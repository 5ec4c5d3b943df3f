//! A TCP relay between one node and the API server, which can be cut, healed and made to hang.
//!
//! Cut means what a stopped server means: connections end and new ones are refused. Hanging means
//! what a lost flow means: connections that are there stay open, nothing passes through them any
//! more, and nobody says so; new ones work.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anyhow::{Context, Result};

/// Where a node reaches the API server.
pub struct Relay {
    address: SocketAddr,
    target: SocketAddr,
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_open: bool,
    acceptor: Option<thread::JoinHandle<()>>,
    n_accepted: usize,
    /// Connections with a smaller number pass nothing on.
    hanging_below: usize,
    /// Connections whose client is there.
    open: BTreeSet<usize>,
    /// Both ends of what is connected, to be shut when the relay is cut.
    streams: Vec<TcpStream>,
}

impl Relay {
    /// Listens on a free loopback port and passes on to `target`.
    pub fn start(target: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").context("bind the relay")?;
        let relay = Relay { address: listener.local_addr()?, target, shared: Arc::default() };
        relay.accept_on(listener);
        Ok(relay)
    }

    /// Where the node connects to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far, over all times.
    #[must_use]
    pub fn n_accepted(&self) -> usize {
        lock(&self.shared).n_accepted
    }

    /// Ends every connection and refuses new ones.
    pub fn cut(&self) {
        let acceptor = {
            let mut state = lock(&self.shared);
            state.is_open = false;
            for stream in state.streams.drain(..) {
                // Already closed is as good.
                let _ = stream.shutdown(Shutdown::Both);
            }
            state.acceptor.take()
        };
        if let Some(acceptor) = acceptor {
            // Wakes the thread, which sees that it is over and closes the listener.
            let _ = TcpStream::connect(self.address);
            let _ = acceptor.join();
        }
    }

    /// Listens again after a cut.
    pub fn heal(&self) -> Result<()> {
        let listener = TcpListener::bind(self.address).context("bind the relay again")?;
        self.accept_on(listener);
        Ok(())
    }

    /// Lets the connections that are there hang for ever.
    pub fn hang(&self) {
        let mut state = lock(&self.shared);
        state.hanging_below = state.n_accepted;
    }

    /// Hanging connections that the node still holds open.
    #[must_use]
    pub fn n_hanging(&self) -> usize {
        let state = lock(&self.shared);
        state.open.range(..state.hanging_below).count()
    }

    fn accept_on(&self, listener: TcpListener) {
        let (shared, target) = (Arc::clone(&self.shared), self.target);
        lock(&self.shared).is_open = true;
        let acceptor = thread::spawn(move || {
            for client in listener.incoming() {
                let number = {
                    let mut state = lock(&shared);
                    if !state.is_open {
                        return;
                    }
                    state.n_accepted += 1;
                    state.n_accepted - 1
                };
                if let Ok(client) = client {
                    // A server that is not there refuses, and so do we: the client's end closes.
                    let _ = connect(&shared, number, client, target);
                }
            }
        });
        lock(&self.shared).acceptor = Some(acceptor);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().expect("nobody panics while holding it")
}

fn connect(
    shared: &Arc<Mutex<State>>,
    number: usize,
    client: TcpStream,
    target: SocketAddr,
) -> Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let directions =
        [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)];
    {
        let mut state = lock(shared);
        if !state.is_open {
            return Ok(());
        }
        state.open.insert(number);
        state.streams.extend([client, server]);
    }
    for (side, (from, to)) in [Side::Client, Side::Server].into_iter().zip(directions) {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            pump(&shared, number, from, to);
            if side == Side::Client {
                lock(&shared).open.remove(&number);
            }
        });
    }
    Ok(())
}

/// Whose bytes are passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Passes bytes on until one side ends or the relay is cut; swallows them once the connection
/// hangs.
fn pump(shared: &Mutex<State>, number: usize, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0_u8; 16 * 1024];
    loop {
        let n = from.read(&mut buffer).unwrap_or(0);
        let hangs = number < lock(shared).hanging_below;
        if hangs && n == 0 {
            // The other side must not learn of it.
            return;
        }
        if n == 0 || (!hangs && to.write_all(&buffer[..n]).is_err()) {
            // Whoever is closed already does not mind.
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http;

    #[test]
    fn a_relay_passes_on_until_it_is_cut_and_again_when_healed() {
        let server = http::StaticServer::start("hello").unwrap();
        let url = server.url();
        let target = url.split('/').nth(2).unwrap();
        let relay = Relay::start(target.parse().unwrap()).unwrap();
        let address = relay.address().to_string();
        assert_eq!(http::get(&address, "/").unwrap().body, "hello");
        relay.cut();
        assert!(http::get(&address, "/").is_err());
        relay.heal().unwrap();
        assert_eq!(http::get(&address, "/").unwrap().body, "hello");
        assert_eq!(relay.n_accepted(), 2);
    }

    /// Sends every byte back, to any number of clients.
    fn start_echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() > 0 {
                        stream.write_all(&byte).unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn a_hanging_connection_stays_open_and_a_new_one_works() {
        let relay = Relay::start(start_echo()).unwrap();
        let mut byte = [0];
        let mut old = TcpStream::connect(relay.address()).unwrap();
        old.write_all(b"a").unwrap();
        old.read_exact(&mut byte).unwrap();
        relay.hang();
        old.write_all(b"b").unwrap();
        old.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let error = old.read(&mut byte).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        let mut new = TcpStream::connect(relay.address()).unwrap();
        new.write_all(b"c").unwrap();
        new.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"c");
        assert_eq!(relay.n_hanging(), 1);
        drop(old);
        crate::wait_until("the client's end to be noticed", Duration::from_secs(5), || {
            Ok((relay.n_hanging() == 0).then_some(()))
        })
        .unwrap();
    }
}
