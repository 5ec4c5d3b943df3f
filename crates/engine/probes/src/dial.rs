//! Opening connections, with errors in the words that Go's dialer uses and that users know from events.
//!
//! No `SO_LINGER`, unlike upstream: a lingering close would block the whole thread when the other side is dead, and the kernel
//! keeps sockets in TIME_WAIT for as long as without (measured with upstream's own dialer). What does keep TIME_WAIT away from
//! the node is to let the other side close first, which `http` does.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpStream, lookup_host};

/// Connects to a host by address or name; tries every address of a name.
pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return connect(SocketAddr::new(ip, port)).await;
    }
    let mut answer = Err(format!("dial tcp: lookup {host}: no such host"));
    // Scoped addresses (`fe80::1%eth0`) take this way too.
    for address in lookup_host((host, port)).await.into_iter().flatten() {
        answer = connect(address).await;
        if answer.is_ok() {
            break;
        }
    }
    answer
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await;
    stream.map_err(|error| format!("dial tcp {address}: connect: {}", in_words(&error)))
}

/// `host:port`, with brackets where the host has colons.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// An operating system's error as Go prints it: lower case, without its number.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}
