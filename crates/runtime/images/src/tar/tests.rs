//! What the reader makes of good archives, broken ones and hostile ones.

use proptest::prelude::*;

use super::*;

fn read_all(archive: &[u8], limits: &Limits) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut reader = Reader::new(archive, limits);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        let mut content = Vec::new();
        let mut buffer = [0; 700];
        loop {
            match reader.read_content(&mut buffer)? {
                0 => break,
                n => content.extend_from_slice(&buffer[..n]),
            }
        }
        entries.push((entry, content));
    }
    Ok(entries)
}

fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_uid(5);
    header.set_gid(6);
    header.set_mtime(7);
    header.set_size(size);
    header
}

/// A header as its bytes, then content filled up to whole blocks.
fn block(kind: u8, name: &str, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = header(tar::EntryType::new(kind), size);
    header.set_path(name).unwrap();
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len() + 1..).find(|n| n.to_string().len() + rest.len() == *n).unwrap();
        text.extend_from_slice(format!("{length}{rest}").as_bytes());
    }
    block(b'x', "pax", text.len() as u64, &text)
}

fn names(archive: &[u8]) -> Vec<String> {
    let entries = read_all(archive, &Limits::USUAL).unwrap();
    entries.into_iter().map(|(entry, _)| String::from_utf8(entry.path).unwrap()).collect()
}

fn failure(archive: &[u8]) -> String {
    read_all(archive, &Limits::USUAL).unwrap_err().to_string()
}

#[test]
fn the_size_of_a_pax_record_counts_before_the_headers() {
    // Whoever believes the header's 0 takes the content for the next entry (RUSTSEC-2025-0111).
    let smuggled = block(b'0', "smuggled", 0, b"");
    let mut archive = pax(&[("size", &smuggled.len().to_string())]);
    archive.extend(block(b'0', "outer", 0, &smuggled));
    archive.extend(block(b'0', "after", 0, b""));
    assert_eq!(names(&archive), ["outer", "after"]);
}

#[test]
fn the_size_of_an_entry_without_content_is_not_believed() {
    let mut archive = block(b'2', "link", 512, b"");
    archive.extend(block(b'5', "directory/", 512, b""));
    archive.extend(block(b'0', "file", 0, b""));
    assert_eq!(names(&archive), ["link", "directory/", "file"]);
}

#[test]
fn a_second_pax_header_replaces_the_first_and_a_global_one_means_nothing() {
    let mut archive = pax(&[("path", "first")]);
    archive.extend(pax(&[("uid", "70000")]));
    let global = pax(&[("path", "global")]);
    let mut global_header = tar::Header::from_byte_slice(&global[..BLOCK]).clone();
    global_header.set_entry_type(tar::EntryType::XGlobalHeader);
    global_header.set_cksum();
    archive.extend_from_slice(global_header.as_bytes());
    archive.extend_from_slice(&global[BLOCK..]);
    archive.extend(block(b'0', "own", 0, b""));
    let entries = read_all(&archive, &Limits::USUAL).unwrap();
    assert_eq!((entries[0].0.path.as_slice(), entries[0].0.uid), (b"own".as_slice(), 70_000));
}

#[test]
fn names_longer_than_a_header_are_read_in_both_manners() {
    let long = "d/".repeat(200) + "file";
    let mut gnu =
        block(b'L', "././@LongLink", long.len() as u64 + 1, format!("{long}\0").as_bytes());
    gnu.extend(block(b'0', "cut", 0, b""));
    assert_eq!(names(&gnu), std::slice::from_ref(&long));
    let mut posix = pax(&[("path", &long)]);
    posix.extend(block(b'0', "cut", 0, b""));
    assert_eq!(names(&posix), [long]);
}

#[test]
fn what_does_not_add_up_is_refused_with_its_reason() {
    let mut wrong_sum = block(b'0', "a", 0, b"");
    wrong_sum[0] ^= 1;
    assert_eq!(failure(&wrong_sum), "archive header 1: a wrong checksum");

    assert_eq!(failure(&block(b'0', "a", 0, b"")[..300]), "archive ends in the middle of a header");
    assert_eq!(failure(&block(b'0', "a", 2000, b"short")), "archive ends in the middle of a file");

    let mut owner = pax(&[("uid", "4294967295")]);
    owner.extend(block(b'0', "a", 0, b""));
    assert_eq!(failure(&owner), "archive header 1: an owner out of range");

    let mut size = pax(&[("size", "9223372036854775807")]);
    size.extend(block(b'0', "a", 0, b""));
    assert_eq!(failure(&size), "archive ends in the middle of a file");

    let mut sparse = pax(&[("GNU.sparse.major", "1")]);
    sparse.extend(block(b'0', "a", 0, b""));
    assert_eq!(failure(&sparse), "\"a\" is a sparse file, which images do not have");
    assert_eq!(
        failure(&block(b'M', "a", 0, b"")),
        "\"a\" is an entry of type 0x4d, which images do not have"
    );

    let lone = [vec![0; BLOCK], block(b'0', "a", 0, b"")].concat();
    assert_eq!(failure(&lone), "archive header 1: one empty block before it");
}

#[test]
fn too_much_of_anything_is_refused_by_name() {
    let limits = Limits { n_entries: 2, extended_header_bytes: 64, path_bytes: 8, ..Limits::USUAL };
    let refusal = |archive: &[u8]| read_all(archive, &limits).unwrap_err().to_string();
    let three =
        [block(b'0', "a", 0, b""), block(b'0', "b", 0, b""), block(b'0', "c", 0, b"")].concat();
    assert_eq!(refusal(&three), "more than 2 entries in an archive");
    assert_eq!(refusal(&block(b'0', "ninebytes", 0, b"")), "more than 8 bytes in a path");
    // Nothing of a header of a petabyte is read.
    assert_eq!(
        refusal(&block(b'x', "pax", 1 << 32, b"")),
        "more than 64 bytes in an extended header"
    );
    assert_eq!(
        refusal(&block(b'L', "long", 1 << 32, b"")),
        "more than 64 bytes in an extended header"
    );
    let endless = block(b'g', "global", 0, b"").repeat(10);
    assert_eq!(refusal(&endless), "more than 8 headers in an archive");
}

fn entry() -> impl Strategy<Value = (u8, String, Vec<u8>)> {
    let name = proptest::collection::vec("[a-z]{1,40}", 1..8).prop_map(|parts| parts.join("/"));
    let kind = prop_oneof![Just(b'0'), Just(b'2'), Just(b'5'), Just(b'6')];
    (kind, name, proptest::collection::vec(any::<u8>(), 0..1500))
}

fn build(entries: &[(u8, String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (kind, name, content) in entries {
        let content: &[u8] = if *kind == b'0' { content } else { &[] };
        let mut header = header(tar::EntryType::new(*kind), content.len() as u64);
        header.set_link_name("target").unwrap();
        let mut header_gnu = tar::Header::new_gnu();
        if name.len() > 90 {
            header_gnu.set_entry_type(tar::EntryType::new(*kind));
            header_gnu.set_mode(0o640);
            header_gnu.set_uid(5);
            header_gnu.set_gid(6);
            header_gnu.set_mtime(7);
            header_gnu.set_size(content.len() as u64);
            header_gnu.set_link_name("target").unwrap();
            header = header_gnu;
        }
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.into_inner().unwrap()
}

proptest! {
    /// The crate that writes the archive and the reader here agree about every entry.
    #[test]
    fn an_archive_reads_as_it_was_written(entries in proptest::collection::vec(entry(), 0..12)) {
        let read = read_all(&build(&entries), &Limits::USUAL).unwrap();
        prop_assert_eq!(read.len(), entries.len());
        for ((read, content), (kind, name, written)) in read.iter().zip(&entries) {
            prop_assert_eq!(&read.path, name.as_bytes());
            prop_assert_eq!((read.mode, read.uid, read.gid, read.modified), (0o640, 5, 6, (7, 0)));
            let written: &[u8] = if *kind == b'0' { written } else { &[] };
            prop_assert_eq!(content.as_slice(), written);
        }
    }

    /// Broken bytes end in an error or in entries, never in a panic or in more than there is.
    #[test]
    fn a_broken_archive_is_only_ever_refused(
        entries in proptest::collection::vec(entry(), 1..6),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut archive = build(&entries);
        for (place, byte) in changes {
            let place = place.index(archive.len());
            archive[place] = byte;
        }
        archive.truncate(cut.index(archive.len()) + 1);
        if let Ok(read) = read_all(&archive, &Limits::USUAL) {
            let total: usize = read.iter().map(|(_, content)| content.len()).sum();
            prop_assert!(total <= archive.len());
        }
    }

    #[test]
    fn noise_is_no_archive(noise in proptest::collection::vec(any::<u8>(), 512..4096)) {
        prop_assume!(noise[..512].iter().any(|&byte| byte != 0));
        prop_assert!(read_all(&noise, &Limits::USUAL).is_err());
    }

    /// Extended headers of any content.
    #[test]
    fn a_pax_header_of_noise_is_only_ever_refused(noise in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut archive = block(b'x', "pax", noise.len() as u64, &noise);
        archive.extend(block(b'0', "a", 0, b""));
        let _ = read_all(&archive, &Limits::USUAL);
    }
}
