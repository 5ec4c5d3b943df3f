//! The agent's root directory as a place of shared mounts: what a pod with `Bidirectional`
//! propagation mounts there has to be seen by the node and by other pods.
//!
//! Called once, before anything in the directory is opened. Refuses: touching a mount that is
//! shared already.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use ferrolet_linux::mountinfo::{self, Mount};
use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};

/// The agent's directories are nobody else's.
const PRIVATE: u32 = 0o750;

/// Makes the directory, where it is not there, and the mount that it is on shared.
pub fn share_root(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(directory)?;
    let directory = fs::canonicalize(directory)?;
    if is_shared(&mountinfo::read()?, &directory) {
        return Ok(());
    }
    mount_bind_recursive(&directory, &directory)?;
    mount_change(&directory, MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    Ok(())
}

/// Whether the mount that a path is on tells others of what is mounted there.
fn is_shared(mounts: &[Mount], path: &Path) -> bool {
    let depth = |point: &PathBuf| point.components().count();
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two on one point the later one is seen, and `max_by_key` takes the last of equals.
    holding.max_by_key(|mount| depth(&mount.point)).is_some_and(|mount| mount.is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_is_seen_decides() {
        let check = |table: &str, expected: bool| {
            let mounts = mountinfo::parse(table.as_bytes());
            assert_eq!(is_shared(&mounts, Path::new("/var/lib/kubelet")), expected, "{table}");
        };
        let shared = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n";
        check(shared, true);
        check("1 0 8:1 / / rw master:1 - ext4 /dev/sda rw\n", false);
        let private = "2 1 8:2 / /var/lib rw - ext4 /dev/sdb rw\n";
        check(&format!("{shared}{private}"), false);
        check(
            &format!("{shared}{private}3 2 8:2 / /var/lib rw shared:9 - ext4 /dev/sdb rw\n"),
            true,
        );
        check(&format!("{shared}2 1 8:2 / /var/lib/kubelet-x rw - ext4 /dev/sdb rw\n"), true);
        check("", false);
    }
}
