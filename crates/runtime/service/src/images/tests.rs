//! The image service over a real socket, as a kubelet and `crictl` use it.

use std::{fs::File, io::Write as _, path::Path, time::Duration};

use ferrolet_cri_proto::image_service_client::ImageServiceClient;
use ferrolet_runtime_images::{
    BootId, Limits, Registry, RegistrySettings, load, manifest::Platform,
};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tonic::{
    Code,
    transport::{Channel, Endpoint, Uri},
};

use super::*;
use crate::{serve, upkeep::Upkeep};

const LIMITS: Limits = Limits { reserved_bytes: 0, ..Limits::USUAL };

struct Node {
    _place: tempfile::TempDir,
    store: Store,
    client: ImageServiceClient<Channel>,
}

async fn node() -> Node {
    let place = tempfile::tempdir().unwrap();
    let store =
        Store::open(&place.path().join("store"), BootId("now".to_owned()), &LIMITS).unwrap();
    let settings = RegistrySettings {
        hosts: None,
        roots_pem: Vec::new(),
        patience: Duration::from_secs(20),
        stall: Duration::from_secs(20),
    };
    let puller = Puller::new(store.clone(), Registry::new(settings, &LIMITS), &LIMITS);
    let (upkeep, handle) = Upkeep::new(store.clone());
    let server =
        ImageServer::new(store.clone(), Arc::new(puller), handle, WallClock(Arc::new(|| 42)));
    let socket = place.path().join("runtime.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(upkeep.run());
    let incoming = crate::Incoming::outside(listener);
    tokio::spawn(serve(incoming, server, None, std::future::pending()));
    let connect = move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    };
    let endpoint = Endpoint::from_static("http://runtime");
    let channel = endpoint.connect_with_connector(tower::service_fn(connect)).await.unwrap();
    Node { _place: place, store, client: ImageServiceClient::new(channel) }
}

/// What `docker save` writes for an image with one layer that holds `content`.
fn archive(path: &Path, tags: &[&str], content: &[u8]) {
    let append = |archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).unwrap();
    };
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, "file", content);
    let layer = layer.into_inner().unwrap();
    let config = serde_json::json!({
        "os": "linux",
        "config": { "User": "1002" },
        "rootfs": { "type": "layers", "diff_ids": [ferrolet_runtime_images::Digest::of(&layer)] },
    });
    let listed = serde_json::json!([{ "Config": "c.json", "RepoTags": tags, "Layers": ["l.tar"] }]);
    let mut image = tar::Builder::new(Vec::new());
    append(&mut image, "c.json", config.to_string().as_bytes());
    append(&mut image, "l.tar", &layer);
    append(&mut image, "manifest.json", listed.to_string().as_bytes());
    File::create(path).unwrap().write_all(&image.into_inner().unwrap()).unwrap();
}

impl Node {
    fn load(&self, tags: &[&str], content: &[u8]) {
        let path = self.store.path().join("archive.tar");
        archive(&path, tags, content);
        load(&self.store, File::open(path).unwrap(), &Platform::own(), &LIMITS).unwrap();
    }

    async fn list(&mut self, filter: &str) -> Vec<cri::Image> {
        let filter = cri::ImageFilter { image: Some(spec(filter)) };
        let request = cri::ListImagesRequest { filter: Some(filter) };
        self.client.list_images(request).await.unwrap().into_inner().images
    }

    async fn status(&mut self, name: &str) -> Option<cri::Image> {
        let request = cri::ImageStatusRequest { image: Some(spec(name)), verbose: false };
        self.client.image_status(request).await.unwrap().into_inner().image
    }
}

fn spec(name: &str) -> cri::ImageSpec {
    cri::ImageSpec { image: name.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn images_are_listed_found_by_every_name_and_removed_with_all_of_them() {
    let mut node = node().await;
    let tags = ["example.com/tags:1", "example.com/tags:2", "example.com/tags:3"];
    node.load(&tags, b"tags");
    node.load(&["busybox:latest"], b"busybox");
    assert_eq!(node.list("").await.len(), 2);
    let found = node.list("example.com/tags:2").await;
    assert_eq!(found.len(), 1);
    let image = &found[0];
    assert_eq!(image.repo_tags, tags);
    assert_eq!(image.uid, Some(cri::Int64Value { value: 1002 }));
    assert!(image.size >= 4096);
    for name in [image.id.as_str(), "example.com/tags:3", &image.id[..20]] {
        assert_eq!(node.status(name).await.as_ref(), Some(image), "{name}");
    }
    assert_eq!(
        node.status("busybox").await.unwrap().repo_tags,
        ["docker.io/library/busybox:latest"]
    );
    assert_eq!(node.status("example.com/absent").await, None);

    let remove = || cri::RemoveImageRequest { image: Some(spec("example.com/tags:1")) };
    node.client.remove_image(remove()).await.unwrap();
    assert_eq!(node.status("example.com/tags:2").await, None);
    // Removing what is not there is done already.
    node.client.remove_image(remove()).await.unwrap();
    assert_eq!(node.list("").await.len(), 1);
}

#[tokio::test]
async fn room_is_told_and_given_back() {
    let mut node = node().await;
    let used = async |node: &mut Node| {
        let answer =
            node.client.image_fs_info(cri::ImageFsInfoRequest {}).await.unwrap().into_inner();
        let usage = answer.image_filesystems[0].clone();
        assert_eq!(usage.timestamp, 42);
        assert_eq!(usage.fs_id.unwrap().mountpoint, node.store.path().display().to_string());
        usage.used_bytes.unwrap().value
    };
    assert_eq!(used(&mut node).await, 0);
    node.load(&["example.com/app:1"], &[7; 100_000]);
    assert!(used(&mut node).await > 100_000);
    let request = cri::RemoveImageRequest { image: Some(spec("example.com/app:1")) };
    node.client.remove_image(request).await.unwrap();
    assert_eq!(used(&mut node).await, 0);
}

#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let mut node = node().await;
    for i in 0..=PAGE {
        node.load(&[&format!("example.com/app:{i}")], i.to_string().as_bytes());
    }
    let request = cri::StreamImagesRequest { filter: None };
    let mut pages = node.client.stream_images(request).await.unwrap().into_inner();
    let mut sizes = Vec::new();
    while let Some(page) = pages.message().await.unwrap() {
        sizes.push(page.images.len());
    }
    assert_eq!(sizes, [PAGE, 1]);
}

#[tokio::test]
async fn what_cannot_be_pulled_is_told_with_a_code() {
    let mut node = node().await;
    let pull = |name: &str| cri::PullImageRequest { image: Some(spec(name)), ..Default::default() };
    let error = node.client.pull_image(pull("Not A Name")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let error = node.client.pull_image(pull("")).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "no image is named"));
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = node.client.pull_image(pull(&format!("{closed}/app:1"))).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().starts_with("RegistryUnavailable: failed to pull image"), "{error}");
}
