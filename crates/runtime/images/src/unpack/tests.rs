//! Layers, good and hostile, unpacked into directories of their own.

use std::{
    io::Write as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use super::*;

pub(crate) const NEEDS_ROOT: &str = "not root: devices and trusted attributes cannot be made here";

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Builds a layer's archive. Everything belongs to whoever runs the test.
#[derive(Default)]
pub(crate) struct Layer(Vec<u8>);

impl Layer {
    pub(crate) fn entry(self, kind: u8, path: &str, link: &str, content: &[u8]) -> Self {
        self.entry_with(kind, path, link, content, &[])
    }

    pub(crate) fn entry_with(
        mut self,
        kind: u8,
        path: &str,
        link: &str,
        content: &[u8],
        records: &[(&str, &[u8])],
    ) -> Self {
        let mut text = Vec::new();
        let mut record = |key: &str, value: &[u8]| {
            let rest = key.len() + value.len() + 3;
            let length = (rest + 1..).find(|n| n.to_string().len() + rest == *n).unwrap();
            text.extend_from_slice(format!("{length} {key}=").as_bytes());
            text.extend_from_slice(value);
            text.push(b'\n');
        };
        record("path", path.as_bytes());
        if !link.is_empty() {
            record("linkpath", link.as_bytes());
        }
        records.iter().for_each(|(key, value)| record(key, value));
        self.block(b'x', &text);
        self.block(kind, content);
        self
    }

    fn block(&mut self, kind: u8, content: &[u8]) {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(if kind == b'5' { 0o751 } else { 0o640 });
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        header.set_mtime(1_000_000);
        header.set_size(content.len() as u64);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        header.set_path("x").unwrap();
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    pub(crate) fn directory(self, path: &str) -> Self {
        self.entry(b'5', path, "", b"")
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        self.entry(b'0', path, "", content.as_bytes())
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path, target, b"")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(b'1', path, target, b"")
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const LIMITS: Limits = Limits { reserved_bytes: 0, ..Limits::USUAL };

/// A directory to unpack into, with room beside it to look at.
struct Place {
    place: tempfile::TempDir,
    directory: Directory,
}

fn empty() -> Place {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("fs")).unwrap();
    let directory = Directory::open(&place.path().join("fs")).unwrap();
    Place { place, directory }
}

impl Place {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join("fs").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

fn unpacked(layer: Layer) -> (Place, Unpacked) {
    let place = empty();
    let unpacked = unpack(layer.bytes().as_slice(), &place.directory, &LIMITS).unwrap();
    (place, unpacked)
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn refusal_with(layer: Layer, limits: &Limits) -> String {
    let place = empty();
    std::fs::write(place.place.path().join("outside"), "untouched").unwrap();
    let error = unpack(layer.bytes().as_slice(), &place.directory, limits).unwrap_err();
    assert_eq!(std::fs::read_to_string(place.place.path().join("outside")).unwrap(), "untouched");
    assert_eq!(std::fs::read_dir(place.place.path()).unwrap().count(), 2);
    chain(&error)
}

fn refusal(layer: Layer) -> String {
    refusal_with(layer, &LIMITS)
}

fn is_opaque(path: &Path) -> bool {
    Directory::open(path).unwrap().hides_below().unwrap()
}

#[test]
fn files_links_and_directories_look_as_the_archive_says() {
    let layer = Layer::default()
        .directory("./")
        .directory("bin")
        .entry_with(
            b'0',
            "bin/tool",
            "",
            b"tool",
            &[("mtime", b"12.5"), ("SCHILY.xattr.user.note", b"\0\xff")],
        )
        .hard_link("bin/same", "bin/tool")
        .link("sh", "/bin/tool")
        .entry(b'6', "pipe", "", b"");
    let (place, unpacked) = unpacked(layer);
    let tool = std::fs::metadata(place.path("bin/tool")).unwrap();
    assert_eq!(
        (tool.mode() & 0o7777, tool.mtime(), tool.mtime_nsec(), tool.nlink()),
        (0o640, 12, 500_000_000, 2)
    );
    assert_eq!(place.text("bin/same"), "tool");
    let bin = std::fs::metadata(place.path("bin")).unwrap();
    assert_eq!((bin.mode() & 0o7777, bin.mtime()), (0o751, 1_000_000));
    assert_eq!(std::fs::read_link(place.path("sh")).unwrap(), Path::new("/bin/tool"));
    assert!(std::fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    let mut value = [0; 8];
    let n = rustix::fs::getxattr(place.path("bin/tool"), "user.note", &mut value).unwrap();
    assert_eq!(value[..n], *b"\0\xff");
    assert_eq!(unpacked.root.unwrap().mode, 0o751);
    assert!(unpacked.open_ends.is_empty());
    // root, bin, tool, sh, pipe
    assert_eq!(unpacked.usage.inodes, 5);
    assert_eq!(unpacked.usage.bytes % 512, 0);
}

#[test]
fn gzip_zstd_and_plain_give_the_same_diff_id() {
    let archive = Layer::default().file("a", "content").bytes();
    let expected = Digest::of(&archive);
    let zipped = gzip(&archive);
    let two_members = [gzip(&archive[..700]), gzip(&archive[700..])].concat();
    let zstd = zstd::encode_all(archive.as_slice(), 3).unwrap();
    let skippable = [b"\x50\x2a\x4d\x18\x03\0\0\0abc".as_slice(), &zstd].concat();
    for blob in [archive, zipped, two_members, zstd, skippable] {
        let place = empty();
        let unpacked = unpack(blob.as_slice(), &place.directory, &LIMITS).unwrap();
        assert_eq!(unpacked.diff_id, expected);
        assert_eq!(place.text("a"), "content");
    }
}

#[test]
fn whiteouts_take_overlays_form() {
    if !is_root() {
        eprintln!("{NEEDS_ROOT}");
        return;
    }
    let layer = Layer::default()
        .directory("d")
        .file("d/.wh.gone", "")
        .file("d/.wh..wh..opq", "")
        .file(".wh..wh.plnk/1.2", "aufs")
        .entry(b'3', "null", "", b"");
    let (place, unpacked) = unpacked(layer);
    let gone = std::fs::symlink_metadata(place.path("d/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(is_opaque(&place.path("d")));
    assert_eq!(std::fs::metadata(place.path("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 2);
    assert!(unpacked.open_ends.is_empty());
}

#[test]
fn a_whiteout_speaks_of_the_layers_below_only() {
    if !is_root() {
        eprintln!("{NEEDS_ROOT}");
        return;
    }
    let layer = Layer::default()
        .file("file", "ours")
        .file(".wh.file", "")
        .directory("before")
        .file("before/a", "ours")
        .file(".wh.before", "")
        .file(".wh.after", "")
        .directory("after")
        .file(".wh.implied", "")
        .file("implied/a", "ours")
        .file("changed", "a file first")
        .directory("changed");
    let (place, unpacked) = unpacked(layer);
    assert_eq!(place.text("file"), "ours");
    assert_eq!(place.text("before/a"), "ours");
    for directory in ["before", "after", "implied", "changed"] {
        assert!(is_opaque(&place.path(directory)), "{directory}");
    }
    assert!(unpacked.open_ends.is_empty());
}

#[test]
fn the_last_entry_of_a_name_counts() {
    let layer = Layer::default()
        .directory("d")
        .directory("d/e")
        .file("d/e/f", "deep")
        .file("d/unlisted/f", "deep")
        .hard_link("d/open", "elsewhere")
        .file("a", "first")
        .file("a", "second")
        .link("l", "first")
        .link("l", "second")
        .file("d", "a file now")
        .file("n", "next");
    let (place, unpacked) = unpacked(layer);
    assert_eq!((place.text("a"), place.text("d")), ("second".to_owned(), "a file now".to_owned()));
    assert_eq!(std::fs::read_link(place.path("l")).unwrap(), Path::new("second"));
    assert!(unpacked.open_ends.is_empty());
    // root, a, l, d, n
    assert_eq!(unpacked.usage.inodes, 5);
}

#[test]
fn nothing_leads_out_of_the_layer() {
    let escape = "leads out of the layer";
    assert_eq!(
        refusal(Layer::default().file("../outside", "x")),
        format!("\"../outside\" {escape}")
    );
    assert_eq!(
        refusal(Layer::default().file("a/../../outside", "x")),
        format!("\"a/../../outside\" {escape}")
    );
    assert_eq!(
        refusal(Layer::default().hard_link("a", "../outside")),
        format!("\"../outside\" {escape}")
    );
    let up = || Layer::default().link("up", "..");
    assert_eq!(refusal(up().file("up/outside", "x")), "\"up/outside\" lies beneath a link");
    assert_eq!(refusal(up().directory("up/new")), "\"up/new\" lies beneath a link");
    assert_eq!(refusal(up().file("up/deep/new", "x")), "\"up/deep/new\" lies beneath a link");
    assert_eq!(refusal(up().hard_link("a", "up/outside")), "\"up/outside\" lies beneath a link");
    assert_eq!(refusal(up().file("up/.wh.outside", "")), "\"up/outside\" lies beneath a link");
    assert_eq!(refusal(up().file("up/.wh..wh..opq", "")), "\"up\" lies beneath a link");
    assert_eq!(
        refusal(Layer::default().file("a", "").file("a/b", "")),
        "\"a/b\" lies beneath a file"
    );
    assert_eq!(refusal(Layer::default().hard_link("a", "./a")), "\"a\" is a hard link to itself");
    assert_eq!(refusal(Layer::default().file("/", "x")), "\"/\" leads out of the layer");
}

#[test]
fn a_link_that_is_written_over_is_replaced_and_not_followed() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    let target = outside.path().to_str().unwrap();
    let layer = Layer::default()
        .link("a", target)
        .file("a", "inside")
        .link("b", target)
        .entry(b'6', "b", "", b"")
        .link("c", target)
        .hard_link("d", "c");
    let (place, _) = unpacked(layer);
    assert_eq!(place.text("a"), "inside");
    assert_eq!(std::fs::read_link(place.path("d")).unwrap(), Path::new(target));
    assert_eq!(outside.as_file().metadata().unwrap().len(), 0);
}

#[test]
fn overlays_own_attributes_are_not_an_images_to_bring() {
    let records: [(&str, &[u8]); 3] = [
        ("SCHILY.xattr.trusted.overlay.redirect", b"/other"),
        ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ("SCHILY.xattr.security.selinux", b"label"),
    ];
    let layer = Layer::default().entry_with(b'5', "d", "", b"", &records);
    let (place, _) = unpacked(layer);
    let mut names = [0; 256];
    let n = rustix::fs::listxattr(place.path("d"), &mut names).unwrap();
    assert!(!String::from_utf8_lossy(&names[..n]).contains("overlay"));
}

#[test]
fn bombs_and_floods_stop_at_their_limit() {
    let many =
        |n: usize| (0..n).fold(Layer::default(), |layer, i| layer.file(&format!("f{i}"), ""));
    let few = Limits { n_entries: 100, ..LIMITS };
    assert_eq!(refusal_with(many(101), &few), "more than 100 entries in an archive");
    // One name that implies hundreds of directories.
    let deep = "d/".repeat(200) + "f";
    assert_eq!(
        refusal_with(Layer::default().file(&deep, ""), &few),
        "more than 100 entries in a layer"
    );
    let forgetful = Limits { remembered_bytes: 10_000, ..LIMITS };
    assert_eq!(
        refusal_with(Layer::default().file(&deep, ""), &forgetful),
        "more than 10000 bytes of names to remember"
    );
    let small = Limits { image_bytes: Some(1 << 20), ..LIMITS };
    let big = || Layer::default().entry(b'0', "zeros", "", &vec![0; 3 << 20]);
    assert_eq!(refusal_with(big(), &small), "more than 1048576 bytes in an image");
    let full = Limits { reserved_bytes: u64::MAX, ..LIMITS };
    assert_eq!(
        refusal_with(big(), &full),
        format!("unpacking would leave less than {} bytes of the disk free", u64::MAX)
    );
    assert_eq!(
        refusal(Layer::default().entry(b'0', &"n".repeat(4097), "", b"")),
        "more than 4096 bytes in a path"
    );
}

#[test]
fn what_follows_an_archive_is_bounded_and_part_of_its_digest() {
    let limits = Limits { trailing_bytes: 10_000, ..LIMITS };
    let mut archive = Layer::default().file("a", "").bytes();
    archive.extend_from_slice(&[7; 9_000]);
    let place = empty();
    let unpacked = unpack(gzip(&archive).as_slice(), &place.directory, &limits).unwrap();
    assert_eq!(unpacked.diff_id, Digest::of(&archive));
    archive.extend_from_slice(&[7; 2_000_000]);
    let error = unpack(gzip(&archive).as_slice(), &empty().directory, &limits).unwrap_err();
    assert_eq!(error.to_string(), "more than 10000 bytes after the end of an archive");
}

#[test]
fn truncated_and_broken_streams_are_refused() {
    let mut state = 1_u32;
    let mut noise = vec![0; 100_000];
    for byte in &mut noise {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *byte = state.to_le_bytes()[0];
    }
    let archive = Layer::default().entry(b'0', "a", "", &noise).bytes();
    let zstd = zstd::encode_all(archive.as_slice(), 3).unwrap();
    for blob in
        [archive[..50_000].to_vec(), gzip(&archive)[..50_000].to_vec(), zstd[..50_000].to_vec()]
    {
        assert!(unpack(blob.as_slice(), &empty().directory, &LIMITS).is_err());
    }
    let mut broken = gzip(&archive);
    broken[40_000] ^= 0xff;
    assert!(unpack(broken.as_slice(), &empty().directory, &LIMITS).is_err());
}

#[test]
fn a_zstd_window_over_the_limit_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(22).unwrap();
    encoder.write_all(&Layer::default().entry(b'0', "a", "", &vec![1; 8 << 20]).bytes()).unwrap();
    let blob = encoder.finish().unwrap();
    let limits = Limits { zstd_window_log: 20, ..LIMITS };
    let error = chain(&unpack(blob.as_slice(), &empty().directory, &limits).unwrap_err());
    assert!(error.contains("too much memory"), "{error}");
    unpack(blob.as_slice(), &empty().directory, &LIMITS).unwrap();
}

fn settled(lower: Layer, upper: Layer) -> Result<Place, SettleError> {
    let (below, _) = unpacked(lower);
    let (above, result) = unpacked(upper);
    settle(&above.directory, &result.open_ends, &[below.directory])?;
    Ok(above)
}

#[test]
fn open_ends_are_settled_by_the_layer_below() {
    let lower = || Layer::default().directory("d").directory("d/e").file("d/f", "below");
    let place =
        settled(lower(), Layer::default().file("d/e/new", "x").hard_link("same", "d/f")).unwrap();
    assert_eq!(std::fs::metadata(place.path("d")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(std::fs::metadata(place.path("d/e")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(place.text("same"), "below");
    let place = settled(lower(), Layer::default().file("other/new", "x")).unwrap();
    assert_eq!(std::fs::metadata(place.path("other")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn what_does_not_fit_the_layer_below_is_refused() {
    let lower = Layer::default().directory("usr").link("lib", "usr/lib");
    let refused = settled(lower, Layer::default().file("lib/new", "x")).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "\"lib\" has entries in this layer, but is a link in a layer below"
    );
    let refused = settled(Layer::default(), Layer::default().hard_link("a", "b/c")).err().unwrap();
    assert_eq!(refused.to_string(), "\"a\" is a hard link to \"b/c\", which no layer below has");
}

#[test]
fn what_is_hidden_below_is_not_found() {
    if !is_root() {
        eprintln!("{NEEDS_ROOT}");
        return;
    }
    let (bottom, _) =
        unpacked(Layer::default().directory("d").file("d/f", "x").directory("e").file("e/f", "x"));
    let (middle, _) = unpacked(
        Layer::default()
            .directory("d")
            .file("d/.wh.f", "")
            .directory("e")
            .file("e/.wh..wh..opq", ""),
    );
    let below = [middle.directory, bottom.directory];
    for target in ["d/f", "e/f"] {
        let (top, result) = unpacked(Layer::default().hard_link("a", target));
        assert!(settle(&top.directory, &result.open_ends, &below).is_err(), "{target}");
    }
}

proptest::proptest! {
    /// Whatever names, kinds and targets come: no panic, and nothing beside the directory changes.
    #[test]
    fn a_layer_of_any_names_stays_inside(
        entries in proptest::collection::vec(
            (proptest::sample::select(vec![b'0', b'1', b'2', b'5', b'6']),
             "(\\.\\./|/|\\./|a/|b/|\\.wh\\.|\\.wh\\.\\.wh\\.\\.opq){0,4}(a|b|\\.\\.|\\.)?",
             "(\\.\\./|/|a/|b/){0,3}(a|b|outside)"),
            0..14,
        ),
    ) {
        let layer = entries.iter().filter(|(_, path, _)| !path.is_empty()).fold(
            Layer::default(),
            |layer, (kind, path, link)| layer.entry(*kind, path, link, if *kind == b'0' { b"x" } else { b"" }),
        );
        let place = empty();
        std::fs::write(place.place.path().join("outside"), "untouched").unwrap();
        let _ = unpack(layer.bytes().as_slice(), &place.directory, &LIMITS);
        assert_eq!(std::fs::read_to_string(place.place.path().join("outside")).unwrap(), "untouched");
        assert_eq!(std::fs::metadata(place.place.path().join("outside")).unwrap().nlink(), 1);
        assert_eq!(std::fs::read_dir(place.place.path()).unwrap().count(), 2);
    }
}
