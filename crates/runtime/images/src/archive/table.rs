//! Where the files of an archive are.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Seek as _, SeekFrom},
};

use crate::{
    digest::Digest,
    limits::Limits,
    tar::{Kind, Reader, TarError},
};

/// Files of an archive of images, its links to other archives' layers included: documents and blobs, not the layers'.
const MOST_FILES: u64 = 100_000;
/// Links that lead to links.
const MOST_LINKS: usize = 8;

pub(super) struct Table {
    files: BTreeMap<String, At>,
    links: BTreeMap<String, String>,
}

/// A file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    offset: u64,
    pub(super) size: u64,
}

impl Table {
    pub(super) fn read(archive: &File, limits: &Limits) -> Result<Self, TarError> {
        let limits = Limits { n_entries: MOST_FILES, ..limits.clone() };
        let mut archive = archive;
        archive.rewind().map_err(TarError::Read)?;
        let mut table = Self { files: BTreeMap::new(), links: BTreeMap::new() };
        let source = Counted { source: BufReader::with_capacity(128 * 1024, archive), n_read: 0 };
        let mut reader = Reader::new(source, &limits);
        while let Some(entry) = reader.next_entry()? {
            // A name that is no text is nobody's to ask for.
            let Ok(path) = String::from_utf8(entry.path) else { continue };
            let Some(path) = resolved("", &path) else { continue };
            match entry.kind {
                Kind::File => {
                    let at = At { offset: reader.source().n_read, size: entry.size };
                    table.files.insert(path, at);
                }
                // Docker's archives link layers that images share.
                Kind::SymbolicLink | Kind::HardLink => {
                    let base = if entry.kind == Kind::HardLink { "" } else { parent(&path) };
                    let target =
                        String::from_utf8(entry.link).ok().and_then(|it| resolved(base, &it));
                    table.links.extend(target.map(|target| (path, target)));
                }
                _ => {}
            }
        }
        Ok(table)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) fn find(&self, name: &str) -> Option<At> {
        let mut name = resolved("", name)?;
        for _ in 0..MOST_LINKS {
            match self.files.get(&name) {
                Some(at) => return Some(*at),
                None => name.clone_from(self.links.get(&name)?),
            }
        }
        None
    }

    /// A blob of an OCI layout, with its name.
    pub(super) fn blob(&self, digest: &Digest) -> Option<(String, At)> {
        let name = format!("blobs/{}", digest.to_string().replacen(':', "/", 1));
        let at = self.find(&name)?;
        Some((name, at))
    }
}

impl At {
    pub(super) fn reader(self, archive: &File) -> io::Result<impl Read> {
        let mut archive = archive;
        archive.seek(SeekFrom::Start(self.offset))?;
        Ok(BufReader::with_capacity(128 * 1024, archive.take(self.size)))
    }
}

/// A path's plain form; `None` if it leads out of the archive.
fn resolved(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').filter(|it| !it.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

struct Counted<R> {
    source: R,
    n_read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.n_read += n as u64;
        Ok(n)
    }
}
