//! Cuts a stream of bytes into lines of bounded length. Pure.

/// A line that is longer than allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub(crate) struct TooLong {
    limit: usize,
}

/// Bytes that are not yet a whole line.
#[derive(Debug)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    /// Up to here there is no line end.
    scanned: usize,
    limit: usize,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), scanned: 0, limit }
    }

    /// Adds what arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line that is not empty, without its end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        loop {
            let fresh = &self.bytes[self.scanned..];
            let Some(end) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.bytes.len();
                return if self.scanned > self.limit {
                    Err(TooLong { limit: self.limit })
                } else {
                    Ok(None)
                };
            };
            let rest = self.bytes.split_off(self.scanned + end + 1);
            let mut line = std::mem::replace(&mut self.bytes, rest);
            self.scanned = 0;
            line.pop();
            if line.len() > self.limit {
                return Err(TooLong { limit: self.limit });
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_arrive() {
        let check = |chunks: &[&str], expected: &[&str]| {
            let mut lines = Lines::new(8);
            let mut seen = Vec::new();
            for chunk in chunks {
                lines.push(chunk.as_bytes());
                while let Some(line) = lines.next().unwrap() {
                    seen.push(String::from_utf8(line).unwrap());
                }
            }
            assert_eq!(seen, expected);
        };
        check(&["a\nb\n"], &["a", "b"]);
        check(&["a", "b", "c\nd"], &["abc"]);
        check(&["a\n\n\nb", "\n"], &["a", "b"]);
        check(&["", "\n"], &[]);
        check(&["12345678\n"], &["12345678"]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(4);
        lines.push(b"1234");
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"5");
        assert_eq!(lines.next(), Err(TooLong { limit: 4 }));
        let mut lines = Lines::new(4);
        lines.push(b"12345\n");
        assert_eq!(lines.next(), Err(TooLong { limit: 4 }));
    }
}
