//! The agent as a process of its machine: its place in the kernel's choice of whom to kill, its
//! files, the settings of the kernel that a node relies on, and what is said when it cannot start.

use std::{path::Path, time::Duration};

use ferrolet_agent::Platform;
use ferrolet_config::{Loaded, config::Endpoint};
use ferrolet_host::{
    cgroups::DaemonCgroups, daemons::DaemonSettings, kernel_settings::set_up_kernel, paging,
    shared_root,
};
use ferrolet_linux::{
    cgroups::CgroupLayout,
    limits::{OpenFiles, set_max_open_files},
};
use ferrolet_node::TunablePolicy;
use ferrolet_ports::{Event, EventKind, EventObject, Events, Part};
use tokio::{task::JoinSet, time::timeout};

use super::{Machine, main_server};

/// How long an agent that gives up tries to tell its cluster why.
const LAST_WORDS: Duration = Duration::from_secs(3);

const CGROUP_V1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";
const SWAPPED: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";

/// Makes mounts below the root directory be seen by those who should see them.
pub(super) fn share_root(loaded: &Loaded) {
    let directory = &loaded.flags.root_dir;
    if let Err(error) = shared_root::share_root(directory) {
        let directory = directory.display();
        tracing::warn!(%error, %directory, "The root directory cannot be made shared: volumes with Bidirectional mount propagation will not be seen by others");
    }
}

/// Sets the process up; what the machine refuses is told in one line each and lived with.
pub(super) fn set_up(loaded: &Loaded) -> anyhow::Result<()> {
    let kernel = &loaded.config.kernel;
    match set_max_open_files(kernel.max_open_files) {
        Ok(OpenFiles::AsAsked) => {}
        Ok(OpenFiles::AtMost(allowed)) => {
            let asked = kernel.max_open_files;
            tracing::warn!(asked, allowed, "maxOpenFiles is more than this process may have");
        }
        Err(error) => tracing::warn!(%error, "maxOpenFiles cannot be set"),
    }
    let policy = match kernel.protect_defaults {
        true => TunablePolicy::Protect,
        false => TunablePolicy::Set,
    };
    let left = set_up_kernel(Path::new("/proc/sys"), policy)?;
    if !left.is_empty() {
        let left = left.join("; ");
        tracing::warn!(%left, "Settings of the kernel are not as a node needs them");
    }
    Ok(())
}

/// What people should know of the machine.
pub(super) fn tell_of_machine(machine: &Machine, events: &dyn Events) {
    if matches!(machine.layout, CgroupLayout::V1 { .. }) {
        events.record(warning("CgroupV1", CGROUP_V1.to_owned()));
    }
    if machine.facts.swap_is_on && !paging::tmpfs_can_avoid_swap() {
        events.record(warning("PossibleMemoryBackedVolumesOnDisk", SWAPPED.to_owned()));
    }
}

/// Tells why the agent does not start, and gives the cluster a moment to hear it.
pub(super) async fn give_up(platform: Platform, error: anyhow::Error) -> anyhow::Error {
    platform.events.record(warning("KubeletSetupFailed", format!("{error:#}")));
    if platform.cluster.is_none() {
        return error;
    }
    let mut speaking = JoinSet::new();
    for part in platform.parts.into_iter().filter(|part| part.name == "cluster") {
        for run in part.loops {
            speaking.spawn(run);
        }
    }
    // Loops do not end by themselves; dropping the set ends them.
    let _ = timeout(LAST_WORDS, speaking.join_next()).await;
    error
}

/// Keeps processes in the cgroups that the configuration gives them.
pub(super) fn place(loaded: &Loaded, machine: &Machine) -> anyhow::Result<Part> {
    let configured = &loaded.config.cgroups;
    let (agent, system) = (configured.kubelet.as_deref(), configured.system.as_deref());
    let part = Part::new("cgroups of daemons");
    if agent.is_none() && system.is_none() {
        return Ok(part);
    }
    let cgroups = DaemonCgroups::new(&machine.layout, agent, system)?;
    Ok(part.with_loop(cgroups.keep(std::process::id())))
}

/// The daemons that the node cannot do without.
pub(super) fn daemons(loaded: &Loaded, machine: &Machine) -> DaemonSettings {
    let configured = &loaded.config;
    DaemonSettings {
        oom_score_adj: configured.kernel.oom_score_adj,
        runtime_socket: match &configured.runtime.endpoint {
            Endpoint::Socket(path) => Some(path.clone()),
            Endpoint::Embedded => None,
        },
        layout: machine.layout.clone(),
        configured: main_server::system_cgroups(loaded),
    }
}

fn warning(reason: &str, message: String) -> Event {
    Event {
        object: EventObject::Node,
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message,
    }
}
