//! Which configuration fields do something today.
//!
//! All fields are decoded and checked from the start, so that a file written for the upstream
//! kubelet is understood. Every field has an effect, or is listed with the reason why it cannot have one, which
//! is told at the start where somebody asked for it; a test of the executable looks for the place that uses each of the first, and for each flag and gate.

use crate::RawConfig;

/// Fields with an effect; an object stands for everything inside it.
pub const EFFECTIVE: &[&str] = &[
    "staticPodPath",
    "podLogsDir",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "staticPodURL",
    "staticPodURLHeader",
    "syncFrequency",
    "readOnlyPort",
    "address",
    "healthzPort",
    "healthzBindAddress",
    "containerRuntimeEndpoint",
    "imageServiceEndpoint",
    "runtimeRequestTimeout",
    "cgroupRoot",
    "cgroupsPerQOS",
    "cgroupDriver",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "podPidsLimit",
    "serializeImagePulls",
    "maxParallelImagePulls",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "containerLogMaxSize",
    "containerLogMaxFiles",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "registryPullQPS",
    "registryBurst",
    "imagePullCredentialsVerificationPolicy",
    "preloadedImagesVerificationAllowlist",
    "crashLoopBackOff",
    "logging",
    "showHiddenMetricsForVersion",
    "failCgroupV1",
    "failSwapOn",
    "resolvConf",
    "clusterDNS",
    "clusterDomain",
    "seccompDefault",
    "featureGates",
    "enableServer",
    "maxPods",
    "podsPerCore",
    "registerNode",
    "registerWithTaints",
    "providerID",
    "podCIDR",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "kubeReserved",
    "reservedSystemCPUs",
    "reservedMemory",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "memoryManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "systemReserved",
    "kubeAPIQPS",
    "kubeAPIBurst",
    "eventRecordQPS",
    "eventBurst",
    "configMapAndSecretChangeDetectionStrategy",
    "enableControllerAttachDetach",
    "localStorageCapacityIsolation",
    "volumePluginDir",
    "volumeStatsAggPeriod",
    "allowedUnsafeSysctls",
    "singleProcessOOMKill",
    "rotateCertificates",
    "serverTLSBootstrap",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "tlsCipherSuites",
    "tlsMinVersion",
    "tlsCurvePreferences",
    "port",
    "authentication",
    "authorization",
    "enableDebuggingHandlers",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "enableProfilingHandler",
    "enableDebugFlagsHandler",
    "tracing",
    "streamingConnectionIdleTimeout",
    "memorySwap",
    "memoryThrottlingFactor",
    "memoryReservationPolicy",
    "userNamespaces",
    "makeIPTablesUtilChains",
    "enforceNodeAllocatable",
    "kubeReservedCgroup",
    "systemReservedCgroup",
    "qosReserved",
    "oomScoreAdj",
    "maxOpenFiles",
    "protectKernelDefaults",
    "kubeletCgroups",
    "systemCgroups",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionPressureTransitionPeriod",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "mergeDefaultEvictionSettings",
    "defaultPodSysctls",
];

/// Fields that can do nothing here, each with its reason.
pub const MEANINGLESS_FIELDS: &[(&str, &str)] = &[
    (
        "kernelMemcgNotification",
        "the kernel's word of memory pressure is always asked for; it costs nothing",
    ),
    ("enableContentionProfiling", "profiles of lock contention are a facility of Go's own runtime"),
    (
        "contentType",
        "requests to the API server are in JSON, which every one of them speaks; no answer says something else",
    ),
    (
        "hairpinMode",
        "it was for a network plugin that no longer exists; upstream's kubelet only checks the word",
    ),
    (
        "iptablesMasqueradeBit",
        "nothing is marked by it any more; upstream's kubelet only checks the number",
    ),
    (
        "iptablesDropBit",
        "nothing is marked by it any more; upstream's kubelet only checks the number",
    ),
    ("runOnce", "true is refused, as upstream does; --run-once-within does what it once did"),
];

/// One remark for each field that was given a value other than the default and can do nothing, with
/// the reason.
pub fn remarks_on_fields(given: &RawConfig) -> Vec<String> {
    let defaults = RawConfig::defaults();
    let asked = MEANINGLESS_FIELDS.iter().filter(|(field, _)| {
        given.get(field).is_some_and(|value| Some(value) != defaults.get(field))
    });
    asked.map(|(field, why)| format!("{field} has no effect: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_listed_once() {
        let meaningless = MEANINGLESS_FIELDS.iter().map(|(field, _)| field);
        let mut all: Vec<&str> = EFFECTIVE.iter().chain(meaningless).copied().collect();
        all.sort_unstable();
        // What lies inside a field is listed by the field itself.
        let lies_inside = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let twice: Vec<_> = all.windows(2).filter(|it| lies_inside(it[0], it[1])).collect();
        assert_eq!(twice, Vec::<&[&str]>::new());
    }
}
