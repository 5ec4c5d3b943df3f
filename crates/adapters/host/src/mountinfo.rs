//! The kernel's table of mounts, read as data.
//!
//! In: the text of `/proc/self/mountinfo`. Out: [`Mount`]s in the kernel's order, where a later one on the same point covers
//! an earlier one. Refuses: deciding what a mount means.

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
    /// Options of the file system itself, not of this mount.
    pub super_options: Vec<String>,
}

/// Reads this process's table.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
}

/// Parses the table; lines that are not of the kernel's form are passed over.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
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

fn parse_line(line: &str) -> Option<Mount> {
    // Optional fields stand between the sixth field and a lone dash, so the halves are split there first.
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let mut system = system.split(' ');
    Some(Mount {
        device: place.next()?.to_owned(),
        root: unescape(place.next()?),
        point: unescape(place.next()?),
        file_system: system.next()?.to_owned(),
        super_options: system.nth(1)?.split(',').map(str::to_owned).collect(),
    })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
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
