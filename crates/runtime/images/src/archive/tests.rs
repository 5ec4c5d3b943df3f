//! Archives of both kinds, whole, broken and lying.

use std::{collections::BTreeMap, io::Write as _};

use serde_json::{Value, json};

use super::*;
use crate::{
    store::BootId,
    unpack::tests::{Layer, gzip},
};

const LIMITS: Limits = Limits { reserved_bytes: 0, ..Limits::USUAL };

/// The files of an archive, to be changed before it is written.
#[derive(Clone, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<String, Vec<u8>>);

impl Files {
    fn blob(&mut self, media_type: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        self.0.insert(format!("blobs/sha256/{}", digest.hex()), content.to_vec());
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// An OCI layout with one image of these layers, gzipped.
    fn layout(name: &str, layers: &[Vec<u8>]) -> Self {
        let mut files = Self::default();
        let diff_ids: Vec<Digest> = layers.iter().map(|it| Digest::of(it)).collect();
        let config = json!({
            "os": "linux", "architecture": "amd64",
            "config": { "Cmd": ["/bin/app"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = files.blob(manifest::OCI_CONFIG, config.to_string().as_bytes());
        let layers: Vec<Value> = layers
            .iter()
            .map(|it| files.blob("application/vnd.oci.image.layer.v1.tar+gzip", &gzip(it)))
            .collect();
        let image = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        let mut listed = files.blob(manifest::OCI_MANIFEST, image.to_string().as_bytes());
        listed["annotations"] = json!({ FULL_NAME: name });
        let index = json!({ "schemaVersion": 2, "manifests": [listed] });
        files.0.insert("index.json".to_owned(), index.to_string().into_bytes());
        files.0.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        files
    }

    fn bytes(&self) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        archive.into_inner().unwrap()
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let place = tempfile::tempdir().unwrap();
    let store =
        Store::open(&place.path().join("store"), BootId("now".to_owned()), &LIMITS).unwrap();
    (place, store)
}

fn try_load(store: &Store, archive: &[u8]) -> Result<Vec<Image>, String> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(archive).unwrap();
    file.rewind().unwrap();
    load(store, file, &Platform::own(), &LIMITS).map_err(|error| {
        let causes =
            std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    })
}

fn content(store: &Store, image: &Image, layer: usize, name: &str) -> String {
    let mut text = String::new();
    let directory = store.open_layer(&image.layers[layer]).unwrap();
    directory.read(name.as_bytes()).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_layout_is_loaded_with_its_name_and_its_layers() {
    let (_place, store) = store();
    let layers =
        [Layer::default().file("a", "low").bytes(), Layer::default().file("a", "high").bytes()];
    let files = Files::layout("example.com/app:1", &layers);
    for archive in [files.bytes(), gzip(&files.bytes())] {
        let images = try_load(&store, &archive).unwrap();
        let image = &images[0];
        assert_eq!(image.tags, BTreeSet::from(["example.com/app:1".to_owned()]));
        assert_eq!(image.config.config.cmd, ["/bin/app"]);
        assert_eq!(
            (content(&store, image, 0, "a"), content(&store, image, 1, "a")),
            ("low".into(), "high".into())
        );
        assert_eq!(store.find("example.com/app:1").as_ref(), Some(image));
        let digest = image.digests.first().unwrap();
        assert_eq!(store.find(digest).as_ref(), Some(image));
    }
    assert_eq!(store.images().len(), 1);
}

#[test]
fn layers_are_shared_and_counted_once() {
    let (_place, store) = store();
    let shared = Layer::default().entry(b'0', "shared", "", &[7; 100_000]).bytes();
    let own = Layer::default().file("own", "x").bytes();
    let one =
        try_load(&store, &Files::layout("example.com/one", std::slice::from_ref(&shared)).bytes())
            .unwrap();
    let before = store.usage();
    let two = try_load(&store, &Files::layout("example.com/two", &[own, shared]).bytes()).unwrap();
    assert_eq!(two[0].layers[1], one[0].layers[0]);
    assert!(two[0].usage.bytes > 100_000);
    assert!(store.usage().bytes - before.bytes < 50_000);
}

#[test]
fn a_docker_archive_is_loaded_by_its_diff_ids() {
    let (_place, store) = store();
    let layer = Layer::default().file("a", "content").bytes();
    let config = json!({
        "os": "linux", "architecture": "amd64",
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer), Digest::of(&layer)] },
    });
    let listed = json!([{ "Config": "c.json", "RepoTags": ["app:2"], "Layers": ["x/layer.tar", "y/layer.tar"] }]);
    let mut files = Files::default();
    files.0.insert("c.json".to_owned(), config.to_string().into_bytes());
    files.0.insert("manifest.json".to_owned(), listed.to_string().into_bytes());
    files.0.insert("x/layer.tar".to_owned(), layer);
    // Layers that images share are links in such archives.
    let mut archive = tar::Builder::new(files.bytes());
    archive.get_mut().truncate(files.bytes().len() - 1024);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive.append_link(&mut header, "y/layer.tar", "../x/layer.tar").unwrap();
    let images = try_load(&store, &archive.into_inner().unwrap()).unwrap();
    assert_eq!(images[0].tags, BTreeSet::from(["docker.io/library/app:2".to_owned()]));
    assert_eq!(images[0].layers[0], images[0].layers[1]);
    assert_eq!(content(&store, &images[0], 0, "a"), "content");
}

#[test]
fn a_layer_that_depends_on_those_below_is_kept_by_its_chain() {
    let (_place, store) = store();
    let lower = Layer::default().directory("d").file("d/f", "below").bytes();
    let upper = Layer::default().file("d/new", "x").hard_link("same", "d/f").bytes();
    let archive = Files::layout("example.com/app", &[lower, upper.clone()]).bytes();
    let image = try_load(&store, &archive).unwrap().remove(0);
    assert!(image.layers[1].as_str().starts_with("chain-"));
    assert_eq!(content(&store, &image, 1, "same"), "below");
    // The same layer above another one is another layer.
    let other = Layer::default().directory("d").file("d/f", "other").bytes();
    let second = try_load(&store, &Files::layout("example.com/b", &[other, upper]).bytes())
        .unwrap()
        .remove(0);
    assert_ne!(second.layers[1], image.layers[1]);
    assert_eq!(content(&store, &second, 1, "same"), "other");
}

#[test]
fn what_lies_is_refused_and_leaves_nothing() {
    let (place, store) = store();
    let layer = Layer::default().file("a", "content").bytes();
    let good = Files::layout("example.com/app", std::slice::from_ref(&layer));
    let blob = format!("blobs/sha256/{}", Digest::of(&gzip(&layer)).hex());

    let mut wrong = good.clone();
    wrong.0.insert(blob.clone(), gzip(&Layer::default().file("a", "another").bytes()));
    assert!(try_load(&store, &wrong.bytes()).unwrap_err().contains("has sha256:"));

    let mut missing = good.clone();
    missing.0.remove(&blob);
    assert!(try_load(&store, &missing.bytes()).unwrap_err().contains("is not in the archive"));

    let mut diff_id =
        Files::layout("example.com/app", &[Layer::default().file("a", "claimed").bytes()]);
    let index: Value = serde_json::from_slice(&diff_id.0["index.json"]).unwrap();
    let old = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    let mut image: Value = serde_json::from_slice(&diff_id.0[&old]).unwrap();
    image["layers"][0] = diff_id.blob("application/vnd.oci.image.layer.v1.tar+gzip", &gzip(&layer));
    let listed = diff_id.blob(manifest::OCI_MANIFEST, image.to_string().as_bytes());
    let index = json!({ "schemaVersion": 2, "manifests": [listed] });
    diff_id.0.insert("index.json".to_owned(), index.to_string().into_bytes());
    assert!(
        try_load(&store, &diff_id.bytes())
            .unwrap_err()
            .contains("but the image's configuration says")
    );

    let truncated = &good.bytes()[..2000];
    assert!(try_load(&store, truncated).is_err());
    assert!(try_load(&store, b"").unwrap_err().contains("neither index.json nor manifest.json"));
    assert!(try_load(&store, b"\x1f\x8b\x08\0garbage").is_err());

    assert!(store.images().is_empty());
    assert_eq!(std::fs::read_dir(place.path().join("store/staging")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(place.path().join("store/layers")).unwrap().count(), 0);
    // And the next attempt succeeds.
    try_load(&store, &good.bytes()).unwrap();
}
