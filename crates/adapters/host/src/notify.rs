//! Telling systemd how we are: the `sd_notify` protocol, one datagram per message.
//!
//! In: the address from `NOTIFY_SOCKET`, read by the composition root. Out: datagrams. Without an
//! address nothing is said.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// The way to the service manager, if there is one.
#[derive(Clone, Debug)]
pub struct Notifier {
    address: Option<OsString>,
}

impl Notifier {
    /// Takes the value of `NOTIFY_SOCKET`; a leading `@` names an abstract socket.
    pub fn new(address: Option<OsString>) -> Self {
        let address = address.filter(|text| !text.is_empty());
        Self { address }
    }

    /// The service is up.
    pub fn ready(&self) -> io::Result<()> {
        self.send("READY=1")
    }

    /// The service is going down.
    pub fn stopping(&self) -> io::Result<()> {
        self.send("STOPPING=1")
    }

    /// The service is alive; wanted within each watchdog interval.
    pub fn watchdog(&self) -> io::Result<()> {
        self.send("WATCHDOG=1")
    }

    fn send(&self, message: &str) -> io::Result<()> {
        let Some(address) = &self.address else {
            return Ok(());
        };
        let socket = UnixDatagram::unbound()?;
        // A full queue at the manager must not hold us up; the next message says the same.
        socket.set_nonblocking(true)?;
        socket.send_to_addr(message.as_bytes(), &socket_address(address)?)?;
        Ok(())
    }
}

/// How often systemd wants to hear from us, from `WATCHDOG_USEC` and `WATCHDOG_PID`; half of it is
/// the usual pace.
pub fn watchdog_interval(usec: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let usec = usec?.parse().ok().filter(|usec| *usec > 0)?;
    Some(Duration::from_micros(usec))
}

fn socket_address(address: &OsStr) -> io::Result<SocketAddr> {
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listener: &UnixDatagram, address: OsString) {
        let notifier = Notifier::new(Some(address));
        let mut buffer = [0; 64];
        for (sent, expected) in [
            (notifier.ready(), &b"READY=1"[..]),
            (notifier.watchdog(), b"WATCHDOG=1"),
            (notifier.stopping(), b"STOPPING=1"),
        ] {
            sent.unwrap();
            let n = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], expected);
        }
    }

    #[test]
    fn messages_arrive_at_a_socket_in_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        check(&UnixDatagram::bind(&path).unwrap(), path.into());
    }

    #[test]
    fn messages_arrive_at_an_abstract_socket() {
        let name = format!("ferrolet-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        check(&listener, format!("@{name}").into());
    }

    #[test]
    fn without_an_address_nothing_is_said_and_nothing_fails() {
        Notifier::new(None).ready().unwrap();
        Notifier::new(Some(OsString::new())).ready().unwrap();
        assert!(Notifier::new(Some("/nowhere/socket".into())).ready().is_err());
    }

    #[test]
    fn the_watchdog_counts_only_when_it_means_this_process() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog_interval(Some("1000000"), None, 7), second);
        assert_eq!(watchdog_interval(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog_interval(Some("1000000"), Some("8"), 7), None);
        assert_eq!(watchdog_interval(Some("0"), None, 7), None);
        assert_eq!(watchdog_interval(Some("x"), None, 7), None);
        assert_eq!(watchdog_interval(None, None, 7), None);
    }
}
