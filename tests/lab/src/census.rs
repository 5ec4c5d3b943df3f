//! Counting what a run left on the host: processes, mounts, cgroups, network namespaces, links,
//! files.
//!
//! Things are recognised by the run's id in their name or by the run's namespaces, never by being
//! new: other runs and other people work on the same machine at the same time.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::cgroups;
use crate::isolation::RunId;

/// The namespaces of a run, as the kernel numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// The first process, in the host's numbering.
    pub first_pid: u32,
    mount: String,
    pid: String,
    net: String,
    /// When the first process ended, in ticks since the boot. The kernel gives the numbers to
    /// others then.
    ended: Option<u64>,
}

impl Namespaces {
    /// The namespaces of a process, once all of them differ from our own.
    #[must_use]
    pub fn of_another_world(pid: u32) -> Option<Namespaces> {
        let found = Namespaces::of(&pid.to_string(), pid)?;
        let own = Namespaces::of("self", pid)?;
        let differs = found.mount != own.mount && found.pid != own.pid && found.net != own.net;
        differs.then_some(found)
    }

    fn of(process: &str, first_pid: u32) -> Option<Namespaces> {
        let read = |kind: &str| {
            let link = fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
            Some(link.to_string_lossy().into_owned())
        };
        Some(Namespaces {
            first_pid,
            mount: read("mnt")?,
            pid: read("pid")?,
            net: read("net")?,
            ended: None,
        })
    }

    /// Notes that the first process has ended: whoever begins after now is not one of the run's.
    pub fn have_ended(&mut self) {
        self.ended = fs::read_to_string("/proc/uptime").ok().and_then(|text| {
            let seconds = text.split_whitespace().next()?;
            // Hundredths, as the kernel counts processes' starts.
            seconds.replace('.', "").parse().ok()
        });
    }

    fn shares_any(&self, other: &Namespaces) -> bool {
        self.mount == other.mount || self.pid == other.pid || self.net == other.net
    }
}

/// Everything of the run that is still there, one line each.
pub fn leftovers(run: &RunId, namespaces: Option<&Namespaces>) -> Result<Vec<String>> {
    let mut left = processes(run, namespaces)?;
    left.extend(mounts(run)?);
    for dir in cgroups::directories(&run.cgroup())? {
        left.push(format!("cgroup {}", dir.display()));
    }
    for (kind, dir) in
        [("network namespace", "/run/netns"), ("link", "/sys/class/net"), ("file", "/run")]
    {
        for name in names(Path::new(dir)) {
            if name.contains(&run.id) {
                left.push(format!("{kind} {dir}/{name}"));
            }
        }
    }
    for name in names(Path::new("/tmp")) {
        if name.contains(&run.id) {
            left.push(format!("file /tmp/{name}"));
        }
    }
    Ok(left)
}

fn processes(run: &RunId, namespaces: Option<&Namespaces>) -> Result<Vec<String>> {
    let own = std::process::id();
    let mut left = Vec::new();
    for name in names(Path::new("/proc")) {
        let Ok(pid) = name.parse::<u32>() else {
            continue;
        };
        if pid == own {
            continue;
        }
        let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) else {
            continue;
        };
        let command = String::from_utf8_lossy(&bytes).replace('\0', " ");
        let is_inside = match (namespaces, Namespaces::of(&name, pid)) {
            (Some(ours), Some(theirs)) => {
                let is_later = ours.ended < began(pid) && ours.ended.is_some();
                ours.shares_any(&theirs) && !is_later
            }
            _ => false,
        };
        if is_inside || command.contains(&format!("ferrolet-{}", run.id)) {
            left.push(format!("process {pid} {command}"));
        }
    }
    Ok(left)
}

/// When a process began, in ticks since the boot; the name in front of the numbers may hold
/// anything.
fn began(pid: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, numbers) = line.rsplit_once(')')?;
    numbers.split_whitespace().nth(19)?.parse().ok()
}

fn mounts(run: &RunId) -> Result<Vec<String>> {
    let table = crate::mounts::table()?;
    let ours = table.lines().filter(|line| line.contains(&run.id));
    Ok(ours.map(|line| format!("mount {line}")).collect())
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Network;

    #[test]
    fn a_forgotten_file_is_found_by_the_run_id() {
        let run = RunId {
            id: format!("test{}", std::process::id()),
            block: 1,
            network: Network::Private,
        };
        assert_eq!(leftovers(&run, None).unwrap(), Vec::<String>::new());
        let path = Path::new("/tmp").join(format!("stray-{}", run.id));
        fs::write(&path, "").unwrap();
        let left = leftovers(&run, None).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(left, [format!("file {}", path.display())]);
    }

    #[test]
    fn only_who_began_before_the_end_of_a_world_is_left_of_it() {
        let run = RunId { id: "nobody".to_owned(), block: 1, network: Network::Private };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut world = Namespaces::of("self", child.id()).unwrap();
        let is_found = |world: &Namespaces| {
            let left = processes(&run, Some(world)).unwrap();
            // A process that has just begun may not have its own command line yet.
            let ours = format!("process {} ", child.id());
            left.iter().any(|line| line.starts_with(&ours))
        };
        let before = is_found(&world);
        world.have_ended();
        let ended_later = is_found(&world);
        world.ended = began(child.id()).map(|tick| tick - 1);
        let ended_before = is_found(&world);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((before, ended_later, ended_before), (true, true, false));
    }

    #[test]
    fn our_own_namespaces_are_not_another_world() {
        assert_eq!(Namespaces::of_another_world(std::process::id()), None);
    }
}
