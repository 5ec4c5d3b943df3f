//! A pod's end, configured from within its namespace by a thread that goes there and ends there.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netlink::route;
use crate::netlink::socket::{NetlinkError, Socket};
use crate::plan::pod::{POD_LINK, PodPlan};
use crate::sysctl;

/// A line has 200 characters, and a pod a few interfaces.
const LONGEST_TABLE: u64 = 1 << 20;

/// Gives the pod's end its addresses, neighbours and routes, and its limit of bits a second if there is one.
pub(crate) fn configure(
    namespace: BorrowedFd<'_>,
    plan: &PodPlan,
    egress: u64,
) -> Result<(), NetlinkError> {
    let work = || {
        let mut socket = Socket::route()?;
        let mut found = None;
        let question = route::get_links(Some(POD_LINK));
        socket.ask(&question, |heard| found = route::link(heard))?;
        let index =
            found.ok_or_else(|| NetlinkError::new(question.what.clone(), Errno::NODEV))?.index;
        let mut requests = Vec::new();
        if plan.has_ipv6() {
            sysctl::no_advertisements(POD_LINK).map_err(|(path, errno)| {
                NetlinkError::new(format!("write {path} in pod"), errno)
            })?;
            requests.push(route::no_own_address(index));
        }
        requests.push(route::up(index));
        requests
            .extend(plan.addresses.iter().map(|it| route::add_address(index, *it, route::OURS)));
        for gateway in plan.gateways() {
            requests.push(route::neighbour(index, gateway, plan.host_mac));
            if gateway.is_ipv4() {
                requests.push(route::route_to(index, gateway));
            }
            requests.push(route::default_route(index, gateway));
        }
        if egress > 0 {
            requests.push(route::shape(index, egress));
        }
        socket.request(&requests)
    };
    let went = within(namespace, work);
    went.unwrap_or_else(|errno| Err(NetlinkError::new("enter pod's network namespace", errno)))
}

/// Connects to a port of the pod, from within it; tried are its own IPv4 and then its own IPv6 loopback address, as
/// `kubectl port-forward` expects. The call blocks at most as long as that.
///
/// # Errors
///
/// When nobody listens there, or the namespace cannot be entered.
pub fn connect(namespace: BorrowedFd<'_>, port: u16, patience: Duration) -> io::Result<OwnedFd> {
    let connect = || {
        let to = |host: std::net::IpAddr| SocketAddr::new(host, port);
        let four = to(std::net::Ipv4Addr::LOCALHOST.into());
        let six = to(std::net::Ipv6Addr::LOCALHOST.into());
        let first = std::net::TcpStream::connect_timeout(&four, patience);
        first.or_else(|refused| {
            std::net::TcpStream::connect_timeout(&six, patience).map_err(|_| refused)
        })
    };
    let stream = within(namespace, connect).map_err(io::Error::from)??;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// The kernel's table of what went through each interface of a network namespace.
///
/// # Errors
///
/// When the namespace cannot be entered, or the table not read.
pub fn read_interfaces(namespace: BorrowedFd<'_>) -> io::Result<String> {
    let read = || -> io::Result<String> {
        let mut table = Vec::new();
        // `self` would be the first thread's, which is elsewhere.
        let file = std::fs::File::open("/proc/thread-self/net/dev")?;
        file.take(LONGEST_TABLE).read_to_end(&mut table)?;
        Ok(String::from_utf8_lossy(&table).into_owned())
    };
    within(namespace, read).map_err(io::Error::from)?
}

/// Does something in another network namespace. A thread goes there and never comes back, so that no other work can find
/// itself there.
pub(crate) fn within<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Errno> {
    let namespace = namespace.as_fd();
    let go = || {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        Ok(work())
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("pod-network".to_owned());
        let thread = builder.stack_size(256 * 1024).spawn_scoped(scope, go);
        let thread =
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        thread.join().unwrap_or(Err(Errno::CANCELED))
    })
}
