//! A node, its pods and somebody outside, each a network namespace, all of them gone with their descriptors.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use ferrolet_runtime_sys::network::{leave_namespace, loopback_up};

use crate::inside::within;
use crate::netlink::route::{self, Pair};
use crate::netlink::socket::Socket;
use crate::network::{Network, PodNetwork as _, Settings, SetupRequest};
use crate::{Attachment, CniSettings, HostPort, Protocol};

pub(super) const NODE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
pub(super) const STRANGER: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const PATIENCE: Duration = Duration::from_secs(3);

/// Plays a test on a thread that has a network of its own, the node's.
pub(super) fn on_node<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    let played = thread::spawn(|| {
        leave_namespace().unwrap();
        loopback_up().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(Bench::new()));
    });
    played.join().unwrap();
}

pub(super) struct Bench {
    pub(super) network: Network,
    /// The node's own namespace, as others enter it.
    pub(super) node: OwnedFd,
    pub(super) stranger: OwnedFd,
    nothing: tempfile::TempDir,
}

pub(super) struct Pod {
    pub(super) namespace: OwnedFd,
    pub(super) attachment: Attachment,
}

fn own_namespace() -> OwnedFd {
    File::open("/proc/thread-self/ns/net").unwrap().into()
}

/// A namespace whose `lo` is up, as a monitor makes it.
pub(super) fn new_namespace() -> OwnedFd {
    let make = || {
        leave_namespace().unwrap();
        loopback_up().unwrap();
        own_namespace()
    };
    thread::spawn(make).join().unwrap()
}

impl Bench {
    fn new() -> Self {
        let nothing = tempfile::tempdir().unwrap();
        let network = start(nothing.path());
        let bench = Self { network, node: own_namespace(), stranger: new_namespace(), nothing };
        bench.connect_stranger();
        bench
    }

    /// Another agent on the same node.
    pub(super) fn start_again(&mut self) {
        self.network = start(self.nothing.path());
    }

    /// Somebody who knows the node and no pod.
    fn connect_stranger(&self) {
        let (near, far) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut socket = Socket::route().unwrap();
        let pair = Pair {
            link: "out0",
            host_mac: near,
            pod_mac: far,
            mtu: 1400,
            namespace: self.stranger.as_fd(),
        };
        socket.request(&[route::new_pair(&pair)]).unwrap();
        let configure = |name: &str, own: [&str; 2], other: [&str; 2], mac| {
            let mut socket = Socket::route().unwrap();
            let index = index_of(&mut socket, name).unwrap();
            let mut requests = vec![route::up(index)];
            for (own, other) in own.iter().zip(other) {
                let other: IpAddr = other.parse().unwrap();
                requests.push(route::add_address(index, own.parse().unwrap(), route::OURS));
                requests.push(route::neighbour(index, other, mac));
                requests.push(route::route_to(index, other));
                requests.extend(other.is_ipv4().then(|| route::default_route(index, other)));
            }
            // The stranger has no way to the pods.
            if name == "eth0" {
                requests.retain(|it| !it.what.contains("default"));
            }
            socket.request(&requests).unwrap();
        };
        configure("out0", NODE, STRANGER, far);
        within(self.stranger.as_fd(), || configure("eth0", STRANGER, NODE, near)).unwrap();
    }

    pub(super) async fn try_pod(
        &self,
        n: usize,
        ports: Vec<HostPort>,
        annotations: &[(&str, &str)],
    ) -> Result<Pod, crate::SetupError> {
        let namespace = new_namespace();
        let text = |it: &str| it.to_owned();
        let request = SetupRequest {
            // As different in their beginnings as real ones.
            sandbox: format!("{n:012x}{n:052x}"),
            namespace: text("default"),
            name: format!("pod-{n}"),
            uid: n.to_string(),
            ports,
            annotations: annotations.iter().map(|(a, b)| (text(a), text(b))).collect(),
        };
        let attachment = self.network.setup(request, namespace.try_clone().unwrap()).await?;
        Ok(Pod { namespace, attachment })
    }

    pub(super) async fn pod(&self, n: usize, ports: Vec<HostPort>) -> Pod {
        self.try_pod(n, ports, &[]).await.unwrap()
    }

    /// Everything of ours in the node's namespace: links, addresses, elements.
    pub(super) fn census(&self) -> (usize, usize, usize) {
        let count = || {
            let mut socket = Socket::route().unwrap();
            let (mut links, mut addresses) = (0, 0);
            socket
                .dump(&route::get_links(None), |heard| {
                    let own = route::link(heard).is_some_and(|it| it.name.starts_with("frl"));
                    links += usize::from(own);
                })
                .unwrap();
            let loopback = index_of(&mut socket, "lo").unwrap();
            socket
                .dump(&route::get_addresses(), |heard| {
                    let own =
                        route::own_address(heard, route::OURS).is_some_and(|it| it.0 == loopback);
                    addresses += usize::from(own);
                })
                .unwrap();
            let mut filter = Socket::netfilter().unwrap();
            let elements = crate::netlink::tables::present(
                &mut filter,
                &crate::plan::names::Names::of("ferrolet"),
            )
            .map_or(0, |it| it.len());
            (links, addresses, elements)
        };
        within(self.node.as_fd(), count).unwrap()
    }
}

pub(super) fn index_of(socket: &mut Socket, name: &str) -> Option<u32> {
    let mut found = None;
    socket.ask(&route::get_links(Some(name)), |heard| found = route::link(heard)).ok()?;
    found.map(|it| it.index)
}

fn start(nothing: &std::path::Path) -> Network {
    let cni = CniSettings {
        config_dir: nothing.join("net.d"),
        plugin_dirs: Vec::new(),
        cache_dir: nothing.join("cache"),
        namespace_dir: nothing.join("netns"),
        patience: PATIENCE,
    };
    let pod_ranges = vec!["10.88.0.0/16".parse().unwrap(), "fd00:88::/64".parse().unwrap()];
    Network::start(Settings { name: "ferrolet".to_owned(), pod_ranges, unmasked: Vec::new(), cni })
        .unwrap()
}

pub(super) fn port(protocol: Protocol, host_port: u32, host_address: &str) -> HostPort {
    HostPort {
        protocol: protocol.into(),
        container_port: 80,
        host_port,
        host_address: host_address.to_owned(),
    }
}

impl Pod {
    pub(super) fn address(&self, n: usize) -> &str {
        &self.attachment.addresses[n]
    }
}

/// Has a namespace answer everybody on port 80 with who they seem to be, until the test ends.
pub(super) fn serve(namespace: &OwnedFd) {
    let listen = || TcpListener::bind("[::]:80");
    let listener = within(namespace.as_fd(), listen).unwrap().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let caller = stream.peer_addr().map(|it| it.ip().to_canonical().to_string());
            let _gone = stream.write_all(caller.unwrap_or_default().as_bytes());
        }
    });
}

/// Whom a server on port 80 sees, when it is asked from a namespace.
pub(super) fn ask(from: &OwnedFd, address: &str, port: u16) -> io::Result<String> {
    let to = SocketAddr::new(address.parse().unwrap(), port);
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    within(from.as_fd(), ask).unwrap()
}
