//! Which kernel parameters pods may set.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::Pod;

use super::Rejection;

/// Parameters that touch nothing outside the pod.
const SAFE: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

/// Checks every parameter the pod sets.
pub(super) fn check(pod: &Pod, allowed_unsafe: &[String]) -> Result<(), Rejection> {
    let spec = pod.spec_ref();
    let wanted = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    for sysctl in wanted {
        let name = sysctl_with_dots(&sysctl.name);
        let namespace = Namespace::of(&name);
        let refuse =
            |message: String| Err(Rejection { reason: "SysctlForbidden".to_owned(), message });
        let is_allowed = SAFE.contains(&name.as_str())
            || allowed_unsafe.iter().any(|pattern| fits(pattern, &name));
        if !is_allowed {
            return refuse(format!("forbidden sysctl: {:?} not allowlisted", sysctl.name));
        }
        if namespace == Namespace::Net && spec.host_network.unwrap_or(false) {
            return refuse(format!(
                "forbidden sysctl: {:?} not allowed with host net enabled",
                sysctl.name
            ));
        }
        if namespace == Namespace::Ipc && spec.host_ipc.unwrap_or(false) {
            return refuse(format!(
                "forbidden sysctl: {:?} not allowed with host ipc enabled",
                sysctl.name
            ));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
    None,
}

impl Namespace {
    fn of(name: &str) -> Self {
        const IPC: [&str; 3] = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        if name == "kernel.sem" || IPC.iter().any(|prefix| name.starts_with(prefix)) {
            Self::Ipc
        } else if name.starts_with("net.") {
            Self::Net
        } else {
            Self::None
        }
    }
}

/// A parameter's name as runtimes know it: `net/ipv4/x` is `net.ipv4.x`; a name that begins with
/// dots may hold slashes in an interface's name.
pub fn sysctl_with_dots(name: &str) -> String {
    let first = name.find(['.', '/']);
    if first.is_none_or(|at| name.as_bytes()[at] == b'.') {
        return name.to_owned();
    }
    name.chars()
        .map(|c| {
            if c == '/' {
                '.'
            } else if c == '.' {
                '/'
            } else {
                c
            }
        })
        .collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    let pattern = sysctl_with_dots(pattern);
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}
