//! The tests, by subject. A test is a function over a [`Context`]; its name is a sentence.

mod any_name;
mod attackers;
mod attackers_inside;
mod away;
mod bad_input;
pub(crate) mod bench;
mod cgroup_v2;
mod chains;
mod cluster_access;
mod cluster_admission;
mod cluster_attacks;
mod cluster_away;
mod cluster_bad_input;
mod cluster_bench;
mod cluster_claims;
mod cluster_csi;
mod cluster_csi_asks;
mod cluster_csi_disks;
mod cluster_csi_health;
mod cluster_csi_rules;
mod cluster_describe;
mod cluster_devices;
mod cluster_endpoints;
mod cluster_eviction;
mod cluster_flex;
mod cluster_hooks;
mod cluster_images;
mod cluster_inside;
mod cluster_join;
mod cluster_kubectl;
mod cluster_life;
mod cluster_limits;
mod cluster_loss;
mod cluster_node;
mod cluster_pace;
mod cluster_pod_certificates;
mod cluster_pods;
mod cluster_probes;
mod cluster_resize;
mod cluster_security;
mod cluster_serving;
mod cluster_sharing;
mod cluster_sidecars;
mod cluster_static;
mod cluster_storage;
mod cluster_streams;
mod cluster_volume_disorder;
mod cluster_volume_faults;
mod cluster_volume_kinds;
mod cluster_volume_uses;
mod cluster_volumes;
mod containers;
mod embedded;
mod figures;
mod hand_over;
mod images;
mod life;
mod local_services;
mod node_means;
mod page;
mod places;
mod reclaim;
mod registries;
pub(crate) mod remote;
mod restarts;
mod shutdown;
mod surface;
mod systemd;

use std::time::Duration;

use anyhow::Result;
use ferrolet_lab::{Node, PodView};

use crate::context::Context;
use crate::runner::Outcome;

/// Long enough for anything that should happen at once, also on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Long enough for what upstream shows only after its next look at a pod in back-off.
pub(crate) const LATER: Duration = Duration::from_secs(120);

/// Long enough for what upstream's garbage collection removes once a minute.
pub(crate) const GONE: Duration = Duration::from_secs(140);

/// When a test runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ordinary,
    /// Takes minutes: runs only with `--long` or under its full name.
    Long,
    /// Needs a machine that we do not build on, and runs in a virtual one ([`crate::guest`]).
    Guest,
    /// Runs here, and in the virtual machine too: what it looks at differs there.
    Both,
    /// Needs systemd, and runs in a virtual machine that has it.
    Systemd,
}

/// Where a test runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    Guest,
    GuestWithSystemd,
}

/// A named test.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Its module, by which it can be chosen too.
    pub(crate) group: &'static str,
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) run: fn(&mut Context<'_>) -> Result<Outcome>,
}

impl Case {
    /// Whether it uses upstream's programs: the control plane, or its kubelet.
    pub(crate) fn needs_control_plane(&self) -> bool {
        self.group.starts_with("cluster_") || self.group == "hand_over"
    }

    /// Whether it uses Prometheus' own tools.
    pub(crate) fn needs_prometheus(&self) -> bool {
        self.group == "figures"
    }

    /// Whether it writes containers to disk.
    pub(crate) fn needs_criu(&self) -> bool {
        self.name.contains("checkpoint")
    }

    /// Whether it reads a journal.
    pub(crate) fn needs_journal(&self) -> bool {
        self.name.contains("journal")
    }

    /// Whether it needs a runc that maps the users of mounts.
    pub(crate) fn needs_newer_runc(&self) -> bool {
        self.name.contains("users_of_its_own")
    }

    /// Whether it runs in a virtual machine without systemd.
    pub(crate) fn needs_machine(&self) -> bool {
        self.place == Place::Guest
    }

    /// Whether it runs in a virtual machine with systemd.
    pub(crate) fn needs_systemd(&self) -> bool {
        self.place == Place::GuestWithSystemd
    }

    /// Whether it mounts directories of a server.
    pub(crate) fn needs_nfs_server(&self) -> bool {
        self.needs_machine() && self.group == "remote"
    }

    /// Whether it looks at a page in a browser.
    pub(crate) fn needs_browser(&self) -> bool {
        self.group == "page" && self.name.contains("browser")
    }
}

/// Makes the list of a module from its functions' names; those after `long:` take minutes, those
/// after `guest:` run in a virtual machine only, those after `both:` here and there, those after
/// `systemd:` in a virtual machine with systemd.
macro_rules! cases {
    (
        $($name:ident),* $(,)?
        $(; long: $($long:ident),* $(,)?)?
        $(; guest: $($guest:ident),* $(,)?)?
        $(; both: $($both:ident),* $(,)?)?
        $(; systemd: $($systemd:ident),* $(,)?)?
    ) => {
        pub(crate) fn cases() -> Vec<$crate::cases::Case> {
            use $crate::cases::Kind;
            let case = |name, run, kind| $crate::cases::Case {
                name,
                group: module_path!().rsplit("::").next().unwrap_or_default(),
                kind,
                place: match kind {
                    Kind::Guest => $crate::cases::Place::Guest,
                    Kind::Systemd => $crate::cases::Place::GuestWithSystemd,
                    _ => $crate::cases::Place::Here,
                },
                run,
            };
            vec![
                $(case(stringify!($name), $name, Kind::Ordinary),)*
                $($(case(stringify!($long), $long, Kind::Long),)*)?
                $($(case(stringify!($guest), $guest, Kind::Guest),)*)?
                $($(case(stringify!($both), $both, Kind::Both),)*)?
                $($(case(stringify!($systemd), $systemd, Kind::Systemd),)*)?
            ]
        }
    };
}
use cases;

/// Every test. The long ones come first, so that none is left over at the end.
pub(crate) fn all() -> Vec<Case> {
    let subjects = [
        restarts::cases(),
        any_name::cases(),
        remote::cases(),
        cgroup_v2::cases(),
        cluster_join::cases(),
        cluster_away::cases(),
        cluster_bench::cases(),
        cluster_pace::cases(),
        cluster_images::cases(),
        registries::cases(),
        reclaim::cases(),
        chains::cases(),
        cluster_serving::cases(),
        cluster_streams::cases(),
        cluster_access::cases(),
        cluster_endpoints::cases(),
        cluster_flex::cases(),
        cluster_kubectl::cases(),
        cluster_inside::cases(),
        cluster_static::cases(),
        cluster_pods::cases(),
        cluster_pod_certificates::cases(),
        cluster_csi::cases(),
        cluster_csi_asks::cases(),
        cluster_csi_disks::cases(),
        cluster_csi_health::cases(),
        cluster_limits::cases(),
        cluster_eviction::cases(),
        cluster_loss::cases(),
        cluster_attacks::cases(),
        cluster_csi_rules::cases(),
        cluster_volume_disorder::cases(),
        cluster_volume_faults::cases(),
        cluster_volume_kinds::cases(),
        cluster_volume_uses::cases(),
        cluster_storage::cases(),
        cluster_life::cases(),
        cluster_bad_input::cases(),
        cluster_probes::cases(),
        cluster_hooks::cases(),
        cluster_sharing::cases(),
        cluster_sidecars::cases(),
        cluster_security::cases(),
        cluster_resize::cases(),
        cluster_volumes::cases(),
        cluster_describe::cases(),
        cluster_claims::cases(),
        cluster_devices::cases(),
        cluster_node::cases(),
        cluster_admission::cases(),
        hand_over::cases(),
        images::cases(),
        away::cases(),
        embedded::cases(),
        life::cases(),
        bad_input::cases(),
        containers::cases(),
        figures::cases(),
        surface::cases(),
        attackers::cases(),
        attackers_inside::cases(),
        local_services::cases(),
        node_means::cases(),
        shutdown::cases(),
        systemd::cases(),
        page::cases(),
        places::cases(),
        bench::cases(),
    ];
    subjects.into_iter().flatten().collect()
}

/// Waits until every container of a pod runs and the pod says so.
fn wait_running(node: &mut Node, name: &str) -> Result<PodView> {
    node.wait_pod(name, "running", SOON, |pod| {
        let regular = pod.0["status"]["containerStatuses"].as_array().map_or(0, Vec::len);
        let wanted = pod.0["spec"]["containers"].as_array().map_or(0, Vec::len);
        let up = pod.containers().iter().filter(|it| it.is_running()).count();
        pod.phase() == "Running" && regular == wanted && up >= wanted
    })
}

/// Waits until a pod is in this phase.
fn wait_phase(node: &mut Node, name: &str, phase: &str) -> Result<PodView> {
    node.wait_pod(name, phase, SOON, |pod| pod.phase() == phase)
}
