//! Where the last lines of a file begin, found from its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const BLOCK: u64 = 16 * 1024;

/// The offset of the last `lines` lines. A line without an end is not counted, and comes along.
pub(super) fn start_of(file: &File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let (mut right, mut n_seen) = (size, 0);
    let mut block = vec![0; usize::try_from(BLOCK).unwrap_or(usize::MAX)];
    while right > 0 {
        let left = right.saturating_sub(BLOCK);
        let length = usize::try_from(right - left).unwrap_or(usize::MAX);
        let block = &mut block[..length];
        file.read_exact_at(block, left)?;
        for (i, byte) in block.iter().enumerate().rev() {
            if *byte != b'\n' {
                continue;
            }
            // The end of the line before the first that is wanted.
            if n_seen == lines {
                return Ok(left + i as u64 + 1);
            }
            n_seen += 1;
        }
        right = left;
    }
    Ok(0)
}
