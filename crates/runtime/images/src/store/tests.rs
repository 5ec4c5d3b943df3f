//! The store through restarts, crashes and power cuts.

use std::{collections::BTreeMap, fs, io::Read as _};

use serde_json::json;

use super::*;
use crate::{
    manifest,
    unpack::{tests::Layer, unpack},
};

#[path = "power.rs"]
mod power;

const LIMITS: Limits = Limits { reserved_bytes: 0, ..Limits::USUAL };

struct Node {
    place: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap() }
    }

    fn path(&self, beneath: &str) -> PathBuf {
        self.place.path().join("store").join(beneath)
    }

    /// Opens the store as a program does that starts in this boot.
    fn start(&self, boot: &str) -> Store {
        Store::open(&self.path(""), BootId(boot.to_owned()), &LIMITS).unwrap()
    }

    fn count(&self, beneath: &str) -> usize {
        fs::read_dir(self.path(beneath)).unwrap().count()
    }
}

fn add_layer(store: &Store, content: &str) -> (Hold, Digest) {
    let archive = Layer::default().directory("d").file("d/f", content).bytes();
    let staging = store.stage().unwrap();
    let unpacked = unpack(archive.as_slice(), staging.files(), &LIMITS).unwrap();
    let digest = Digest::of(&archive);
    (staging.commit(&LayerKey::of_blob(&digest), &unpacked).unwrap(), digest)
}

fn add_image(store: &Store, tag: &str, content: &str) -> Image {
    let (hold, digest) = add_layer(store, content);
    let config = json!({ "os": "linux", "rootfs": { "type": "layers", "diff_ids": [digest] } })
        .to_string()
        .into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "mediaType": manifest::OCI_CONFIG, "digest": Digest::of(&config), "size": config.len() },
        "layers": [{ "mediaType": manifest::OCI_LAYER, "digest": digest, "size": 1 }],
    });
    let parsed = manifest::parse_config(&config, 1, &LIMITS).unwrap();
    let parts = ImageParts {
        manifest: manifest.to_string().into_bytes(),
        config,
        layers: hold.keys().to_vec(),
        tags: BTreeSet::from([tag.to_owned()]),
        digests: BTreeSet::new(),
    };
    store.add_image(parts, parsed).unwrap()
}

fn text(store: &Store, image: &Image) -> String {
    let mut text = String::new();
    let file = store.open_layer(&image.layers[0]).unwrap().read(b"d/f").unwrap();
    { file }.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_is_kept_survives_a_reboot_and_the_rest_does_not() {
    let node = Node::new();
    let store = node.start("first");
    let kept = add_image(&store, "example.com/kept:1", "kept");
    assert_eq!(store.keep().unwrap(), 1);
    assert_eq!(store.keep().unwrap(), 0);
    let unkept = add_image(&store, "example.com/unkept:1", "unkept");
    drop(store);

    // A restart in the same boot loses nothing.
    let store = node.start("first");
    assert_eq!(
        store.images(),
        [&kept, &unkept]
            .into_iter()
            .cloned()
            .map(|it| (it.id.clone(), it))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect::<Vec<_>>()
    );
    drop(store);

    // The power goes: names were written, content was not.
    let lost = node.path(&format!("layers/{}/fs/d/f", unkept.layers[0].as_str()));
    fs::write(lost, "").unwrap();
    let store = node.start("second");
    assert_eq!(store.images(), std::slice::from_ref(&kept));
    assert_eq!(text(&store, &kept), "kept");
    assert_eq!(node.count("layers"), 1);
    // A new pull repairs it.
    let again = add_image(&store, "example.com/unkept:1", "unkept");
    assert_eq!(text(&store, &again), "unkept");
}

#[test]
fn half_made_things_are_thrown_away() {
    let node = Node::new();
    let store = node.start("boot");
    let whole = add_image(&store, "example.com/whole:1", "whole");
    let broken = add_image(&store, "example.com/broken:1", "broken");
    let renamed = add_image(&store, "example.com/renamed:1", "renamed");
    store.keep().unwrap();
    drop(store);
    // Each document in turn as a crash or a power cut could leave it.
    let image =
        |image: &Image, file: &str| node.path(&format!("images/{}/{file}", image.id.file_name()));
    fs::write(image(&broken, "config"), "").unwrap();
    fs::write(image(&renamed, "refs"), "{").unwrap();
    fs::create_dir(node.path("staging/7")).unwrap();
    fs::create_dir_all(node.path("layers/strange/fs")).unwrap();
    fs::create_dir(node.path("images/sha256-short")).unwrap();
    let store = node.start("boot");
    assert_eq!(store.images(), std::slice::from_ref(&whole));
    assert_eq!((node.count("images"), node.count("staging")), (1, 0));
    // Layers of the broken ones are nobody's now.
    assert_eq!(node.count("layers"), 3);
    assert!(store.collect().unwrap().inodes > 0);
    assert_eq!(node.count("layers"), 1);
    while store.empty_trash().unwrap() != Trash::Empty {}
    assert_eq!(node.count("trash"), 0);
    assert_eq!(text(&store, &whole), "whole");
}

#[test]
fn an_image_without_one_of_its_layers_is_none() {
    let node = Node::new();
    let store = node.start("boot");
    let image = add_image(&store, "example.com/a:1", "a");
    drop(store);
    let layer = node.path(&format!("layers/{}", image.layers[0].as_str()));
    for damage in ["layer", "fs"] {
        let saved = node.path("saved");
        fs::rename(layer.join(damage), &saved).unwrap();
        let store = node.start("boot");
        assert!(store.images().is_empty(), "{damage}");
        drop(store);
        fs::remove_dir_all(node.path("trash")).unwrap();
        fs::remove_dir_all(node.path("images")).unwrap();
        let _ = fs::remove_dir_all(&saved).or_else(|_| fs::remove_file(&saved));
        let store = node.start("boot");
        add_image(&store, "example.com/a:1", "a");
    }
}

#[test]
fn a_tag_moves_and_the_image_that_had_it_stays() {
    let node = Node::new();
    let store = node.start("boot");
    let old = add_image(&store, "example.com/app:latest", "old");
    let new = add_image(&store, "example.com/app:latest", "new");
    let check = |store: &Store| {
        assert_eq!(store.find("example.com/app").unwrap().id, new.id);
        assert!(store.find(&old.id.to_string()).unwrap().tags.is_empty());
        assert_eq!(store.find(&old.id.hex()[..12]).unwrap().id, old.id);
        assert_eq!(store.find("example.com/other"), None);
    };
    check(&store);
    drop(store);
    check(&node.start("boot"));
}

#[test]
fn a_layer_lives_while_an_image_or_a_hold_names_it() {
    let node = Node::new();
    let store = node.start("boot");
    let image = add_image(&store, "example.com/a:1", "a");
    let hold = store.hold(&image.layers).unwrap();
    assert_eq!(store.collect().unwrap(), Usage::default());
    assert!(store.remove_image(&image.id).unwrap());
    assert!(!store.remove_image(&image.id).unwrap());
    assert_eq!(store.find("example.com/a:1"), None);
    // A container still runs on it.
    assert_eq!(store.collect().unwrap(), Usage::default());
    assert_eq!(text(&store, &image), "a");
    drop(hold);
    let given_back = store.collect().unwrap();
    assert_eq!(given_back.bytes, image.usage.bytes - image_bytes(&image));
    assert_eq!(store.usage(), Usage::default());
    assert!(store.hold(&image.layers).is_err());
}

/// What the documents take of an image's room.
fn image_bytes(image: &Image) -> u64 {
    image.usage.bytes % 512
}

#[test]
fn nothing_is_deleted_beside_an_unpack() {
    let node = Node::new();
    let store = node.start("boot");
    drop(store.stage().unwrap());
    let staging = store.stage().unwrap();
    assert_eq!(store.empty_trash().unwrap(), Trash::Waits);
    drop(staging);
    assert_eq!(store.empty_trash().unwrap(), Trash::More);
    assert_eq!(store.empty_trash().unwrap(), Trash::Empty);
    assert_eq!(node.count("trash"), 0);
}

#[test]
fn two_that_make_one_layer_get_one() {
    let node = Node::new();
    let store = node.start("boot");
    let (first, _) = add_layer(&store, "same");
    let (second, _) = add_layer(&store, "same");
    assert_eq!(first.keys(), second.keys());
    assert_eq!((node.count("layers"), node.count("staging")), (1, 0));
    drop(first);
    assert_eq!(store.collect().unwrap(), Usage::default());
}

#[test]
fn a_store_has_one_owner_and_one_layout() {
    let node = Node::new();
    let store = node.start("boot");
    let error = Store::open(&node.path(""), BootId("boot".to_owned()), &LIMITS).unwrap_err();
    assert!(matches!(error, StoreError::InUse(_)));
    drop(store);
    fs::write(node.path("version"), "2\n").unwrap();
    let error = Store::open(&node.path(""), BootId("boot".to_owned()), &LIMITS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image store has version \"2\", which this program does not know"
    );
}

#[test]
fn nobody_else_comes_in() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new();
    let _store = node.start("boot");
    for part in ["", "layers", "images", "staging", "trash"] {
        assert_eq!(
            fs::metadata(node.path(part)).unwrap().permissions().mode() & 0o777,
            0o700,
            "{part}"
        );
    }
}
