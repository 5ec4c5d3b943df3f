//! A container's control groups: directories, files and values, for version 1 and version 2.

use ferrolet_runtime_protocol::launch::{Cgroup, Cgroups, Setting, Write};

use crate::devices::{self, DeviceRule};

/// How a node has its control groups mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchies {
    /// A tree a controller.
    V1 {
        /// Controllers, each with the directory of its tree; `name=systemd` among them.
        controllers: Vec<(String, String)>,
        /// A tree of version 2 beside them, which has no controllers but can kill and freeze.
        unified: Option<String>,
    },
    /// One tree.
    V2 {
        /// Its directory.
        root: String,
    },
}

/// What a container may use. Zero is no limit, as in CRI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Weight of CPU time, in version 1's scale of 2 to 262144.
    pub cpu_shares: u64,
    /// Microseconds of CPU time in a period; negative: no limit.
    pub cpu_quota: i64,
    /// Microseconds of a period.
    pub cpu_period: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory and swap together.
    pub memory_and_swap: u64,
    /// Processors to run on; empty: all.
    pub cpus: String,
    /// Memory nodes to use; empty: all.
    pub memory_nodes: String,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes of huge pages, by the kernel's name of their size: `2MB`.
    pub huge_pages: Vec<(String, u64)>,
    /// Files of version 2 and their values, as CRI passes them on.
    pub unified: Vec<(String, String)>,
    /// Devices that may be opened.
    pub devices: Vec<DeviceRule>,
}

/// The groups of the container `id` below `parent`, a path such as `/kubepods/pod7`.
#[must_use]
pub fn plan(hierarchies: &Hierarchies, parent: &str, id: &str, limits: &Limits) -> Cgroups {
    let parent = parent.trim_matches('/');
    match hierarchies {
        Hierarchies::V1 { controllers, unified } => {
            plan_v1(controllers, unified.as_deref(), parent, id, limits)
        }
        Hierarchies::V2 { root } => plan_v2(root, parent, id, limits),
    }
}

/// What is written when limits change while the container runs: files, each by its whole path, and
/// values, in this order. Nothing is made and nothing inherited, and devices stay as they are.
#[must_use]
pub fn change(
    hierarchies: &Hierarchies,
    parent: &str,
    id: &str,
    limits: &Limits,
) -> Vec<(String, Setting)> {
    let plan = plan(hierarchies, parent, id, limits);
    let own = plan.groups.into_iter().filter(|it| it.is_own);
    own.flat_map(|group| {
        let stays = |it: &Setting| it.write() == Write::Inherit || it.file.starts_with("devices.");
        let settings = group.settings.into_iter().filter(move |it| !stays(it));
        settings.map(move |it| (format!("{}/{}", group.directory, it.file), it))
    })
    .collect()
}

fn plan_v1(
    controllers: &[(String, String)],
    unified: Option<&str>,
    parent: &str,
    id: &str,
    limits: &Limits,
) -> Cgroups {
    let mut plan = Cgroups::default();
    for (controller, root) in controllers {
        plan.groups.extend(ancestors(root, parent, false, |directory| Cgroup {
            settings: if controller == "cpuset" { cpuset_of_parent() } else { Vec::new() },
            ..directory
        }));
        let directory = below(root, parent, id);
        let settings = settings_v1(controller, limits);
        match controller.as_str() {
            "freezer" => plan.freezer.clone_from(&directory),
            "memory" => plan.oom_events = format!("{directory}/memory.oom_control"),
            _ => {}
        }
        plan.groups.push(Cgroup { directory, is_own: true, is_unified: false, settings });
    }
    if let Some(root) = unified {
        plan.groups.extend(ancestors(root, parent, true, |directory| directory));
        let directory = below(root, parent, id);
        plan.kill.clone_from(&directory);
        plan.groups.push(Cgroup {
            directory,
            is_own: true,
            is_unified: true,
            settings: Vec::new(),
        });
    }
    plan
}

fn settings_v1(controller: &str, limits: &Limits) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |file: &str, value: String| settings.push(setting(file, value, Write::Must));
    match controller {
        "cpu" => {
            if limits.cpu_shares > 0 {
                set("cpu.shares", limits.cpu_shares.to_string());
            }
            if limits.cpu_period > 0 {
                set("cpu.cfs_period_us", limits.cpu_period.to_string());
            }
            if limits.cpu_quota != 0 {
                set("cpu.cfs_quota_us", limits.cpu_quota.max(-1).to_string());
            }
        }
        "memory" if limits.memory > 0 => {
            set("memory.limit_in_bytes", limits.memory.to_string());
            if limits.memory_and_swap > 0 {
                // Kernels that do not count swap have no such file.
                let value = limits.memory_and_swap.to_string();
                settings.push(setting("memory.memsw.limit_in_bytes", value, Write::May));
            }
        }
        "cpuset" => {
            // Nobody can join before there is something to run on.
            settings.extend(cpuset_of_parent());
            let wanted = [("cpuset.cpus", &limits.cpus), ("cpuset.mems", &limits.memory_nodes)];
            for (file, value) in wanted.into_iter().filter(|(_, value)| !value.is_empty()) {
                settings.push(setting(file, value.clone(), Write::Must));
            }
        }
        "pids" if limits.pids > 0 => set("pids.max", limits.pids.to_string()),
        "hugetlb" => {
            for (size, limit) in &limits.huge_pages {
                set(&format!("hugetlb.{size}.limit_in_bytes"), limit.to_string());
            }
        }
        "devices" => {
            set("devices.deny", "a".to_owned());
            for line in devices::lines(&limits.devices) {
                set("devices.allow", line);
            }
        }
        _ => {}
    }
    settings
}

fn cpuset_of_parent() -> Vec<Setting> {
    ["cpuset.cpus", "cpuset.mems"].map(|it| setting(it, String::new(), Write::Inherit)).to_vec()
}

fn plan_v2(root: &str, parent: &str, id: &str, limits: &Limits) -> Cgroups {
    // Each on its own: one that this kernel lacks does not keep the others away.
    let controllers = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"];
    let enabled: Vec<Setting> = controllers
        .map(|it| setting("cgroup.subtree_control", format!("+{it}"), Write::May))
        .to_vec();
    let directory = below(root, parent, id);
    let mut groups = vec![Cgroup {
        directory: root.to_owned(),
        is_own: false,
        is_unified: true,
        settings: enabled.clone(),
    }];
    groups.extend(ancestors(root, parent, true, |it| Cgroup { settings: enabled.clone(), ..it }));
    groups.push(Cgroup {
        directory: directory.clone(),
        is_own: true,
        is_unified: true,
        settings: settings_v2(limits),
    });
    Cgroups {
        groups,
        kill: directory.clone(),
        freezer: String::new(),
        oom_events: format!("{directory}/memory.events"),
        device_filter: devices::program(&limits.devices),
    }
}

fn settings_v2(limits: &Limits) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |file: &str, value: String| settings.push(setting(file, value, Write::Must));
    if limits.cpu_shares > 0 {
        set("cpu.weight", weight(limits.cpu_shares).to_string());
    }
    if limits.cpu_quota != 0 || limits.cpu_period > 0 {
        let quota = match limits.cpu_quota {
            quota @ 1.. => quota.to_string(),
            _ => "max".to_owned(),
        };
        let period = if limits.cpu_period > 0 { limits.cpu_period } else { 100_000 };
        set("cpu.max", format!("{quota} {period}"));
    }
    if limits.memory > 0 {
        set("memory.max", limits.memory.to_string());
        if limits.memory_and_swap >= limits.memory {
            // Here swap is counted by itself. Kernels without it have no such file.
            let swap = (limits.memory_and_swap - limits.memory).to_string();
            settings.push(setting("memory.swap.max", swap, Write::May));
        }
    }
    let mut set = |file: &str, value: String| settings.push(setting(file, value, Write::Must));
    if !limits.cpus.is_empty() {
        set("cpuset.cpus", limits.cpus.clone());
    }
    if !limits.memory_nodes.is_empty() {
        set("cpuset.mems", limits.memory_nodes.clone());
    }
    if limits.pids > 0 {
        set("pids.max", limits.pids.to_string());
    }
    for (size, limit) in &limits.huge_pages {
        set(&format!("hugetlb.{size}.max"), limit.to_string());
    }
    for (file, value) in &limits.unified {
        set(file, value.clone());
    }
    settings
}

/// Version 1's scale, 2 to 262144, on version 2's, 1 to 10000.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

/// The groups on the way down to a container's, which exist or are made, and stay.
fn ancestors<'a>(
    root: &'a str,
    parent: &'a str,
    is_unified: bool,
    furnish: impl Fn(Cgroup) -> Cgroup + 'a,
) -> impl Iterator<Item = Cgroup> + 'a {
    let ends = parent.match_indices('/').map(|(at, _)| at).chain([parent.len()]);
    let paths = ends.map(move |end| &parent[..end]).filter(|it| !it.is_empty());
    paths.map(move |path| {
        let directory = format!("{root}/{path}");
        furnish(Cgroup { directory, is_own: false, is_unified, settings: Vec::new() })
    })
}

/// The directory of a container's group in one tree.
#[must_use]
pub fn directory(root: &str, parent: &str, id: &str) -> String {
    below(root, parent.trim_matches('/'), id)
}

fn below(root: &str, parent: &str, id: &str) -> String {
    if parent.is_empty() { format!("{root}/{id}") } else { format!("{root}/{parent}/{id}") }
}

fn setting(file: &str, value: String, write: Write) -> Setting {
    Setting { file: file.to_owned(), value, write: write.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            cpu_shares: 102,
            cpu_quota: 20_000,
            cpu_period: 100_000,
            memory: 1 << 20,
            memory_and_swap: 3 << 20,
            cpus: "0-1".into(),
            pids: 7,
            huge_pages: vec![("2MB".into(), 0)],
            ..Limits::default()
        }
    }

    /// One line a group: its directory, `*` if it is the container's own, and its settings.
    fn shown(plan: &Cgroups) -> String {
        let group = |it: &Cgroup| {
            let settings = it.settings.iter().map(|it| format!(" {}={}", it.file, it.value));
            let own = if it.is_own { " *" } else { "" };
            format!("{}{own}{}\n", it.directory, settings.collect::<String>())
        };
        plan.groups.iter().map(group).collect()
    }

    #[test]
    fn version_1_has_a_group_in_each_tree() {
        let controllers = ["cpu", "cpuset", "memory", "freezer", "pids"]
            .map(|it| (it.to_owned(), format!("/cg/{it}")))
            .to_vec();
        let host = Hierarchies::V1 { controllers, unified: Some("/cg/unified".into()) };
        let plan = plan(&host, "/kubepods/pod7", "web", &limits());
        let expected = "\
            /cg/cpu/kubepods\n\
            /cg/cpu/kubepods/pod7\n\
            /cg/cpu/kubepods/pod7/web * cpu.shares=102 cpu.cfs_period_us=100000 cpu.cfs_quota_us=20000\n\
            /cg/cpuset/kubepods cpuset.cpus= cpuset.mems=\n\
            /cg/cpuset/kubepods/pod7 cpuset.cpus= cpuset.mems=\n\
            /cg/cpuset/kubepods/pod7/web * cpuset.cpus= cpuset.mems= cpuset.cpus=0-1\n\
            /cg/memory/kubepods\n\
            /cg/memory/kubepods/pod7\n\
            /cg/memory/kubepods/pod7/web * memory.limit_in_bytes=1048576 memory.memsw.limit_in_bytes=3145728\n\
            /cg/freezer/kubepods\n\
            /cg/freezer/kubepods/pod7\n\
            /cg/freezer/kubepods/pod7/web *\n\
            /cg/pids/kubepods\n\
            /cg/pids/kubepods/pod7\n\
            /cg/pids/kubepods/pod7/web * pids.max=7\n\
            /cg/unified/kubepods\n\
            /cg/unified/kubepods/pod7\n\
            /cg/unified/kubepods/pod7/web *\n";
        assert_eq!(shown(&plan), expected);
        assert_eq!(plan.kill, "/cg/unified/kubepods/pod7/web");
        assert_eq!(plan.freezer, "/cg/freezer/kubepods/pod7/web");
        assert_eq!(plan.oom_events, "/cg/memory/kubepods/pod7/web/memory.oom_control");
    }

    #[test]
    fn version_2_has_one_group_and_enables_controllers_on_the_way() {
        let plan = plan(&Hierarchies::V2 { root: "/cg".into() }, "/pods/", "web", &limits());
        let enabled: String = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"]
            .map(|it| format!(" cgroup.subtree_control=+{it}"))
            .concat();
        let own = "cpu.weight=4 cpu.max=20000 100000 memory.max=1048576 memory.swap.max=2097152 \
            cpuset.cpus=0-1 pids.max=7 hugetlb.2MB.max=0";
        assert_eq!(
            shown(&plan),
            format!("/cg{enabled}\n/cg/pods{enabled}\n/cg/pods/web * {own}\n")
        );
        assert_eq!((plan.kill.as_str(), plan.freezer.as_str()), ("/cg/pods/web", ""));
        assert_eq!(plan.oom_events, "/cg/pods/web/memory.events");
    }

    #[test]
    fn a_change_writes_what_is_limited_and_nothing_else() {
        let shown = |host: &Hierarchies, limits: &Limits| -> Vec<String> {
            let changes = change(host, "/pods", "web", limits);
            changes.iter().map(|(path, it)| format!("{path}={}", it.value)).collect()
        };
        let controllers =
            ["cpuset", "cpu", "memory", "devices"].map(|it| (it.to_owned(), format!("/cg/{it}")));
        let v1 = Hierarchies::V1 { controllers: controllers.to_vec(), unified: None };
        let limits = Limits { memory: 5, cpu_shares: 7, ..Limits::default() };
        assert_eq!(
            shown(&v1, &limits),
            ["/cg/cpu/pods/web/cpu.shares=7", "/cg/memory/pods/web/memory.limit_in_bytes=5"]
        );
        let v2 = Hierarchies::V2 { root: "/cg".to_owned() };
        assert_eq!(shown(&v2, &limits), ["/cg/pods/web/cpu.weight=1", "/cg/pods/web/memory.max=5"]);
        assert_eq!(shown(&v2, &Limits::default()), [""; 0]);
    }

    #[test]
    fn no_limit_is_nothing_to_write() {
        assert_eq!(settings_v2(&Limits::default()), []);
        assert_eq!(settings_v1("memory", &Limits::default()), []);
        let unlimited = Limits { cpu_quota: -1, ..Limits::default() };
        assert_eq!(settings_v2(&unlimited)[0].value, "max 100000");
        assert_eq!(settings_v1("cpu", &unlimited)[0].value, "-1");
    }

    #[test]
    fn weights_keep_to_the_new_scale() {
        let cases = [(0, 1), (2, 1), (1024, 39), (262_144, 10_000), (u64::MAX, 10_000)];
        for (shares, expected) in cases {
            assert_eq!(weight(shares), expected, "{shares}");
        }
    }
}
