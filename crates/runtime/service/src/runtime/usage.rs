//! What containers use, read from files of the kernel. Parsing is pure; reading is bounded and blocking.

use std::{path::Path, time::Duration};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_plan::cgroups::{Hierarchies, directory};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use tokio::time::Instant;

use super::files::read;

/// As much of a file as is read.
const FILE_BYTES: u64 = 256 * 1024;
/// How deep a writable layer is walked, and how many entries are counted.
const DEPTH: usize = 256;
const MOST_ENTRIES: u64 = 10_000_000;
/// A writable layer is measured at most so often.
const FRESH: Duration = Duration::from_secs(10);
/// And never for more than this share of the time.
const SHARE: u32 = 50;

/// What a writable layer was found to take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayerUsage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// When, in nanoseconds since 1970; 0: never.
    pub(crate) at: i64,
    /// Not before this is it measured again.
    next: Option<Instant>,
}

impl LayerUsage {
    pub(crate) fn is_due(&self) -> bool {
        self.next.is_none_or(|it| it <= Instant::now())
    }

    /// Measures a writable layer, and says when to do it again: as rarely as it is expensive.
    pub(crate) fn measure(path: &Path, now: i64) -> Self {
        let began = Instant::now();
        let mut usage = Self { at: now, ..Self::default() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(directory) = rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            usage.walk(&directory, DEPTH);
        }
        let ended = Instant::now();
        usage.next = Some(ended + FRESH.max((ended - began) * SHARE));
        usage
    }

    /// No link is followed: what is in there is the container's to choose.
    fn walk(&mut self, directory: &std::os::fd::OwnedFd, depth: usize) {
        let Ok(entries) = Dir::read_from(directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." || self.inodes >= MOST_ENTRIES {
                continue;
            }
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let Ok(stat) = rustix::fs::statat(directory, name, flags) else { continue };
            self.inodes += 1;
            self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_directory && depth > 0 {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(directory, name, flags, Mode::empty()) {
                    Ok(below) => self.walk(&below, depth - 1),
                    Err(Errno::MFILE | Errno::NFILE) => return,
                    Err(_) => {}
                }
            }
        }
    }
}

/// What a control group uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupUsage {
    /// Nanoseconds of CPU time.
    pub(crate) cpu: Option<u64>,
    pub(crate) memory: Option<Memory>,
    pub(crate) processes: Option<u64>,
}

/// Bytes, and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    /// 0: there is no limit.
    pub(crate) limit: u64,
    pub(crate) rss: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    pub(crate) swap: u64,
}

/// Reads what a group uses; `id` may be empty for the group of a whole pod.
pub(crate) fn read_group(hierarchies: &Hierarchies, parent: &str, id: &str) -> GroupUsage {
    match hierarchies {
        Hierarchies::V2 { root } => {
            let place = group(root, parent, id);
            let file = |name: &str| text(&place, name);
            let cpu = file("cpu.stat").and_then(|it| value(&it, "usage_usec")).map(|it| it * 1000);
            let memory = file("memory.current").and_then(|it| number(&it)).map(|usage| {
                let stat = file("memory.stat").unwrap_or_default();
                let field = |key| value(&stat, key).unwrap_or(0);
                Memory {
                    usage,
                    working_set: usage.saturating_sub(field("inactive_file")),
                    limit: file("memory.max").and_then(|it| number(&it)).unwrap_or(0),
                    rss: field("anon"),
                    page_faults: field("pgfault"),
                    major_page_faults: field("pgmajfault"),
                    swap: file("memory.swap.current").and_then(|it| number(&it)).unwrap_or(0),
                }
            });
            let processes = file("pids.current").and_then(|it| number(&it));
            GroupUsage { cpu, memory, processes }
        }
        Hierarchies::V1 { controllers, .. } => {
            let file = |controller: &str, name: &str| {
                let (_, root) = controllers.iter().find(|(it, _)| it == controller)?;
                text(&group(root, parent, id), name)
            };
            let usage = file("memory", "memory.usage_in_bytes").and_then(|it| number(&it));
            let memory = usage.map(|usage| {
                let stat = file("memory", "memory.stat").unwrap_or_default();
                let field = |key| value(&stat, key).unwrap_or(0);
                let limit = field("hierarchical_memory_limit");
                Memory {
                    usage,
                    working_set: usage.saturating_sub(field("total_inactive_file")),
                    // What the kernel calls no limit is close to the largest number.
                    limit: if limit >= 1 << 62 { 0 } else { limit },
                    rss: field("total_rss"),
                    page_faults: field("total_pgfault"),
                    major_page_faults: field("total_pgmajfault"),
                    swap: field("total_swap"),
                }
            });
            GroupUsage {
                cpu: file("cpuacct", "cpuacct.usage").and_then(|it| number(&it)),
                memory,
                processes: file("pids", "pids.current").and_then(|it| number(&it)),
            }
        }
    }
}

fn group(root: &str, parent: &str, id: &str) -> String {
    if id.is_empty() {
        format!("{root}/{}", parent.trim_matches('/'))
    } else {
        directory(root, parent, id)
    }
}

fn text(place: &str, name: &str) -> Option<String> {
    let content = read(&Path::new(place).join(name), FILE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number behind a word at the beginning of a line.
fn value(text: &str, key: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(name, _)| *name == key).find_map(|(_, it)| number(it))
}

/// A pod's interfaces, but loopback, from the table in a process's `/proc` directory.
pub(crate) fn interfaces(table: &str) -> Vec<cri::NetworkInterfaceUsage> {
    let counted = |value| Some(cri::UInt64Value { value });
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> =
            numbers.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let name = name.trim();
        (name != "lo" && numbers.len() >= 11).then(|| cri::NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: counted(numbers[0]),
            rx_errors: counted(numbers[2]),
            tx_bytes: counted(numbers[8]),
            tx_errors: counted(numbers[10]),
        })
    };
    table.lines().skip(2).filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_str().unwrap().to_owned();
        let write = |path: &str, content: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("pods/c1/cpu.stat", "usage_usec 7\nuser_usec 4\n");
        write("pods/c1/memory.current", "1000\n");
        write("pods/c1/memory.stat", "anon 300\ninactive_file 400\npgfault 5\npgmajfault 2\n");
        write("pods/c1/memory.max", "max\n");
        write("pods/c1/pids.current", "3\n");
        let memory = Memory {
            usage: 1000,
            working_set: 600,
            limit: 0,
            rss: 300,
            page_faults: 5,
            major_page_faults: 2,
            swap: 0,
        };
        let expected = GroupUsage { cpu: Some(7000), memory: Some(memory), processes: Some(3) };
        let v2 = Hierarchies::V2 { root: root.clone() };
        assert_eq!(read_group(&v2, "/pods", "c1"), expected);

        write("memory/pods/c1/memory.usage_in_bytes", "1000\n");
        let stat = "total_rss 300\ntotal_inactive_file 400\ntotal_pgfault 5\ntotal_pgmajfault 2\n\
            hierarchical_memory_limit 9223372036854771712\n";
        write("memory/pods/c1/memory.stat", stat);
        write("cpuacct/pods/c1/cpuacct.usage", "7000\n");
        write("pids/pods/c1/pids.current", "3\n");
        let controllers =
            ["memory", "cpuacct", "pids"].map(|it| (it.to_owned(), format!("{root}/{it}")));
        let v1 = Hierarchies::V1 { controllers: controllers.to_vec(), unified: None };
        assert_eq!(read_group(&v1, "pods", "c1"), expected);
        assert_eq!(read_group(&v1, "pods", "away"), GroupUsage::default());
    }

    #[test]
    fn interfaces_are_counted_without_loopback() {
        let table = "Inter-|   Receive\n face |bytes packets errs\n    \
            lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  \
            eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\nbroken\n";
        let found = interfaces(table);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (it.name.as_str(), it.rx_bytes.unwrap().value, it.tx_errors.unwrap().value))
            .collect();
        assert_eq!(shown, [("eth0", 10, 3)]);
    }

    #[test]
    fn a_writable_layer_is_measured_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("below")).unwrap();
        fs::write(place.path().join("below/file"), vec![7; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", place.path().join("way-out")).unwrap();
        let usage = LayerUsage::measure(place.path(), 42);
        assert_eq!((usage.inodes, usage.at, usage.is_due()), (3, 42, false));
        assert!((100_000..1_000_000).contains(&usage.bytes), "{usage:?}");
        assert!(LayerUsage::default().is_due());
    }
}
