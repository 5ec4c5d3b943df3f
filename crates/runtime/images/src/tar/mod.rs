//! A reader of tar archives that agrees with Go's about where each entry begins.
//!
//! In: a stream, once, front to back. Out: [`Entry`] after entry, and the content of the one at hand. Holds one header
//! block and at most one extended header: memory does not grow with the archive.
//!
//! Layers are written by Go's `archive/tar`, and everybody else who looks at an image (scanners, other runtimes) reads
//! it with that. Two readers that disagree about the size of an entry see different files behind the same digest, so
//! the rules of that one hold here: a PAX header speaks for one entry and replaces an earlier one, its size counts
//! before the header's, GNU's long names count before PAX, global headers mean nothing, and links, devices and
//! directories have no content. The `tar` crate cannot bound extended headers; the tests use it as a second opinion.
//!
//! Refuses sparse files, which no builder of images writes, rather than guess at their maps.

mod header;
mod pax;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use crate::limits::{Limits, OverLimit, within};
use header::{BLOCK, Header};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// Another name of a file of this archive or of what lies below it.
    HardLink,
    /// A symbolic link.
    SymbolicLink,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
}

/// One entry, as its headers describe it. Names are bytes of any kind, not yet looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where it belongs.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Where a link points.
    pub link: Vec<u8>,
    /// Permissions, set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// Bytes of content that follow.
    pub size: u64,
    /// Device numbers.
    pub device: (u32, u32),
    /// Extended attributes by full name.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The stream failed.
    #[error("read archive")]
    Read(#[source] io::Error),
    /// The archive ends inside an entry.
    #[error("archive ends in the middle of {0}")]
    Truncated(&'static str),
    /// A header that does not add up.
    #[error("archive header {n}: {fault}")]
    Header {
        /// Which header, from 1.
        n: u64,
        /// What is wrong.
        fault: &'static str,
    },
    /// A kind of entry that no image has.
    #[error("{path:?} is {what}, which images do not have")]
    Unsupported {
        /// The entry.
        path: String,
        /// Its kind.
        what: String,
    },
    /// Too much of something.
    #[error(transparent)]
    Limit(#[from] OverLimit),
}

/// Reads an archive.
pub(crate) struct Reader<R> {
    source: R,
    extended_header_bytes: u64,
    path_bytes: usize,
    n_headers: u64,
    n_entries: u64,
    most_entries: u64,
    /// Content of the entry at hand that nobody has read yet, and what fills its last block.
    content: u64,
    padding: u64,
    is_at_end: bool,
}

impl<R: Read> Reader<R> {
    /// A reader of `source` that stays within `limits`.
    pub(crate) fn new(source: R, limits: &Limits) -> Self {
        Self {
            source,
            extended_header_bytes: limits.extended_header_bytes,
            path_bytes: limits.path_bytes,
            n_headers: 0,
            n_entries: 0,
            most_entries: limits.n_entries,
            content: 0,
            padding: 0,
            is_at_end: false,
        }
    }

    /// The next entry; what is left of the content before it is passed over.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, TarError> {
        let mut extended = pax::Records::default();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let Some(header) = self.next_header()? else { return Ok(None) };
            match header.kind_byte() {
                b'x' => extended = self.read_extended(&header)?,
                // Go hands global headers out and applies them to nothing.
                b'g' => self.begin_content(header.size)?,
                b'L' => long_name = Some(self.read_long(&header)?),
                b'K' => long_link = Some(self.read_long(&header)?),
                _ => {
                    self.n_entries += 1;
                    within("entries in an archive", self.n_entries, self.most_entries)?;
                    return self.entry(&header, extended, (long_name, long_link)).map(Some);
                }
            }
        }
    }

    /// Reads on in the entry's content; 0 at its end.
    pub(crate) fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let most = usize::try_from(self.content).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let n = read_some(&mut self.source, &mut buffer[..most])?;
        if n == 0 {
            return Err(TarError::Truncated("a file"));
        }
        self.content -= n as u64;
        Ok(n)
    }

    /// The stream, which stands at the beginning of the entry's content.
    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// The stream behind the archive, for what follows it.
    pub(crate) fn into_source(self) -> R {
        self.source
    }

    fn next_header(&mut self) -> Result<Option<Header>, TarError> {
        if self.is_at_end {
            return Ok(None);
        }
        self.pass_over()?;
        let Some(block) = self.read_block()? else {
            // An archive without its end marker is whole as long as it ends between entries.
            self.is_at_end = true;
            return Ok(None);
        };
        self.n_headers += 1;
        if block.iter().all(|&byte| byte == 0) {
            self.is_at_end = true;
            return match self.read_block()? {
                Some(second) if second.iter().any(|&byte| byte != 0) => {
                    Err(self.fault("one empty block before it"))
                }
                _ => Ok(None),
            };
        }
        // A header that speaks for the next one counts too, or endless ones would.
        within("headers in an archive", self.n_headers, self.most_entries.saturating_mul(4))?;
        Header::parse(block).map(Some).map_err(|fault| self.fault(fault))
    }

    fn entry(
        &mut self,
        header: &Header,
        extended: pax::Records,
        (long_name, long_link): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Result<Entry, TarError> {
        let size = extended.size.unwrap_or(header.size);
        let path = long_name.or(extended.path).unwrap_or_else(|| header.path());
        let link = long_link.or(extended.link).unwrap_or_else(|| header.link());
        if path.is_empty() {
            return Err(self.fault("no name"));
        }
        let limit = self.path_bytes as u64;
        within("bytes in a path", path.len() as u64, limit)?;
        within("bytes in a link's target", link.len() as u64, limit)?;
        if path.contains(&0) || link.contains(&0) {
            return Err(self.fault("a name with a NUL byte"));
        }
        let kind = match header.kind_byte() {
            b'0' | b'7' => Kind::File,
            0 if path.ends_with(b"/") => Kind::Directory,
            0 => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::SymbolicLink,
            b'3' => Kind::CharacterDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            b'S' => return Err(unsupported(&path, "a sparse file".to_owned())),
            other => return Err(unsupported(&path, format!("an entry of type {other:#04x}"))),
        };
        if extended.is_sparse {
            return Err(unsupported(&path, "a sparse file".to_owned()));
        }
        let size = if kind == Kind::File { size } else { 0 };
        self.begin_content(size)?;
        Ok(Entry {
            path,
            kind,
            link,
            mode: header.mode,
            uid: extended.uid.or(header.uid).ok_or_else(|| self.fault("an owner out of range"))?,
            gid: extended.gid.or(header.gid).ok_or_else(|| self.fault("a group out of range"))?,
            modified: extended.modified.unwrap_or((header.modified, 0)),
            size,
            device: header.device,
            attributes: extended.attributes,
        })
    }

    fn begin_content(&mut self, size: u64) -> Result<(), TarError> {
        self.content = size;
        self.padding = size
            .checked_next_multiple_of(BLOCK as u64)
            .ok_or_else(|| self.fault("a size out of range"))?
            - size;
        Ok(())
    }

    fn read_extended(&mut self, header: &Header) -> Result<pax::Records, TarError> {
        let text = self.read_special(header)?;
        pax::parse(&text).map_err(|fault| self.fault(fault))
    }

    fn read_long(&mut self, header: &Header) -> Result<Vec<u8>, TarError> {
        let mut text = self.read_special(header)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        text.truncate(end);
        Ok(text)
    }

    fn read_special(&mut self, header: &Header) -> Result<Vec<u8>, TarError> {
        within("bytes in an extended header", header.size, self.extended_header_bytes)?;
        self.begin_content(header.size)?;
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read_content(&mut buffer)? {
                0 => return Ok(text),
                n => text.extend_from_slice(&buffer[..n]),
            }
        }
    }

    fn pass_over(&mut self) -> Result<(), TarError> {
        let mut left = self.content + self.padding;
        let mut buffer = [0; 16 * 1024];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match read_some(&mut self.source, &mut buffer[..most])? {
                // Nobody needs what fills the last block of an archive.
                0 if left <= self.padding => break,
                0 => return Err(TarError::Truncated("a file")),
                n => left -= n as u64,
            }
        }
        (self.content, self.padding) = (0, 0);
        Ok(())
    }

    fn read_block(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let mut n_read = 0;
        while n_read < BLOCK {
            match read_some(&mut self.source, &mut block[n_read..])? {
                0 if n_read == 0 => return Ok(None),
                0 => return Err(TarError::Truncated("a header")),
                n => n_read += n,
            }
        }
        Ok(Some(block))
    }

    fn fault(&self, fault: &'static str) -> TarError {
        TarError::Header { n: self.n_headers, fault }
    }
}

fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TarError> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map_err(TarError::Read),
        }
    }
}

fn unsupported(path: &[u8], what: String) -> TarError {
    TarError::Unsupported { path: String::from_utf8_lossy(path).into_owned(), what }
}
