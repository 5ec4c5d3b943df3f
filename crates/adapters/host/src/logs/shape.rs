//! From the file's bytes to the text that was asked for: lines, times, since, limits, streams.
//! Pure.
//!
//! Upstream's rules, oddities included: parts of a line count as lines for `tailLines`; a line
//! older than `since` still counts; a line that makes no sense is passed over, but a log that
//! begins with one is refused.

use ferrolet_ports::{LogAsk, LogOutput};
use ferrolet_types::Timestamp;

use super::line::Line;

/// Runtimes break lines at 16 KiB. One that goes on for longer than this is passed on in parts, so
/// that it cannot fill the memory.
const LONGEST: usize = 256 * 1024;
/// As much of a line that makes no sense as is shown.
const SAMPLE: usize = 200;

/// Turns bytes into text, remembering where in a line it is.
pub(super) struct Shape {
    since: Option<Timestamp>,
    with_timestamps: bool,
    output: LogOutput,
    bytes_left: Option<u64>,
    lines_left: Option<u64>,
    /// The beginning of a line whose end was not seen yet.
    begun: Vec<u8>,
    /// True when the next text begins a line of the output.
    at_line_start: bool,
    /// True while the rest of a line that was too long goes by: whether it is wanted.
    overlong: Option<bool>,
    knows_format: bool,
    is_done: bool,
}

impl Shape {
    pub(super) fn new(ask: &LogAsk) -> Self {
        // Who follows gets the lines to come as well.
        let lines_left = ask.tail_lines.filter(|_| ask.follow.is_none());
        Self {
            since: ask.since,
            with_timestamps: ask.with_timestamps,
            output: ask.output,
            bytes_left: ask.limit_bytes,
            lines_left,
            begun: Vec::new(),
            at_line_start: true,
            overlong: None,
            knows_format: false,
            is_done: lines_left == Some(0),
        }
    }

    /// True when nothing more is wanted.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Takes bytes in, in order; gives text out. An error is a log that is none.
    pub(super) fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        while !bytes.is_empty() && !self.is_done {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (own, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            bytes = rest;
            if let Some(is_wanted) = self.overlong {
                if is_wanted {
                    self.write(own, out);
                }
                if end.is_some() {
                    self.overlong = None;
                    self.at_line_start = true;
                    self.count();
                }
                continue;
            }
            if end.is_some() && self.begun.is_empty() {
                self.whole_line(own, out)?;
                continue;
            }
            self.begun.extend(own);
            if end.is_some() {
                let whole = std::mem::take(&mut self.begun);
                self.whole_line(&whole, out)?;
            } else if self.begun.len() >= LONGEST {
                let part = std::mem::take(&mut self.begun);
                let is_wanted = self.line(&part, out)?;
                self.overlong = Some(is_wanted.unwrap_or(false));
            }
        }
        Ok(())
    }

    /// The file ends here: what was begun is all there is of it.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let rest = std::mem::take(&mut self.begun);
        if !rest.is_empty() && !self.is_done {
            self.whole_line(&rest, out)?;
        }
        Ok(())
    }

    fn whole_line(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        if self.line(raw, out)?.is_some() {
            self.count();
        }
        Ok(())
    }

    fn count(&mut self) {
        if let Some(left) = &mut self.lines_left {
            *left -= 1;
            self.is_done |= *left == 0;
        }
    }

    /// One line, or as much as there is of it; tells whether it is wanted. `None` for one that
    /// makes no sense.
    fn line(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Option<bool>, String> {
        let Some(line) = Line::parse(raw) else {
            if self.knows_format {
                return Ok(None);
            }
            let sample = String::from_utf8_lossy(&raw[..raw.len().min(SAMPLE)]);
            return Err(format!("unsupported log format: {sample:?}"));
        };
        self.knows_format = true;
        let is_wanted = self.wants(&line);
        if is_wanted {
            let mut time = Vec::new();
            if self.with_timestamps && self.at_line_start {
                line.write_time(&mut time);
            }
            self.write(&time, out);
            if !self.is_done {
                self.write(line.text, out);
            }
        }
        self.at_line_start = line.text.last().is_none_or(|byte| *byte == b'\n');
        Ok(Some(is_wanted))
    }

    fn wants(&self, line: &Line<'_>) -> bool {
        let is_recent = self.since.is_none_or(|since| line.time >= since);
        is_recent
            && match self.output {
                LogOutput::All => true,
                LogOutput::Stdout => !line.is_stderr,
                LogOutput::Stderr => line.is_stderr,
            }
    }

    /// Writes as much as the limit leaves.
    fn write(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let Some(left) = &mut self.bytes_left else {
            out.extend(text);
            return;
        };
        let n = usize::try_from(*left).unwrap_or(usize::MAX).min(text.len());
        out.extend(&text[..n]);
        *left -= n as u64;
        self.is_done |= *left == 0;
    }
}
