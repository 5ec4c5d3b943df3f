//! What clients send: manifests, and frames of their streams.

use ferrolet_parsers_tests::survive;
use ferrolet_sources::{Origin, read};
use ferrolet_streams::{spdy, websocket};

const POD: &[u8] = br#"apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  restartPolicy: Always
  initContainers: [{name: first, image: "a.test/b:1"}]
  containers:
  - name: main
    image: nginx
    ports: [{containerPort: 80, hostPort: 8080}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 1Gi}}
    livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 5}
    volumeMounts: [{name: v, mountPath: /v, subPath: a/b}]
  volumes: [{name: v, emptyDir: {sizeLimit: 10Mi}}]
"#;

#[test]
fn a_manifest_that_is_taken_has_a_name_and_is_taken_again_as_it_was() {
    let origin = Origin::File("/etc/kubernetes/manifests/web.yaml");
    assert_eq!(read(POD, origin, "node").unwrap().pods.len(), 1);
    let json = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"i"}]}}"#;
    survive("manifests", &[POD, json], |text| {
        let taken = read(text, origin, "node");
        assert_eq!(taken, read(text, origin, "node"));
        for pod in taken.into_iter().flat_map(|it| it.pods) {
            let meta = &pod.pod.metadata;
            assert!(meta.name.as_ref().is_some_and(|name| name.ends_with("-node")), "{meta:?}");
            assert!(meta.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
        }
    });
}

/// More pieces than bytes came from nowhere.
fn frames_end(n_bytes: usize, mut next: impl FnMut() -> Option<usize>) {
    let mut n_heard = 0;
    while let Some(n_piece) = next() {
        n_heard += 1;
        assert!(n_heard <= n_bytes && n_piece <= n_bytes, "{n_heard} pieces of {n_bytes} bytes");
    }
}

#[test]
fn damaged_frames_end_the_connection_sooner_or_later() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut opener = spdy::Opener::new();
    let (id, mut client) = opener.open("stdin");
    let send = async {
        spdy::send(&mut client, id, b"some words").await?;
        spdy::finish(&mut client, id).await
    };
    runtime.block_on(send).unwrap();
    survive("SPDY of a client", &[&client], |text| {
        let mut frames = spdy::Frames::of_client(text);
        frames_end(text.len(), || match runtime.block_on(frames.next()) {
            Ok(spdy::Heard::Closed) | Err(_) => None,
            Ok(spdy::Heard::Data { .. }) => Some(frames.piece().len()),
            Ok(_) => Some(0),
        });
    });
    survive("SPDY of a server", &[&client], |text| {
        let mut frames = spdy::Frames::of_server(text);
        frames_end(text.len(), || match runtime.block_on(frames.next()) {
            Ok(spdy::Heard::Closed) | Err(_) => None,
            Ok(_) => Some(0),
        });
    });
    // A masked binary frame, a ping and the end.
    let client =
        b"\x82\x83\x01\x02\x03\x04\x01\x63\x61\x89\x80\x00\x00\x00\x00\x88\x80\x00\x00\x00\x00";
    survive("WebSocket of a client", &[client], |text| {
        let mut frames = websocket::Frames::new(text);
        frames_end(text.len(), || match runtime.block_on(frames.next()) {
            Ok(websocket::Heard::Closed) | Err(_) => None,
            Ok(websocket::Heard::Piece { .. }) => Some(frames.piece().len()),
            Ok(_) => Some(0),
        });
    });
}
