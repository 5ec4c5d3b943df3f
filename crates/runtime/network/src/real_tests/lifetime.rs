//! What comes and goes: restarts, ends, what nobody owns, and many at once.

use std::os::fd::AsFd as _;

use tokio::time::Instant;

use super::bench::{NODE, Pod, STRANGER, ask, index_of, on_node, port, serve};
use crate::inside::within;
use crate::netlink::route;
use crate::netlink::socket::Socket;
use crate::network::{PodNetwork as _, Restored, Status};
use crate::plan::names::Names;
use crate::{Attachment, Protocol};

const NONE: (usize, usize, usize) = (0, 0, 0);

#[test]
fn an_end_leaves_nothing() {
    on_node(|bench| async move {
        assert_eq!(bench.census(), NONE);
        let pod = bench.pod(1, vec![port(Protocol::Tcp, 8080, "")]).await;
        // Sources, selves and ports of two families.
        assert_eq!(bench.census(), (1, 2, 6));
        bench.network.teardown(pod.attachment.clone()).await.unwrap();
        bench.network.teardown(pod.attachment.clone()).await.unwrap();
        assert_eq!(bench.census(), (0, 2, 0));
        // Its address rests, its port does not.
        let next = bench.pod(2, vec![port(Protocol::Tcp, 8080, "")]).await;
        assert_eq!(next.address(0), "10.88.0.3");
        bench.network.teardown(next.attachment).await.unwrap();
        bench.network.remove().await.unwrap();
        assert_eq!(bench.census(), NONE);
    });
}

#[test]
fn what_fails_half_way_leaves_nothing() {
    on_node(|bench| async move {
        let pod = bench.pod(1, vec![]).await;
        let before = bench.census();
        // The same namespace again: its eth0 is there.
        let request = crate::SetupRequest {
            sandbox: "ffffffffffff".to_owned(),
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            ports: vec![port(Protocol::Tcp, 8080, "")],
            annotations: Default::default(),
        };
        let namespace = pod.namespace.try_clone().unwrap();
        let refused = bench.network.setup(request, namespace).await.unwrap_err();
        let words = crate::network::chain(&refused);
        assert!(words.starts_with("connect pod: create link frlffffffffffff"), "{words}");
        assert_eq!(bench.census(), before);
        bench.pod(2, vec![port(Protocol::Tcp, 8080, "")]).await;
    });
}

#[test]
fn a_restart_changes_nothing_for_pods() {
    on_node(|mut bench| async move {
        let pods =
            [bench.pod(1, vec![port(Protocol::Tcp, 8080, "")]).await, bench.pod(2, vec![]).await];
        serve(&pods[0].namespace);
        let records: Vec<Attachment> = pods.iter().map(|it| it.attachment.clone()).collect();
        let before = bench.census();
        bench.start_again();
        assert_eq!(bench.network.restore(records.clone()).await.unwrap(), Restored::default());
        assert_eq!(bench.census(), before);
        assert_eq!(ask(&bench.stranger, NODE[0], 8080).unwrap(), STRANGER[0]);
        assert_eq!(ask(&pods[1].namespace, pods[0].address(1), 80).unwrap(), pods[1].address(1));
        // What is in use is not given away.
        assert_eq!(bench.pod(3, vec![]).await.address(0), "10.88.0.4");
        let taken = bench.try_pod(4, vec![port(Protocol::Tcp, 8080, "")], &[]).await;
        assert!(taken.is_err());
        // Somebody emptied the packet filter meanwhile.
        crate::netlink::tables::remove(&mut filter(&bench), &Names::of("ferrolet")).unwrap();
        assert!(ask(&bench.stranger, NODE[0], 8080).is_err());
        bench.start_again();
        bench.network.restore(records).await.unwrap();
        assert_eq!(ask(&bench.stranger, NODE[0], 8080).unwrap(), STRANGER[0]);
    });
}

fn filter(bench: &super::bench::Bench) -> Socket {
    within(bench.node.as_fd(), || Socket::netfilter().unwrap()).unwrap()
}

#[test]
fn what_no_record_names_goes_and_what_is_lost_is_named() {
    on_node(|mut bench| async move {
        let kept = bench.pod(1, vec![port(Protocol::Tcp, 8080, "")]).await;
        let orphan = bench.pod(2, vec![port(Protocol::Tcp, 8081, "")]).await;
        let lost = bench.pod(3, vec![port(Protocol::Tcp, 8082, "")]).await;
        // Its link goes with its namespace, when a monitor dies.
        drop(lost.namespace);
        let name = Names::of("ferrolet").link(&lost.attachment.sandbox);
        let is_there = || index_of(&mut Socket::route().unwrap(), &name).is_some();
        let began = Instant::now();
        while within(bench.node.as_fd(), is_there).unwrap() {
            assert!(began.elapsed().as_secs() < 20, "the link stays");
            tokio::task::yield_now().await;
        }
        bench.start_again();
        let records = vec![kept.attachment.clone(), lost.attachment.clone()];
        let restored = bench.network.restore(records).await.unwrap();
        let expected = Restored {
            lost: vec![lost.attachment.sandbox.clone()],
            removed_links: vec![Names::of("ferrolet").link(&orphan.attachment.sandbox)],
            removed_elements: 12,
            removed_attachments: Vec::new(),
        };
        assert_eq!(restored, expected);
        assert_eq!(bench.census(), (1, 2, 6));
        bench.network.teardown(lost.attachment).await.unwrap();
        bench.network.teardown(kept.attachment).await.unwrap();
        assert_eq!(bench.census(), (0, 2, 0));
    });
}

#[test]
fn other_ranges_count_for_new_pods() {
    on_node(|bench| async move {
        let old = bench.pod(1, vec![]).await;
        bench.network.set_ranges(vec![]).await.unwrap();
        assert_eq!(
            bench.network.status().await,
            Status::NotReady("no pod CIDR is known yet".to_owned())
        );
        bench.network.set_ranges(vec!["10.99.0.0/24".parse().unwrap()]).await.unwrap();
        let new = bench.pod(2, vec![]).await;
        assert_eq!(new.attachment.addresses, ["10.99.0.2"]);
        [&old.namespace, &bench.stranger].into_iter().for_each(serve);
        assert_eq!(ask(&new.namespace, old.address(0), 80).unwrap(), new.address(0));
        assert_eq!(ask(&old.namespace, STRANGER[0], 80).unwrap(), NODE[0]);
        assert_eq!(ask(&new.namespace, STRANGER[0], 80).unwrap(), NODE[0]);
        assert_eq!(bench.census().1, 1);
    });
}

#[test]
fn a_hundred_pods_are_quick_and_independent() {
    on_node(|mut bench| async move {
        const N: usize = 100;
        let began = Instant::now();
        let mut pods: Vec<Pod> = Vec::new();
        for n in 1..=N {
            let host_port = u32::try_from(30_000 + n).unwrap();
            pods.push(bench.pod(n, vec![port(Protocol::Tcp, host_port, "")]).await);
        }
        println!("{N} pods up in {:?}", began.elapsed());
        serve(&pods[99].namespace);
        assert_eq!(ask(&pods[0].namespace, pods[99].address(0), 80).unwrap(), pods[0].address(0));
        assert_eq!(ask(&bench.stranger, NODE[1], 30_100).unwrap(), STRANGER[1]);
        bench.start_again();
        let began = Instant::now();
        let records: Vec<Attachment> = pods.iter().map(|it| it.attachment.clone()).collect();
        assert_eq!(bench.network.restore(records).await.unwrap(), Restored::default());
        println!("{N} pods restored in {:?}", began.elapsed());
        assert_eq!(bench.census(), (N, 2, 6 * N));
        let began = Instant::now();
        let mut ends = tokio::task::JoinSet::new();
        for pod in &pods {
            let (network, attachment) = (bench.network.clone(), pod.attachment.clone());
            ends.spawn(async move { network.teardown(attachment).await.unwrap() });
        }
        ends.join_all().await;
        println!("{N} pods gone in {:?}", began.elapsed());
        assert_eq!(bench.census(), (0, 2, 0));
        // Routes to them went with their links.
        let mut left = 0;
        let list = || Socket::route().unwrap();
        let mut socket = within(bench.node.as_fd(), list).unwrap();
        socket.dump(&route::get_routes(), |_| left += 1).unwrap();
        assert!(left < 30, "{left} routes");
    });
}
