//! The kernel's table of mounts, read as data.
//!
//! In: the bytes of `/proc/self/mountinfo`. Out: [`Mount`]s in the kernel's order, where a later one
//! on the same point covers an earlier one. A pod can have a directory of any name mounted, so paths
//! are bytes, and a line that cannot be understood costs nobody but itself. Refuses: deciding what a
//! mount means.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The file system's device, major and minor number.
    pub device: String,
    /// The directory of the mounted file system that appears here.
    pub root: PathBuf,
    /// Where it appears.
    pub point: PathBuf,
    /// The kind of file system.
    pub file_system: String,
    /// What is mounted below it here is seen by its peers.
    pub is_shared: bool,
    /// Options of the file system itself, not of this mount.
    pub super_options: Vec<String>,
}

/// Reads this process's table.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Parses the table; lines that are not of the kernel's form are told and passed over.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parsed = lines.filter_map(|line| {
        let mount = parse_line(line);
        if mount.is_none() {
            let line = line.escape_ascii();
            tracing::warn!(%line, "A line of the table of mounts is passed over");
        }
        mount
    });
    parsed.collect()
}

/// The mount points at `directory` or below it.
pub fn points_at_or_below<'a>(
    mounts: &'a [Mount],
    directory: &'a Path,
) -> impl Iterator<Item = &'a Path> {
    mounts
        .iter()
        .map(|mount| mount.point.as_path())
        .filter(move |point| point.starts_with(directory))
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // Optional fields stand between the sixth field and a lone dash, so the halves are split there
    // first.
    let dash = line.windows(3).position(|it| it == b" - ")?;
    let mut place = line[..dash].split(|byte| *byte == b' ').skip(2);
    let mut system = line[dash + 3..].split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(Mount {
        device: text(place.next()?),
        root: unescape(place.next()?),
        point: unescape(place.next()?),
        is_shared: place.skip(1).any(|field| field.starts_with(b"shared:")),
        file_system: text(system.next()?),
        super_options: system.nth(1)?.split(|byte| *byte == b',').map(text).collect(),
    })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, more @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = more;
            }
            _ => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const TABLE: &[u8] = b"\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:7 master:1 - cgroup cgroup rw,cpu,cpuacct
99 1 8:1 /sub\\040dir /var/lib/kubelet/pods/a\\134b rw - ext4 /dev/sda rw
not a line
";

    #[test]
    fn optional_fields_and_escapes_are_understood() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].point, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts[1].file_system, "cgroup");
        assert_eq!(mounts[1].super_options, ["rw", "cpu", "cpuacct"]);
        assert_eq!(mounts[2].root, Path::new("/sub dir"));
        assert_eq!(mounts[2].point, Path::new("/var/lib/kubelet/pods/a\\b"));
    }

    /// An init container makes such a directory, the main container has it mounted by `subPath`.
    #[test]
    fn a_name_that_is_no_text_is_a_name() {
        let mut table =
            b"98 1 8:1 /pod/\xff /run/\xff\xfe\\040x rw - ext4 /dev/\xff rw,x=\xff\n".to_vec();
        table.extend_from_slice(b"\xff\xff\xff\n97 1 8:1\n- - - -\n");
        table.extend_from_slice(TABLE);
        let mounts = parse(&table);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[0].root.as_os_str().as_bytes(), b"/pod/\xff");
        assert_eq!(mounts[0].point.as_os_str().as_bytes(), b"/run/\xff\xfe x");
        assert_eq!(mounts[0].file_system, "ext4");
    }

    #[test]
    fn what_is_mounted_below_is_found_by_whole_components() {
        let mounts = parse(TABLE);
        let check = |directory: &str, n: usize| {
            assert_eq!(points_at_or_below(&mounts, Path::new(directory)).count(), n, "{directory}");
        };
        check("/sys/fs/cgroup", 2);
        check("/sys/fs/cgroup/cpu", 0);
        check("/var/lib/kubelet/pods/a\\b", 1);
        check("/var/lib/kubelet/pods/a", 0);
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(read().unwrap().iter().any(|m| m.point == Path::new("/")));
    }
}
