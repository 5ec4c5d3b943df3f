//! Containers' log files, followed to standard output and standard error.
//!
//! In: the directory of pods' logs, as CRI lays it out: `<pod>/<container>/<restart>.log`. Out: the lines as they were
//! written, with the container's name in front where there are several. A file is read to its end before its successor.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
};

/// As much of a file as is taken at once.
const PIECE: u64 = 1 << 20;

/// Follows every container of the one pod.
#[derive(Debug)]
pub(super) struct LogFollower {
    directory: PathBuf,
    is_prefixed: bool,
    files: BTreeMap<PathBuf, Followed>,
}

#[derive(Debug)]
struct Followed {
    container: String,
    file: File,
    /// A line that is not whole yet.
    rest: Vec<u8>,
    /// The line before was told to go on; by stream.
    goes_on: [bool; 2],
}

/// One line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'l> {
    is_error: bool,
    /// The container's line goes on in the next one.
    is_partial: bool,
    text: &'l [u8],
}

impl LogFollower {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), is_prefixed: false, files: BTreeMap::new() }
    }

    /// Whether lines begin with their container's name.
    pub(super) fn set_prefixed(&mut self, is_prefixed: bool) {
        self.is_prefixed = is_prefixed;
    }

    /// Copies what is new.
    pub(super) fn look(
        &mut self,
        output: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> io::Result<()> {
        for (path, container) in log_files(&self.directory) {
            if !self.files.contains_key(&path)
                && let Ok(file) = File::open(&path)
            {
                let followed = Followed { container, file, rest: Vec::new(), goes_on: [false; 2] };
                self.files.insert(path, followed);
            }
        }
        let is_prefixed = self.is_prefixed;
        for followed in self.files.values_mut() {
            followed.copy(is_prefixed, output, errors)?;
        }
        output.flush()?;
        errors.flush()
    }
}

impl Followed {
    fn copy(
        &mut self,
        is_prefixed: bool,
        output: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> io::Result<()> {
        loop {
            let n_bytes = (&mut self.file).take(PIECE).read_to_end(&mut self.rest)?;
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            for line in lines.split_inclusive(|byte| *byte == b'\n').filter_map(parse) {
                let to: &mut dyn Write = if line.is_error { errors } else { output };
                let goes_on = &mut self.goes_on[usize::from(line.is_error)];
                if is_prefixed && !*goes_on {
                    write!(to, "[{}] ", self.container)?;
                }
                to.write_all(line.text)?;
                if !line.is_partial {
                    to.write_all(b"\n")?;
                }
                *goes_on = line.is_partial;
            }
            if n_bytes == 0 {
                return Ok(());
            }
        }
    }
}

/// The files with their containers, in order.
fn log_files(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for pod in entries(directory) {
        for container in entries(&pod.path()) {
            let name = container.file_name().to_string_lossy().into_owned();
            let files = entries(&container.path()).map(|file| file.path());
            let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log"));
            found.extend(logs.map(|path| (path, name.clone())));
        }
    }
    found.sort();
    found
}

/// `2026-11-18T20:00:00.1Z stdout F text`; nothing for what is no such line.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let (_time, stream, tags) = (words.next()?, words.next()?, words.next()?);
    Some(Line {
        is_error: stream == b"stderr",
        is_partial: tags == b"P",
        text: words.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_where_the_container_wrote_them() {
        let place = tempfile::tempdir().unwrap();
        let container = place.path().join("default_a_1/main");
        fs::create_dir_all(&container).unwrap();
        let file = container.join("0.log");
        let mut logs = LogFollower::new(place.path());
        let mut look = |prefixed: bool| {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            logs.set_prefixed(prefixed);
            logs.look(&mut output, &mut errors).unwrap();
            (String::from_utf8(output).unwrap(), String::from_utf8(errors).unwrap())
        };
        assert_eq!(look(false), (String::new(), String::new()));
        let append = |text: &str| {
            let mut file = File::options().create(true).append(true).open(&file).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("t stdout F one\nt stderr F two\nt stdout P thr");
        assert_eq!(look(false), ("one\n".to_owned(), "two\n".to_owned()));
        append("ee\nt stdout F  and on\n");
        assert_eq!(look(true), ("[main] three and on\n".to_owned(), String::new()));
        append("t stdout F\n");
        assert_eq!(look(false), ("\n".to_owned(), String::new()));
    }
}
