//! Kubeconfigs, certificates and keys on the disk: read bounded, written for root alone, watched.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use ferrolet_linux::{
    children::{Bounds, run_for_answer},
    rooted::{Durability, Rooted},
};
use ferrolet_ports::{ChangeHints, CredentialFiles, Fut, ProgramAsk, ReadFile};

use crate::watch::DirectoryWatch;

/// No kubeconfig, certificate or list of authorities is bigger.
const LARGEST: u64 = 10 << 20;

/// What a program that answers with credentials may take.
const PROGRAM: Bounds = Bounds { time: Duration::from_secs(60), output: 1 << 20 };

/// The files that the operator names.
#[derive(Clone, Copy, Debug)]
pub struct OperatorFiles;

impl ReadFile for OperatorFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(path)?.take(LARGEST + 1).read_to_end(&mut content)?;
        if u64::try_from(content.len()).is_ok_and(|length| length > LARGEST) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {LARGEST} bytes"),
            ));
        }
        Ok(content)
    }
}

impl CredentialFiles for OperatorFiles {
    fn ask_program<'a>(&'a self, ask: &'a ProgramAsk) -> Fut<'a, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let ProgramAsk { program, words, environment } = ask;
            let answer = run_for_answer(program, words, environment, PROGRAM).await;
            let answer = answer.map_err(|error| format!("exec: {error}"))?;
            if answer.code != Some(0) {
                let code = answer.code.map_or_else(|| "a signal".to_owned(), |it| it.to_string());
                let said = answer.complained.trim();
                return Err(format!(
                    "exec: executable {program} failed with exit code {code}: {said}"
                ));
            }
            answer.said.ok_or_else(|| {
                format!(
                    "exec: executable {program} answers with more than {} bytes",
                    PROGRAM.output
                )
            })
        })
    }

    fn write_private(&self, path: &Path, text: &str) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        std::fs::create_dir_all(directory)?;
        Rooted::open(directory)?.write_atomically(name, text.as_bytes(), 0o600, Durability::Synced)
    }

    /// Watches the directory and not the name, because mounted secrets change behind a link beside
    /// them.
    fn watch(&self, path: &Path) -> Box<dyn ChangeHints> {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        Box::new(DirectoryWatch::directory(parent.unwrap_or(Path::new("."))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn the_kubeconfig_is_written_for_root_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("etc/kubernetes/kubelet.conf");
        for text in ["first", "second"] {
            OperatorFiles.write_private(&file, text).unwrap();
            assert_eq!(OperatorFiles.read(&file).unwrap(), text.as_bytes());
        }
        let found = std::fs::metadata(&file).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert_eq!(found.nlink(), 1);
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let error = OperatorFiles.read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
