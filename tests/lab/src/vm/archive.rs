//! An initramfs: the cpio format that the kernel unpacks ("newc": every number eight hexadecimal
//! digits).
//!
//! Directories above an entry are made by themselves, once. Everything belongs to root and has no
//! times.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub(super) struct Archive<W: Write = BufWriter<File>> {
    out: W,
    n_entries: u32,
    known: BTreeSet<String>,
}

impl Archive {
    pub(super) fn create(path: &Path) -> Result<Archive> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Archive::new(BufWriter::new(file)))
    }
}

impl<W: Write> Archive<W> {
    fn new(out: W) -> Archive<W> {
        Archive { out, n_entries: 0, known: BTreeSet::new() }
    }

    /// A file with this content.
    pub(super) fn text(&mut self, path: &str, mode: u32, content: &str) -> Result<()> {
        let size = u64::try_from(content.len())?;
        self.entry(path, REGULAR | mode, size, &mut content.as_bytes())
    }

    /// A copy of `source` at another path.
    pub(super) fn copy(&mut self, path: &str, source: &Path) -> Result<()> {
        let attempt = || format!("copy {} into the guest", source.display());
        let mut file = File::open(source).with_context(attempt)?;
        let metadata = file.metadata().with_context(attempt)?;
        let mode = REGULAR | metadata.permissions().mode() & 0o7777;
        self.entry(path, mode, metadata.len(), &mut file).with_context(attempt)
    }

    /// A copy of a file at its own path; where the path leads through links, the file itself and
    /// one link to it.
    pub(super) fn mirror(&mut self, path: &Path) -> Result<()> {
        let real = fs::canonicalize(path).with_context(|| format!("find {}", path.display()))?;
        let shown = real.to_str().context("a path that is no text")?;
        self.copy(shown, &real)?;
        let given = path.to_str().context("a path that is no text")?;
        let size = u64::try_from(shown.len())?;
        self.entry(given, LINK | 0o777, size, &mut shown.as_bytes())
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write("TRAILER!!!", 0, 0, &mut io::empty())?;
        self.out.flush()?;
        Ok(())
    }

    /// An entry whose path has none yet, below directories.
    fn entry(&mut self, path: &str, mode: u32, size: u64, content: &mut dyn Read) -> Result<()> {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.known.insert(path[..end].to_owned()) {
                self.write(&path[..end], DIRECTORY | 0o755, 0, &mut io::empty())?;
            }
        }
        if self.known.insert(path.to_owned()) {
            self.write(path, mode, size, content)?;
        }
        Ok(())
    }

    fn write(&mut self, path: &str, mode: u32, size: u64, content: &mut dyn Read) -> Result<()> {
        self.n_entries += 1;
        let size = u32::try_from(size).context("a file of more than 4 GiB")?;
        let name_size = u32::try_from(path.len() + 1)?;
        // inode, mode, uid, gid, links, time, size, four device numbers, length of the name,
        // checksum
        let numbers = [self.n_entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        write!(self.out, "070701")?;
        for number in numbers {
            write!(self.out, "{number:08x}")?;
        }
        write!(self.out, "{path}\0")?;
        self.pad(110 + name_size)?;
        let copied = io::copy(&mut content.take(size.into()), &mut self.out)?;
        anyhow::ensure!(copied == u64::from(size), "{path} became shorter");
        self.pad(size)
    }

    fn pad(&mut self, size: u32) -> Result<()> {
        let n_bytes = usize::try_from(size.wrapping_neg() % 4)?;
        self.out.write_all(&[0; 3][..n_bytes])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_directories_come_first_and_once() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.text("/a/b/one", 0o755, "12345").unwrap();
        archive.text("/a/b/two", 0o644, "").unwrap();
        archive.text("/a/b/two", 0o644, "again").unwrap();
        archive.finish().unwrap();
        let names = ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"];
        let mut at = 0;
        for name in names {
            assert_eq!(&bytes[at..at + 6], b"070701", "{name}");
            let number = |field: usize| {
                let start = at + 6 + field * 8;
                let text = std::str::from_utf8(&bytes[start..start + 8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name_size) = (number(6), number(11));
            let found = &bytes[at + 110..at + 110 + name_size];
            assert_eq!(found, format!("{name}\0").as_bytes());
            let content = (at + 110 + name_size).next_multiple_of(4);
            if name == "a/b/one" {
                assert_eq!(&bytes[content..content + size], b"12345");
                assert_eq!(number(1), 0o100_755);
            }
            at = (content + size).next_multiple_of(4);
        }
        assert_eq!(at, bytes.len());
    }
}
