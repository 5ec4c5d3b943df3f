//! Reading the operator's manifests: a directory of files, or one file.
//!
//! In: a path from the configuration. Out: each candidate with its bytes or with why it has none,
//! so that one bad file never hides the others. Links are followed, as upstream does: the place is
//! the operator's, not a pod's. Refuses: hidden files, files over ten mebibytes, anything that
//! could block.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use ferrolet_linux::offload::{Job, Pool};
use ferrolet_ports::{ChangeHints, Fut, ManifestFiles};

use crate::watch::DirectoryWatch;

/// The longest manifest that is read.
pub const MANIFEST_LIMIT: u64 = 10 << 20;

/// A candidate and what came of reading it.
pub type ManifestFile = (PathBuf, Result<Vec<u8>, ReadProblem>);

/// Why a candidate has no content.
#[derive(Debug, thiserror::Error)]
pub enum ReadProblem {
    /// Directories are not descended into.
    #[error("{path} is a directory; manifests in it are not read")]
    Directory {
        /// The candidate.
        path: PathBuf,
    },
    /// Neither a file nor a directory.
    #[error("{path} is not a regular file")]
    NotRegular {
        /// The candidate.
        path: PathBuf,
    },
    /// More than the limit.
    #[error("{path} is larger than {MANIFEST_LIMIT} bytes")]
    TooLarge {
        /// The candidate.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("read {path}")]
    Unreadable {
        /// The candidate.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// Why nothing could be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// There is nothing at the path. Upstream takes this for an empty set that has been seen.
    #[error("{path} does not exist")]
    Missing {
        /// The configured path.
        path: PathBuf,
    },
    /// The path is neither a directory nor a file.
    #[error("{path} is not a directory or file")]
    NotDirectoryOrFile {
        /// The configured path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("list {path}")]
    Unreadable {
        /// The configured path.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
}

/// The operator's manifests, read off the async threads.
#[derive(Clone, Copy, Debug)]
pub struct ManifestDisk;

impl ManifestFiles for ManifestDisk {
    fn read<'a>(
        &'a self,
        path: &'a Path,
    ) -> Fut<'a, Result<Vec<ferrolet_ports::ManifestFile>, String>> {
        let path = path.to_owned();
        Box::pin(async move {
            let attempt = format!("read manifests at {}", path.display());
            let listing = Job::on(Pool::Mounts, &attempt)
                .alone(&*attempt)
                .run(move || Ok(read_manifest_dir(&path)))
                .await
                .map_err(|error| error.to_string())?;
            match listing {
                Ok(files) => Ok(files
                    .into_iter()
                    .map(|(path, read)| (path, read.map_err(|problem| chain(&problem))))
                    .collect()),
                Err(ManifestsError::Missing { .. }) => Ok(Vec::new()),
                Err(error) => Err(chain(&error)),
            }
        })
    }

    fn watch(&self, path: &Path) -> Box<dyn ChangeHints> {
        Box::new(if path.is_file() {
            DirectoryWatch::file(path)
        } else {
            DirectoryWatch::directory(path)
        })
    }
}

/// An error with everything behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Reads every manifest at `path`, sorted by name; a path that names a file gives that one.
pub fn read_manifest_dir(path: &Path) -> Result<Vec<ManifestFile>, ManifestsError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ManifestsError::Missing { path: path.to_owned() },
        _ => ManifestsError::Unreadable { path: path.to_owned(), source },
    };
    let kind = fs::metadata(path).map_err(unreadable)?;
    if kind.is_file() {
        return Ok(vec![(path.to_owned(), read_file(path))]);
    }
    if !kind.is_dir() {
        return Err(ManifestsError::NotDirectoryOrFile { path: path.to_owned() });
    }
    let mut candidates = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !is_hidden(&entry.file_name()) {
            candidates.push(entry.path());
        }
    }
    candidates.sort();
    let files = candidates.into_iter().filter_map(|candidate| {
        let read = read_file(&candidate);
        // Deleted since the listing: not a problem, just no longer there. A dangling link is still
        // there.
        let is_gone = read.is_err() && fs::symlink_metadata(&candidate).is_err();
        (!is_gone).then_some((candidate, read))
    });
    Ok(files.collect())
}

/// Names that begin with a dot are editors' and atomic writers' business.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn read_file(path: &Path) -> Result<Vec<u8>, ReadProblem> {
    let unreadable = |source| ReadProblem::Unreadable { path: path.to_owned(), source };
    let not_regular = || ReadProblem::NotRegular { path: path.to_owned() };
    // Looked at before opening too: opening a device can have effects, and a socket cannot be
    // opened at all.
    let kind = fs::metadata(path).map_err(unreadable)?;
    if kind.is_dir() {
        return Err(ReadProblem::Directory { path: path.to_owned() });
    }
    if !kind.is_file() {
        return Err(not_regular());
    }
    let file: File = OpenOptions::new()
        .read(true)
        // A FIFO swapped in after the look must not hold us.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(not_regular());
    }
    let mut content = Vec::new();
    file.take(MANIFEST_LIMIT + 1).read_to_end(&mut content).map_err(unreadable)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > MANIFEST_LIMIT) {
        return Err(ReadProblem::TooLarge { path: path.to_owned() });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_candidate_is_read_or_says_why_not() {
        let held = tempfile::tempdir().unwrap();
        let dir = held.path().join("manifests");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("b.yaml"), "b").unwrap();
        fs::write(dir.join("a.yaml"), "a").unwrap();
        fs::write(dir.join(".hidden.yaml"), "h").unwrap();
        fs::write(held.path().join("elsewhere"), "linked").unwrap();
        symlink(held.path().join("elsewhere"), dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        let huge = File::create(dir.join("huge")).unwrap();
        huge.set_len(MANIFEST_LIMIT + 1).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();

        let told: Vec<String> = read_manifest_dir(&dir)
            .unwrap()
            .into_iter()
            .map(|(path, read)| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                match read {
                    Ok(content) => format!("{name} = {}", String::from_utf8(content).unwrap()),
                    Err(problem) => {
                        let shown = problem.to_string();
                        assert!(shown.contains(&*path.to_string_lossy()), "{shown}");
                        let variant = format!("{problem:?}");
                        format!("{name}: {}", variant.split(' ').next().unwrap())
                    }
                }
            })
            .collect();
        let expected = [
            "a.yaml = a",
            "b.yaml = b",
            "dangling: Unreadable",
            "fifo: NotRegular",
            "huge: TooLarge",
            "link = linked",
            "socket: NotRegular",
            "sub: Directory",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_single_file_is_a_set_of_one() {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("pod.yaml");
        fs::write(&path, "pod").unwrap();
        let files = read_manifest_dir(&path).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].1.as_ref().unwrap(), b"pod");
    }

    #[test]
    fn a_path_that_is_not_there_is_told_from_one_that_cannot_be_read() {
        let missing = read_manifest_dir(Path::new("/nowhere/manifests"));
        assert!(matches!(missing, Err(ManifestsError::Missing { .. })));
        let odd = read_manifest_dir(Path::new("/dev/null"));
        assert!(matches!(odd, Err(ManifestsError::NotDirectoryOrFile { .. })));
    }
}
