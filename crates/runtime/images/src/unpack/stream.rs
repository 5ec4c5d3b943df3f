//! From a blob's bytes to the archive's: compression found by its first bytes, and the archive hashed as it passes.
//!
//! Media types are not asked: registries serve layers whose label is wrong, and everybody reads them.

use std::io::{self, BufReader, Cursor, Read};

use crate::{
    digest::{Digest, Hasher},
    limits::Limits,
};

/// The archive in a blob.
pub(crate) fn inflate<'b>(
    mut blob: impl Read + 'b,
    limits: &Limits,
) -> io::Result<Box<dyn Read + 'b>> {
    let mut first = [0; 4];
    let mut n_read = 0;
    while n_read < first.len() {
        match blob.read(&mut first[n_read..]) {
            Ok(0) => break,
            Ok(n) => n_read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let whole = Cursor::new(first).take(n_read as u64).chain(blob);
    let buffered = BufReader::with_capacity(64 * 1024, whole);
    Ok(match first {
        [0x1f, 0x8b, 0x08, _] => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
        // A frame, or one that carries something else and is passed over.
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            let mut decoder = zstd::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(limits.zstd_window_log)?;
            Box::new(decoder)
        }
        _ => Box::new(buffered),
    })
}

/// A reader that hashes what it hands out.
pub(super) struct Hashed<R> {
    source: R,
    hasher: Hasher,
}

impl<R> Hashed<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, hasher: Hasher::sha256() }
    }

    pub(super) fn finish(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }
}
