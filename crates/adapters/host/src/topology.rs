//! The machine's topology as the kernel shows it under `/sys`: NUMA nodes with memory, huge pages
//! and distances, the cores in them, the processors in those, and caches that only some cores share.
//!
//! In: a root that holds `devices/system/{cpu,node}`, which is `/sys` on a real machine and an
//! invented tree in tests. Out: [`MachineTopology`], as upstream's cadvisor reads it. Read once at
//! start, off the async threads. What single files do not tell is left out; every read is bounded.
//! Refuses: judging a machine; one without such files has an empty topology.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use ferrolet_node::{CpuCore, HugePages, MachineTopology, NumaNode};

/// More than any of these files has; the longest is the map of a cache's processors.
const FILE_LIMIT: u64 = 64 << 10;
/// More processors than any kernel can be built for; a list that names more is not believed.
const CPU_LIMIT: u32 = 1 << 16;
/// Caches above this level are shared by cores.
const CORE_CACHE_LEVEL: u32 = 2;

/// Reads the topology below `sys`, which is `/sys` or looks like it.
pub fn read_topology(sys: &Path) -> MachineTopology {
    let system = sys.join("devices/system");
    let cpus = system.join("cpu");
    // Without that file the kernel cannot take processors away, and all are there.
    let online = text(&cpus.join("online")).and_then(|list| cpu_list(&list));
    let is_online = |cpu: u32| online.as_ref().is_none_or(|online| online.contains(&cpu));
    let numbered_nodes = numbered(&system.join("node"), "node");
    let mut nodes: Vec<NumaNode> = numbered_nodes
        .into_iter()
        .map(|(id, directory)| {
            let threads = numbered(&directory, "cpu").into_iter().map(|(cpu, _)| cpu);
            let cores = read_cores(&cpus, threads.filter(|cpu| is_online(*cpu)));
            NumaNode {
                id,
                memory_bytes: read_memory(&directory).unwrap_or(0),
                huge_pages: read_huge_pages(&directory.join("hugepages")),
                distances: text(&directory.join("distance")).and_then(|it| distances(&it)),
                cores,
            }
        })
        .collect();
    if nodes.is_empty() {
        nodes = by_socket(&cpus, is_online);
    }
    for node in &mut nodes {
        find_uncore_caches(&cpus, node);
    }
    MachineTopology { nodes }
}

/// A kernel without NUMA has no nodes: every socket stands for one, as upstream has it.
fn by_socket(cpus: &Path, is_online: impl Fn(u32) -> bool) -> Vec<NumaNode> {
    let all = numbered(cpus, "cpu").into_iter().map(|(cpu, _)| cpu);
    let cores = read_cores(cpus, all.filter(|cpu| is_online(*cpu)));
    let sockets: BTreeSet<u32> = cores.iter().map(|core| core.socket).collect();
    let node = |id: u32| NumaNode {
        id,
        cores: cores.iter().filter(|core| core.socket == id).cloned().collect(),
        ..NumaNode::default()
    };
    sockets.into_iter().map(node).collect()
}

/// Cores in the order of their first processors; a processor that does not say where it is does not
/// count.
fn read_cores(cpus: &Path, threads: impl Iterator<Item = u32>) -> Vec<CpuCore> {
    let mut cores: Vec<CpuCore> = Vec::new();
    for cpu in threads {
        let topology = cpus.join(format!("cpu{cpu}/topology"));
        let (Some(id), Some(socket)) =
            (number(&topology.join("core_id")), number(&topology.join("physical_package_id")))
        else {
            continue;
        };
        match cores.iter_mut().find(|core| core.id == id && core.socket == socket) {
            Some(core) => core.threads.push(cpu),
            None => cores.push(CpuCore { id, socket, threads: vec![cpu], uncore_cache: None }),
        }
    }
    cores
}

/// A cache above the cores' own that the whole node shares tells nobody apart; one that some cores
/// share does. Upstream stops at the first core whose caches cannot be read.
fn find_uncore_caches(cpus: &Path, node: &mut NumaNode) {
    let n_cores = node.cores.len();
    for core in &mut node.cores {
        let Some(first) = core.threads.first() else {
            continue;
        };
        let caches = numbered(&cpus.join(format!("cpu{first}/cache")), "index");
        if caches.is_empty() {
            return;
        }
        let n_threads = n_cores * core.threads.len();
        for (_, cache) in caches {
            let (Some(id), Some(level), Some(n_sharing)) = (
                number(&cache.join("id")),
                number(&cache.join("level")),
                text(&cache.join("shared_cpu_map")).and_then(|map| count_mask(&map)),
            ) else {
                return;
            };
            if level > CORE_CACHE_LEVEL && n_sharing != n_threads && core.uncore_cache.is_none() {
                core.uncore_cache = Some(id);
            }
        }
    }
}

fn read_memory(node: &Path) -> Option<u64> {
    let meminfo = text(&node.join("meminfo"))?;
    // Each line begins with the node: `Node 0 MemTotal:  263867076 kB`.
    let (_, rest) = meminfo.split_once("MemTotal:")?;
    let kilobytes: u64 = rest.trim_start().split_once(" kB")?.0.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn read_huge_pages(directory: &Path) -> Vec<HugePages> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let page = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let n_pages = text(&entry.path().join("nr_hugepages"))?.trim().parse().ok()?;
        Some(HugePages { page_bytes: kilobytes.checked_mul(1024)?, n_pages })
    };
    let mut pages: Vec<HugePages> = entries.flatten().filter_map(page).collect();
    pages.sort_unstable_by_key(|it| it.page_bytes);
    pages
}

fn distances(line: &str) -> Option<Vec<u64>> {
    line.split_whitespace().map(|it| it.parse().ok()).collect()
}

/// The entries `<prefix><number>` of a directory, in the order of their numbers.
fn numbered(directory: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let digits = name.strip_prefix(prefix)?;
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        let number = digits.parse().ok().filter(|it| is_number && *it < CPU_LIMIT)?;
        Some((number, entry.path()))
    };
    let mut found: Vec<_> = entries.filter_map(one).collect();
    found.sort_unstable();
    found
}

/// A kernel list such as `0-3,8`.
fn cpu_list(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPU_LIMIT || last < first {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// How many bits a mask such as `0000ffff,ffffffff` has.
fn count_mask(mask: &str) -> Option<usize> {
    mask.trim().split(',').try_fold(0, |count, word| {
        let bits = u64::from_str_radix(word.trim(), 16).ok()?.count_ones();
        Some(count + usize::try_from(bits).ok()?)
    })
}

fn number(path: &Path) -> Option<u32> {
    text(path)?.trim().parse().ok()
}

fn text(path: &Path) -> Option<String> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(FILE_LIMIT).read_to_end(&mut content).ok()?;
    String::from_utf8(content).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, content: impl AsRef<[u8]>) {
            let path = self.0.path().join("devices/system").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        fn cpu(&self, cpu: u32, core: &str, socket: &str, node: Option<u32>) {
            self.put(&format!("cpu/cpu{cpu}/topology/core_id"), format!("{core}\n"));
            self.put(&format!("cpu/cpu{cpu}/topology/physical_package_id"), format!("{socket}\n"));
            if let Some(node) = node {
                self.put(&format!("node/node{node}/cpu{cpu}/there"), "");
            }
        }

        fn cache(&self, cpu: u32, level: u32, id: u32, map: &str) {
            for (file, content) in [
                ("id", id.to_string()),
                ("level", level.to_string()),
                ("shared_cpu_map", map.into()),
            ] {
                self.put(&format!("cpu/cpu{cpu}/cache/index{level}/{file}"), content + "\n");
            }
        }

        fn read(&self) -> MachineTopology {
            read_topology(self.0.path())
        }
    }

    #[test]
    fn nodes_are_read_with_cores_memory_pages_and_distances() {
        let tree = Tree::new();
        for (cpu, core, node) in [(0, "0", 0), (2, "0", 0), (1, "0", 1), (10, "0", 1), (11, "1", 1)]
        {
            tree.cpu(cpu, core, &node.to_string(), Some(node));
        }
        tree.put("cpu/online", "0-2,10\n");
        tree.put("node/node0/meminfo", "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n");
        tree.put("node/node1/meminfo", "Node 1 MemTotal:       2048 kB\n");
        tree.put("node/node0/distance", "10 21\n");
        tree.put("node/node1/distance", "21 10\n");
        tree.put("node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
        tree.put("node/node0/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
        tree.put("node/possible", "0-1\n");
        let core = |id, socket, threads: &[u32]| CpuCore {
            id,
            socket,
            threads: threads.to_vec(),
            uncore_cache: None,
        };
        let pages = |page_bytes, n_pages| HugePages { page_bytes, n_pages };
        let expected = vec![
            NumaNode {
                id: 0,
                memory_bytes: 1 << 20,
                huge_pages: vec![pages(2 << 20, 64), pages(1 << 30, 1)],
                distances: Some(vec![10, 21]),
                cores: vec![core(0, 0, &[0, 2])],
            },
            NumaNode {
                id: 1,
                memory_bytes: 2 << 20,
                huge_pages: vec![],
                distances: Some(vec![21, 10]),
                // Processor 11 is offline.
                cores: vec![core(0, 1, &[1, 10])],
            },
        ];
        assert_eq!(tree.read().nodes, expected);
    }

    #[test]
    fn a_cache_that_some_cores_share_is_noted() {
        let tree = Tree::new();
        for cpu in 0..4 {
            tree.cpu(cpu, &cpu.to_string(), "0", Some(0));
            tree.cache(cpu, 2, cpu, "0,0000000f");
            tree.cache(cpu, 3, cpu / 2, if cpu < 2 { "3" } else { "c" });
        }
        let caches: Vec<_> = tree.read().nodes[0].cores.iter().map(|it| it.uncore_cache).collect();
        assert_eq!(caches, [Some(0), Some(0), Some(1), Some(1)]);
        for cpu in 0..4 {
            tree.cache(cpu, 3, 0, "00000000,0000000f");
        }
        assert!(tree.read().nodes[0].cores.iter().all(|it| it.uncore_cache.is_none()));
    }

    #[test]
    fn sockets_stand_for_nodes_where_the_kernel_has_none() {
        let tree = Tree::new();
        for cpu in 0..4 {
            tree.cpu(cpu, &cpu.to_string(), &(cpu % 2).to_string(), None);
        }
        let nodes = tree.read().nodes;
        let threads = |node: usize| -> Vec<u32> {
            nodes[node].cores.iter().flat_map(|it| it.threads.clone()).collect()
        };
        assert_eq!((nodes.len(), threads(0), threads(1)), (2, vec![0, 2], vec![1, 3]));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let tree = Tree::new();
        assert_eq!(tree.read(), MachineTopology::default());
        tree.cpu(0, "0", "0", Some(0));
        tree.cpu(1, "many", "0", Some(0));
        tree.cpu(2, "2", "-1", Some(0));
        tree.put("node/node0/cpu99999999999/there", "");
        tree.put("node/node0/cpulist", "0-2\n");
        tree.put("cpu/online", "0-4000000000\n");
        tree.put("node/node0/meminfo", [0xff, 0xfe]);
        tree.put("node/node0/distance", "near\n");
        tree.put("node/node0/hugepages/hugepages-xkB/nr_hugepages", "1\n");
        tree.put("cpu/cpu0/cache/index3/id", "x\n");
        let node = NumaNode {
            cores: vec![CpuCore { threads: vec![0], ..CpuCore::default() }],
            ..NumaNode::default()
        };
        assert_eq!(tree.read().nodes, [node]);
    }

    #[test]
    fn this_machine_tells_its_processors() {
        let topology = read_topology(Path::new("/sys"));
        let n_cpus = crate::machine::read_machine().unwrap().n_cpus;
        assert_eq!(topology.n_cpus(), usize::try_from(n_cpus).unwrap());
        assert!(topology.n_sockets() >= 1 && topology.n_cores() >= 1);
    }
}
