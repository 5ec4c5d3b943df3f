//! The control-group tree: who makes it, where it hangs, and what it enforces by itself.

use std::{num::NonZeroU64, time::Duration};

use super::reader::{Reader, words};

words! {
    /// Who creates control groups.
    CgroupDriver {
        /// We do, in the file system.
        Cgroupfs = "cgroupfs",
        /// systemd does, on request.
        Systemd = "systemd",
    }
}

words! {
    /// What containers may do with swap.
    SwapBehavior {
        /// Nothing, as if it had not been said.
        Unset = "",
        /// Nothing.
        NoSwap = "NoSwap",
        /// A share in proportion to their memory request.
        LimitedSwap = "LimitedSwap",
    }
}

/// Everything about control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    /// The group under which pods live.
    pub root: String,
    /// Whether each quality-of-service class and each pod has a group.
    pub per_qos: bool,
    /// Who creates them, unless the runtime says otherwise.
    pub driver: CgroupDriver,
    /// The group the kubelet itself moves to.
    pub kubelet: Option<String>,
    /// The group for processes that are in none.
    pub system: Option<String>,
    /// The period over which CPU limits are enforced; none when they are not.
    pub cpu_quota_period: Option<Duration>,
    /// The most processes in one pod; none means the node's own limit.
    pub pod_pids_limit: Option<NonZeroU64>,
    /// What containers may do with swap.
    pub swap: SwapBehavior,
    /// Kill one process, not the whole container, when memory runs out; none means the host's
    /// habit.
    pub single_process_oom_kill: Option<bool>,
    /// Refuse to run on the old hierarchy.
    pub refuse_v1: bool,
    /// User identities handed to each pod with a user namespace.
    pub user_namespace_ids_per_pod: u32,
}

const ID_BLOCK: i64 = 65_536;

pub(super) fn read(r: &Reader<'_>) -> Cgroups {
    let root = r.optional_text("cgroupRoot");
    let per_qos = r.flag("cgroupsPerQOS");
    let system = r.optional_text("systemCgroups");
    if system.is_some() && root.is_none() {
        r.refuse("systemCgroups", "needs cgroupRoot to be set");
    }
    let pids = r.int("podPidsLimit");
    Cgroups {
        root: root.unwrap_or_else(|| if per_qos { "/".to_owned() } else { String::new() }),
        per_qos,
        driver: r.word("cgroupDriver"),
        kubelet: r.optional_text("kubeletCgroups"),
        system,
        cpu_quota_period: read_quota_period(r).filter(|_| r.flag("cpuCFSQuota")),
        pod_pids_limit: u64::try_from(pids).ok().and_then(NonZeroU64::new),
        swap: r.word("memorySwap.swapBehavior"),
        single_process_oom_kill: r.optional_flag("singleProcessOOMKill"),
        refuse_v1: r.flag("failCgroupV1"),
        user_namespace_ids_per_pod: read_ids_per_pod(r),
    }
}

fn read_quota_period(r: &Reader<'_>) -> Option<Duration> {
    let path = "cpuCFSQuotaPeriod";
    match r.nanos(path) {
        Some(100_000_000) => {}
        Some(_) if !r.gates.enabled("CustomCPUCFSQuotaPeriod") => {
            r.needs_gate(path, "CustomCPUCFSQuotaPeriod")
        }
        Some(1_000_000..=1_000_000_000) => {}
        _ => r.refuse(path, "must be between 1ms and 1s"),
    }
    r.nanos(path).and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

fn read_ids_per_pod(r: &Reader<'_>) -> u32 {
    let path = "userNamespaces.idsPerPod";
    let ids = r.optional_int(path).unwrap_or(ID_BLOCK);
    if ids < ID_BLOCK || ids % ID_BLOCK != 0 {
        r.refuse(path, format!("must be a multiple of {ID_BLOCK} and at least that"));
    }
    u32::try_from(ids).unwrap_or_else(|_| {
        if ids > ID_BLOCK {
            r.refuse(path, format!("must not be more than {}", u32::MAX));
        }
        0
    })
}
