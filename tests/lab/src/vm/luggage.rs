//! What a job brings along, as a disk that is laid over the guest's system. Memory would do for
//! little; programs with everything for a debugger are too much for it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// More than the files take: for directories, and for the file system's own tables.
const SLACK: u64 = 64 << 20;

/// Files below a directory, on their way to a disk.
pub(super) struct Luggage {
    top: PathBuf,
    size: u64,
}

impl Luggage {
    pub(super) fn new(top: &Path) -> Result<Luggage> {
        fs::create_dir_all(top)?;
        Ok(Luggage { top: top.to_owned(), size: SLACK })
    }

    /// A program with this text.
    pub(super) fn text(&mut self, path: &str, content: &str) -> Result<()> {
        let target = self.place(Path::new(path))?;
        fs::write(&target, content)?;
        Ok(fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?)
    }

    /// A copy of `source` at another path.
    pub(super) fn copy(&mut self, path: &Path, source: &Path) -> Result<()> {
        let target = self.place(path)?;
        if !target.exists() {
            let attempt = || format!("copy {} for the guest", source.display());
            self.size += fs::copy(source, &target).with_context(attempt)?;
        }
        Ok(())
    }

    /// A copy of a file at its own path; where the path leads through links, the file itself and
    /// one link to it. Names such as `/bin` that are links stay so: the system below has them too.
    pub(super) fn mirror(&mut self, path: &Path) -> Result<()> {
        let attempt = || format!("find {}", path.display());
        let real = fs::canonicalize(path).with_context(attempt)?;
        self.copy(&real, &real)?;
        let first: PathBuf = path.components().take(2).collect();
        let given = match first.is_symlink() {
            true => {
                let rest = path.strip_prefix(&first).with_context(attempt)?;
                fs::canonicalize(&first).with_context(attempt)?.join(rest)
            }
            false => path.to_owned(),
        };
        let link = self.place(&given)?;
        if link.symlink_metadata().is_err() {
            symlink(&real, link)?;
        }
        Ok(())
    }

    /// Writes the disk and takes the files away.
    pub(super) fn finish(self, disk: &Path) -> Result<()> {
        // File systems grow by more than their files.
        let size = format!("{}M", (self.size + self.size / 8) >> 20);
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-O", "^has_journal", "-E", "root_owner=0:0", "-d"]);
        output(make.arg(&self.top).arg(disk).arg(size))?;
        Ok(fs::remove_dir_all(&self.top)?)
    }

    /// Where a path lies, below directories that are there.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let path = self.top.join(path.strip_prefix("/").unwrap_or(path));
        fs::create_dir_all(path.parent().context("a path without a directory")?)?;
        Ok(path)
    }
}
