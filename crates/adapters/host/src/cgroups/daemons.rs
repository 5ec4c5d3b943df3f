//! Processes outside pods: the agent in the cgroup that the configuration gives it
//! (`kubeletCgroups`), and everybody who is in none in another (`systemCgroups`).
//!
//! Owned by the process part of the agent, which looks again every minute: processes come and go.
//! Must never happen: moving process 1, a thread of the kernel, or anybody who is in a cgroup
//! already.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupName},
    offload::{Job, Pool, refused},
    rooted::{Rooted, is_plain_name},
};
use ferrolet_ports::HostError;
use tokio::time::{MissedTickBehavior, interval};

use super::place::Place;

/// Processes are looked at this often.
const AGAIN: Duration = Duration::from_secs(60);
/// Room for half a million process ids.
const PROCS_LIMIT: usize = 4 << 20;

/// Where processes outside pods belong.
#[derive(Clone, Debug)]
pub struct DaemonCgroups {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Vec<Place>,
    agent: Option<CgroupName>,
    system: Option<CgroupName>,
    /// `/proc`.
    processes: PathBuf,
}

/// A cgroup that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {name:?} is not the path of a cgroup below the root")]
pub struct DaemonCgroupError {
    field: &'static str,
    name: String,
}

impl DaemonCgroups {
    /// Reads `kubeletCgroups` and `systemCgroups`; touches nothing.
    pub fn new(
        layout: &CgroupLayout,
        agent: Option<&str>,
        system: Option<&str>,
    ) -> Result<Self, DaemonCgroupError> {
        Self::at(layout, agent, system, PathBuf::from("/proc"))
    }

    fn at(
        layout: &CgroupLayout,
        agent: Option<&str>,
        system: Option<&str>,
        processes: PathBuf,
    ) -> Result<Self, DaemonCgroupError> {
        let read = |field: &'static str, name: Option<&str>| {
            let Some(name) = name else {
                return Ok(None);
            };
            let parsed = CgroupName::parse(name);
            let components = parsed.components();
            if components.is_empty() || !components.iter().all(|it| is_plain_name(it)) {
                return Err(DaemonCgroupError { field, name: name.to_owned() });
            }
            Ok(Some(parsed))
        };
        let inner = Inner {
            places: Place::all(layout),
            agent: read("kubeletCgroups", agent)?,
            system: read("systemCgroups", system)?,
            processes,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Puts every process where it belongs, now and every minute. What cannot be done is told when
    /// it changes.
    pub async fn keep(self, own_id: u32) {
        let mut tick = interval(AGAIN);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        loop {
            tick.tick().await;
            let inner = Arc::clone(&self.inner);
            let placed = Job::on(Pool::State, "put processes into their cgroups")
                .run(move || inner.place(own_id))
                .await;
            let trouble = placed.err().map(|error| error.to_string());
            if let Some(error) = trouble.as_ref().filter(|_| trouble != told) {
                tracing::warn!(error, "Processes cannot be put into their cgroups");
            }
            told = trouble;
        }
    }
}

impl Inner {
    fn place(&self, own_id: u32) -> Result<(), HostError> {
        if let Some(name) = &self.agent {
            for place in &self.places {
                move_to(place, name, own_id)?;
            }
        }
        let Some(name) = &self.system else {
            return Ok(());
        };
        for place in &self.places {
            for id in self.homeless(place)? {
                move_to(place, name, id)?;
            }
        }
        Ok(())
    }

    /// Who stands at the top of a hierarchy and may be moved.
    fn homeless(&self, place: &Place) -> Result<Vec<u32>, HostError> {
        let top = CgroupName::parse("/");
        let Some(root) = place.find(&top)? else {
            return Ok(Vec::new());
        };
        let listed = root
            .read("cgroup.procs", PROCS_LIMIT)
            .map_err(|cause| refused(format!("list processes in {}", place.shown(&top)), &cause))?;
        let listed = String::from_utf8_lossy(&listed);
        // A last line that was cut off would name another process.
        let whole = listed.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let ids = whole.filter_map(|line| line.parse::<u32>().ok());
        Ok(ids.filter(|id| *id > 1 && !self.is_of_kernel(*id)).collect())
    }

    /// A thread of the kernel has no program.
    fn is_of_kernel(&self, id: u32) -> bool {
        let program = std::fs::read_link(self.processes.join(id.to_string()).join("exe"));
        program.is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound)
    }
}

fn move_to(place: &Place, name: &CgroupName, id: u32) -> Result<(), HostError> {
    let cgroup: Rooted = place.ensure(name, 0)?;
    match cgroup.write_existing("cgroup.procs", id.to_string().as_bytes()) {
        Ok(()) => Ok(()),
        // It ended meanwhile.
        Err(cause) if cause.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            Ok(())
        }
        Err(cause) => Err(refused(format!("move process {id} to {}", place.shown(name)), &cause)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ferrolet_linux::cgroups::Hierarchy;
    use tempfile::TempDir;

    use super::*;

    fn layout(held: &TempDir) -> CgroupLayout {
        let hierarchies = ["memory", "pids"].map(|name| {
            let mount = held.path().join(name);
            for cgroup in ["", "agent", "system"] {
                fs::create_dir_all(mount.join(cgroup)).unwrap();
                fs::write(mount.join(cgroup).join("cgroup.procs"), "").unwrap();
            }
            Hierarchy { controllers: vec![name.to_owned()], mount }
        });
        CgroupLayout::V1 { hierarchies: hierarchies.to_vec(), unified: None }
    }

    #[test]
    fn the_agent_and_those_in_no_cgroup_are_moved_and_nobody_else() {
        let held = TempDir::new().unwrap();
        let layout = layout(&held);
        let processes = held.path().join("proc");
        // 7 is a program, 8 a thread of the kernel, 9 ended; the last line is cut off.
        fs::create_dir_all(processes.join("7")).unwrap();
        std::os::unix::fs::symlink("/bin/true", processes.join("7/exe")).unwrap();
        fs::create_dir_all(processes.join("8")).unwrap();
        fs::write(held.path().join("pids/cgroup.procs"), "1\n8\n7\n12").unwrap();
        let cgroups =
            DaemonCgroups::at(&layout, Some("/agent"), Some("system"), processes).unwrap();
        cgroups.inner.place(42).unwrap();
        let shown = |path: &str| fs::read_to_string(held.path().join(path)).unwrap();
        assert_eq!(shown("memory/agent/cgroup.procs"), "42");
        assert_eq!(shown("pids/agent/cgroup.procs"), "42");
        assert_eq!(shown("pids/system/cgroup.procs"), "7");
        assert_eq!(shown("memory/system/cgroup.procs"), "", "nobody stands at its top");
    }

    #[test]
    fn the_root_and_paths_that_climb_are_refused_by_the_name_of_the_setting() {
        let held = TempDir::new().unwrap();
        let layout = layout(&held);
        for name in ["/", "", "/a/../b"] {
            let error = DaemonCgroups::new(&layout, None, Some(name)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("systemCgroups {name:?} ")), "{error}");
        }
        let error = DaemonCgroups::new(&layout, Some("../x"), None).unwrap_err();
        assert!(error.to_string().starts_with("kubeletCgroups "), "{error}");
    }
}
