//! Where lines go: all to standard error, or, if that is asked for, only errors there and the rest to
//! standard output, gathered for a while.
//!
//! ```text
//!  error ──────────────► standard error, at once
//!  anything else ─┬────► standard error, at once                 (as a rule)
//!                 └────► buffer ── full, flush ──► standard output   (`splitStream`)
//! ```

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;

type Sink = Box<dyn Write + Send>;

/// How lines are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Not at all.
    Together,
    /// Errors apart; so many bytes of the rest may wait.
    Split {
        /// 0 for none.
        buffer: usize,
    },
}

/// A handle to the streams of one log. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub struct LogStreams(Arc<Mutex<Streams>>);

struct Streams {
    errors: Sink,
    rest: BufWriter<Sink>,
    parting: Parting,
}

impl LogStreams {
    /// Those of this process.
    pub fn of_process(parting: Parting) -> Self {
        Self::new(Box::new(io::stderr()), Box::new(io::stdout()), parting)
    }

    pub(super) fn new(errors: Sink, rest: Sink, parting: Parting) -> Self {
        let rest = BufWriter::with_capacity(capacity(parting), rest);
        Self(Arc::new(Mutex::new(Streams { errors, rest, parting })))
    }

    /// Parts lines otherwise from now on; what waits is written first.
    pub fn part(&self, parting: Parting) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.parting == parting {
            return;
        }
        let _ = streams.rest.flush();
        streams.parting = parting;
        streams.rest = BufWriter::with_capacity(capacity(parting), Box::new(io::stdout()));
    }

    /// Writes what waits. Nobody is left to hear that it failed.
    pub fn flush(&self) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = streams.rest.flush();
    }

    /// One write per line, so that lines of several processes do not mix; nobody is left to hear
    /// that it failed.
    pub(super) fn write(&self, level: Level, line: &str) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = match (streams.parting, level == Level::ERROR) {
            (Parting::Together, _) | (Parting::Split { .. }, true) => {
                streams.errors.write_all(line.as_bytes())
            }
            (Parting::Split { .. }, false) => streams.rest.write_all(line.as_bytes()),
        };
    }
}

fn capacity(parting: Parting) -> usize {
    match parting {
        Parting::Together => 0,
        Parting::Split { buffer } => buffer,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Sink;
    use super::*;

    fn streams(parting: Parting) -> (LogStreams, Sink, Sink) {
        let (errors, rest) = (Sink::default(), Sink::default());
        (LogStreams::new(Box::new(errors.clone()), Box::new(rest.clone()), parting), errors, rest)
    }

    fn say(streams: &LogStreams) {
        streams.write(Level::INFO, "info\n");
        streams.write(Level::ERROR, "error\n");
        streams.write(Level::WARN, "warning\n");
    }

    #[test]
    fn lines_are_parted_when_that_is_asked_for() {
        let check = |parting, errors: &str, rest: &str| {
            let (streams, written, other) = streams(parting);
            say(&streams);
            assert_eq!((written.text().as_str(), other.text().as_str()), (errors, rest));
        };
        check(Parting::Together, "info\nerror\nwarning\n", "");
        check(Parting::Split { buffer: 0 }, "error\n", "info\nwarning\n");
    }

    #[test]
    fn what_waits_is_written_at_a_flush() {
        let (streams, errors, rest) = streams(Parting::Split { buffer: 1000 });
        say(&streams);
        assert_eq!((errors.text().as_str(), rest.text().as_str()), ("error\n", ""));
        streams.flush();
        assert_eq!(rest.text(), "info\nwarning\n");
        streams.write(Level::INFO, "late\n");
        streams.part(Parting::Together);
        assert_eq!(rest.text(), "info\nwarning\nlate\n");
    }
}
