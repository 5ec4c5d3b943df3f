//! Both services over real sockets, called by generated clients, one of which names the socket's
//! path as authority.

use std::{path::Path, sync::Arc};

use ferrolet_ports::{
    Given, GivenClaim, GivenClaimDevice, GivenDevices, GivenMemory, GivenView, PodsView, Remains,
    StatusSink as _, StatusUpdate,
};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::Container;
use prost::Message;
use serde_json::json;
use tokio::sync::watch;
use tonic::{Code, transport::Endpoint};

use super::{LocalSocket, PodNews, PodResources, PodsApi};
use crate::{
    endpoint::channel,
    proto::{local_alpha as alpha, pod_resources as v1},
};

mod v1_client {
    #![expect(unreachable_pub, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/server/v1.rs"));
}
mod alpha_client {
    #![expect(unreachable_pub, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/server/v1alpha1.rs"));
}

use alpha_client::{
    pod_resources_lister_client::PodResourcesListerClient as AlphaClient, pods_client::PodsClient,
};
use v1_client::pod_resources_lister_client::PodResourcesListerClient;

struct FakePods(Vec<Pod>);

impl PodsView for FakePods {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

struct OneDevice;

impl GivenView for OneDevice {
    fn allocatable(&self) -> Given {
        let pod = pod("x", "Running");
        Given { cpus: vec![0, 1], ..self.given_to(&pod, &pod.spec_ref().containers[0]) }
    }

    fn given_to(&self, _: &Pod, container: &Container) -> Given {
        let device = GivenDevices {
            resource: "example.org/fpga".to_owned(),
            ids: vec!["7".to_owned()],
            numa_nodes: vec![1],
        };
        if container.name != "main" {
            return Given::default();
        }
        let card = GivenClaimDevice {
            driver: "gpu.example".to_owned(),
            pool: "pool".to_owned(),
            device: "card-0".to_owned(),
            share_id: None,
            cdi_ids: vec!["gpu.example/card=0".to_owned()],
        };
        let (namespace, name) = ("ns".to_owned(), "mine".to_owned());
        let memory = GivenMemory { kind: "memory".to_owned(), bytes: 4096, numa_nodes: vec![0, 1] };
        Given {
            devices: vec![device],
            cpus: vec![2, 3],
            memory: vec![memory],
            claims: vec![GivenClaim { namespace, name, devices: vec![card] }],
        }
    }
}

fn pod(name: &str, phase: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {
            "initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}],
            "containers": [{"name": "main"}],
        },
        "status": {"phase": phase},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn pods() -> Arc<FakePods> {
    Arc::new(FakePods(vec![pod("b", "Running"), pod("a", "Succeeded")]))
}

fn socket(path: &Path) -> LocalSocket {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    LocalSocket::new(listener).unwrap()
}

#[tokio::test]
async fn pod_resources_are_listed_in_both_versions() {
    let held = tempfile::tempdir().unwrap();
    let path = held.path().join("kubelet.sock");
    let service = PodResources::new(pods(), Arc::new(OneDevice));
    let serving = tokio::spawn(service.serve(socket(&path)));
    let mut client = PodResourcesListerClient::new(channel(&path));
    let listed = client.list(v1::ListPodResourcesRequest {}).await.unwrap();
    let listed = listed.into_inner().pod_resources;
    let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["b"], "a pod that has ended is left out");
    let containers: Vec<(&str, usize)> =
        listed[0].containers.iter().map(|it| (it.name.as_str(), it.devices.len())).collect();
    assert_eq!(containers, [("side", 0), ("main", 1)]);
    let main = &listed[0].containers[1];
    assert_eq!((&main.cpu_ids, main.memory[0].size), (&vec![2, 3], 4096));
    let claim = &main.dynamic_resources[0];
    assert_eq!((claim.claim_namespace.as_str(), claim.claim_name.as_str()), ("ns", "mine"));
    let card = &claim.claim_resources[0];
    assert_eq!((card.driver_name.as_str(), card.device_name.as_str()), ("gpu.example", "card-0"));
    assert_eq!(card.cdi_devices[0].name, "gpu.example/card=0");
    let get = |name: &str| v1::GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "ns".to_owned(),
    };
    let got = client.get(get("b")).await.unwrap().into_inner();
    assert_eq!(got.pod_resources.as_ref(), listed.first());
    let missing = client.get(get("a")).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unknown);
    assert_eq!(missing.message(), "pod a in namespace ns not found");
    let all = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await;
    let all = all.unwrap().into_inner();
    assert_eq!((all.cpu_ids, all.devices.len()), (vec![0, 1], 1));
    let mut old = AlphaClient::new(channel(&path));
    let listed = old.list(alpha::ListPodResourcesRequest {}).await.unwrap();
    let listed = listed.into_inner().pod_resources;
    assert_eq!(listed.len(), 2, "the old version shows all of them");
    assert_eq!(listed[0].containers.len(), 1, "and ordinary containers only");
    serving.abort();
}

#[tokio::test]
async fn more_than_ten_calls_at_once_are_too_many() {
    let held = tempfile::tempdir().unwrap();
    let path = held.path().join("kubelet.sock");
    let service = PodResources::new(pods(), Arc::new(OneDevice));
    let serving = tokio::spawn(service.serve(socket(&path)));
    let client = PodResourcesListerClient::new(channel(&path));
    let calls = (0..60).map(|_| {
        let mut client = client.clone();
        async move { client.list(v1::ListPodResourcesRequest {}).await }
    });
    let ended = futures::future::join_all(calls).await;
    let refused: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty());
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "rejected by rate limit");
    }
    serving.abort();
}

#[tokio::test]
async fn a_client_may_name_the_path_as_authority() {
    let held = tempfile::tempdir().unwrap();
    let path = held.path().join("kubelet.sock");
    let service = PodResources::new(pods(), Arc::new(OneDevice));
    let serving = tokio::spawn(service.serve(socket(&path)));
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    // By hand: no library of ours would send this.
    let authority = path.to_str().unwrap().as_bytes();
    let mut block = vec![0x83, 0x86, 0x41, u8::try_from(authority.len()).unwrap()];
    block.extend_from_slice(authority);
    for (name, value) in [
        (":path", "/v1.PodResourcesLister/List"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let length = u32::try_from(block.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[1, 4, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    // An empty message in a frame that ends the stream.
    bytes.extend_from_slice(&[0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    let (mut reading, mut writing) = stream.into_split();
    tokio::io::AsyncWriteExt::write_all(&mut writing, &bytes).await.unwrap();
    let mut heard = Vec::new();
    let wanted = b"example.org/fpga";
    while !heard.windows(wanted.len()).any(|part| part == wanted) {
        let n = tokio::io::AsyncReadExt::read_buf(&mut reading, &mut heard).await.unwrap();
        assert_ne!(n, 0, "the request was refused: {heard:?}");
    }
    serving.abort();
}

/// The fields of a pod's metadata that tests look at.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReadPod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

fn name_of(bytes: &[u8]) -> String {
    let pod = ReadPod::decode(bytes).unwrap();
    pod.metadata.map(|it| it.name).unwrap_or_default()
}

#[tokio::test]
async fn pods_are_listed_found_and_watched_once_all_sources_have_spoken() {
    let held = tempfile::tempdir().unwrap();
    let path = held.path().join("pods-api.sock");
    let (ready, is_ready) = watch::channel(false);
    let news = Arc::new(PodNews::default());
    let service = PodsApi::new(pods(), news.clone(), Arc::new(move || *is_ready.borrow()));
    let serving = tokio::spawn(service.serve(socket(&path)));
    let mut client = PodsClient::new(channel(&path));
    let early = client.list_pods(alpha::ListPodsRequest {}).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert_eq!(early.message(), "Kubelet is initializing");
    let early = client.watch_pods(alpha::WatchPodsRequest {}).await;
    assert_eq!(early.unwrap_err().code(), Code::FailedPrecondition);
    ready.send_replace(true);
    let listed = client.list_pods(alpha::ListPodsRequest {}).await.unwrap();
    let names: Vec<String> = listed.into_inner().pods.iter().map(|it| name_of(it)).collect();
    assert_eq!(names, ["a", "b"], "by uid");
    let get = |uid: &str| alpha::GetPodRequest { pod_uid: uid.to_owned() };
    let got = client.get_pod(get("uid-b")).await.unwrap();
    assert_eq!(name_of(&got.into_inner().pod), "b");
    let missing = client.get_pod(get("uid-c")).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert_eq!(missing.message(), "pod with UID uid-c not found");
    let watched = client.watch_pods(alpha::WatchPodsRequest {}).await.unwrap();
    let mut watched = watched.into_inner();
    let update =
        |name: &str, remains| StatusUpdate { pod: pod(name, "Running"), version: 1, remains };
    news.publish(update("c", Remains::Active));
    news.publish(update("c", Remains::Stopped));
    news.publish(update("c", Remains::Settled));
    news.publish(update("c", Remains::Settled));
    news.publish(update("d", Remains::Active));
    news.forget(&PodUid::from("uid-d"));
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let event = watched.message().await.unwrap().unwrap();
        seen.push((event.r#type(), name_of(&event.pod)));
    }
    use alpha::EventType::{Added, Deleted, InitialSyncComplete, Modified};
    let expected = [
        (Added, "a"),
        (Added, "b"),
        (InitialSyncComplete, ""),
        (Added, "c"),
        (Modified, "c"),
        (Deleted, "c"),
        (Added, "d"),
        (Deleted, "d"),
    ];
    let expected = expected.map(|(kind, name)| (kind, name.to_owned()));
    assert_eq!(seen, expected);
    serving.abort();
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_sent_away() {
    let held = tempfile::tempdir().unwrap();
    let path = held.path().join("pods-api.sock");
    let news = Arc::new(PodNews::default());
    let service = PodsApi::new(Arc::new(FakePods(Vec::new())), news.clone(), Arc::new(|| true));
    let serving = tokio::spawn(service.serve(socket(&path)));
    // A small window fills soon.
    let connect = channel_with_window(&path);
    let mut client = PodsClient::new(connect);
    let watched = client.watch_pods(alpha::WatchPodsRequest {}).await.unwrap();
    let mut watched = watched.into_inner();
    let mark = watched.message().await.unwrap().unwrap();
    assert_eq!(mark.r#type(), alpha::EventType::InitialSyncComplete);
    let big = "x".repeat(64 * 1024);
    let mut told = 0;
    let status = loop {
        for _ in 0..400 {
            let mut pod = k8s_openapi::api::core::v1::Pod::clone(&pod("c", "Running"));
            pod.metadata.annotations = Some([("big".to_owned(), big.clone())].into());
            news.publish(StatusUpdate {
                pod: Arc::new(pod),
                version: told,
                remains: Remains::Active,
            });
            told += 1;
        }
        // Reads until the stream ends or pauses.
        match watched.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "watch client channel closed");
    serving.abort();
}

fn channel_with_window(path: &Path) -> tonic::transport::Channel {
    let path = path.to_owned();
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(65_535)
        .connect_with_connector_lazy(tower::service_fn(move |_| {
            let path = path.clone();
            async move {
                let stream = tokio::net::UnixStream::connect(path).await;
                stream.map(hyper_util::rt::TokioIo::new)
            }
        }))
}
