//! The mount table, and unmounting what is below a directory of ours.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};

use crate::wait::wait_until;

/// Mount points at or below `dir`, deepest last-mounted first, as this process sees them.
pub fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    Ok(points_below(&table()?, dir))
}

/// The mount table of this process. A pod can have a directory of any name mounted; what is no text
/// in it is replaced.
pub fn table() -> Result<String> {
    let table = fs::read("/proc/self/mountinfo").context("read the mount table")?;
    Ok(String::from_utf8_lossy(&table).into_owned())
}

/// Unmounts everything at or below `dir`.
pub fn detach_below(dir: &Path) -> Result<()> {
    for point in below(dir)? {
        unmount(&point, UnmountFlags::DETACH)
            .with_context(|| format!("unmount {}", point.display()))?;
    }
    Ok(())
}

/// Unmounts and removes everything at or below `dir`. What was killed a moment ago may still be writing
/// its last file there, so a directory that fills up again is emptied again.
pub fn remove_tree(dir: &Path) -> Result<()> {
    wait_until(&format!("{} to be removed", dir.display()), Duration::from_secs(10), || {
        detach_below(dir)?;
        match fs::remove_dir_all(dir) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok((!dir.exists()).then_some(())),
            Err(error) => Err(error.into()),
        }
    })
}

fn points_below(table: &str, dir: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
        .filter(|point| point.starts_with(dir))
        .collect();
    points.reverse();
    points
}

/// The kernel writes blanks in paths as octal escapes.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_are_listed_and_the_newest_comes_first() {
        let table = "43 42 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                     50 43 0:30 / /tmp/a rw - tmpfs tmpfs rw\n\
                     51 50 0:31 / /tmp/a/b\\040c rw - tmpfs tmpfs rw\n\
                     52 43 0:32 / /tmp/ab rw - tmpfs tmpfs rw\n";
        let points = points_below(table, Path::new("/tmp/a"));
        assert_eq!(points, [PathBuf::from("/tmp/a/b c"), PathBuf::from("/tmp/a")]);
    }
}
