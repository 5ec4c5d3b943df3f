//! A container's log file: lines in CRI's format, appended in batches, reopened when somebody
//! renamed it, rotated at a limit.
//!
//! A write that fails loses its lines, counts them and never holds up the container.

mod format;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};

pub(crate) use format::{Lines, Splitter, Stamp, Stream};

/// Lines are written when so many bytes wait.
const BATCH: usize = 64 * 1024;

/// A log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    directory: OwnedFd,
    name: PathBuf,
    file: OwnedFd,
    size: u64,
    /// 0: never rotated here.
    max_size: u64,
    lost: Lost,
}

/// Lines that could not be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) n_lines: u64,
    /// Why the last one was lost; none once lines are written again.
    pub(crate) trouble: Option<Errno>,
}

impl LogFile {
    /// Opens the log, or makes it. Its directory is looked up once: later only names in it are.
    pub(crate) fn open(path: &Path, max_size: u64) -> Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())?;
        let name = PathBuf::from(name);
        let (file, size) = open_file(&directory, &name)?;
        Ok(Self { directory, name, file, size, max_size, lost: Lost::default() })
    }

    pub(crate) fn reopen(&mut self) -> Result<()> {
        (self.file, self.size) = open_file(&self.directory, &self.name)?;
        Ok(())
    }

    pub(crate) fn set_limit(&mut self, max_size: u64) {
        self.max_size = max_size;
    }

    pub(crate) fn lost(&self) -> Lost {
        self.lost
    }

    /// A batch of lines of one moment. It is written when it is full or dropped.
    pub(crate) fn batch<'a>(&'a mut self, stamp: &'a Stamp, buffer: &'a mut Vec<u8>) -> Batch<'a> {
        buffer.clear();
        Batch { log: self, stamp, buffer, n_lines: 0 }
    }

    fn write(&mut self, mut bytes: &[u8], n_lines: u64, stamp: &Stamp) {
        if self.max_size > 0 && self.size >= self.max_size {
            self.rotate(stamp);
        }
        while !bytes.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::write(&self.file, bytes)) {
                Ok(n) => {
                    self.size += n as u64;
                    bytes = &bytes[n..];
                }
                Err(errno) => {
                    self.lost.n_lines += n_lines;
                    self.lost.trouble = Some(errno);
                    return;
                }
            }
        }
        self.lost.trouble = None;
    }

    /// As the kubelet does it: the file gets the time for a suffix and another takes its place. Two
    /// rotations within a second would take the same name, so the second waits.
    fn rotate(&mut self, stamp: &Stamp) {
        let mut aside = self.name.clone().into_os_string();
        aside.push(".");
        aside.push(stamp.suffix());
        let renamed = rustix::fs::renameat_with(
            &self.directory,
            &self.name,
            &self.directory,
            Path::new(&aside),
            RenameFlags::NOREPLACE,
        );
        if renamed.is_ok() && self.reopen().is_err() {
            // The old file still takes what comes; its name goes back so that readers find it.
            let _stays_aside = rustix::fs::renameat_with(
                &self.directory,
                Path::new(&aside),
                &self.directory,
                &self.name,
                RenameFlags::NOREPLACE,
            );
        }
    }
}

/// A file of that very name: no link is followed, and nothing but a plain file is written to.
fn open_file(directory: &OwnedFd, name: &Path) -> Result<(OwnedFd, u64)> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o640))?;
    let stat = rustix::fs::statat(&file, "", AtFlags::EMPTY_PATH)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// Lines on their way into a file.
pub(crate) struct Batch<'a> {
    log: &'a mut LogFile,
    stamp: &'a Stamp,
    buffer: &'a mut Vec<u8>,
    n_lines: u64,
}

impl Batch<'_> {
    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.log.write(self.buffer, self.n_lines, self.stamp);
            self.buffer.clear();
            self.n_lines = 0;
        }
    }
}

impl Lines for Batch<'_> {
    fn line(&mut self, pieces: &[&[u8]]) {
        let length: usize = pieces.iter().map(|it| it.len()).sum();
        if self.buffer.len() + length > BATCH {
            self.flush();
        }
        for piece in pieces {
            self.buffer.extend_from_slice(piece);
        }
        self.n_lines += 1;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(log: &mut LogFile, text: &str, second: i64) {
        let stamp = Stamp::new(second, 0);
        let mut buffer = Vec::new();
        Splitter::new(Stream::Stdout).push(
            text.as_bytes(),
            &stamp,
            &mut log.batch(&stamp, &mut buffer),
        );
    }

    fn texts(path: &Path) -> Vec<String> {
        let content = fs::read_to_string(path).unwrap();
        content.lines().map(|it| it.rsplit(' ').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn lines_are_appended_and_follow_a_reopened_name() {
        let place = tempfile::tempdir().unwrap();
        let (path, aside) = (place.path().join("0.log"), place.path().join("0.log.1"));
        fs::write(&path, "x F before\n").unwrap();
        let mut log = LogFile::open(&path, 0).unwrap();
        write(&mut log, "a\nb\n", 0);
        fs::rename(&path, &aside).unwrap();
        write(&mut log, "c\n", 0);
        log.reopen().unwrap();
        write(&mut log, "d\n", 0);
        assert_eq!(texts(&aside), ["before", "a", "b", "c"]);
        assert_eq!(texts(&path), ["d"]);
    }

    #[test]
    fn a_full_log_is_rotated_once_a_second_at_most() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("0.log");
        let mut log = LogFile::open(&path, 10).unwrap();
        for text in ["a\n", "b\n", "c\n"] {
            write(&mut log, text, 0);
        }
        write(&mut log, "d\n", 1);
        assert_eq!(texts(&place.path().join("0.log.19700101-000000")), ["a"]);
        assert_eq!(texts(&place.path().join("0.log.19700101-000001")), ["b", "c"]);
        assert_eq!(texts(&path), ["d"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("0.log");
        let mut log = LogFile::open(&path, 0).unwrap();
        let full = rustix::fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        let working = std::mem::replace(&mut log.file, full);
        write(&mut log, "a\nb\n", 0);
        assert_eq!(log.lost(), Lost { n_lines: 2, trouble: Some(Errno::NOSPC) });
        log.file = working;
        write(&mut log, "c\n", 0);
        assert_eq!(log.lost(), Lost { n_lines: 2, trouble: None });
        assert_eq!(texts(&path), ["c"]);
    }

    #[test]
    fn a_link_or_a_pipe_in_the_logs_place_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("0.log");
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(LogFile::open(&path, 0).unwrap_err(), Errno::LOOP);
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        // Nobody reads it, so that opening it fails instead of waiting.
        assert_eq!(LogFile::open(&path, 0).unwrap_err(), Errno::NXIO);
    }
}
