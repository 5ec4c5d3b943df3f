//! Who reaches whom, and as whom.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::time::Instant;

use super::bench::{NODE, STRANGER, ask, index_of, on_node, port, serve};
use crate::inside::within;
use crate::netlink::route;
use crate::netlink::socket::Socket;
use crate::network::{PodNetwork as _, Status};
use crate::{Protocol, connect};

const GATEWAYS: [&str; 2] = ["10.88.0.1", "fd00:88::1"];

#[test]
fn pods_and_the_node_reach_one_another_under_their_own_addresses() {
    on_node(|bench| async move {
        assert_eq!(bench.network.status().await, Status::Ready);
        let (a, b) = (bench.pod(1, vec![]).await, bench.pod(2, vec![]).await);
        assert_eq!(a.attachment.addresses, ["10.88.0.2", "fd00:88::2"]);
        [&a.namespace, &b.namespace, &bench.node].into_iter().for_each(serve);
        for n in 0..2 {
            assert_eq!(ask(&a.namespace, b.address(n), 80).unwrap(), a.address(n));
            assert_eq!(ask(&b.namespace, a.address(n), 80).unwrap(), b.address(n));
            assert_eq!(ask(&a.namespace, a.address(n), 80).unwrap(), a.address(n));
            assert_eq!(ask(&bench.node, a.address(n), 80).unwrap(), GATEWAYS[n]);
            assert_eq!(ask(&a.namespace, GATEWAYS[n], 80).unwrap(), a.address(n));
            assert_eq!(ask(&a.namespace, NODE[n], 80).unwrap(), a.address(n));
        }
    });
}

#[test]
fn pods_go_out_under_the_nodes_address() {
    on_node(|bench| async move {
        let pod = bench.pod(1, vec![]).await;
        serve(&bench.stranger);
        for n in 0..2 {
            assert_eq!(ask(&pod.namespace, STRANGER[n], 80).unwrap(), NODE[n]);
        }
        // As large as what leads out.
        let mtu = within(pod.namespace.as_fd(), || {
            let mut mtu = 0;
            let mut socket = Socket::route().unwrap();
            let question = route::get_links(Some("eth0"));
            socket.ask(&question, |heard| mtu = route::link(heard).unwrap().mtu).unwrap();
            mtu
        });
        assert_eq!(mtu.unwrap(), 1400);
        let used = bench.network.usage().await.unwrap();
        let used = used[&pod.attachment.sandbox];
        assert!(used.rx_bytes > 100 && used.tx_packets > 4, "{used:?}");
    });
}

#[test]
fn host_ports_lead_to_their_pod_from_everywhere() {
    on_node(|bench| async move {
        let pod = bench.pod(1, vec![port(Protocol::Tcp, 8080, "")]).await;
        let other = bench.pod(2, vec![port(Protocol::Tcp, 8081, NODE[0])]).await;
        [&pod.namespace, &other.namespace].into_iter().for_each(serve);
        for n in 0..2 {
            assert_eq!(ask(&bench.stranger, NODE[n], 8080).unwrap(), STRANGER[n]);
            assert_eq!(ask(&other.namespace, NODE[n], 8080).unwrap(), other.address(n));
            // To itself, by way of the node.
            assert_eq!(ask(&pod.namespace, NODE[n], 8080).unwrap(), GATEWAYS[n]);
            ask(&bench.node, NODE[n], 8080).unwrap();
            ask(&bench.node, GATEWAYS[n], 8080).unwrap();
        }
        assert_eq!(ask(&bench.node, "127.0.0.1", 8080).unwrap(), GATEWAYS[0]);
        // That one is only where it was asked for.
        assert_eq!(ask(&bench.stranger, NODE[0], 8081).unwrap(), STRANGER[0]);
        assert!(ask(&bench.stranger, NODE[1], 8081).is_err());
        assert!(ask(&bench.node, "127.0.0.1", 8081).is_err());
        // A port of a stranger is not one of the node.
        serve(&bench.stranger);
        assert_eq!(ask(&pod.namespace, STRANGER[0], 80).unwrap(), NODE[0]);
        assert!(ask(&pod.namespace, STRANGER[0], 8080).is_err());
        let taken = bench.try_pod(3, vec![port(Protocol::Tcp, 8080, "")], &[]).await.err().unwrap();
        let words = format!("host port 8080/TCP is taken by sandbox {}", pod.attachment.sandbox);
        assert_eq!(taken.to_string(), words);
    });
}

#[test]
fn what_pods_may_not_send_is_dropped() {
    on_node(|bench| async move {
        let (a, b) = (bench.pod(1, vec![]).await, bench.pod(2, vec![]).await);
        serve(&b.namespace);
        for (n, foreign) in ["10.88.0.99", "fd00:88::99"].into_iter().enumerate() {
            let foreign: IpAddr = foreign.parse().unwrap();
            let add = || {
                let mut socket = Socket::route().unwrap();
                let index = index_of(&mut socket, "eth0").unwrap();
                socket.request(&[route::add_address(index, foreign, route::OURS)]).unwrap();
            };
            within(a.namespace.as_fd(), add).unwrap();
            let route_back = || {
                let mut socket = Socket::route().unwrap();
                let index = index_of(
                    &mut socket,
                    &crate::plan::names::Names::of("ferrolet").link(&a.attachment.sandbox),
                );
                socket.request(&[route::route_to(index.unwrap(), foreign)]).unwrap();
            };
            within(bench.node.as_fd(), route_back).unwrap();
            let heard = within(b.namespace.as_fd(), || {
                let it = UdpSocket::bind("[::]:7000").unwrap();
                it.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
                it
            });
            let heard = heard.unwrap();
            let send = |from: IpAddr| {
                let to = SocketAddr::new(b.address(n).parse().unwrap(), 7000);
                within(a.namespace.as_fd(), || {
                    UdpSocket::bind((from, 0)).unwrap().send_to(b"x", to).unwrap()
                })
                .unwrap();
                heard.recv(&mut [0; 8]).is_ok()
            };
            assert!(send(a.address(n).parse().unwrap()));
            assert!(!send(foreign));
        }
    });
}

#[test]
fn udp_host_ports_change_their_owner_at_once() {
    on_node(|bench| async move {
        let answer_as = |pod: &super::bench::Pod, name: &'static [u8]| {
            let bind = || UdpSocket::bind("0.0.0.0:80").unwrap();
            let socket = within(pod.namespace.as_fd(), bind).unwrap();
            std::thread::spawn(move || {
                while let Ok((_, caller)) = socket.recv_from(&mut [0; 8]) {
                    let _gone = socket.send_to(name, caller);
                }
            });
        };
        let client = within(bench.stranger.as_fd(), || {
            let it = UdpSocket::bind("0.0.0.0:0").unwrap();
            it.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            it.connect((NODE[0], 5353)).unwrap();
            it
        });
        let client = client.unwrap();
        let ask = || {
            client.send(b"?").ok()?;
            let mut name = [0; 1];
            client.recv(&mut name).ok().map(|_| name[0])
        };
        assert_eq!(ask(), None);
        let first = bench.pod(1, vec![port(Protocol::Udp, 5353, "")]).await;
        answer_as(&first, b"1");
        assert_eq!(ask(), Some(b'1'));
        bench.network.teardown(first.attachment.clone()).await.unwrap();
        let second = bench.pod(2, vec![port(Protocol::Udp, 5353, "")]).await;
        answer_as(&second, b"2");
        assert_eq!(ask(), Some(b'2'));
    });
}

#[test]
fn annotations_limit_what_a_pod_sends_and_receives() {
    on_node(|bench| async move {
        const N_BYTES: usize = 1_000_000;
        let limits =
            [("kubernetes.io/ingress-bandwidth", "10M"), ("kubernetes.io/egress-bandwidth", "20M")];
        let slow = bench.try_pod(1, vec![], &limits).await.unwrap();
        let quick = bench.pod(2, vec![]).await;
        let took = |from: &super::bench::Pod, to: &super::bench::Pod| {
            let listener = within(to.namespace.as_fd(), || TcpListener::bind("0.0.0.0:0").unwrap());
            let listener = listener.unwrap();
            let at = SocketAddr::new(
                to.address(0).parse().unwrap(),
                listener.local_addr().unwrap().port(),
            );
            let began = Instant::now();
            let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(3)).unwrap();
            let mut sender = within(from.namespace.as_fd(), connect).unwrap();
            let send = std::thread::spawn(move || sender.write_all(&vec![7; N_BYTES]).unwrap());
            let n = listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap();
            send.join().unwrap();
            assert_eq!(n, N_BYTES);
            began.elapsed().as_millis()
        };
        // A burst passes, the rest takes its time: 0.7 and 0.35 seconds.
        let (inward, outward) = (took(&quick, &slow), took(&slow, &quick));
        assert!((400..5000).contains(&inward), "{inward} ms");
        assert!((200..5000).contains(&outward) && outward < inward, "{outward} ms of {inward} ms");
        let wrong = [("kubernetes.io/ingress-bandwidth", "fast")];
        let refused = bench.try_pod(3, vec![], &wrong).await.err().unwrap().to_string();
        assert_eq!(
            refused,
            "annotation kubernetes.io/ingress-bandwidth is \"fast\": not a quantity"
        );
    });
}

#[test]
fn a_port_is_forwarded_from_within_the_pod() {
    on_node(|bench| async move {
        let pod = bench.pod(1, vec![]).await;
        let patience = Duration::from_secs(3);
        assert!(connect(pod.namespace.as_fd(), 80, patience).is_err());
        serve(&pod.namespace);
        let stream: TcpStream = connect(pod.namespace.as_fd(), 80, patience).unwrap().into();
        stream.set_nonblocking(false).unwrap();
        let mut seen = String::new();
        (&stream).read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "127.0.0.1");
    });
}
