//! What is read off errors, statuses and specifications before a decision. Pure: from values to
//! values.

use ferrolet_ports::RuntimeErrorKind;
use ferrolet_resources::{CgroupLimits, CgroupMode};
use ferrolet_types::observed::ObservedResources;
use k8s_openapi::api::core::v1::Pod as PodObject;

/// Whether a runtime that could not say how a pod is means this pod. When it is away, the node says
/// so and not each of its pods.
pub(crate) fn is_about_the_pod(kind: RuntimeErrorKind) -> bool {
    match kind {
        RuntimeErrorKind::Unavailable
        | RuntimeErrorKind::DeadlineExceeded
        | RuntimeErrorKind::Canceled
        | RuntimeErrorKind::Unimplemented => false,
        RuntimeErrorKind::NotFound
        | RuntimeErrorKind::AlreadyExists
        | RuntimeErrorKind::InvalidArgument
        | RuntimeErrorKind::FailedPrecondition
        | RuntimeErrorKind::PermissionDenied
        | RuntimeErrorKind::ResourceExhausted
        | RuntimeErrorKind::Internal
        | RuntimeErrorKind::Unknown => true,
    }
}

/// A pod's cgroup in the shape of an observation. Memory without a bound is what v1 tells: all
/// pages there can be.
pub(crate) fn bounds_in_force(limits: &CgroupLimits, mode: CgroupMode) -> ObservedResources {
    let unbounded = match mode {
        CgroupMode::V1 => i64::MAX & !0xfff,
        CgroupMode::V2 => 0,
    };
    ObservedResources {
        cpu_shares: limits.cpu_shares.map_or(0, |it| i64::try_from(it).unwrap_or(i64::MAX)),
        cpu_quota: limits.cpu_quota.unwrap_or(0),
        cpu_period: limits.cpu_period.map_or(0, |it| i64::try_from(it).unwrap_or(i64::MAX)),
        memory_limit: limits.memory.unwrap_or(unbounded),
    }
}

/// True when the answer to "can nested mounts be read-only" shows in the pod's status.
pub(crate) fn wants_recursive_read_only(pod: &PodObject) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    let mut mounts = containers.flat_map(|it| it.volume_mounts.iter().flatten());
    mounts.any(|mount| mount.recursive_read_only.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_says_that_it_cannot_be_seen_only_when_the_runtime_answers() {
        for (kind, is_told) in [
            (RuntimeErrorKind::Internal, true),
            (RuntimeErrorKind::Unknown, true),
            (RuntimeErrorKind::NotFound, true),
            (RuntimeErrorKind::Unavailable, false),
            (RuntimeErrorKind::DeadlineExceeded, false),
            (RuntimeErrorKind::Canceled, false),
        ] {
            assert_eq!(is_about_the_pod(kind), is_told, "{kind:?}");
        }
    }
}
