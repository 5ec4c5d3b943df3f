//! Resource arithmetic: from requests and limits to the kernel's numbers.
//!
//! In: a pod's specification and a few facts about the node. Out: [`PodCgroup`], which the host
//! adapter writes, and [`LinuxResources`], which the runtime is asked for; [`admit`], whether the
//! node takes a pod; [`plan_resize`], how a running one gets other resources; [`storage_breach`],
//! whether one has more on disk than it may. Refuses: touching a cgroup file, naming a cgroup's
//! directory, reading a clock.
//!
//! ```
//! use ferrolet_resources::{CgroupPolicy, pod_cgroup};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! let cgroup = pod_cgroup(&Pod::default(), &CgroupPolicy::default());
//! assert_eq!(cgroup.limits.cpu_shares, Some(2));
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admit;
mod allocatable;
mod allocation;
mod amounts;
mod cgroup;
mod container;
mod cpu;
mod oom;
mod oom_log;
mod preempt;
mod resize;
mod storage;
#[cfg(test)]
mod tests_pods;

pub use admit::{
    InsufficientResource, Place, Rejection, admit, admit_or_preempt, declared_features, is_chosen,
    is_selected, missing_for_update, sysctl_with_dots,
};
pub use allocatable::{
    AllocatablePolicy, NodeCgroup, NodeCgroupPlace, ReservedCgroup, ReservedScope, node_cgroups,
};
pub use allocation::{
    Infeasible, PodResources, ResizeRules, check_resize, is_growing, started_with, with_resources,
};
pub use amounts::{
    Amounts, Overhead, amount, container_limits, container_requests, has_pod_level_limits,
    has_pod_level_requests, has_pod_level_resources, parse_amounts, pod_limits, pod_requests,
    requests_for_ranking, requests_in_use,
};
pub use cgroup::{
    CgroupLimits, CgroupPolicy, ClassBounds, MemoryReserve, PodCgroup, class_bounds, pod_cgroup,
    pod_qos,
};
pub use container::{
    CgroupMode, LinuxResources, MemoryQos, NodeResources, QuotaMode, SwapBehavior, SwapPolicy,
    container_resources, huge_page_size_name, overhead_resources, sandbox_resources,
};
pub use cpu::{MIN_SHARES, milli_cpu_to_quota, milli_cpu_to_shares, shares_to_milli_cpu};
pub use oom::oom_score_adj;
pub use oom_log::{OomKill, OomLog, Shortage};
pub use preempt::choose_victims;
pub use resize::{
    ResizeNeed, ResizeNeeds, ResizePlan, ResizeStep, is_resizing, plan_resize, resize_needs,
};
pub use storage::{StorageBreach, StorageUse, has_storage_limits, is_local_volume, storage_breach};
