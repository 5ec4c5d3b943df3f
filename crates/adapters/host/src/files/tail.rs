//! The end of a container's log, without the runtime's prefixes.
//!
//! In: an open log of lines `<time> <stream> <P|F> <content>`. Out: the content of its last lines,
//! the end of it if that is too long. Reads backwards in chunks, so a log of gigabytes costs as
//! much as its last lines.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

const CHUNK: u64 = 16 << 10;
/// The runtime cuts lines at 16 KiB, so a hundred full ones fit; a log without line ends is not
/// read back to its start.
const WINDOW: u64 = 4 << 20;

/// The last `lines` lines of the log, of which the last `limit` bytes.
pub(super) fn read_tail(file: &mut File, lines: usize, limit: usize) -> io::Result<String> {
    if lines == 0 || limit == 0 {
        return Ok(String::new());
    }
    let window = last_lines(file, lines)?;
    let mut content = Vec::new();
    // Like upstream, only the first line decides about the format; a broken one later is passed
    // over.
    for (n, line) in window.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match content_of(line) {
            Some(part) => content.extend_from_slice(part),
            None if n == 0 => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "unsupported log format"));
            }
            None => {}
        }
        if n + 1 == lines {
            break;
        }
    }
    let cut = content.len().saturating_sub(limit);
    Ok(String::from_utf8_lossy(&content[cut..]).into_owned())
}

/// The bytes from the start of the last `lines` complete lines; a line without its end does not
/// count as one.
fn last_lines(file: &mut File, lines: usize) -> io::Result<Vec<u8>> {
    let end = file.metadata()?.len();
    let floor = end.saturating_sub(WINDOW);
    let mut start = end;
    let mut window: Vec<u8> = Vec::new();
    let mut n_ends = 0;
    while start > floor && n_ends <= lines {
        let from = start.saturating_sub(CHUNK).max(floor);
        file.seek(SeekFrom::Start(from))?;
        let mut chunk = Vec::new();
        file.by_ref().take(start - from).read_to_end(&mut chunk)?;
        n_ends += count_ends(&chunk);
        chunk.append(&mut window);
        window = chunk;
        start = from;
    }
    let mut skip = 0;
    // Counted against what the window holds: one end more than wanted lies before the first wanted
    // line.
    let mut surplus = n_ends.saturating_sub(lines);
    if start > 0 && surplus == 0 {
        // The window ends inside a line that is too long to be one.
        surplus = 1;
    }
    for _ in 0..surplus {
        match window[skip..].iter().position(|byte| *byte == b'\n') {
            Some(at) => skip += at + 1,
            None => skip = window.len(),
        }
    }
    window.drain(..skip);
    Ok(window)
}

fn count_ends(chunk: &[u8]) -> usize {
    chunk.iter().filter(|byte| **byte == b'\n').count()
}

/// The content of one line; a partial one loses its line end, which the runtime added.
fn content_of(line: &[u8]) -> Option<&[u8]> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags, content) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let looks_like_time = time.first().is_some_and(u8::is_ascii_digit) && time.contains(&b'T');
    if !looks_like_time || (stream != b"stdout" && stream != b"stderr") {
        return None;
    }
    // More tags may follow after a colon one day.
    let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    Some(match content.strip_suffix(b"\n") {
        Some(bare) if is_partial => bare,
        _ => content,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tail_of(text: &str, lines: usize, limit: usize) -> io::Result<String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        read_tail(&mut file, lines, limit)
    }

    const T: &str = "2016-10-06T00:17:09.669794202Z";

    #[test]
    fn the_last_lines_come_without_prefixes() {
        let check = |text: &str, lines: usize, limit: usize, expected: &str| {
            assert_eq!(tail_of(text, lines, limit).unwrap(), expected, "{text}");
        };
        let log = format!("{T} stdout F one\n{T} stderr F two\n{T} stdout F three\n");
        check(&log, 80, 2048, "one\ntwo\nthree\n");
        check(&log, 2, 2048, "two\nthree\n");
        check(&log, 1, 2048, "three\n");
        check(&log, 80, 5, "hree\n");
        check(&log, 0, 2048, "");
        check(&log, 80, 0, "");
        check("", 80, 2048, "");
        check(&format!("{T} stdout P par\n{T} stdout F tial\n"), 80, 2048, "partial\n");
        check(&format!("{T} stdout P:X par\n{T} stdout F \n"), 80, 2048, "par\n");
        check(&format!("{T} stdout F good\nbroken\n{T} stdout F more\n"), 80, 2048, "good\nmore\n");
        // A line still being written counts only when there is room for it.
        let unfinished = format!("{T} stdout F one\n{T} stdout F tw");
        check(&unfinished, 80, 2048, "one\ntw");
        check(&unfinished, 1, 2048, "one\n");
    }

    #[test]
    fn a_log_in_another_format_is_refused() {
        assert!(tail_of("just text\n", 80, 2048).is_err());
        assert!(tail_of(&format!("{T} elsewhere F x\n"), 80, 2048).is_err());
    }

    #[test]
    fn chunks_join_without_a_seam() {
        let long = "x".repeat(10_000);
        let log: String = (0..50).map(|n| format!("{T} stdout F {n}-{long}\n")).collect();
        for lines in [1, 2, 3, 49, 50, 51] {
            let expected: String = (0..50)
                .skip(50_usize.saturating_sub(lines))
                .map(|n| format!("{n}-{long}\n"))
                .collect();
            assert_eq!(tail_of(&log, lines, usize::MAX).unwrap(), expected, "{lines}");
        }
    }

    #[test]
    fn a_huge_line_is_not_read_back_to_its_start() {
        let huge = "x".repeat(5 << 20);
        let log = format!("{T} stdout F {huge}\n{T} stdout F end\n");
        assert_eq!(tail_of(&log, 80, 2048).unwrap(), "end\n");
    }
}
