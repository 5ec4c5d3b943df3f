//! Which configuration fields do something today.
//!
//! All fields are decoded and checked from the start, so that a file written for the upstream
//! kubelet is understood. Those without an effect yet are named in one warning at start. Giving a
//! field its effect means adding it here.

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
    "logging.format",
    "logging.verbosity",
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
    "reservedSystemCPUs",
    "qosReserved",
    "oomScoreAdj",
    "maxOpenFiles",
    "protectKernelDefaults",
    "kubeletCgroups",
    "systemCgroups",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
];

/// Fields that were given a value other than the default and that do nothing yet.
pub fn fields_without_effect(given: &RawConfig) -> Vec<String> {
    let defaults = RawConfig::defaults();
    let paths = given.paths().into_iter();
    paths.filter(|path| !is_effective(path) && given.get(path) != defaults.get(path)).collect()
}

fn is_effective(path: &str) -> bool {
    let inside = |field: &str| {
        path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    EFFECTIVE.iter().any(|field| inside(field))
}
