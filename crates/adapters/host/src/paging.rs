//! What the kernel offers beyond plain memory: huge pages, counted swap, and room on a file system.
//!
//! Thin readers over a pure parser; facts only, no policy.

use ferrolet_linux::cgroups::CgroupLayout;
use std::path::Path;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Where the kernel tells a process what it should know of the machine, and under which number the
/// size of a page.
const AUXILIARY: &str = "/proc/self/auxv";
const PAGE_SIZE: usize = 6;
const USUAL_PAGE: usize = 4096;

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    let told = std::fs::read(AUXILIARY).ok();
    told.and_then(|told| page_size_in(&told)).unwrap_or(USUAL_PAGE)
}

/// Pairs of words, a number and what it stands for.
fn page_size_in(auxiliary: &[u8]) -> Option<usize> {
    const WORD: usize = size_of::<usize>();
    let mut pairs = auxiliary.chunks_exact(2 * WORD).filter_map(|pair| {
        let (number, value) = pair.split_first_chunk::<WORD>()?;
        let value = value.first_chunk::<WORD>()?;
        Some((usize::from_ne_bytes(*number), usize::from_ne_bytes(*value)))
    });
    let found = pairs.find(|(number, _)| *number == PAGE_SIZE);
    found.map(|(_, value)| value).filter(|bytes| *bytes > 0)
}

/// The sizes of huge pages the kernel has, as cgroup files name them (`2MB`, `1GB`), the smallest
/// first.
pub fn huge_page_sizes() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(HUGE_PAGES) else {
        // A kernel without huge pages has no such directory.
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut sizes: Vec<u64> = names.filter_map(|name| size_in_kib(&name)).collect();
    sizes.sort_unstable();
    sizes.into_iter().map(size_name).collect()
}

/// Huge pages set aside, by bytes per page.
pub fn huge_pages() -> Vec<(u64, u64)> {
    let Ok(entries) = std::fs::read_dir(HUGE_PAGES) else {
        return Vec::new();
    };
    let pools = entries.flatten().filter_map(|entry| {
        let kib = size_in_kib(&entry.file_name().to_string_lossy())?;
        let n_pages = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        Some((kib * 1024, n_pages.trim().parse().ok()?))
    });
    let mut pools: Vec<(u64, u64)> = pools.collect();
    pools.sort_unstable();
    pools
}

/// Bytes of the file system that holds `path`; `None` when it cannot be asked.
pub fn file_system_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    stat.f_blocks.checked_mul(stat.f_frsize)
}

/// True when memory-backed volumes can be kept out of swap: the kernel knows tmpfs' `noswap`. Nothing
/// is mounted for it.
pub fn tmpfs_can_avoid_swap() -> bool {
    use rustix::mount::{FsOpenFlags, fsconfig_set_flag, fsopen};
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC);
    context.is_ok_and(|context| fsconfig_set_flag(&context, "noswap").is_ok())
}

/// True when the kernel counts swap per cgroup.
pub fn swap_is_controlled(layout: &CgroupLayout) -> bool {
    match layout {
        CgroupLayout::V1 { hierarchies, .. } => {
            let mut memory =
                hierarchies.iter().filter(|it| it.controllers.iter().any(|name| name == "memory"));
            memory.any(|it| it.mount.join("memory.memsw.limit_in_bytes").exists())
        }
        // The top has no such file of its own, and no cgroup has one when swap is not counted
        // (`swapaccount=0`), whatever `/proc/swaps` says. A runtime that is told to write a file
        // that is not there starts no container.
        CgroupLayout::V2 { mount } => {
            let own = std::fs::read("/proc/self/cgroup").unwrap_or_default();
            counts_swap(mount, &String::from_utf8_lossy(&own))
        }
    }
}

/// Whether the cgroup that a `/proc/PID/cgroup` names has a bound for swap.
fn counts_swap(mount: &Path, proc_cgroup: &str) -> bool {
    let own = proc_cgroup.lines().find_map(|line| line.strip_prefix("0::/"));
    own.is_some_and(|path| mount.join(path).join("memory.swap.max").exists())
}

/// `hugepages-2048kB` → 2048.
fn size_in_kib(name: &str) -> Option<u64> {
    name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
}

fn size_name(kib: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let (mut size, mut unit) = (kib, 0);
    while size >= 1024 && size % 1024 == 0 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_size_of_a_page() {
        let words = |pairs: &[usize]| -> Vec<u8> {
            let bytes = pairs.iter().flat_map(|word| word.to_ne_bytes());
            bytes.collect()
        };
        assert_eq!(page_size_in(&words(&[3, 7, PAGE_SIZE, 65_536, 0, 0])), Some(65_536));
        assert_eq!(page_size_in(&words(&[3, 7, 0, 0])), None);
        assert_eq!(page_size_in(b"short"), None);
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn sizes_are_named_as_in_cgroup_files() {
        for (directory, name) in [
            ("hugepages-2048kB", "2MB"),
            ("hugepages-1048576kB", "1GB"),
            ("hugepages-64kB", "64KB"),
        ] {
            assert_eq!(size_in_kib(directory).map(size_name).as_deref(), Some(name));
        }
        assert_eq!(size_in_kib("other"), None);
    }

    #[test]
    fn swap_is_counted_on_v2_when_our_own_cgroup_has_a_bound_for_it() {
        let top = tempfile::tempdir().unwrap();
        let service = top.path().join("system.slice/kubelet.service");
        std::fs::create_dir_all(&service).unwrap();
        let own = "0::/system.slice/kubelet.service\n";
        assert!(!counts_swap(top.path(), own));
        std::fs::write(service.join("memory.swap.max"), "max\n").unwrap();
        assert!(counts_swap(top.path(), own));
        assert!(!counts_swap(top.path(), "0::/\n"));
        assert!(!counts_swap(top.path(), ""));
    }
}
