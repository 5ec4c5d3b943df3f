//! Everything at once: the details of every cgroup, networks, disks, processes. Blocking.

use std::collections::HashMap;
use std::path::Path;

use ferrolet_ports::{
    CgroupFigures, CgroupUsage, Detail, DiskFigures, FileRoom, HostError, InterfaceFigures,
    Pressure, ProcessFigures, ProcessRoom, Whose,
};
use ferrolet_types::{PodUid, Timestamp};

use super::cgroup::{Breadth, Details, add_process};
use super::files::Directory;
use super::parse;
use super::read::{Places, Wanted};

/// What one whole reading found, without rates.
pub(super) struct WholeFound {
    pub(super) cgroups: Vec<CgroupFigures>,
    pub(super) disks: Vec<DiskFigures>,
    pub(super) processes: Option<ProcessRoom>,
}

impl Places {
    /// Reads every cgroup in this detail.
    pub(super) fn read_whole(
        &self,
        detail: &Detail,
        at: Timestamp,
    ) -> Result<WholeFound, HostError> {
        let mut buffer = Vec::new();
        let proc = Directory::open(Path::new("/proc")).ok();
        let own = proc.as_ref().and_then(|proc| proc.child(std::process::id().to_string()));
        let wanted = Wanted::by(detail);
        let breadth = wanted.hierarchies;
        let devices = match breadth {
            Breadth::Basic => HashMap::new(),
            Breadth::All => device_names(proc.as_ref(), &mut buffer),
        };
        let node = self.node(at, &mut buffer)?;
        let mut cgroups: Vec<CgroupFigures> = Vec::new();
        let mut processes = Processes {
            proc: proc.as_ref(),
            breadth,
            networks: Networks { own: own.as_ref().and_then(|own| own.link("ns/net")), last: None },
            connected: None,
        };
        self.walk(&wanted, &mut |visited| {
            let is_known = match &visited.whose {
                Whose::Container(_, id) => detail.has_usage_of(id),
                _ => true,
            };
            let (usage, mut details) = if is_known {
                visited.cgroup.whole(breadth, at, &mut buffer)
            } else {
                (nothing(at), Details::default())
            };
            let pids = visited.cgroup.pids(&mut buffer);
            let pod = match &visited.whose {
                Whose::Container(uid, _) => Some(uid),
                _ => None,
            };
            let (found, connected) = processes.of(&pids, pod, &mut buffer);
            let interfaces = match (&visited.whose, &own) {
                (Whose::Node, Some(own)) => interfaces(own, &mut buffer),
                _ => connected,
            };
            for device in &mut details.devices {
                let number = (device.major, device.minor);
                device.name = devices.get(&number).cloned().unwrap_or_default();
            }
            // Summaries show it of parts of the system alone.
            let is_pods = matches!(visited.whose, Whose::Pod(_) | Whose::Container(..));
            let made = match breadth {
                Breadth::Basic if is_pods => None,
                Breadth::Basic | Breadth::All => visited.cgroup.made(),
            };
            cgroups.push(CgroupFigures {
                path: format!("/{}", visited.path.display()),
                made: made.unwrap_or(at),
                usage: if visited.whose == Whose::Node { node } else { usage },
                whose: visited.whose,
                cpu: details.cpu,
                memory: details.memory,
                n_threads: details.n_threads,
                max_threads: details.max_threads,
                processes: found,
                devices: details.devices,
                pressure: details.pressure,
                interfaces,
            });
        })?;
        if let (Some(first), Some(proc)) = (cgroups.first_mut(), &proc) {
            complete_node(first, &node, proc, &mut buffer);
        }
        let disks = match breadth {
            Breadth::Basic => Vec::new(),
            Breadth::All => disks(proc.as_ref(), &mut buffer),
        };
        Ok(WholeFound {
            cgroups,
            disks,
            processes: proc.as_ref().and_then(|proc| room(proc, &mut buffer)),
        })
    }
}

/// The usage of a cgroup that nobody asked about.
pub(super) fn nothing(at: Timestamp) -> CgroupUsage {
    CgroupUsage {
        at,
        cpu_nanos: None,
        cpu_nano_cores: None,
        memory: None,
        swap_bytes: None,
        swap_limit_bytes: None,
    }
}

/// Processes on the way over the cgroups.
struct Processes<'a> {
    proc: Option<&'a Directory>,
    breadth: Breadth,
    networks: Networks,
    /// The pod whose network a summary knows already: all of its containers share it.
    connected: Option<PodUid>,
}

impl Processes<'_> {
    /// The processes of one cgroup, and the interfaces of the container's network if it is one of
    /// `pod`.
    fn of(
        &mut self,
        pids: &[u32],
        pod: Option<&PodUid>,
        buffer: &mut Vec<u8>,
    ) -> (ProcessFigures, Vec<InterfaceFigures>) {
        let (mut processes, mut interfaces) = (ProcessFigures::default(), Vec::new());
        for (n, pid) in pids.iter().enumerate() {
            // A container's network is that of its first process.
            let has_network = n == 0 && pod.is_some();
            let is_wanted = match self.breadth {
                Breadth::All => true,
                Breadth::Basic => has_network && self.connected.as_ref() != pod,
            };
            let process = self.proc.filter(|_| is_wanted);
            let process = process.and_then(|proc| proc.child(pid.to_string()));
            match (&process, self.breadth) {
                // Of processes a summary wants only that they are there.
                (_, Breadth::Basic) => processes.n_processes += 1,
                (Some(process), Breadth::All) => add_process(&mut processes, process, buffer),
                (None, Breadth::All) => {}
            }
            if let (Some(process), true) = (&process, has_network)
                && let Some(found) = self.networks.of(process, buffer)
            {
                interfaces = found;
                self.connected = pod.cloned();
            }
        }
        (processes, interfaces)
    }
}

/// Networks on the way over the cgroups. Containers of one pod come one after the other and share
/// theirs, so it is read once.
struct Networks {
    /// The machine's own.
    own: Option<Vec<u8>>,
    last: Option<(Vec<u8>, Vec<InterfaceFigures>)>,
}

impl Networks {
    /// The interfaces of a process's network, or none of a process that is gone. Pods on the
    /// machine's network have none of their own.
    fn of(&mut self, process: &Directory, buffer: &mut Vec<u8>) -> Option<Vec<InterfaceFigures>> {
        let network = process.link("ns/net")?;
        if self.own.as_ref() == Some(&network) {
            return Some(Vec::new());
        }
        Some(match &self.last {
            Some((known, interfaces)) if *known == network => interfaces.clone(),
            _ => {
                let found = interfaces(process, buffer);
                self.last = Some((network, found.clone()));
                found
            }
        })
    }
}

/// The root has no pressure files and no spec of its own.
fn complete_node(
    node: &mut CgroupFigures,
    usage: &CgroupUsage,
    proc: &Directory,
    buffer: &mut Vec<u8>,
) {
    if node.pressure.is_none()
        && let Some(pressure) = proc.child("pressure")
    {
        let mut of = |name| pressure.read(name, buffer).map(parse::stalls);
        node.pressure = of("cpu").map(|cpu| Pressure {
            cpu,
            memory: of("memory").unwrap_or_default(),
            io: of("io").unwrap_or_default(),
        });
    }
    node.cpu.shares = node.cpu.shares.or(Some(1024));
    node.cpu.period_micros = node.cpu.period_micros.or(Some(100_000));
    if node.memory.cache == 0 {
        let working = usage.memory.map_or(0, |memory| memory.working_set);
        node.memory.max_usage = node.memory.max_usage.max(working);
    }
}

fn interfaces(process: &Directory, buffer: &mut Vec<u8>) -> Vec<InterfaceFigures> {
    let text = process.read("net/dev", buffer);
    text.map(parse::interfaces).unwrap_or_default()
}

/// Paths of block devices by their numbers.
fn device_names(proc: Option<&Directory>, buffer: &mut Vec<u8>) -> HashMap<(u32, u32), String> {
    let text = proc.and_then(|proc| proc.read("diskstats", buffer)).unwrap_or("");
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let number = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((number, format!("/dev/{}", words.next()?)))
    });
    lines.collect()
}

/// Disks that hold a mounted file system, each once, by its shortest mount point.
fn disks(proc: Option<&Directory>, buffer: &mut Vec<u8>) -> Vec<DiskFigures> {
    let stats = proc.and_then(|proc| proc.read("diskstats", buffer)).unwrap_or("");
    let stats = stats.to_owned();
    let mounts = proc.and_then(|proc| {
        let own = proc.child(std::process::id().to_string())?;
        own.read("mounts", buffer)
    });
    let mut found: Vec<(DiskFigures, usize)> = Vec::new();
    for line in mounts.unwrap_or("").lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(point)) = (words.next(), words.next()) else {
            continue;
        };
        let is_disk = device.starts_with("/dev/") && !device.starts_with("/dev/loop");
        // Points with an escaped character are somebody's volume; the disk is mounted elsewhere
        // too.
        if !is_disk || point.contains('\\') {
            continue;
        }
        match found.iter_mut().find(|(it, _)| it.device == device) {
            Some((_, shortest)) if *shortest <= point.len() => {}
            Some((known, shortest)) => {
                known.room = room_at(Path::new(point)).unwrap_or(known.room);
                *shortest = point.len();
            }
            None => {
                let Some(room) = room_at(Path::new(point)) else {
                    continue;
                };
                let mut disk =
                    DiskFigures { device: device.to_owned(), room, ..DiskFigures::default() };
                add_statistics(&mut disk, &stats);
                found.push((disk, point.len()));
            }
        }
    }
    found.into_iter().map(|(disk, _)| disk).collect()
}

fn add_statistics(disk: &mut DiskFigures, stats: &str) {
    let name = disk.device.trim_start_matches("/dev/");
    let line = stats.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        (words.get(2) == Some(&name)).then_some(words)
    });
    let Some(words) = line else { return };
    let number = |i: usize| {
        let word = words.get(i + 3);
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    disk.reads = [number(0), number(1), number(2), number(3)];
    disk.writes = [number(4), number(5), number(6), number(7)];
    disk.n_under_way = number(8);
    disk.busy_millis = number(9);
    disk.weighted_millis = number(10);
}

/// Room on the file system that holds a path.
pub(super) fn room_at(path: &Path) -> Option<FileRoom> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(room_of(&stat))
}

pub(super) fn room_of(stat: &rustix::fs::StatVfs) -> FileRoom {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    FileRoom {
        capacity: bytes(stat.f_blocks),
        available: bytes(stat.f_bavail),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
    }
}

/// `kernel.pid_max`, and the number of tasks from `/proc/loadavg`.
pub(super) fn room(proc: &Directory, buffer: &mut Vec<u8>) -> Option<ProcessRoom> {
    let max = proc.child("sys")?.child("kernel")?;
    let pids = max.number("pid_max", buffer)?;
    let threads = max.number("threads-max", buffer)?;
    let loads = proc.read("loadavg", buffer)?;
    let tasks = loads.split(' ').nth(3)?;
    let (_, n) = tasks.split_once('/')?;
    Some(ProcessRoom { max: pids.min(threads), n: n.parse().ok()? })
}
